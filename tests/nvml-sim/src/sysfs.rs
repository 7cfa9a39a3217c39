//! The part of `/sys` that programs read beside NVML: PCI devices and the machine's product name.
//!
//! [`tree`] says which files with which texts; [`write()`] puts them under a directory. Real sysfs has links where this has
//! directories; readers that open `/sys/bus/pci/devices/<address>/<file>` see no difference.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::model::{Architecture, Gpu, NvLink, PciAddress, RemoteKind, World};

const NVIDIA: u16 = 0x10DE;

/// PCI class of a bridge of no particular kind, which is what an `NVSwitch` says it is.
const CLASS_OTHER_BRIDGE: u32 = 0x0006_8000;

/// Every file of the tree: its path below the root of the file system (`sys/...`) and its text.
pub fn tree(world: &World) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
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
        let path = "sys/class/dmi/id/product_name".to_owned();
        files.insert(path, format!("{}\n", world.machine_type));
    }
    files
}

/// Writes the tree under a directory, over what is there.
pub fn write(world: &World, root: &Path) -> io::Result<()> {
    // A machine without a GPU still has the directory.
    fs::create_dir_all(root.join("sys/bus/pci/devices"))?;
    for (path, text) in tree(world) {
        let path = root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
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
    fn add(&self, files: &mut BTreeMap<String, String>, address: PciAddress) {
        let texts = [
            ("vendor", format!("{:#06x}", self.vendor)),
            ("device", format!("{:#06x}", self.id)),
            ("subsystem_vendor", format!("{:#06x}", self.subsystem.0)),
            ("subsystem_device", format!("{:#06x}", self.subsystem.1)),
            ("class", format!("{:#08x}", self.class)),
            ("revision", format!("{:#04x}", self.revision)),
            ("numa_node", self.numa.to_string()),
        ];
        for (name, text) in texts {
            let path = format!("sys/bus/pci/devices/{}/{name}", address.sysfs());
            files.insert(path, format!("{text}\n"));
        }
    }
}

/// Switches that links lead to, with the device id of their generation as far as it is known.
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
    fn the_tree_has_each_gpu_and_switch_in_the_form_of_the_kernel() {
        let text = "
machine: m
machine_type: DGXA100
links: nvswitch
gpus:
- {board: A100_40GB, pci: '0000:0f:00.0', numa: 3}
";
        let world = Scenario::parse(Path::new("m"), text)
            .unwrap()
            .world()
            .unwrap();
        let files = tree(&world);
        let file = |path: &str| files.get(path).map(String::as_str);
        let gpu = "sys/bus/pci/devices/0000:0f:00.0";
        assert_eq!(file(&format!("{gpu}/vendor")), Some("0x10de\n"));
        assert_eq!(file(&format!("{gpu}/device")), Some("0x20b0\n"));
        assert_eq!(file(&format!("{gpu}/class")), Some("0x030200\n"));
        assert_eq!(file(&format!("{gpu}/revision")), Some("0xa1\n"));
        assert_eq!(file(&format!("{gpu}/numa_node")), Some("3\n"));
        assert_eq!(
            file("sys/bus/pci/devices/0000:0a:00.0/device"),
            Some("0x1af1\n")
        );
        assert_eq!(file("sys/class/dmi/id/product_name"), Some("DGXA100\n"));
        assert_eq!(files.len(), 7 * 7 + 1);
    }

    #[test]
    fn a_tree_is_written_as_it_is_listed() {
        let world = Scenario::parse(Path::new("m"), "machine: m\ngpus: [{board: T4}]");
        let world = world.unwrap().world().unwrap();
        let root = tempfile::tempdir().unwrap();
        write(&world, root.path()).unwrap();
        for (path, text) in tree(&world) {
            assert_eq!(fs::read_to_string(root.path().join(path)).unwrap(), text);
        }
    }
}
