//! Fields of catalog facts with their units, and kinds of product aliases.

use strum::{Display, IntoStaticStr};

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $key:literal, $label:literal, $unit:literal;)*) => {
        /// Kind of fact. Figures are the vendor's peak values, without sparsity.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Field {
            $($(#[$doc])* $name,)*
        }

        impl Field {
            /// All fields, in display order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Key in documents and files.
            pub const fn key(self) -> &'static str {
                match self {
                    $(Self::$name => $key,)*
                }
            }

            /// Display name.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }

            /// Unit of its numbers; empty for plain numbers and text.
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
    /// Form factor.
    FormFactor: "formFactor", "form factor", "";
    /// Marketed memory in gigabytes.
    MemoryGb: "memoryGB", "memory", "GB";
    /// Marketed memory in gibibytes.
    MemoryGib: "memoryGiB", "memory", "GiB";
    /// Memory as a driver or a cloud reports it, in MiB.
    MemoryMib: "memoryMiB", "reported memory", "MiB";
    /// Memory type.
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
    /// Maximum number of MIG instances per device; 0 if the device does not support MIG.
    MigInstances: "migInstances", "MIG instances", "at most";
    /// Link between devices of this product.
    Link: "link", "link", "";
    /// Generation number of the link, as the vendor counts it.
    LinkGeneration: "linkGeneration", "link generation", "";
    /// Link bandwidth of one device, sum of both directions.
    LinkBandwidth: "linkGBs", "link bandwidth", "GB/s";
    /// Target name of the chip in AMD's compilers.
    GfxTarget: "gfxTarget", "gfx target", "";
    /// Physical cores of a Neuron device.
    Cores: "cores", "physical cores", "";
    /// Default number of logical cores of a Neuron device.
    LogicalCores: "logicalCores", "logical cores", "by default";
    /// Generation of the Neuron cores.
    NeuronCoreVersion: "neuronCoreVersion", "NeuronCore version", "";
    /// Device name that the Neuron driver reports.
    NeuronDeviceName: "neuronDeviceName", "Neuron device name", "";
    /// Device architecture that the Neuron driver reports; it does not identify the product.
    NeuronDeviceArchitecture: "neuronDeviceArchitecture", "Neuron device architecture", "";
    /// Core architecture that the Neuron driver reports.
    NeuronCoreArchitecture: "neuronCoreArchitecture", "Neuron core architecture", "";
    /// PCI vendor and device ids, and subsystem ids where several products share these.
    PciIds: "pciIds", "PCI ids", "";
}

/// Origin of an alias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum AliasKind {
    /// The driver: NVML, or the sysfs of amdgpu or Neuron.
    Driver,
    /// Label of gpu-feature-discovery.
    Gfd,
    /// Label of AMD's node labeler.
    AmdLabeller,
    /// Label of Karpenter on AWS, or of EKS Auto Mode.
    Karpenter,
    /// Label of Karpenter on Azure.
    KarpenterAzure,
    /// Label of GKE.
    Gke,
    /// Instance type of a cloud whose devices are this product.
    Instance,
    /// PCI vendor and device id.
    Pci,
    /// Free text.
    Text,
}

impl AliasKind {
    /// Name in documents.
    pub fn key(self) -> &'static str {
        self.into()
    }

    /// Kinds of aliases that are values of Node labels, in order of precedence: labels about the device, then about
    /// the machine.
    pub const NODE_LABEL_KINDS: [Self; 6] = [
        Self::Gfd,
        Self::AmdLabeller,
        Self::Karpenter,
        Self::KarpenterAzure,
        Self::Gke,
        Self::Instance,
    ];

    /// Node labels whose values are aliases of this kind. Sources: documentation of gpu-feature-discovery, AMD's node
    /// labeler, Karpenter's providers for AWS and Azure, EKS Auto Mode and GKE.
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
            Self::Instance => {
                &["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"]
            }
            Self::Driver | Self::Pci | Self::Text => &[],
        }
    }

    /// Kind of alias that the values of a label are.
    pub fn from_label(key: &str) -> Option<Self> {
        Self::NODE_LABEL_KINDS.into_iter().find(|kind| kind.labels().contains(&key))
    }
}
