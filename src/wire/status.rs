//! A node's status as parts of the stream, and back.
//!
//! One part for each thing that changes by itself, so that a process that starts on one device sends that device and
//! nothing else. What is equal is encoded to equal bytes, because parts are compared and hashed as bytes. A reader passes
//! over keys and fields it does not know; where it finds a value that cannot be, it refuses the whole status and says
//! where.
//!
//! What is decoded comes from a peer. Every list has a bound, and catalogues are shared, so that a status takes memory in
//! proportion to its bytes.

mod amd;
mod error;
mod field;
mod layout;
mod neuron;
mod read;
mod sharing;
mod usage;
mod write;

use std::collections::BTreeMap;

use prost::Message;

pub use self::error::{StatusError, StatusProblem};
use crate::domain::catalog::ProfileCatalog;
use crate::domain::fleet::{LARGEST_USAGE, LayoutStatus, SharingReport};
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Device, Inventory, Machine, Neuron, NvmlState};
use crate::domain::labels::LabelSet;
use crate::domain::sharing::usage::Usage;
use crate::domain::stream::{Content, PartKey, Parts};
use crate::proto::v1;

/// What is read of every list of a device; many times what any has of instances, profiles, placements, links or problems.
pub const MOST: usize = 256;
/// What is read of a device's processes.
pub const MOST_PROCESSES: usize = 4096;

/// What is read of a node's Neuron devices. Source: the driver has room for 64.
pub const MOST_NEURON: usize = 64;

const DEVICE: &str = "device/";
const NEURON: &str = "neuron";
const NEURON_DEVICE: &str = "neuron/";
const PROFILES: &str = "profiles/";

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// What it has.
    pub inventory: Inventory,
    /// What it tells the scheduler.
    pub labels: LabelSet,
    /// Where it stands with regard to its layout; `None` where nobody asks anything of its devices.
    pub layout: Option<LayoutStatus>,
    /// How far what it gives out is what shall be; `None` where nobody says.
    pub sharing: Option<SharingReport>,
    /// Who has what of it; `None` where nobody looks.
    pub usage: Option<Usage>,
}

impl Status {
    /// Of a node that no agent reports: nothing is known of its devices one by one.
    pub fn without_agent() -> Self {
        Self {
            inventory: Inventory {
                machine: Machine::default(),
                nvml: NvmlState::Absent {
                    reason: "no agent reports this node".to_owned(),
                },
                neuron: None,
                devices: Vec::new(),
            },
            labels: LabelSet::default(),
            layout: None,
            sharing: None,
            usage: None,
        }
    }
}

/// What the MIG-capable devices of one status offer, by the part that says so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalogs(BTreeMap<Box<str>, ProfileCatalog>);

/// A status as parts. A device's vendor is not said: it is that of its PCI ids.
pub fn encode(inventory: &Inventory, labels: &LabelSet, layout: Option<&LayoutStatus>) -> Parts {
    let mut parts = vec![
        (
            PartKey::node(),
            content(&write::node(&inventory.machine, &inventory.nvml)),
        ),
        (PartKey::labels(), content(&write::labels(labels))),
    ];
    parts.extend(layout.map(|one| (PartKey::layout(), content(&write::layout(one)))));
    for device in &inventory.devices {
        let offer = device.mig.state().and_then(|state| offer(&state.catalog));
        let profiles = offer.as_ref().map(|(key, _)| key.to_string());
        let message = write::device(device, profiles.unwrap_or_default());
        parts.push((PartKey::device(device.pci), content(&message)));
        parts.extend(offer);
    }
    if let Some(all) = &inventory.neuron {
        parts.push((PartKey::neuron(), content(&neuron::write(all))));
        parts.extend(all.devices.iter().map(|device| {
            let key = PartKey::neuron_device(device.number);
            (key, content(&neuron::write_device(all, device)))
        }));
    }
    parts.into_iter().collect()
}

/// The part `sharing`, to be put beside the others.
pub fn encode_sharing(report: &SharingReport) -> (PartKey, Content) {
    (PartKey::sharing(), content(&sharing::write(report)))
}

/// The part `usage`, to be put beside the others. A reader takes at most [`LARGEST_USAGE`] bytes of it.
pub fn encode_usage(usage: &Usage) -> (PartKey, Content) {
    (PartKey::usage(), content(&usage::write(usage)))
}

/// The part that says what a device offers; none for an offer of nothing.
fn offer(catalog: &ProfileCatalog) -> Option<(PartKey, Content)> {
    if catalog.profiles().is_empty() {
        return None;
    }
    let content = content(&write::profiles(catalog));
    Some((PartKey::profiles(content.digest()), content))
}

fn content(message: &impl Message) -> Content {
    Content::new(message.encode_to_vec())
}

/// The status that these parts are.
pub fn decode(parts: &Parts) -> Result<Status, StatusError> {
    let key = PartKey::node();
    let node = parts.get(key.as_str());
    let node = node.ok_or_else(|| StatusError::part(&key, StatusProblem::MissingPart))?;
    let (machine, nvml) = decode_node(node)?;
    let labels = parts.get(PartKey::labels().as_str());
    let layout = parts.get(PartKey::layout().as_str());
    let sharing = parts.get(PartKey::sharing().as_str());
    let usage = parts.get(PartKey::usage().as_str());
    let catalogs = Catalogs::decode(parts)?;
    let mut devices = Vec::new();
    for (key, content) in device_parts(parts) {
        devices.push(decode_device(key, content, &catalogs)?);
    }
    // Keys are ordered as texts, and addresses by their numbers.
    devices.sort_by_key(|device| device.pci);
    // In this order, which is that of a reader of changes too: of several mistakes both name the same.
    let labels = labels.map(decode_labels).transpose()?.unwrap_or_default();
    let layout = layout.map(decode_layout).transpose()?;
    let sharing = sharing.map(decode_sharing).transpose()?;
    let usage = usage.map(decode_usage).transpose()?;
    Ok(Status {
        inventory: Inventory {
            machine,
            nvml,
            neuron: decode_neuron(parts)?,
            devices,
        },
        labels,
        layout,
        sharing,
        usage,
    })
}

/// The part `node`: the machine, and where its link to NVML stands.
pub fn decode_node(content: &Content) -> Result<(Machine, NvmlState), StatusError> {
    decode_part(&PartKey::node(), content, read::node)
}

/// The part `labels`.
pub fn decode_labels(content: &Content) -> Result<LabelSet, StatusError> {
    decode_part(&PartKey::labels(), content, read::labels)
}

/// The part `layout`.
pub fn decode_layout(content: &Content) -> Result<LayoutStatus, StatusError> {
    decode_part(&PartKey::layout(), content, layout::read)
}

/// The part `sharing`.
pub fn decode_sharing(content: &Content) -> Result<SharingReport, StatusError> {
    decode_part(&PartKey::sharing(), content, sharing::read)
}

/// The part `usage`. It is made of small things, so that its bytes bound what it takes in memory.
pub fn decode_usage(content: &Content) -> Result<Usage, StatusError> {
    let key = PartKey::usage();
    let length = content.bytes().len();
    if length > LARGEST_USAGE {
        return Err(StatusError::part(&key, StatusProblem::TooLong { length }));
    }
    decode_part(&key, content, usage::read)
}

/// The parts `neuron` and `neuron/<number>`; `None` where there is none of them.
pub fn decode_neuron(parts: &Parts) -> Result<Option<Neuron>, StatusError> {
    let key = PartKey::neuron();
    let devices = || neuron_parts(parts).filter(|(found, _)| **found != key);
    let count = devices().count();
    if count > MOST_NEURON {
        let limit = MOST_NEURON;
        return Err(StatusError::part(
            &key,
            StatusProblem::TooMany { count, limit },
        ));
    }
    let Some(content) = parts.get(key.as_str()) else {
        let missing = StatusError::part(&key, StatusProblem::MissingPart);
        return if count == 0 { Ok(None) } else { Err(missing) };
    };
    let mut all = decode_part(&key, content, neuron::read)?;
    for (key, content) in devices() {
        let number = neuron_number(key)?;
        let device = decode_part(key, content, |message| neuron::read_device(number, message))?;
        all.devices.push(device);
    }
    // Keys are ordered as texts.
    all.devices.sort_by_key(|device| device.number);
    Ok(Some(all))
}

/// Which Neuron device's part this is.
fn neuron_number(key: &PartKey) -> Result<u32, StatusError> {
    let text = key.as_str().strip_prefix(NEURON_DEVICE).unwrap_or_default();
    let number = text.parse().ok();
    // A number has several spellings, and a device one part.
    number
        .filter(|number| PartKey::neuron_device(*number) == *key)
        .ok_or_else(|| StatusError::part(key, StatusProblem::Number))
}

/// A part `device/<PCI address>`, of a status that has these catalogues.
pub fn decode_device(
    key: &PartKey,
    content: &Content,
    catalogs: &Catalogs,
) -> Result<Device, StatusError> {
    let pci = device_address(key)?;
    decode_part(key, content, |message: v1::Device| {
        read::device(pci, message, |named| catalogs.get(named))
    })
}

/// The parts that are devices.
pub fn device_parts(parts: &Parts) -> impl Iterator<Item = (&PartKey, &Content)> {
    let parts = parts.iter();
    parts.filter(|(key, _)| key.as_str().starts_with(DEVICE))
}

/// The parts that the Neuron driver speaks in.
pub fn neuron_parts(parts: &Parts) -> impl Iterator<Item = (&PartKey, &Content)> {
    let is_neurons = |key: &str| key == NEURON || key.starts_with(NEURON_DEVICE);
    let parts = parts.iter();
    parts.filter(move |(key, _)| is_neurons(key.as_str()))
}

/// The parts that say what devices offer.
pub fn profile_parts(parts: &Parts) -> impl Iterator<Item = (&PartKey, &Content)> {
    let parts = parts.iter();
    parts.filter(|(key, _)| key.as_str().starts_with(PROFILES))
}

/// Whose part this is.
pub fn device_address(key: &PartKey) -> Result<PciAddress, StatusError> {
    let address = key.as_str().strip_prefix(DEVICE).unwrap_or_default();
    let pci = address
        .parse::<PciAddress>()
        .map_err(|error| StatusError::part(key, error))?;
    // An address has several spellings, and a device one part.
    if PartKey::device(pci) != *key {
        return Err(StatusError::part(key, StatusProblem::Spelling));
    }
    Ok(pci)
}

impl Catalogs {
    /// Those of a status.
    pub fn decode(parts: &Parts) -> Result<Self, StatusError> {
        let mut catalogs = BTreeMap::new();
        for (key, content) in profile_parts(parts) {
            let catalog = decode_part(key, content, read::profiles)?;
            catalogs.insert(key.as_str().into(), catalog);
        }
        Ok(Self(catalogs))
    }

    fn get(&self, key: &str) -> Option<ProfileCatalog> {
        self.0.get(key).cloned()
    }
}

fn decode_part<M: Message + Default, T>(
    key: &PartKey,
    content: &Content,
    read: impl FnOnce(M) -> Result<T, error::FieldError>,
) -> Result<T, StatusError> {
    let message = M::decode(content.bytes()).map_err(|error| StatusError::part(key, error))?;
    read(message).map_err(|error| StatusError::field(key, error))
}

#[cfg(test)]
mod tests;
