//! The part of `/sys` that programs read beside NVML: PCI devices, the product name of the machine, and the files of
//! other vendors' drivers.
//!
//! [`tree`] lists files and links; [`write()`] writes them below a directory. Real sysfs has links where this has
//! directories; readers of `/sys/bus/pci/devices/<address>/<file>` see no difference.

mod amd;
mod neuron;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::model::{Architecture, Gpu, NvLink, PciAddress, RemoteKind, World};

const NVIDIA: u16 = 0x10DE;
const AMAZON: u16 = 0x1D0F;

/// PCI class of other bridges, which an `NVSwitch` has.
const CLASS_OTHER_BRIDGE: u32 = 0x0006_8000;

/// Lines of a function's `resource` file: the BARs, the ROM and the windows of a bridge.
const RESOURCES: usize = 13;

/// A line without a mapping.
const NO_RESOURCE: &str = "0x0000000000000000 0x0000000000000000 0x0000000000000000";

/// Size of a function's PCI configuration space without extensions.
const CONFIG_BYTES: usize = 256;

/// An entry of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A text file.
    Text(String),
    /// A binary file.
    Bytes(Vec<u8>),
    /// A symbolic link with this target.
    Link(String),
}

/// A tree under construction.
#[derive(Debug, Default)]
struct Files(BTreeMap<String, Entry>);

/// All entries by path below the root of the file system (`sys/...`).
pub fn tree(world: &World) -> BTreeMap<String, Entry> {
    let mut files = Files::default();
    for gpu in &world.gpus {
        let ids = gpu.pci_ids;
        let numa = gpu.numa_node.map_or(-1, i64::from);
        let device = Device {
            vendor: NVIDIA,
            id: ids.device,
            subsystem: (ids.subsystem_vendor, ids.subsystem_device),
            class: ids.class,
            revision: ids.revision,
            numa,
        };
        device.add(&mut files, gpu.pci);
    }
    for (address, device) in switches(world) {
        let device = Device {
            vendor: NVIDIA,
            id: device,
            subsystem: (NVIDIA, device),
            class: CLASS_OTHER_BRIDGE,
            revision: 0xA1,
            numa: -1,
        };
        device.add(&mut files, address);
    }
    if !world.machine_type.is_empty() {
        files.text("sys/class/dmi/id/product_name", &world.machine_type);
    }
    others(&mut files, world);
    files.0
}

fn others(files: &mut Files, world: &World) {
    let others = &world.others;
    if let Some(neuron) = &others.neuron {
        neuron::add(files, neuron, world.seed);
    }
    amd::add(files, &others.amd);
    for function in &others.functions {
        let device = Device {
            vendor: function.vendor,
            id: function.device,
            subsystem: (function.vendor, function.device),
            class: function.class,
            revision: 0,
            numa: i64::from(function.numa_node),
        };
        device.add(files, function.pci);
        if let Some(driver) = &function.driver {
            files.driver(function.pci, driver);
        }
    }
}

/// Writes the tree below a directory, replacing existing entries.
pub fn write(world: &World, root: &Path) -> io::Result<()> {
    // A machine without a GPU still has the directory.
    fs::create_dir_all(root.join("sys/bus/pci/devices"))?;
    // Removed partitions leave no files.
    match fs::remove_dir_all(root.join("sys/class/kfd")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    for (path, entry) in tree(world) {
        let path = root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match entry {
            // Unchanged files are not rewritten, so that concurrent readers never see an empty one.
            Entry::Text(text) if fs::read_to_string(&path).is_ok_and(|old| old == text) => {}
            Entry::Text(text) => fs::write(path, text)?,
            Entry::Bytes(bytes) if fs::read(&path).is_ok_and(|old| old == bytes) => {}
            Entry::Bytes(bytes) => fs::write(path, bytes)?,
            Entry::Link(target) => match symlink(target, path) {
                // The target of a link never changes.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                done => done?,
            },
        }
    }
    Ok(())
}

impl Files {
    /// A text of one or more lines.
    fn text(&mut self, path: &str, text: &str) {
        let text = Entry::Text(format!("{text}\n"));
        self.0.insert(path.to_owned(), text);
    }

    /// The kernel driver of a function.
    fn driver(&mut self, address: PciAddress, name: &str) {
        let path = format!("sys/bus/pci/devices/{}/driver", address.sysfs());
        let target = format!("../../../../bus/pci/drivers/{name}");
        self.0.insert(path, Entry::Link(target));
    }
}

struct Device {
    vendor: u16,
    id: u16,
    subsystem: (u16, u16),
    class: u32,
    revision: u8,
    numa: i64,
}

impl Device {
    fn add(&self, files: &mut Files, address: PciAddress) {
        let texts = [
            ("vendor", format!("{:#06x}", self.vendor)),
            ("device", format!("{:#06x}", self.id)),
            ("subsystem_vendor", format!("{:#06x}", self.subsystem.0)),
            ("subsystem_device", format!("{:#06x}", self.subsystem.1)),
            ("class", format!("{:#08x}", self.class)),
            ("revision", format!("{:#04x}", self.revision)),
            ("numa_node", self.numa.to_string()),
            ("resource", [NO_RESOURCE; RESOURCES].join("\n")),
        ];
        for (name, text) in texts {
            let path = format!("sys/bus/pci/devices/{}/{name}", address.sysfs());
            files.text(&path, &text);
        }
        let path = format!("sys/bus/pci/devices/{}/config", address.sysfs());
        files.0.insert(path, Entry::Bytes(self.config_space()));
    }

    /// The header of the configuration space, without capabilities.
    fn config_space(&self) -> Vec<u8> {
        let mut bytes = vec![0; CONFIG_BYTES];
        let mut put = |at: usize, part: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at.saturating_add(part.len())) {
                place.copy_from_slice(part);
            }
        };
        put(0x00, &self.vendor.to_le_bytes());
        put(0x02, &self.id.to_le_bytes());
        let [class @ .., _] = self.class.to_le_bytes();
        put(0x08, &[self.revision]);
        put(0x09, &class);
        put(0x2c, &self.subsystem.0.to_le_bytes());
        put(0x2e, &self.subsystem.1.to_le_bytes());
        bytes
    }
}

/// Switches of links, with the device id of their generation if known.
fn switches(world: &World) -> BTreeMap<PciAddress, u16> {
    let device = |gpu: &Gpu| match gpu.architecture {
        Architecture::Ampere => Some(0x1AF1),
        Architecture::Hopper => Some(0x22A3),
        Architecture::Volta
        | Architecture::Turing
        | Architecture::Ada
        | Architecture::Blackwell => None,
    };
    let is_switch = |link: &&NvLink| link.remote == RemoteKind::Switch;
    world
        .gpus
        .iter()
        .filter_map(|gpu| Some((gpu, device(gpu)?)))
        .flat_map(|(gpu, device)| {
            let links = gpu.links.iter().filter(is_switch);
            links.map(move |link| (link.remote_pci, device))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn tree_has_each_gpu_and_switch_in_kernel_form() {
        let text = "
machine: m
machine_type: DGXA100
links: nvswitch
gpus:
- {board: A100_40GB, pci: '0000:0f:00.0', numa: 3}
";
        let world = Scenario::parse(Path::new("m"), text).unwrap().world().unwrap();
        let files = tree(&world);
        let file = |path: &str| match files.get(path) {
            Some(Entry::Text(text)) => Some(text.as_str()),
            Some(Entry::Link(target)) => Some(target.as_str()),
            Some(Entry::Bytes(_)) | None => None,
        };
        let gpu = "sys/bus/pci/devices/0000:0f:00.0";
        assert_eq!(file(&format!("{gpu}/vendor")), Some("0x10de\n"));
        assert_eq!(file(&format!("{gpu}/device")), Some("0x20b0\n"));
        assert_eq!(file(&format!("{gpu}/class")), Some("0x030200\n"));
        assert_eq!(file(&format!("{gpu}/revision")), Some("0xa1\n"));
        assert_eq!(file(&format!("{gpu}/numa_node")), Some("3\n"));
        assert_eq!(file("sys/bus/pci/devices/0000:0a:00.0/device"), Some("0x1af1\n"));
        assert_eq!(file("sys/class/dmi/id/product_name"), Some("DGXA100\n"));
        assert_eq!(file(&format!("{gpu}/resource")).unwrap().lines().count(), 13);
        assert_eq!(files.len(), 7 * 9 + 1);
    }

    #[test]
    fn hidden_switches_are_not_on_the_bus() {
        let count = |links: &str| {
            let text = format!("machine: m\nlinks: {links}\ngpus: [{{board: A100_40GB}}]");
            let world = Scenario::parse(Path::new("m"), &text).unwrap().world();
            let files = tree(&world.unwrap());
            files.keys().filter(|path| path.ends_with("/vendor")).count()
        };
        assert_eq!((count("nvswitch"), count("hidden-nvswitch")), (7, 1));
    }

    #[test]
    fn configuration_space_has_ids_of_the_function() {
        let text = "machine: m\ngpus: [{board: A100_40GB, pci: '0000:0f:00.0'}]";
        let world = Scenario::parse(Path::new("m"), text).unwrap().world();
        let files = tree(&world.unwrap());
        let config = files.get("sys/bus/pci/devices/0000:0f:00.0/config");
        let Some(Entry::Bytes(config)) = config else {
            panic!("{config:?}");
        };
        assert_eq!(config.len(), CONFIG_BYTES);
        assert_eq!(config.get(..4), Some(&[0xde, 0x10, 0xb0, 0x20][..]));
        assert_eq!(config.get(0x08..0x0c), Some(&[0xa1, 0x00, 0x02, 0x03][..]));
    }

    #[test]
    fn tree_is_written_as_listed() {
        let world = Scenario::parse(Path::new("m"), "machine: m\ngpus: [{board: T4}]");
        let world = world.unwrap().world().unwrap();
        let root = tempfile::tempdir().unwrap();
        write(&world, root.path()).unwrap();
        for (path, entry) in tree(&world) {
            let path = root.path().join(path);
            match entry {
                Entry::Text(text) => assert_eq!(fs::read_to_string(path).unwrap(), text),
                Entry::Bytes(bytes) => assert_eq!(fs::read(path).unwrap(), bytes),
                Entry::Link(target) => {
                    assert_eq!(fs::read_link(path).unwrap(), Path::new(&target));
                }
            }
        }
    }

    #[test]
    fn devices_of_other_vendors_are_in_their_driver_paths_and_rewritable() {
        let text = "
machine: m
neuron: {chip: trainium2, count: 16, links: torus, logical_core: 1, used_mib: 3, unhealthy: {2: [hbm]}}
amd: [{chip: mi300x, count: 2, compute: CPX, memory: NPS4}]
functions: [{vendor: 0x1e52, device: 0xb140, class: 0x120000, driver: vfio-pci}]
";
        let world = Scenario::parse(Path::new("m"), text).unwrap().world();
        let world = world.unwrap();
        let root = tempfile::tempdir().unwrap();
        write(&world, root.path()).unwrap();
        write(&world, root.path()).unwrap();
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        let neuron = "sys/class/neuron_device/neuron15";
        assert_eq!(read(&format!("{neuron}/connected_devices")), "11, 14, 3, 12\n");
        assert_eq!(
            read(&format!("{neuron}/neuron_core7/stats/memory_usage/device_mem/total")),
            format!("{}\n", 3 << 20)
        );
        let unhealthy = "stats/hardware/health_status/unhealthy_components";
        assert_eq!(read(&format!("sys/class/neuron_device/neuron2/{unhealthy}")), "hbm\n");
        assert_eq!(read("opt/aws/neuron/logical_nc_config"), "NEURON_LOGICAL_NC_CONFIG=1\n");
        let last = "sys/class/kfd/kfd/topology/nodes/17";
        let properties = read(&format!("{last}/properties"));
        assert!(properties.contains("\nsimd_count 152\n"), "{properties}");
        assert!(properties.contains("\nlocation_id 9991\n"), "{properties}");
        assert!(properties.contains("\ndrm_render_minor 143\n"), "{properties}");
        assert_eq!(read("sys/bus/pci/devices/0000:e0:00.0/device"), "0xb140\n");
        let driver = root.path().join("sys/bus/pci/devices/0000:e0:00.0/driver");
        assert!(fs::read_link(driver).unwrap().ends_with("drivers/vfio-pci"));
    }
}
