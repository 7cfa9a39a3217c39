//! Machines with MI300X, generated from a short description: eight partitioned devices have hundreds of files.

pub(crate) const MIB: u64 = 1 << 20;
/// Path below `/sys`.
pub(crate) const DEVICES: &str = "bus/pci/devices";
/// Path below `/sys`.
pub(crate) const NODES: &str = "class/kfd/kfd/topology/nodes";

/// The buses of the eight devices of a machine.
pub(crate) const MI300X: [u64; 8] = [0x05, 0x27, 0x47, 0x65, 0x85, 0xa7, 0xc7, 0xe5];

/// How devices are partitioned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Modes {
    compute: &'static str,
    memory: &'static str,
    /// Number of partitions of each device.
    parts: u64,
    /// Memory of each partition.
    each_mib: u64,
}

pub(crate) const SPX: Modes = Modes { compute: "SPX", memory: "NPS1", parts: 1, each_mib: 196_592 };
pub(crate) const CPX: Modes = Modes { compute: "CPX", memory: "NPS4", parts: 8, each_mib: 49_148 };

/// MI300X of one hive on these buses, with the partitions and memory of the modes. Ids, unit counts, gfx, hive and
/// partition numbers are those in the test data of AMD's device plugin (CPX); ids of chips and used memory are
/// invented.
pub(crate) fn mi300x(buses: &[u64], modes: Modes) -> String {
    let mut tree = vec!["module/amdgpu/version = 6.12.12\\n".to_owned()];
    let cpu =
        "cpu_cores_count 96\\nsimd_count 0\\nvendor_id 0\\nlocation_id 0\\ndrm_render_minor 0\\n";
    for number in [0, 1] {
        tree.push(format!("{NODES}/{number}/properties = {cpu}"));
    }
    for (device, bus) in (0_u64..).zip(buses) {
        function(&mut tree, device, *bus, modes);
        for part in 0..modes.parts {
            node(&mut tree, device, *bus, (part, modes));
        }
    }
    // The driver has DRM nodes for the maximum number of partitions.
    for number in 0..buses.len() * 8 {
        let minor = 129 + number / 7 * 8 + number % 7;
        tree.push(format!("devices/platform/amdgpu_xcp_{number}/drm/renderD{minor}/"));
    }
    tree.join("\n")
}

fn chip(device: u64) -> u64 {
    0x2250_e4c0_17a5_b001 + device
}

fn function(tree: &mut Vec<String>, device: u64, bus: u64, modes: Modes) {
    let at = format!("{DEVICES}/0000:{bus:02x}:00.0");
    tree.push(format!("{at}/driver -> ../../../../bus/pci/drivers/amdgpu"));
    for (file, value) in [
        ("vendor", "0x1002".to_owned()),
        ("device", "0x74a1".to_owned()),
        ("class", "0x120000".to_owned()),
        ("numa_node", (device / 4).to_string()),
        ("product_name", "AMD Instinct MI300X OAM".to_owned()),
        ("unique_id", format!("{:016x}", chip(device))),
        ("mem_info_vram_total", (196_592 * MIB).to_string()),
        ("mem_info_vram_used", ((283 + device) * MIB).to_string()),
        ("current_compute_partition", modes.compute.to_owned()),
        ("available_compute_partition", "SPX, DPX, QPX, CPX".to_owned()),
        ("current_memory_partition", modes.memory.to_owned()),
        ("available_memory_partition", "NPS1, NPS4".to_owned()),
    ] {
        tree.push(format!("{at}/{file} = {value}\\n"));
    }
}

/// The KFD node of a partition.
fn node(tree: &mut Vec<String>, device: u64, bus: u64, (part, modes): (u64, Modes)) {
    let number = 2 + device * modes.parts + part;
    let (simds, minor) = (1216 / modes.parts, 128 + device * 8 + part);
    let (location, chip) = ((bus << 8) + part, chip(device));
    let properties = format!(
        "cpu_cores_count 0\\nsimd_count {simds}\\nsimd_per_cu 4\\ngfx_target_version 90402\\nvendor_id 4098\\ndevice_id 29857\\n\
         location_id {location}\\ndomain 0\\ndrm_render_minor {minor}\\nhive_id 15188982192727901047\\nunique_id {chip}\\n"
    );
    let size = modes.each_mib * MIB;
    tree.push(format!("{NODES}/{number}/properties = {properties}"));
    tree.push(format!(
        "{NODES}/{number}/mem_banks/0/properties = heap_type 1\\nsize_in_bytes {size}\\n"
    ));
}
