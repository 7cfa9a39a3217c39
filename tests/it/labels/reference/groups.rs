//! All labels, in the order of the page.

use octavo_model::reason::Reason;

use super::{LabelGroup, LabelReference};

const fn label(
    key: &'static str,
    example: &'static str,
    present: &'static str,
    meaning: &'static str,
) -> LabelReference {
    LabelReference { key, example, present, meaning }
}

/// All labels, in the order of the page.
pub(in crate::labels) const GROUPS: &[LabelGroup] = &[
    LabelGroup {
        heading: "Octavo's labels",
        introduction: "\"One type\" means that all devices of the node have the same accelerator type. A device responds if its driver reports it.",
        labels: &[
            label(
                "octavo.dev/type",
                "nvidia-h200-141gb",
                "always",
                "accelerator type of all devices; `mixed`, `unknown`",
            ),
            label("type.octavo.dev/<type>", "8", "always", "number of devices of this type"),
            label("octavo.dev/type-source", "manual", "a type was set manually", "always `manual`"),
            label("octavo.dev/count", "8", "one type", "number of devices"),
            label("octavo.dev/passthrough", "2", "at least one", "devices reserved for VMs"),
            label("octavo.dev/vendor", "nvidia", "one type and vendor", "vendor"),
            label(
                "octavo.dev/sku",
                "nvidia-h200-sxm5-141gb",
                "one type and SKU",
                "product in the catalog",
            ),
            label(
                "octavo.dev/architecture",
                "hopper",
                "one type and known architecture",
                "chip family",
            ),
            label(
                "octavo.dev/memory-mib",
                "143771",
                "one type and known memory",
                "memory of one device in MiB; the minimum if devices differ",
            ),
            label(
                "octavo.dev/interconnect",
                "nvswitch",
                "two or more devices, links known",
                "`nvswitch`, `nvlink`, `xgmi`, `neuronlink`, `pcie`",
            ),
            label(
                "octavo.dev/interconnect-domain",
                "8",
                "with `octavo.dev/interconnect`",
                "devices in the largest linked group",
            ),
            label(
                "octavo.dev/mig-capable",
                "true",
                "a device responds, capability known",
                "whether a device supports MIG",
            ),
            label(
                "octavo.dev/sharing",
                "exclusive",
                "a device responds, MIG modes known",
                "`exclusive`, `mig`, `partitioned`, `time-slicing`, `mixed`",
            ),
            label(
                "octavo.dev/layout-state",
                Reason::Applied.as_str(),
                "a layout is selected for the node",
                "`applied`, `pending`, `blocked`, `failed`",
            ),
            label(
                "octavo.dev/driver",
                "570.133.20",
                "one driver version is reported",
                "driver version; NVIDIA's on mixed nodes",
            ),
        ],
    },
    LabelGroup {
        heading: "AWS Neuron labels",
        introduction: "Present if the Neuron driver is loaded. Numbers are totals of the node.",
        labels: &[
            label("octavo.dev/neuron-devices", "16", "always", "devices that the driver lists"),
            label(
                "octavo.dev/neuron-driver",
                "2.30.7.0",
                "version reported",
                "version of the kernel module",
            ),
            label(
                "octavo.dev/neuron-cores",
                "128",
                "all devices report their cores",
                "physical cores",
            ),
            label(
                "octavo.dev/neuron-logical-core-size",
                "2",
                "size known",
                "physical cores per logical core",
            ),
            label(
                "octavo.dev/neuron-logical-cores",
                "64",
                "size and core counts known",
                "logical cores",
            ),
            label(
                "octavo.dev/neuron-logical-source",
                "file",
                "size known",
                "`file` (set on the node) or `default`",
            ),
            label(
                "octavo.dev/neuron-memory-mib",
                "98304",
                "chip in the catalog",
                "memory of one device in MiB; the minimum if devices differ",
            ),
        ],
    },
    LabelGroup {
        heading: "AMD labels",
        introduction: "Present if a device supports the kind of partitioning. `mixed` means that the devices differ.",
        labels: &[
            label(
                "octavo.dev/amd-compute-partition",
                "spx",
                "mode reported",
                "current compute partition mode",
            ),
            label(
                "octavo.dev/amd-memory-partition",
                "nps1",
                "mode reported",
                "current memory partition mode",
            ),
        ],
    },
    LabelGroup {
        heading: "NVIDIA's labels for the node",
        introduction: "These are the keys of NVIDIA's gpu-feature-discovery (GFD). They are present if NVML reports a GPU and Octavo is configured to write them.",
        labels: &[
            label(
                "nvidia.com/cuda.driver-version.full",
                "570.133.20",
                "the driver responds",
                "driver version",
            ),
            label(
                "nvidia.com/cuda.driver-version.major",
                "570",
                "the driver responds",
                "first part of the driver version",
            ),
            label(
                "nvidia.com/cuda.driver-version.minor",
                "133",
                "the driver responds",
                "second part of the driver version",
            ),
            label(
                "nvidia.com/cuda.driver-version.revision",
                "20",
                "the driver responds",
                "third part of the driver version",
            ),
            label(
                "nvidia.com/cuda.driver.major",
                "570",
                "the driver responds",
                "deprecated: `driver-version.major`",
            ),
            label(
                "nvidia.com/cuda.driver.minor",
                "133",
                "the driver responds",
                "deprecated: `driver-version.minor`",
            ),
            label(
                "nvidia.com/cuda.driver.rev",
                "20",
                "the driver responds",
                "deprecated: `driver-version.revision`",
            ),
            label(
                "nvidia.com/cuda.runtime-version.full",
                "12.8",
                "CUDA version reported",
                "CUDA version of the driver",
            ),
            label(
                "nvidia.com/cuda.runtime-version.major",
                "12",
                "CUDA version reported",
                "major CUDA version",
            ),
            label(
                "nvidia.com/cuda.runtime-version.minor",
                "8",
                "CUDA version reported",
                "minor CUDA version",
            ),
            label(
                "nvidia.com/cuda.runtime.major",
                "12",
                "CUDA version reported",
                "deprecated: `runtime-version.major`",
            ),
            label(
                "nvidia.com/cuda.runtime.minor",
                "8",
                "CUDA version reported",
                "deprecated: `runtime-version.minor`",
            ),
            label(
                "nvidia.com/gfd.timestamp",
                "1724632719",
                "enabled; off by default",
                "time of the labels, in seconds since 1970",
            ),
            label(
                "nvidia.com/mig.capable",
                "true",
                "capability known",
                "whether a GPU supports MIG",
            ),
            label(
                "nvidia.com/mig.strategy",
                "mixed",
                "strategy `single` or `mixed`",
                "MIG strategy",
            ),
            label("nvidia.com/mps.capable", "false", "always", "always `false`"),
            label(
                "nvidia.com/vgpu.present",
                "false",
                "always",
                "whether the node is a VM with a virtual GPU",
            ),
            label(
                "nvidia.com/vgpu.host-driver-branch",
                "r570_00",
                "virtual GPU",
                "driver branch of the VM's host",
            ),
            label(
                "nvidia.com/vgpu.host-driver-version",
                "570.133.10",
                "virtual GPU",
                "driver version of the VM's host",
            ),
        ],
    },
    LabelGroup {
        heading: "NVIDIA's labels for a GPU model",
        introduction: "Present under the same condition. If a node has several models, these labels describe one of them. \
                       With the strategy `single`, they describe the MIG partitions of a partitioned node.",
        labels: &[
            label(
                "nvidia.com/gpu.product",
                "NVIDIA-A100-SXM4-80GB",
                "MIG modes known",
                "product name of the driver",
            ),
            label("nvidia.com/gpu.count", "8", "MIG modes known", "number of GPUs of the model"),
            label(
                "nvidia.com/gpu.replicas",
                "1",
                "equal for all GPUs",
                "replicas of each GPU; `0` if all use MIG",
            ),
            label(
                "nvidia.com/gpu.sharing-strategy",
                "none",
                "MIG modes known",
                "`none` or `time-slicing`",
            ),
            label("nvidia.com/gpu.memory", "81920", "memory reported", "memory of one GPU in MiB"),
            label(
                "nvidia.com/gpu.family",
                "ampere",
                "compute capability reported",
                "chip family in GFD's spelling",
            ),
            label(
                "nvidia.com/gpu.compute.major",
                "8",
                "compute capability reported",
                "major compute capability",
            ),
            label(
                "nvidia.com/gpu.compute.minor",
                "0",
                "compute capability reported",
                "minor compute capability",
            ),
            label(
                "nvidia.com/gpu.machine",
                "DGXA100-920-23687-2530-000",
                "enabled; on by default",
                "product name of the machine",
            ),
            label(
                "nvidia.com/gpu.mode",
                "compute",
                "always",
                "PCI class: `compute`, `graphics`, `unknown`",
            ),
            label(
                "nvidia.com/gpu.clique",
                "7b968a6d.1",
                "one NVLink fabric clique",
                "fabric UUID (shortened here) and clique",
            ),
            label(
                "nvidia.com/gpu.multiprocessors",
                "14",
                "partitions as GPUs",
                "multiprocessors of one partition",
            ),
            label(
                "nvidia.com/gpu.slices.gi",
                "1",
                "partitions as GPUs",
                "GPU slices of one partition",
            ),
            label(
                "nvidia.com/gpu.slices.ci",
                "1",
                "partitions as GPUs",
                "compute slices of one partition",
            ),
            label("nvidia.com/gpu.engines.copy", "1", "partitions as GPUs", "copy engines"),
            label("nvidia.com/gpu.engines.decoder", "0", "partitions as GPUs", "video decoders"),
            label("nvidia.com/gpu.engines.encoder", "0", "partitions as GPUs", "video encoders"),
            label("nvidia.com/gpu.engines.jpeg", "0", "partitions as GPUs", "JPEG engines"),
            label(
                "nvidia.com/gpu.engines.ofa",
                "0",
                "partitions as GPUs",
                "optical flow accelerators",
            ),
        ],
    },
    LabelGroup {
        heading: "NVIDIA's labels for MIG profiles",
        introduction: "Present with the strategy `mixed`, for each profile of the node's MIG partitions, if the driver reports all partitions. \
                       `+` in a profile becomes `.` in the key.",
        labels: &[
            label(
                "nvidia.com/mig-<profile>.product",
                "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb",
                "always",
                "product name and profile",
            ),
            label("nvidia.com/mig-<profile>.count", "2", "always", "number of partitions"),
            label(
                "nvidia.com/mig-<profile>.replicas",
                "1",
                "equal for all partitions",
                "replicas of each partition",
            ),
            label(
                "nvidia.com/mig-<profile>.sharing-strategy",
                "none",
                "always",
                "`none` or `time-slicing`",
            ),
            label(
                "nvidia.com/mig-<profile>.memory",
                "40192",
                "memory reported",
                "memory of one partition in MiB",
            ),
            label(
                "nvidia.com/mig-<profile>.multiprocessors",
                "42",
                "attributes reported",
                "multiprocessors of one partition",
            ),
            label(
                "nvidia.com/mig-<profile>.slices.gi",
                "3",
                "attributes reported",
                "GPU slices of one partition",
            ),
            label(
                "nvidia.com/mig-<profile>.slices.ci",
                "3",
                "attributes reported",
                "compute slices of one partition",
            ),
            label(
                "nvidia.com/mig-<profile>.engines.copy",
                "3",
                "attributes reported",
                "copy engines",
            ),
            label(
                "nvidia.com/mig-<profile>.engines.decoder",
                "2",
                "attributes reported",
                "video decoders",
            ),
            label(
                "nvidia.com/mig-<profile>.engines.encoder",
                "0",
                "attributes reported",
                "video encoders",
            ),
            label(
                "nvidia.com/mig-<profile>.engines.jpeg",
                "0",
                "attributes reported",
                "JPEG engines",
            ),
            label(
                "nvidia.com/mig-<profile>.engines.ofa",
                "0",
                "attributes reported",
                "optical flow accelerators",
            ),
        ],
    },
];
