//! Accelerators on the PCI bus, with or without a driver, and the machine's firmware data.
//!
//! This is the only data available without a driver library. It also provides values that NVML does not report: the
//! class code, the NUMA node, the kernel driver, and whether a GPU is virtual.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use octavo_model::accelerators;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Machine, PciIds, VgpuHost};

use crate::amd;
use crate::pci_function::PciFunction;
use crate::sysfs::{Sysfs, is_printable_name};

const DEVICES: &str = "bus/pci/devices";

const NVIDIA: u16 = 0x10de;
const AMAZON: u16 = 0x1d0f;
const NEURON_DRIVER: &str = "neuron";

/// Classification of a function.
#[derive(Debug)]
enum FunctionKind {
    Accelerator(Box<PciFunction>),
    Other,
    /// An Amazon function that is an accelerator only if bound to the Neuron driver. Its driver is checked in every
    /// scan.
    AmazonFunction,
}

/// The function could not be read: its files do not exist yet, or it was just removed.
struct IncompleteFunction;

/// The PCI bus, with the cached classification of each function.
///
/// The type of a function never changes, so its files are read once, when it appears: a large server has hundreds of
/// functions, and reading a configuration space may wake a sleeping device. The bound driver is read every time, and so
/// are the files of that driver.
#[derive(Debug)]
pub(crate) struct Bus {
    sys: Sysfs,
    /// By name in sysfs.
    known: BTreeMap<String, FunctionKind>,
    /// The result of the last successful scan, retained while the bus cannot be read.
    last: Vec<PciFunction>,
    /// The error of the last scan.
    error: Option<String>,
}

impl Bus {
    pub(crate) fn new(sys: Sysfs) -> Self {
        Self { sys, known: BTreeMap::new(), last: Vec::new(), error: None }
    }

    /// Returns every accelerator on the bus, ordered by address. If the bus cannot be read, returns the last result
    /// instead of an empty list.
    pub(crate) fn scan(&mut self) -> Vec<PciFunction> {
        match self.sys.names(DEVICES) {
            Ok(names) => {
                self.last = self.classify(names);
                self.error = None;
            }
            Err(error) => self.error = Some(error.to_string()),
        }
        self.last.clone()
    }

    fn classify(&mut self, names: Vec<String>) -> Vec<PciFunction> {
        let mut before = std::mem::take(&mut self.known);
        for name in names {
            let known = before.remove(&name).filter(|known| match known {
                // A function can be identified by its IDs before its class is readable; read it again until it is.
                FunctionKind::Accelerator(function) => function.ids.class.is_some(),
                FunctionKind::Other => true,
                FunctionKind::AmazonFunction => !is_bound_to_neuron(&self.sys, &name),
            });
            let known = known.map(Ok);
            if let Ok(known) = known.unwrap_or_else(|| read_function(&self.sys, &name)) {
                self.known.insert(name, known);
            }
        }
        let mut functions = Vec::new();
        for (name, known) in &self.known {
            if let FunctionKind::Accelerator(function) = known {
                functions.push(PciFunction {
                    kernel_driver: self.sys.link(&format!("{DEVICES}/{name}/driver")),
                    ..PciFunction::clone(function)
                });
            }
        }
        functions.sort_by_key(|function| function.address);
        amd::scan_devices(&self.sys, &mut functions);
        functions
    }

    /// Returns the machine's data. `functions` determine whether it is a guest with a virtual GPU.
    pub(crate) fn machine(&self, functions: &[PciFunction]) -> Machine {
        let name = self.sys.text("class/dmi/id/product_name");
        Machine {
            product_name: name.filter(|name| is_printable_name(name)),
            vgpu: functions.iter().rev().find_map(|function| function.vgpu.clone()),
            bus_error: self.error.clone(),
        }
    }
}

/// Reads and classifies a function.
fn read_function(sys: &Sysfs, name: &str) -> Result<FunctionKind, IncompleteFunction> {
    let Ok(address) = name.parse() else {
        return Ok(FunctionKind::Other);
    };
    let at = |file: &str| format!("{DEVICES}/{name}/{file}");
    let id = |file: &str| u16::try_from(sys.hex(&at(file))?).ok();
    let ids = PciIds {
        vendor: id("vendor").ok_or(IncompleteFunction)?,
        device: id("device").ok_or(IncompleteFunction)?,
        subsystem_vendor: id("subsystem_vendor").unwrap_or(0),
        subsystem_device: id("subsystem_device").unwrap_or(0),
        class: sys.hex(&at("class")),
    };
    // If the physical function of a virtual function is on this machine, both are the same device.
    let is_amazons = ids.vendor == AMAZON;
    let is_one = is_accelerator(ids) || (is_amazons && is_bound_to_neuron(sys, name));
    if !is_one || sys.link(&at("physfn")).is_some() {
        ids.class.ok_or(IncompleteFunction)?;
        return Ok(if is_amazons { FunctionKind::AmazonFunction } else { FunctionKind::Other });
    }
    let config = (ids.vendor == NVIDIA).then(|| sys.bytes(&at("config"), 256)).flatten();
    let function = PciFunction {
        address,
        ids,
        numa_node: sys.text(&at("numa_node")).and_then(|n| n.parse().ok()),
        kernel_driver: None,
        vgpu: config.as_deref().and_then(vgpu_host),
        amd: None,
    };
    // A function that was removed while it was read may be incomplete.
    let is_there = sys.exists(&at("vendor"));
    is_there.then_some(FunctionKind::Accelerator(Box::new(function))).ok_or(IncompleteFunction)
}

/// Returns the name of the PCIe root complex of a function, such as `pci0000:15`; `None` if it is unknown. `sys_root` is
/// where sysfs is mounted. Source: Kubernetes `dynamic-resource-allocation/deviceattribute`, `GetPCIeRootAttributeByPCIBusID`.
pub fn pcie_root(sys_root: &Path, function: PciAddress) -> Option<String> {
    let target = fs::read_link(sys_root.join(DEVICES).join(function.to_string())).ok()?;
    let mut parts = target.components().map(|part| part.as_os_str().to_string_lossy());
    parts
        .find(|part| part.strip_prefix("pci").is_some_and(|rest| rest.contains(':')))
        .map(Cow::into_owned)
}

/// Returns whether the function is bound to the Neuron driver, which binds to nothing else. Identifies chips that are
/// not yet in the catalog.
fn is_bound_to_neuron(sys: &Sysfs, name: &str) -> bool {
    let driver = sys.link(&format!("{DEVICES}/{name}/driver"));
    driver.as_deref() == Some(NEURON_DRIVER)
}

/// Returns whether a function is an accelerator. The catalog takes precedence over the class: Inferentia and Trainium
/// report themselves as system peripherals. Otherwise the class decides. A VGA function is a console, integrated
/// graphics or a desktop GPU and does not count, except for NVIDIA's, which all compute with the same driver.
fn is_accelerator(ids: PciIds) -> bool {
    if accelerators::non_accelerator_with_ids(ids).is_some() {
        return false;
    }
    if accelerators::is_known_accelerator(ids) {
        return true;
    }
    match ids.class.unwrap_or(0) >> 8 {
        // 3D controllers, displays without a console, processing accelerators.
        0x0302 | 0x0380 | 0x1200 => true,
        0x0300 => ids.vendor == NVIDIA,
        _ => false,
    }
}

/// Returns the host of a virtual GPU, from a vendor capability in its configuration space.
///
/// Layout: capability ID 9, next pointer, length, `VF`, then records of an ID, a length that includes these two bytes,
/// and the content. Record 0 contains the host driver's version and branch, ten bytes each.
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
    // Terminates on a cyclic list: the space cannot hold more capabilities than this.
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
        // A record with length 0 would cause an endless loop.
        records = records.get(length.max(2)..)?;
    }
}

#[cfg(test)]
mod tests;
