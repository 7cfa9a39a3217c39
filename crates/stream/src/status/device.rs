//! Encoding and decoding of the parts `device/<PCI address>`.

use octavo_model::catalog::ProfileCatalog;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Architecture, Condition, Device, Fabric, Health, Identity, LinkRemote, NvLink, PciIds, Process,
    ProcessKind, ReadProblem, RecoveryAction, RemappedRows, Vendor,
};
use octavo_model::quantity::Mebibytes;

use super::field::{
    FieldError, FieldResult, StatusProblem, at_most, check_length, each, nested, parse_field,
    parse_optional_field, required, required_message, truncate_text, truncate_word,
    unknown_enum_value,
};
use super::{MAX_LIST_ITEMS, MAX_PROCESSES, amd, mig};
use crate::proto::v1;
use crate::proto::v1::condition::State;
use crate::proto::v1::nv_link::Remote;
use crate::proto::v1::process::Kind;

/// Largest 24-bit number.
const MAX_PCI_CLASS: u32 = 0x00ff_ffff;

/// Encodes a device. `profiles` is the key of the part with its profile catalog.
pub(super) fn write(device: &Device, profiles: String) -> v1::Device {
    let identity = &device.identity;
    v1::Device {
        uuid: device.uuid.as_ref().map(ToString::to_string),
        pci_ids: Some(write_pci_ids(device.pci_ids)),
        r#type: identity.type_name().map(ToString::to_string),
        sku: identity.sku().map(ToString::to_string),
        type_by_hand: identity.is_manual(),
        condition: Some(write_condition(&device.condition)),
        product_name: device.product_name.clone(),
        index: device.index,
        minor: device.minor,
        architecture: device.architecture.as_ref().map(|name| name.as_str().to_owned()),
        compute_capability: device.compute_capability.map(|capability| capability.to_string()),
        memory_mib: device.memory.map(Mebibytes::get),
        numa_node: device.numa_node,
        mig: Some(mig::write(&device.mig, profiles)),
        processes: device.processes.iter().map(write_process).collect(),
        links: device.links.iter().map(write_link).collect(),
        fabric: device.fabric.as_ref().map(|fabric| v1::Fabric {
            cluster_uuid: fabric.cluster_uuid.clone(),
            clique_id: fabric.clique_id,
        }),
        p2p_group: device.p2p_group,
        health: Some(write_health(device.health)),
        problems: write_problems(&device.problems),
        amd: device.amd.as_ref().map(amd::write),
    }
}

fn write_pci_ids(ids: PciIds) -> v1::PciIds {
    v1::PciIds {
        vendor: ids.vendor.into(),
        device: ids.device.into(),
        subsystem_vendor: ids.subsystem_vendor.into(),
        subsystem_device: ids.subsystem_device.into(),
        class: ids.class,
    }
}

fn write_condition(condition: &Condition) -> v1::Condition {
    let (state, reason, kernel_driver) = match condition {
        Condition::Working => (State::Working, "", None),
        Condition::Failing { reason } => (State::Failing, reason.as_str(), None),
        Condition::PciOnly { kernel_driver } => (State::PciOnly, "", kernel_driver.clone()),
    };
    v1::Condition { state: state.into(), reason: reason.to_owned(), kernel_driver }
}

fn write_process(process: &Process) -> v1::Process {
    let kind = match process.kind {
        ProcessKind::Compute => Kind::Compute,
        ProcessKind::Graphics => Kind::Graphics,
    };
    v1::Process {
        pid: process.pid,
        kind: kind.into(),
        gpu_instance: process.gpu_instance,
        compute_instance: process.compute_instance,
        memory_mib: process.memory.map(Mebibytes::get),
    }
}

fn write_link(link: &NvLink) -> v1::NvLink {
    let (remote, pci) = match link.remote {
        LinkRemote::Device(pci) => (Remote::Device, Some(pci)),
        LinkRemote::Switch(pci) => (Remote::Switch, Some(pci)),
        LinkRemote::HiddenSwitch => (Remote::HiddenSwitch, None),
        LinkRemote::Unknown => (Remote::Unknown, None),
    };
    let remote_pci = pci.map(|pci| pci.to_string());
    v1::NvLink { link: link.link, remote: remote.into(), remote_pci }
}

fn write_health(health: Health) -> v1::Health {
    v1::Health {
        ecc_enabled: health.ecc_enabled,
        uncorrected_errors: health.uncorrected_errors,
        remapped_rows: health.remapped_rows.map(|rows| v1::RemappedRows {
            correctable: rows.correctable,
            uncorrectable: rows.uncorrectable,
            pending: rows.pending,
            failed: rows.failed,
        }),
        recovery_action: health.recovery_action.map(RecoveryAction::number),
    }
}

pub(super) fn write_problems(problems: &[ReadProblem]) -> Vec<v1::Problem> {
    let problems = problems.iter();
    problems
        .map(|problem| v1::Problem { what: problem.source.clone(), error: problem.error.clone() })
        .collect()
}

/// Decodes a device. `catalog` returns the profile catalog of the part with the given key.
pub(super) fn read(
    pci: PciAddress,
    device: v1::Device,
    catalog: impl FnOnce(&str) -> Option<ProfileCatalog>,
) -> FieldResult<Device> {
    let pci_ids = required_message("pci_ids", device.pci_ids, read_pci_ids)?;
    let architecture = device.architecture.as_deref();
    let architecture = architecture.map(|text| check_length("architecture", text)).transpose()?;
    let capability = device.compute_capability.as_deref();
    let mig = mig::read(device.mig.unwrap_or_default(), catalog);
    Ok(Device {
        pci,
        vendor: Vendor::from_pci(pci_ids.vendor),
        pci_ids,
        uuid: parse_optional_field("uuid", device.uuid.as_deref())?,
        identity: identity(device.r#type.as_deref(), device.sku.as_deref(), device.type_by_hand)?,
        condition: required_message("condition", device.condition, read_condition)?,
        product_name: device.product_name.map(truncate_word),
        index: device.index,
        minor: device.minor,
        architecture: architecture.map(Architecture::new),
        compute_capability: parse_optional_field("compute_capability", capability)?,
        memory: device.memory_mib.map(Mebibytes::new),
        numa_node: device.numa_node,
        mig: mig.map_err(|error| error.within("mig"))?,
        processes: each("processes", MAX_PROCESSES, device.processes, read_process)?,
        links: each("links", MAX_LIST_ITEMS, device.links, |link| read_link(&link))?,
        fabric: device.fabric.map(|fabric| Fabric {
            cluster_uuid: truncate_word(fabric.cluster_uuid),
            clique_id: fabric.clique_id,
        }),
        p2p_group: device.p2p_group,
        health: device.health.map(read_health).unwrap_or_default(),
        amd: nested("amd", device.amd, amd::read)?,
        problems: read_problems(device.problems)?,
    })
}

fn read_pci_ids(ids: v1::PciIds) -> FieldResult<PciIds> {
    let id = |field: &str, number: u32| {
        u16::try_from(number).map_err(|_| {
            let largest = u16::MAX.into();
            FieldError::new(field, StatusProblem::TooLarge { number, largest })
        })
    };
    Ok(PciIds {
        vendor: id("vendor", ids.vendor)?,
        device: id("device", ids.device)?,
        subsystem_vendor: id("subsystem_vendor", ids.subsystem_vendor)?,
        subsystem_device: id("subsystem_device", ids.subsystem_device)?,
        class: ids.class.map(|class| at_most("class", class, MAX_PCI_CLASS)).transpose()?,
    })
}

fn identity(type_name: Option<&str>, sku: Option<&str>, is_manual: bool) -> FieldResult<Identity> {
    let Some(type_name) = type_name else {
        // A manually set type may have been removed.
        return match sku {
            None => Ok(Identity::Unknown),
            Some(_) => Err(FieldError::new("sku", StatusProblem::SkuWithoutType)),
        };
    };
    let type_name = parse_field("type", type_name)?;
    let sku = parse_optional_field("sku", sku)?;
    Ok(if is_manual {
        Identity::Manual { type_name, sku }
    } else {
        Identity::Known { type_name, sku }
    })
}

fn read_condition(condition: v1::Condition) -> FieldResult<Condition> {
    Ok(match condition.state() {
        State::Working => Condition::Working,
        State::Failing => Condition::Failing { reason: truncate_text(condition.reason) },
        State::PciOnly => {
            Condition::PciOnly { kernel_driver: condition.kernel_driver.map(truncate_word) }
        }
        State::Unspecified => return unknown_enum_value("state", condition.state),
    })
}

fn read_process(process: v1::Process) -> FieldResult<Process> {
    Ok(Process {
        pid: process.pid,
        kind: match process.kind() {
            Kind::Compute => ProcessKind::Compute,
            Kind::Graphics => ProcessKind::Graphics,
            Kind::Unspecified => return unknown_enum_value("kind", process.kind),
        },
        gpu_instance: process.gpu_instance,
        compute_instance: process.compute_instance,
        memory: process.memory_mib.map(Mebibytes::new),
    })
}

/// Treats an unknown kind of remote as not reported.
fn read_link(link: &v1::NvLink) -> FieldResult<NvLink> {
    let pci = || parse_field("remote_pci", required("remote_pci", link.remote_pci.as_deref())?);
    let remote = match link.remote() {
        Remote::Device => LinkRemote::Device(pci()?),
        Remote::Switch => LinkRemote::Switch(pci()?),
        Remote::HiddenSwitch => LinkRemote::HiddenSwitch,
        Remote::Unspecified | Remote::Unknown => LinkRemote::Unknown,
    };
    Ok(NvLink { link: link.link, remote })
}

fn read_health(health: v1::Health) -> Health {
    Health {
        ecc_enabled: health.ecc_enabled,
        uncorrected_errors: health.uncorrected_errors,
        remapped_rows: health.remapped_rows.map(|rows| RemappedRows {
            correctable: rows.correctable,
            uncorrectable: rows.uncorrectable,
            pending: rows.pending,
            failed: rows.failed,
        }),
        recovery_action: health.recovery_action.map(RecoveryAction::from),
    }
}

pub(super) fn read_problems(problems: Vec<v1::Problem>) -> FieldResult<Vec<ReadProblem>> {
    each("problems", MAX_LIST_ITEMS, problems, |problem| {
        Ok(ReadProblem { source: truncate_text(problem.what), error: truncate_text(problem.error) })
    })
}
