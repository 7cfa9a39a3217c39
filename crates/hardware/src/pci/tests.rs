//! Tests of the PCI scan on directory trees like sysfs.

use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

/// Builds a `/sys` with the files of PCI functions.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(tree.path().join(DEVICES)).unwrap();
        tree
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn function(self, at: &str, class: u32, vendor: u16, device: u16) -> Self {
        let dir = self.path().join(DEVICES).join(at);
        fs::create_dir_all(&dir).unwrap();
        for (file, text) in [
            ("class", format!("{class:#08x}\n")),
            ("vendor", format!("{vendor:#06x}\n")),
            ("device", format!("{device:#06x}\n")),
        ] {
            fs::write(dir.join(file), text).unwrap();
        }
        self
    }

    fn file(self, at: &str, file: &str, contents: impl AsRef<[u8]>) -> Self {
        fs::write(self.path().join(DEVICES).join(at).join(file), contents).unwrap();
        self
    }

    fn link(self, at: &str, file: &str, target: &str) -> Self {
        symlink(target, self.path().join(DEVICES).join(at).join(file)).unwrap();
        self
    }

    fn scan(&self) -> Vec<PciFunction> {
        self.bus().scan()
    }

    fn bus(&self) -> Bus {
        Bus::new(Sysfs::new(self.path().to_owned()))
    }

    fn addresses(&self) -> Vec<String> {
        let functions = self.scan();
        functions.iter().map(|f| f.address.to_string()).collect()
    }
}

#[test]
fn function_is_read_with_driver_and_numa_node() {
    let at = "0000:3b:00.0";
    let tree = Tree::new()
        .function(at, 0x03_0200, 0x10de, 0x2330)
        .file(at, "subsystem_vendor", "0x10de\n")
        .file(at, "subsystem_device", "0x16c1\n")
        .file(at, "numa_node", "1\n")
        .link(at, "driver", "../../../bus/pci/drivers/nvidia");
    assert_eq!(
        tree.scan(),
        [PciFunction {
            address: at.parse().unwrap(),
            ids: PciIds {
                vendor: 0x10de,
                device: 0x2330,
                subsystem_vendor: 0x10de,
                subsystem_device: 0x16c1,
                class: Some(0x03_0200),
            },
            numa_node: Some(1),
            kernel_driver: Some("nvidia".to_owned()),
            vgpu: None,
            amd: None,
        }]
    );
}

#[test]
fn all_files_except_ids_are_optional() {
    let at = "0000:00:1e.0";
    let tree = Tree::new().function(at, 0x08_8000, 0x1d0f, 0x7364).file(at, "numa_node", "-1\n");
    let functions = tree.scan();
    let [neuron] = functions.as_slice() else {
        panic!("{functions:?}");
    };
    assert_eq!((neuron.numa_node, &neuron.kernel_driver), (None, &None));
    assert_eq!(neuron.ids.subsystem_vendor, 0);
}

#[test]
fn accelerators_are_distinguished_from_other_functions() {
    let tree = Tree::new()
        .function("0000:01:00.0", 0x03_0000, 0x10de, 0x2bb1)
        .function("0000:02:00.0", 0x03_8000, 0x1002, 0x740f)
        .function("0000:03:00.0", 0x12_0000, 0x1002, 0x74a1)
        .function("0000:04:00.0", 0x12_0000, 0x1da3, 0x1060)
        .function("0000:05:00.0", 0x03_8000, 0x8086, 0x56c0)
        // Other functions: audio, NVSwitches, consoles, EC2's console, a network card, integrated graphics.
        .function("0000:01:00.1", 0x04_0300, 0x10de, 0x22e8)
        .function("0000:06:00.0", 0x06_8000, 0x10de, 0x22a3)
        .function("0000:07:00.0", 0x03_0200, 0x10de, 0x1af1)
        .function("0000:08:00.0", 0x03_0000, 0x1a03, 0x2000)
        .function("0000:09:00.0", 0x03_0000, 0x102b, 0x0538)
        .function("0000:0a:00.0", 0x03_8000, 0x1af4, 0x1050)
        .function("0000:00:03.0", 0x03_0000, 0x1d0f, 0x1111)
        .function("0000:0b:00.0", 0x02_0000, 0x15b3, 0x1021)
        .function("0000:00:02.0", 0x03_0000, 0x8086, 0x4c8a)
        // AMD's integrated graphics, an old AMD server console, Huawei's, Silicon Motion's, a desktop GPU.
        .function("0000:0c:00.0", 0x03_0000, 0x1002, 0x164e)
        .function("0000:0d:00.0", 0x03_0000, 0x1002, 0x515e)
        .function("0000:0e:00.0", 0x03_0000, 0x19e5, 0x1711)
        .function("0000:0f:00.0", 0x03_0000, 0x126f, 0x0750)
        .function("0000:10:00.0", 0x03_0000, 0x8086, 0x56a0);
    assert_eq!(
        tree.addresses(),
        ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0", "0000:05:00.0"]
    );
}

#[test]
fn catalog_takes_precedence_over_class() {
    let mut tree = Tree::new();
    let mut expected = Vec::new();
    let mut slots = (1..).map(|number: u32| format!("{number:04x}:01:00.0"));
    let facts = accelerators::products().iter();
    for pattern in facts.flat_map(|facts| facts.pci_ids) {
        let at = slots.next().unwrap();
        // Neuron devices report this class, and other firmware may do so as well.
        tree = tree.function(&at, 0x08_8000, pattern.device.0, pattern.device.1);
        expected.push(at);
    }
    for other in accelerators::non_accelerators() {
        let at = slots.next().unwrap();
        tree = tree.function(&at, 0x03_0200, other.vendor, other.device.unwrap_or(0x7e57));
    }
    assert_eq!(tree.addresses(), expected);
}

#[test]
fn unknown_accelerator_is_detected_by_class() {
    let tree = Tree::new()
        .function("0000:01:00.0", 0x03_0000, 0x10de, 0xfffd)
        .function("0000:01:01.0", 0x03_0000, 0x1acc, 0x0001)
        .function("0000:02:00.0", 0x03_0200, 0x10de, 0xfffe)
        .function("0000:03:00.0", 0x03_8000, 0x9999, 0x4000)
        .function("0000:04:00.0", 0x12_0000, 0x1414, 0x00ff)
        .function("0000:05:00.0", 0x12_0000, 0x1d0f, 0x7664)
        .function("0000:06:00.0", 0x08_8000, 0x1acc, 0x0002)
        .function("0000:07:00.0", 0x0b_4000, 0x1acc, 0x0003);
    assert_eq!(
        tree.addresses(),
        ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0", "0000:05:00.0"]
    );
}

#[test]
fn virtual_function_of_local_device_is_ignored() {
    let tree = Tree::new()
        .function("0000:41:00.0", 0x03_0200, 0x10de, 0x20b5)
        .function("0000:41:00.4", 0x03_0200, 0x10de, 0x20b5)
        .link("0000:41:00.4", "physfn", "../0000:41:00.0");
    assert_eq!(tree.addresses(), ["0000:41:00.0"]);
}

#[test]
fn hotplug_and_driver_changes_are_detected() {
    let at = "0000:3b:00.0";
    let tree = Tree::new().function(at, 0x03_0200, 0x10de, 0x2330);
    let mut bus = tree.bus();
    let mut drivers = || {
        let functions = bus.scan().into_iter();
        functions.map(|f| f.kernel_driver).collect::<Vec<_>>()
    };
    assert_eq!(drivers(), [None]);
    let tree = tree.link(at, "driver", "../drivers/vfio-pci");
    assert_eq!(drivers(), [Some("vfio-pci".to_owned())]);
    let tree = tree.function("0000:86:00.0", 0x03_0200, 0x10de, 0x2330);
    assert_eq!(drivers(), [Some("vfio-pci".to_owned()), None]);
    fs::remove_dir_all(tree.path().join(DEVICES).join(at)).unwrap();
    assert_eq!(drivers(), [None]);
}

#[test]
fn incomplete_function_is_read_again() {
    let at = "0000:3b:00.0";
    let tree = Tree::new().function(at, 0x03_0200, 0x10de, 0x2330);
    let mut bus = tree.bus();
    for file in ["vendor", "device", "class"] {
        let file = tree.path().join(DEVICES).join(at).join(file);
        let text = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let mut late = tree.bus();
        let first: Vec<Option<u32>> = late.scan().iter().map(|one| one.ids.class).collect();
        // The IDs are enough to list it.
        assert_eq!(first, if file.ends_with("class") { vec![None] } else { vec![] });
        fs::write(&file, text).unwrap();
        assert_eq!(late.scan(), bus.scan());
        assert_eq!(late.scan().len(), 1);
    }
}

#[test]
fn fifo_as_configuration_space_does_not_block() {
    let at = "0000:3b:00.0";
    let tree = Tree::new().function(at, 0x03_0200, 0x10de, 0x2330);
    let pipe = tree.path().join(DEVICES).join(at).join("config");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(tree.scan()[0].vgpu, None);
}

#[test]
fn machine_without_a_bus_has_no_accelerators() {
    let root = tempfile::tempdir().unwrap();
    let mut bus = Bus::new(Sysfs::new(root.path().to_owned()));
    assert_eq!(bus.scan(), []);
    assert_eq!(bus.machine(&[]), Machine::default());
}

#[test]
fn machine_name_is_read_from_firmware() {
    let tree = Tree::new();
    let dmi = tree.path().join("class/dmi/id");
    fs::create_dir_all(&dmi).unwrap();
    fs::write(dmi.join("product_name"), "DGXH100 \n").unwrap();
    let machine = tree.bus().machine(&[]);
    assert_eq!(machine.product_name.as_deref(), Some("DGXH100"));
    for odd in [&b"\x1b[31mDGX"[..], b"DGX\xff", &[b'x'; 200]] {
        fs::write(dmi.join("product_name"), odd).unwrap();
        assert_eq!(tree.bus().machine(&[]).product_name, None);
    }
}

/// Returns a configuration space with another capability before the vendor's, which contains `records`.
fn config(records: &[u8]) -> Vec<u8> {
    let mut config = vec![0; 256];
    config[0x06] = 0x10;
    config[0x34] = 0x40;
    config[0x40..0x42].copy_from_slice(&[0x05, 0x50]);
    let length = u8::try_from(5 + records.len()).unwrap();
    config[0x50..0x55].copy_from_slice(&[0x09, 0x00, length, b'V', b'F']);
    config[0x55..0x55 + records.len()].copy_from_slice(records);
    config
}

fn host_record() -> Vec<u8> {
    let mut record = vec![0, 22];
    record.extend_from_slice(b"550.54.16\0");
    record.extend_from_slice(b"r550_40\0\0\0");
    record
}

#[test]
fn vgpu_host_is_read_from_configuration_space() {
    let at = "0000:02:00.0";
    let expected =
        VgpuHost { driver_version: "550.54.16".to_owned(), driver_branch: "r550_40".to_owned() };
    for records in [host_record(), [&[7, 4, 1, 2][..], &host_record()].concat()] {
        let tree = Tree::new().function(at, 0x03_0200, 0x10de, 0x20b5).file(
            at,
            "config",
            config(&records),
        );
        let machine = tree.bus().machine(&tree.scan());
        assert_eq!(machine.vgpu, Some(expected.clone()));
    }
}

#[test]
fn invalid_configuration_space_is_no_vgpu() {
    let looping = {
        let mut config = vec![0; 256];
        config[0x06] = 0x10;
        config[0x34] = 0x40;
        config[0x40..0x42].copy_from_slice(&[0x05, 0x40]);
        config
    };
    let without_list = {
        let mut config = config(&host_record());
        config[0x06] = 0;
        config
    };
    for config in [
        Vec::new(),
        vec![0xff; 256],
        vec![0; 64],
        looping,
        without_list,
        config(&[7, 0, 7, 0]),
        config(&host_record()[..10]),
    ] {
        assert_eq!(vgpu_host(&config), None, "{config:?}");
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_configuration_space_is_parsed_safely(
        mut config in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        signed in proptest::bool::ANY,
    ) {
        if signed && config.len() > 0x60 {
            config[0x06] |= 0x10;
            config[0x34] = 0x50;
            config[0x50] = 0x09;
            config[0x53..0x55].copy_from_slice(b"VF");
        }
        if let Some(host) = vgpu_host(&config) {
            // Ten bytes each, of which an invalid one can become a three-byte replacement character.
            proptest::prop_assert!(host.driver_version.len() <= 30);
        }
    }
}

#[test]
fn unlisted_chip_is_detected_by_neuron_driver() {
    let at = "0000:00:1e.0";
    let tree = Tree::new()
        .function(at, 0x08_8000, 0x1d0f, 0x7664)
        .function("0000:00:1f.0", 0x08_8000, 0x1acc, 0x7664)
        .link("0000:00:1f.0", "driver", "../drivers/neuron");
    let mut bus = tree.bus();
    assert_eq!(bus.scan(), []);
    let tree = tree.link(at, "driver", "../drivers/neuron");
    let shown = bus.scan();
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].ids.device, 0x7664);
    assert_eq!(shown, tree.scan());
}

#[test]
fn unreadable_bus_keeps_last_functions() {
    let at = "0000:3b:00.0";
    let tree = Tree::new().function(at, 0x03_0200, 0x10de, 0x2330);
    let directory = tree.path().join(DEVICES);
    let aside = tree.path().join("aside");
    let mut bus = tree.bus();
    let before = bus.scan();
    assert_eq!((before.len(), bus.machine(&before).bus_error), (1, None));
    fs::rename(&directory, &aside).unwrap();
    fs::write(&directory, "").unwrap();
    assert_eq!(bus.scan(), before);
    let error = "Not a directory (os error 20)";
    assert_eq!(bus.machine(&before).bus_error.as_deref(), Some(error));
    // A missing bus directory is an empty bus.
    fs::remove_file(&directory).unwrap();
    assert_eq!((bus.scan(), bus.machine(&[]).bus_error), (vec![], None));
    fs::rename(&aside, &directory).unwrap();
    assert_eq!(bus.scan(), before);
}

#[test]
fn root_complex_is_in_the_path_of_a_function() {
    let tree = Tree::new();
    let link = |at: &str, target: &str| {
        symlink(target, tree.path().join(DEVICES).join(at)).unwrap();
    };
    link("0000:1b:00.0", "../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:1b:00.0");
    link("0000:1c:00.0", "../../../devices/platform/0000:1c:00.0");
    let root = |at: &str| pcie_root(tree.path(), at.parse().unwrap());
    assert_eq!(root("0000:1b:00.0").as_deref(), Some("pci0000:15"));
    assert_eq!(root("0000:1c:00.0"), None);
    assert_eq!(root("0000:1d:00.0"), None);
}
