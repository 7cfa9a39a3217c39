//! Machines with Neuron devices, generated from a short description: the large ones have thousands of similar files.
//!
//! Values are invented in the forms of driver releases up to 2.30; names, counts, ids and links are those of the EC2
//! instances. The file locations of [`FileLayout::Moved`] are invented: the change in release 2.31 is not public.

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The first device, relative to the root of a machine's file system.
pub(crate) const DEVICE: &str = "sys/devices/virtual/neuron_device/neuron0";
/// The file of the logical core setting, relative to the same root.
pub(crate) const SETTING: &str = "opt/aws/neuron/logical_nc_config";

/// Facts that the driver of a chip reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chip {
    name: &'static str,
    device_architecture: &'static str,
    core_architecture: &'static str,
    pci_device: u16,
    cores: u32,
    /// True if it reports a serial number and error counters.
    is_reported: bool,
}

pub(crate) const INFERENTIA: Chip = Chip {
    name: "Inferentia",
    device_architecture: "NDv1",
    core_architecture: "NCv1",
    pci_device: 0x7064,
    cores: 4,
    is_reported: false,
};
pub(crate) const INFERENTIA2: Chip = Chip {
    name: "Inferentia2",
    device_architecture: "NDv3",
    core_architecture: "NCv2",
    pci_device: 0x7264,
    cores: 2,
    is_reported: true,
};
pub(crate) const TRAINIUM1: Chip = Chip {
    name: "Trainium1",
    device_architecture: "NDv2",
    core_architecture: "NCv2",
    pci_device: 0x7164,
    cores: 2,
    is_reported: true,
};
pub(crate) const TRAINIUM2: Chip = Chip {
    name: "Trainium2",
    device_architecture: "NDv3",
    core_architecture: "NCv3",
    pci_device: 0x7364,
    cores: 8,
    is_reported: true,
};

/// Locations of a driver's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileLayout {
    /// Those of releases up to 2.30.
    Known,
    /// The same, with some files readable by root only: an unreadable directory replaces them.
    Closed,
    /// Other directories.
    Moved,
    /// Health files in other directories, all else as in releases up to 2.30.
    PartlyMoved,
}

pub(crate) struct Host {
    pub(crate) driver: &'static str,
    pub(crate) chip: Chip,
    pub(crate) file_layout: FileLayout,
    /// Linked devices of each device, by number.
    pub(crate) links: Vec<Vec<u32>>,
}

/// Links each device with its predecessor and successor.
pub(crate) fn chain(count: u32) -> Vec<Vec<u32>> {
    let near = |at: u32| [at.checked_sub(1), Some(at + 1).filter(|next| *next < count)];
    (0..count).map(|at| near(at).into_iter().flatten().collect()).collect()
}

/// A chain whose ends are linked.
pub(crate) fn ring(count: u32) -> Vec<Vec<u32>> {
    let near = |at: u32| vec![(at + 1) % count, (at + count - 1) % count];
    (0..count).map(near).collect()
}

/// Links devices in rows and columns, in the driver's order of neighbors: `12, 3, 4, 1` for the first of 4x4.
pub(crate) fn torus(rows: u32, columns: u32) -> Vec<Vec<u32>> {
    let at = |row: u32, column: u32| row % rows * columns + column % columns;
    let near = |number: u32| {
        let (row, column) = (number / columns, number % columns);
        vec![
            at(row + rows - 1, column),
            at(row, column + columns - 1),
            at(row + 1, column),
            at(row, column + 1),
        ]
    };
    (0..rows * columns).map(near).collect()
}

/// Writes invalid values into files of the first device, and errors into those of the second, of a machine below
/// `root`.
pub(crate) fn garble(root: &Path) {
    let device = root.join(DEVICE);
    for (file, bytes) in [
        ("core_count", &b"banana"[..]),
        ("connected_devices", b"1, two\n"),
        ("info/serial_number", b"\xff\xfe\n"),
        ("info/architecture/device_name", b"\x1b[31mTrainium2\n"),
        ("stats/hardware/mem_ecc_uncorrected", b"-1\n"),
        ("neuron_core3/stats/memory_usage/device_mem/total", &[b'9'; 5_000]),
    ] {
        fs::write(device.join(file), bytes).unwrap();
    }
    let second = root.join(DEVICE.replace("neuron0", "neuron1"));
    let health = second.join("stats/hardware/health_status");
    fs::create_dir_all(&health).unwrap();
    fs::write(health.join("unhealthy_components"), "hbm,link_efa\n").unwrap();
    fs::write(second.join("stats/hardware/mem_ecc_uncorrected"), "3\n").unwrap();
    fs::create_dir_all(root.join(SETTING)).unwrap();
}

impl Host {
    /// The text for [`crate::tree::write_tree`].
    pub(crate) fn tree(&self) -> String {
        let mut text = format!("sys/module/neuron/version = {}\\n\n", self.driver);
        for (number, near) in self.links.iter().enumerate() {
            self.device(&mut text, number, near);
            self.function(&mut text, number);
        }
        text
    }

    fn device(&self, text: &mut String, number: usize, near: &[u32]) {
        let root = format!("sys/devices/virtual/neuron_device/neuron{number}");
        let target = format!("../../devices/virtual/neuron_device/neuron{number}");
        writeln!(text, "sys/class/neuron_device/neuron{number} -> {target}").unwrap();
        let mut put = |file: &str, value: &str| {
            let file = self.place(file);
            writeln!(text, "{root}/{file}{value}").unwrap();
        };
        let closed = self.file_layout == FileLayout::Closed;
        let near: Vec<String> = near.iter().map(ToString::to_string).collect();
        for (file, value) in [
            ("core_count", self.chip.cores.to_string()),
            ("connected_devices", format!("{}\\n", near.join(", "))),
        ] {
            put(file, &if closed { "/".to_owned() } else { format!(" = {value}") });
        }
        put("reset", " = 1\\n");
        put("info/architecture/device_name", &format!(" = {}\\n", self.chip.name));
        put("info/architecture/arch_type", &format!(" = {}\\n", self.chip.device_architecture));
        if self.chip.is_reported {
            put("info/serial_number", &format!(" = {:016x}\\n", 0x9ff5_4348_15c8_bd80 + number));
            for counter in
                ["mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected", "sram_ecc_uncorrected"]
            {
                put(&format!("stats/hardware/{counter}"), " = 0\\n");
            }
        }
        for core in 0..self.chip.cores {
            let core_root = format!("neuron_core{core}");
            let used = u64::from(core) * (1 << 28) * (number as u64 % 3);
            put(
                &format!("{core_root}/info/architecture/arch_type"),
                &format!(" = {}\\n", self.chip.core_architecture),
            );
            put(
                &format!("{core_root}/stats/memory_usage/device_mem/total"),
                &format!(" = {used}\\n"),
            );
            put(&format!("{core_root}/stats/memory_usage/device_mem/present"), " = 77\\n");
            put(&format!("{core_root}/stats/memory_usage/device_mem/tensors/total"), " = 5\\n");
        }
    }

    fn place(&self, file: &str) -> String {
        match self.file_layout {
            FileLayout::Known | FileLayout::Closed => return file.to_owned(),
            FileLayout::PartlyMoved => return file.replace("stats/hardware/", "health/ecc/"),
            FileLayout::Moved => {}
        }
        file.replace("info/architecture/", "identity/")
            .replace("info/", "identity/")
            .replace("stats/memory_usage/", "memory/")
            .replace("stats/hardware/", "health/ecc/")
            .replace("connected_devices", "topology/connected_devices")
    }

    fn function(&self, text: &mut String, number: usize) {
        let at = format!("sys/bus/pci/devices/0000:{:02x}:1e.0", 0x10 + number);
        let node = number * 2 / self.links.len();
        writeln!(text, "{at}/class = 0x088000\\n").unwrap();
        writeln!(text, "{at}/vendor = 0x1d0f\\n").unwrap();
        writeln!(text, "{at}/device = {:#06x}\\n", self.chip.pci_device).unwrap();
        writeln!(text, "{at}/numa_node = {node}\\n").unwrap();
        writeln!(text, "{at}/driver -> ../../../../bus/pci/drivers/neuron").unwrap();
    }
}
