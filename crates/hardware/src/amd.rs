//! AMD hardware from sysfs: amdgpu's files of each device, and KFD's topology of what programs see.
//!
//! ```text
//! bus/pci/devices/<address>/     amdgpu's files of a device     files.rs
//! class/kfd/kfd/topology/nodes/  what programs see              kfd.rs
//! ```
//!
//! All of it is read in every scan, because partitions can change while the driver is loaded. Nothing is written and no
//! device node is opened: an open device node prevents others from changing partitions. `amdgpu_xcp_*`, which hold the
//! DRM nodes of partitions, are not read: some are dangling, and KFD reports which ones are real.

mod kfd;

use kfd::Topology;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Amd, PartitioningMode, PciIds, ReadProblem};
use octavo_model::quantity::Mebibytes;

use crate::pci_function::{AmdReading, PciFunction};
use crate::sysfs::{MAX_DEVICE_MEMORY, Sysfs, is_printable_name};

const DEVICES: &str = "bus/pci/devices";
const MODULE: &str = "module/amdgpu";
const DRIVER: &str = "amdgpu";
const AMD: u16 = 0x1002;

/// PCI device IDs of virtual functions: MI210, MI300X, MI325X, V710, V620. Source: AMD GPU Operator, its
/// node-feature-discovery rule (`amd-vgpu`).
const VIRTUAL_FUNCTION_IDS: [u16; 5] = [0x7410, 0x74b5, 0x74b9, 0x7461, 0x73ae];

/// Reads the values of each function that is bound to amdgpu.
pub(crate) fn scan_devices(sys: &Sysfs, functions: &mut [PciFunction]) {
    if !functions.iter().any(is_bound_to_amdgpu) {
        return;
    }
    let mut readings: Vec<(PciAddress, AmdReading)> = functions
        .iter()
        .filter(|function| is_bound_to_amdgpu(function))
        .map(|function| (function.address, device(sys, function)))
        .collect();
    Topology::read(sys).add_to_devices(&mut readings);
    for (address, reading) in readings {
        let function = functions.iter_mut().find(|known| known.address == address);
        if let Some(function) = function {
            function.amd = Some(reading);
        }
    }
}

fn is_bound_to_amdgpu(function: &PciFunction) -> bool {
    function.ids.vendor == AMD && function.kernel_driver.as_deref() == Some(DRIVER)
}

fn is_virtual(ids: PciIds) -> bool {
    VIRTUAL_FUNCTION_IDS.contains(&ids.device)
}

/// Reads amdgpu's own files of a device. Source: Linux, "Misc AMDGPU driver information".
fn device(sys: &Sysfs, function: &PciFunction) -> AmdReading {
    let mut module = Files::open(sys, MODULE.to_owned());
    let driver_version = module.version("version");
    let mut files = Files::open(sys, format!("{DEVICES}/{}", function.address));
    let memory = files.bytes("mem_info_vram_total", MAX_DEVICE_MEMORY);
    let memory = memory.filter(|memory| memory.get() > 0);
    let amd = Amd {
        driver_version,
        unique_id: files.id("unique_id"),
        serial: files.text("serial_number"),
        memory_used: files.bytes("mem_info_vram_used", memory.unwrap_or(MAX_DEVICE_MEMORY)),
        compute: mode(&mut files, "compute"),
        memory: mode(&mut files, "memory"),
        is_virtual: is_virtual(function.ids),
        ..Amd::default()
    };
    let product_name = files.text("product_name");
    let mut problems = files.problems;
    problems.extend(
        module.problems.into_iter().map(|problem| ReadProblem {
            source: format!("{MODULE}/{}", problem.source),
            ..problem
        }),
    );
    AmdReading { amd, product_name, memory, problems }
}

fn mode(files: &mut Files<'_>, kind: &str) -> Option<PartitioningMode> {
    let current = files.mode(&format!("current_{kind}_partition"));
    let available = files.modes(&format!("available_{kind}_partition"));
    current.map(|current| PartitioningMode { current, available })
}

// Attribute files of one sysfs directory, each of which may be missing or invalid.
//
// | file | value | reported as a problem |
// |---|---|---|
// | missing or empty | absent | no: drivers differ in the files they provide |
// | not readable, or not a regular file | absent | yes |
// | invalid content | absent | yes |

/// Maximum length of a driver version in bytes.
const MAX_VERSION_BYTES: usize = 48;
/// Maximum length of a mode name in bytes.
const MAX_MODE_BYTES: usize = 8;
/// Maximum number of modes.
const MAX_MODES: usize = 16;
/// Number of characters of invalid content that are quoted in a problem.
const EXCERPT_CHARS: usize = 24;

/// A sysfs directory and the problems found in its files.
struct Files<'a> {
    sys: &'a Sysfs,
    dir: String,
    problems: Vec<ReadProblem>,
}

impl<'a> Files<'a> {
    fn open(sys: &'a Sysfs, dir: String) -> Self {
        Self { sys, dir, problems: Vec::new() }
    }

    fn text(&mut self, file: &str) -> Option<String> {
        self.read(file, "not a name", |text| is_printable_name(text).then(|| text.to_owned()))
    }

    /// Returns a version without blanks, usable as a label value.
    fn version(&mut self, file: &str) -> Option<String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        self.read(file, "not a version", |text| {
            let numbered = text.starts_with(|first: char| first.is_ascii_digit());
            let fits = numbered && text.len() <= MAX_VERSION_BYTES && text.bytes().all(plain);
            fits.then(|| text.to_owned())
        })
    }

    /// Returns an amount of memory, read as bytes and at most `most`.
    fn bytes(&mut self, file: &str, most: Mebibytes) -> Option<Mebibytes> {
        let amount = |text: &str| text.parse().ok().map(Mebibytes::from_bytes);
        let amount = self.read(file, "not a number of bytes", amount)?;
        if amount > most {
            // Exact: rounded values could be equal.
            let (amount, most) = (amount.get(), most.get());
            let error = format!("{amount} MiB exceeds the maximum of {most} MiB");
            self.problems.push(ReadProblem { source: file.to_owned(), error });
            return None;
        }
        Some(amount)
    }

    /// Returns a chip's ID in full width. The value 0 means that the chip has none.
    fn id(&mut self, file: &str) -> Option<String> {
        let id = self.read(file, "not a chip ID", |text| {
            let plain = text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
        })?;
        (id != 0).then(|| format!("{id:016x}"))
    }

    /// Returns the current mode, or `None` if the driver reports `UNKNOWN`.
    fn mode(&mut self, file: &str) -> Option<String> {
        let mode = self.read(file, "not a mode", parse_mode)?;
        (mode != "UNKNOWN").then_some(mode)
    }

    /// Returns the available modes in the driver's order.
    fn modes(&mut self, file: &str) -> Vec<String> {
        let modes = self.read(file, "not a list of modes", |text| {
            let words = text.split(',').map(str::trim);
            let modes: Option<Vec<String>> = words.map(parse_mode).collect();
            modes.filter(|modes| modes.len() <= MAX_MODES)
        });
        modes.unwrap_or_default()
    }

    fn read<T>(
        &mut self,
        file: &str,
        otherwise: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let error = match self.sys.attribute(&format!("{}/{file}", self.dir)) {
            Ok(None) => return None,
            Ok(Some(text)) => match parse(&text) {
                Some(value) => return Some(value),
                None => format!("{} is {otherwise}", excerpt(&text)),
            },
            Err(error) => error.to_string(),
        };
        self.problems.push(ReadProblem { source: file.to_owned(), error });
        None
    }
}

/// Returns the beginning of the content, quoted and escaped so that it cannot inject terminal sequences.
fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(EXCERPT_CHARS).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    format!("{shown:?}")
}

fn parse_mode(text: &str) -> Option<String> {
    let fits = (1..=MAX_MODE_BYTES).contains(&text.len());
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    (fits && text.bytes().all(plain)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests;
