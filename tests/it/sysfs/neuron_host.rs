//! Machines with Neuron devices, out of a short description: the large ones have thousands of files that all look alike.
//!
//! Values are made up in the forms that the driver's releases up to 2.30 give them; names, counts, ids and links are those of the EC2
//! instances. Where files are in [`Arranged::Moved`] is made up altogether: what release 2.31 did is not public.

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The first device, from the root of a machine's file system on.
pub(crate) const DEVICE: &str = "sys/devices/virtual/neuron_device/neuron0";
/// The node's setting of logical cores, likewise.
pub(crate) const SETTING: &str = "opt/aws/neuron/logical_nc_config";

/// What a chip's driver says of each of its devices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chip {
    name: &'static str,
    device_architecture: &'static str,
    core_architecture: &'static str,
    pci_device: u16,
    cores: u32,
    /// It has a serial number and counts errors.
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

/// Where a driver has its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arranged {
    /// As releases up to 2.30.
    Known,
    /// The same, with some files readable by root only: an unreadable directory stands in their place.
    Closed,
    /// Elsewhere.
    Moved,
    /// What tells of its health elsewhere, and all else as releases up to 2.30.
    PartlyMoved,
}

/// A machine.
pub(crate) struct Host {
    pub(crate) driver: &'static str,
    pub(crate) chip: Chip,
    pub(crate) arranged: Arranged,
    /// Who is linked with whom, by number.
    pub(crate) links: Vec<Vec<u32>>,
}

/// Each with the one before and the one after.
pub(crate) fn chain(count: u32) -> Vec<Vec<u32>> {
    let near = |at: u32| [at.checked_sub(1), Some(at + 1).filter(|next| *next < count)];
    (0..count).map(|at| near(at).into_iter().flatten().collect()).collect()
}

/// A chain whose ends are linked.
pub(crate) fn ring(count: u32) -> Vec<Vec<u32>> {
    let near = |at: u32| vec![(at + 1) % count, (at + count - 1) % count];
    (0..count).map(near).collect()
}

/// Rings along and across, in the order that the driver gives neighbours: `12, 3, 4, 1` for the first of 4x4.
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

/// Writes nonsense into files of the first device, and trouble into those of the second, of a machine below `root`.
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
    /// As a text for [`crate::tree::plant`].
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
        let closed = self.arranged == Arranged::Closed;
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
        match self.arranged {
            Arranged::Known | Arranged::Closed => return file.to_owned(),
            Arranged::PartlyMoved => return file.replace("stats/hardware/", "health/ecc/"),
            Arranged::Moved => {}
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
