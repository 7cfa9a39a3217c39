//! The accelerators that the PCI bus shows, with or without a driver, and what the machine's firmware says of itself.
//!
//! This is what is left when no driver library speaks, and what NVML does not tell when it does: the class code, the
//! NUMA node, the kernel driver, and whether a GPU is a virtual one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::accelerators::{self, Own};
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Machine, PciIds, VgpuHost};
use crate::hw::amd::{self, Told};
use crate::hw::sysfs::Sysfs;

const DEVICES: &str = "bus/pci/devices";

const NVIDIA: u16 = 0x10de;
const AMAZON: u16 = 0x1d0f;
const NEURON_DRIVER: &str = "neuron";

/// Longer names than this no machine has.
const LONGEST_NAME: usize = 128;

/// A PCI function that is an accelerator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PciFunction {
    pub(crate) address: PciAddress,
    pub(crate) ids: PciIds,
    pub(crate) numa_node: Option<u32>,
    pub(crate) kernel_driver: Option<String>,
    pub(crate) vgpu: Option<VgpuHost>,
    /// What AMD's drivers say of it, where they drive it.
    pub(crate) amd: Option<Told>,
}

/// What is known of a function.
#[derive(Debug)]
enum Known {
    Accelerator(Box<PciFunction>),
    Other,
    /// Amazon's and no accelerator, unless the Neuron driver takes it: which driver holds it is looked at every time.
    Amazons,
}

/// What a function is could not be read: its files are still to come, or it just went.
struct Unread;

/// The bus, with what is known of each function on it.
///
/// What a function is never changes, so its files are read when it appears, until that was possible: a large server has hundreds of
/// functions, and reading a configuration space may wake a sleeping device. Which driver holds it is read every time, and so is what that
/// driver shows here.
#[derive(Debug)]
pub(crate) struct Bus {
    sys: Sysfs,
    /// Products that an administrator's catalogue adds.
    own: Arc<Own>,
    /// By name in sysfs.
    known: BTreeMap<String, Known>,
    /// What was read of the bus last, for as long as it cannot be read.
    last: Vec<PciFunction>,
    /// Why it cannot be.
    error: Option<String>,
}

impl Bus {
    pub(crate) fn new(sys: Sysfs, own: Arc<Own>) -> Self {
        Self {
            sys,
            own,
            known: BTreeMap::new(),
            last: Vec::new(),
            error: None,
        }
    }

    /// Every accelerator on the bus now, ordered by address. Of a bus that cannot be read, those that were there: it is not an empty one.
    pub(crate) fn scan(&mut self) -> Vec<PciFunction> {
        match self.sys.names(DEVICES) {
            Ok(names) => {
                self.last = self.look(names);
                self.error = None;
            }
            Err(error) => self.error = Some(error.to_string()),
        }
        self.last.clone()
    }

    fn look(&mut self, names: Vec<String>) -> Vec<PciFunction> {
        let mut before = std::mem::take(&mut self.known);
        for name in names {
            let known = before.remove(&name).filter(|known| match known {
                // One that is known by its ids is shown without its class, which may only have been late.
                Known::Accelerator(function) => function.ids.class.is_some(),
                Known::Other => true,
                Known::Amazons => !is_neurons(&self.sys, &name),
            });
            let known = known.map(Ok);
            if let Ok(known) = known.unwrap_or_else(|| function(&self.sys, &name, &self.own)) {
                self.known.insert(name, known);
            }
        }
        let mut functions = Vec::new();
        for (name, known) in &self.known {
            if let Known::Accelerator(function) = known {
                functions.push(PciFunction {
                    kernel_driver: self.sys.link(&format!("{DEVICES}/{name}/driver")),
                    ..PciFunction::clone(function)
                });
            }
        }
        functions.sort_by_key(|function| function.address);
        amd::look(&self.sys, &mut functions);
        functions
    }

    /// The machine's own facts; `functions` say whether it is a guest with a virtual GPU.
    pub(crate) fn machine(&self, functions: &[PciFunction]) -> Machine {
        let name = self.sys.text("class/dmi/id/product_name");
        Machine {
            product_name: name.filter(|name| is_name(name)),
            vgpu: functions
                .iter()
                .rev()
                .find_map(|function| function.vgpu.clone()),
            bus_error: self.error.clone(),
        }
    }
}

/// What a function is.
fn function(sys: &Sysfs, name: &str, own: &Own) -> Result<Known, Unread> {
    let Ok(address) = name.parse() else {
        return Ok(Known::Other);
    };
    let at = |file: &str| format!("{DEVICES}/{name}/{file}");
    let id = |file: &str| u16::try_from(sys.hex(&at(file))?).ok();
    let ids = PciIds {
        vendor: id("vendor").ok_or(Unread)?,
        device: id("device").ok_or(Unread)?,
        subsystem_vendor: id("subsystem_vendor").unwrap_or(0),
        subsystem_device: id("subsystem_device").unwrap_or(0),
        class: sys.hex(&at("class")),
    };
    // A virtual function whose physical one is on this machine too is that device once more.
    let is_amazons = ids.vendor == AMAZON;
    let is_one = is_accelerator(ids, own) || (is_amazons && is_neurons(sys, name));
    if !is_one || sys.link(&at("physfn")).is_some() {
        ids.class.ok_or(Unread)?;
        return Ok(if is_amazons {
            Known::Amazons
        } else {
            Known::Other
        });
    }
    let config = (ids.vendor == NVIDIA)
        .then(|| sys.bytes(&at("config"), 256))
        .flatten();
    let function = PciFunction {
        address,
        ids,
        numa_node: sys.text(&at("numa_node")).and_then(|n| n.parse().ok()),
        kernel_driver: None,
        vgpu: config.as_deref().and_then(vgpu_host),
        amd: None,
    };
    // What went while it was read may have had more to say.
    let is_there = sys.is_there(&at("vendor"));
    is_there
        .then_some(Known::Accelerator(Box::new(function)))
        .ok_or(Unread)
}

/// Whether the Neuron driver holds it, which takes nothing else: a chip of the next generation says no more of itself.
fn is_neurons(sys: &Sysfs, name: &str) -> bool {
    let driver = sys.link(&format!("{DEVICES}/{name}/driver"));
    driver.as_deref() == Some(NEURON_DRIVER)
}

/// Whether people can read it: what was no UTF-8 has become a replacement character by now.
fn is_name(text: &str) -> bool {
    let odd = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
    text.len() <= LONGEST_NAME && !text.contains(odd)
}

/// What the catalogue lists is one, whatever it calls itself: Inferentia and Trainium say that they are system peripherals.
/// What it lists as none is none; for the rest the class decides. What has a screen (VGA) is a console, a processor's own graphics or a
/// desktop's card, unless NVIDIA made it, whose cards all compute with one driver.
fn is_accelerator(ids: PciIds, own: &Own) -> bool {
    let is_owns = own.lists(ids);
    match accelerators::no_accelerator(ids) {
        // Who lists one device knows more of it than who lists all displays of its maker as none. An id that is listed as none itself
        // cannot be in a catalogue of one's own: that is refused where it is read, with its place.
        Some(other) if other.device.is_none() && is_owns => return true,
        Some(_) => return false,
        None => {}
    }
    if accelerators::is_listed(ids) || is_owns {
        return true;
    }
    match ids.class.unwrap_or(0) >> 8 {
        // 3D controllers, displays without a console, processing accelerators.
        0x0302 | 0x0380 | 0x1200 => true,
        0x0300 => ids.vendor == NVIDIA,
        _ => false,
    }
}

/// The host behind a virtual GPU, from the vendor capability that its configuration space has then.
///
/// Layout: capability id 9, next pointer, length, `VF`, then records of an id, a length with these two bytes, and the
/// contents; record 0 holds the host driver's version and branch, ten bytes each.
fn vgpu_host(config: &[u8]) -> Option<VgpuHost> {
    const STATUS: usize = 0x06;
    const HAS_CAPABILITIES: u8 = 0x10;
    const FIRST_CAPABILITY: usize = 0x34;
    const VENDOR_SPECIFIC: u8 = 0x09;
    let byte = |at: usize| config.get(at).copied();
    if byte(STATUS)? & HAS_CAPABILITIES == 0 {
        return None;
    }
    let mut at = usize::from(byte(FIRST_CAPABILITY)? & !3);
    // A loop in the list ends here: there is no room for more capabilities than this.
    for _ in 0..48 {
        if at == 0 {
            return None;
        }
        let signature = (byte(at)?, byte(at + 3)?, byte(at + 4)?);
        if signature == (VENDOR_SPECIFIC, b'V', b'F') {
            let end = at + usize::from(byte(at + 2)?);
            return host_driver_record(config.get(at + 5..end.min(config.len()))?);
        }
        at = usize::from(byte(at + 1)? & !3);
    }
    None
}

fn host_driver_record(mut records: &[u8]) -> Option<VgpuHost> {
    const HOST_DRIVER: u8 = 0;
    loop {
        let (id, length) = (*records.first()?, usize::from(*records.get(1)?));
        if id == HOST_DRIVER {
            let text = |bytes: &[u8]| {
                let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
                let text = String::from_utf8_lossy(bytes);
                let text: String = text.chars().filter(|c| !c.is_control()).collect();
                text.trim().to_owned()
            };
            return Some(VgpuHost {
                driver_version: text(records.get(2..12)?),
                driver_branch: text(records.get(12..22)?),
            });
        }
        // A record that claims to be empty would be read for ever.
        records = records.get(length.max(2)..)?;
    }
}

#[cfg(test)]
mod tests;
