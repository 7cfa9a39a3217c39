//! What facts there are, in which unit, and whose words names may be.

use std::fmt;

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $key:literal, $label:literal, $unit:literal;)*) => {
        /// A kind of fact. Figures are the maker's peaks, without sparsity.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Field {
            $($(#[$doc])* $name,)*
        }

        impl Field {
            /// All of them, in the order they are shown in.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its key in documents and files.
            pub const fn key(self) -> &'static str {
                match self {
                    $(Self::$name => $key,)*
                }
            }

            /// What it is called for a person.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }

            /// The unit of its numbers; empty for a plain number, or a word.
            pub const fn unit(self) -> &'static str {
                match self {
                    $(Self::$name => $unit,)*
                }
            }
        }
    };
}

fields! {
    /// Chip family.
    Architecture: "architecture", "architecture", "";
    /// How it is mounted.
    FormFactor: "formFactor", "form factor", "";
    /// Memory as it is sold, in gigabytes by name.
    MemoryGb: "memoryGB", "memory", "GB";
    /// Memory as it is sold, in gibibytes.
    MemoryGib: "memoryGiB", "memory", "GiB";
    /// Memory as a driver or a cloud shows it.
    MemoryMib: "memoryMiB", "memory as shown", "MiB";
    /// What kind of memory.
    MemoryType: "memoryType", "memory type", "";
    /// Memory bandwidth.
    MemoryBandwidth: "memoryBandwidthGBs", "memory bandwidth", "GB/s";
    /// bfloat16, dense.
    Bf16: "bf16Tflops", "bf16, dense", "TFLOPS";
    /// IEEE half precision, dense.
    Fp16: "fp16Tflops", "fp16, dense", "TFLOPS";
    /// Eight-bit floating point, dense.
    Fp8: "fp8Tflops", "fp8, dense", "TFLOPS";
    /// Thermal design, board or maximum graphics power, as published.
    Power: "powerW", "power", "W";
    /// CUDA compute capability.
    ComputeCapability: "computeCapability", "compute capability", "";
    /// The most MIG instances of one device; 0 where it is not capable.
    MigInstances: "migInstances", "MIG instances", "at most";
    /// How devices of this product are linked.
    Link: "link", "link", "";
    /// The maker's number for the link.
    LinkGeneration: "linkGeneration", "link generation", "";
    /// Bandwidth of one device over the link, both directions added.
    LinkBandwidth: "linkGBs", "link bandwidth", "GB/s";
    /// What AMD's compilers call the chip.
    GfxTarget: "gfxTarget", "gfx target", "";
    /// Physical cores, of Neuron devices.
    Cores: "cores", "physical cores", "";
    /// Logical cores that a Neuron device shows unless told otherwise.
    LogicalCores: "logicalCores", "logical cores", "unless told otherwise";
    /// Generation of the Neuron cores.
    NeuronCoreVersion: "neuronCoreVersion", "NeuronCore version", "";
    /// What Neuron's driver calls the device.
    NeuronDeviceName: "neuronDeviceName", "Neuron device name", "";
    /// What Neuron's driver calls the device's architecture, which is no identity.
    NeuronDeviceArchitecture: "neuronDeviceArchitecture", "Neuron device architecture", "";
    /// What Neuron's driver calls the cores' architecture.
    NeuronCoreArchitecture: "neuronCoreArchitecture", "Neuron core architecture", "";
    /// PCI vendor and device, and the subsystem's where several products share them.
    PciIds: "pciIds", "PCI ids", "";
}

/// Whose word a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AliasKind {
    /// The driver's: NVML, amdgpu's sysfs, Neuron's sysfs.
    Driver,
    /// gpu-feature-discovery's label.
    Gfd,
    /// The label of AMD's node labeller.
    AmdLabeller,
    /// A label of Karpenter on AWS, or of EKS Auto Mode.
    Karpenter,
    /// A label of Karpenter on Azure.
    KarpenterAzure,
    /// GKE's label.
    Gke,
    /// A cloud's instance type whose devices are this product.
    Instance,
    /// PCI vendor and device.
    Pci,
    /// Free text.
    Text,
}

impl AliasKind {
    /// Its name in documents.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Gfd => "gfd",
            Self::AmdLabeller => "amd-labeller",
            Self::Karpenter => "karpenter",
            Self::KarpenterAzure => "karpenter-azure",
            Self::Gke => "gke",
            Self::Instance => "instance",
            Self::Pci => "pci",
            Self::Text => "text",
        }
    }

    /// Kinds of names that are values of Node labels, in the order in which they are believed: by the device, then by the machine.
    pub const OF_NODES: [Self; 6] = [
        Self::Gfd,
        Self::AmdLabeller,
        Self::Karpenter,
        Self::KarpenterAzure,
        Self::Gke,
        Self::Instance,
    ];

    /// Labels of a Node whose values are such names. Sources: gpu-feature-discovery, AMD's node labeller, Karpenter's providers
    /// for AWS and Azure, EKS Auto Mode and GKE, in their documentation.
    pub const fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Gfd => &["nvidia.com/gpu.product"],
            Self::AmdLabeller => &["amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"],
            Self::Karpenter => &[
                "karpenter.k8s.aws/instance-gpu-name",
                "karpenter.k8s.aws/instance-accelerator-name",
                "eks.amazonaws.com/instance-gpu-name",
                "eks.amazonaws.com/instance-accelerator-name",
            ],
            Self::KarpenterAzure => &["karpenter.azure.com/sku-gpu-name"],
            Self::Gke => &["cloud.google.com/gke-accelerator"],
            Self::Instance => &[
                "node.kubernetes.io/instance-type",
                "beta.kubernetes.io/instance-type",
            ],
            Self::Driver | Self::Pci | Self::Text => &[],
        }
    }

    /// Whose names the values of a label are.
    pub(crate) fn of_label(key: &str) -> Option<Self> {
        Self::OF_NODES
            .into_iter()
            .find(|kind| kind.labels().contains(&key))
    }
}

impl fmt::Display for AliasKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.key())
    }
}
