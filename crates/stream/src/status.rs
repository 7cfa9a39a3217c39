//! Encoding and decoding of a node's status as parts of the stream.
//!
//! Everything that changes independently is a part of its own, so a process that starts on a device updates only the
//! part of that device. Encoding is deterministic, because parts are compared and hashed as bytes. The decoder ignores
//! unknown keys and fields. An invalid value invalidates the whole status, and the error contains its location.
//!
//! Decoded parts come from a peer. Every list has a limit, and profile catalogs are shared, so that the memory use of a
//! status is proportional to its size in bytes.

mod amd;
mod device;
mod field;
mod layout;
mod mig;
mod neuron;
mod node;
mod sharing;
mod usage;

use std::collections::BTreeMap;

use octavo_fleet::summary::MAX_USAGE_BYTES;
use octavo_model::catalog::ProfileCatalog;
use octavo_model::id::{ParseError, PciAddress};
use octavo_model::inventory::{Device, Inventory, Machine, Neuron, NvmlState};
use octavo_model::sharing_status::SharingStatus;
use octavo_node::label_set::LabelSet;
use octavo_node::sharing::usage::{PastUsage, Usage};
use octavo_planner::reconcile::NodeLayoutStatus;
use prost::Message;

use self::field::FieldResult;
pub use self::field::{StatusError, StatusProblem};
use crate::proto::v1;
use crate::protocol::{Content, PartKey, Parts};

/// Maximum length of every list of a device: many times the number of instances, profiles, placements, links or
/// problems of any device.
pub const MAX_LIST_ITEMS: usize = 256;
/// Maximum number of processes of a device.
pub const MAX_PROCESSES: usize = 4096;

/// Maximum number of Neuron devices of a node. Source: the driver supports 64.
pub const MAX_NEURON_DEVICES: usize = 64;

const DEVICE_PREFIX: &str = "device/";
const NEURON_DEVICE_PREFIX: &str = "neuron/";
const PROFILES_PREFIX: &str = "profiles/";

/// The status reported by a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// The devices of the node.
    pub inventory: Inventory,
    /// The node labels.
    pub labels: LabelSet,
    /// The layout status; `None` if the layout of the node is not managed.
    pub layout: Option<NodeLayoutStatus>,
    /// The sharing status; `None` if sharing is not managed.
    pub sharing: Option<SharingStatus>,
    /// The usage by pod; `None` if it is not observed.
    pub usage: Option<Usage>,
}

impl NodeStatus {
    /// Status of a node without an agent: its individual devices are unknown.
    pub fn without_agent() -> Self {
        Self {
            inventory: Inventory {
                nvml: NvmlState::Absent { reason: "no agent reports this node".to_owned() },
                ..Inventory::default()
            },
            labels: LabelSet::default(),
            layout: None,
            sharing: None,
            usage: None,
        }
    }
}

/// MIG profile catalogs of a status, by the key of their part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalogs(BTreeMap<Box<str>, ProfileCatalog>);

/// Encodes a status. The vendor of a device is not encoded, because it follows from its PCI IDs.
pub fn encode(
    inventory: &Inventory,
    labels: &LabelSet,
    layout: Option<&NodeLayoutStatus>,
) -> Parts {
    let mut parts = vec![
        (PartKey::node(), content(&node::write(&inventory.machine, &inventory.nvml))),
        encode_labels(labels),
    ];
    parts.extend(layout.map(|one| (PartKey::layout(), content(&layout::write(one)))));
    for device in &inventory.devices {
        let offer = device.mig.state().and_then(|state| profiles_part(&state.catalog));
        let profiles = offer.as_ref().map(|(key, _)| key.to_string());
        let message = device::write(device, profiles.unwrap_or_default());
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

/// Encodes the part `labels`, to replace that of a status.
pub fn encode_labels(labels: &LabelSet) -> (PartKey, Content) {
    (PartKey::labels(), content(&node::write_labels(labels)))
}

/// Encodes the part `sharing`, to be added to the others.
pub fn encode_sharing(report: &SharingStatus) -> (PartKey, Content) {
    (PartKey::sharing(), content(&sharing::write(report)))
}

/// Encodes the part `usage`, to be added to the others. The decoder accepts at most [`MAX_USAGE_BYTES`] bytes.
pub fn encode_usage(usage: &Usage) -> (PartKey, Content) {
    (PartKey::usage(), content(&usage::write(usage)))
}

/// Encodes the part `past-usage`, to be added to the others. The decoder accepts at most [`MAX_USAGE_BYTES`] bytes.
pub fn encode_past_usage<'a>(past: impl IntoIterator<Item = &'a PastUsage>) -> (PartKey, Content) {
    (PartKey::past_usage(), content(&usage::write_past(past)))
}

/// Encodes the part with a device's profile catalog. Returns `None` for an empty catalog.
fn profiles_part(catalog: &ProfileCatalog) -> Option<(PartKey, Content)> {
    if catalog.profiles().is_empty() {
        return None;
    }
    let content = content(&mig::write_profiles(catalog));
    Some((PartKey::profiles(content.digest()), content))
}

fn content(message: &impl Message) -> Content {
    Content::new(message.encode_to_vec())
}

/// Decodes a status.
pub fn decode(parts: &Parts) -> Result<NodeStatus, StatusError> {
    let part = |key: PartKey| parts.get(key.as_str());
    let node = part(PartKey::node())
        .ok_or_else(|| StatusError::part(&PartKey::node(), StatusProblem::MissingPart))?;
    let (machine, nvml) = decode_node(node)?;
    let devices = decode_devices(parts)?;
    // The same order as for incremental updates, so that both report the same one of several errors.
    let labels = part(PartKey::labels()).map(decode_labels).transpose()?.unwrap_or_default();
    let layout = part(PartKey::layout()).map(decode_layout).transpose()?;
    let sharing = part(PartKey::sharing()).map(decode_sharing).transpose()?;
    let usage = part(PartKey::usage()).map(decode_usage).transpose()?;
    part(PartKey::past_usage()).map(decode_past_usage).transpose()?;
    Ok(NodeStatus {
        inventory: Inventory { machine, nvml, neuron: decode_neuron(parts)?, devices },
        labels,
        layout,
        sharing,
        usage,
    })
}

/// Decodes the part `node`: the machine and the state of NVML.
pub fn decode_node(content: &Content) -> Result<(Machine, NvmlState), StatusError> {
    decode_part(&PartKey::node(), content, node::read)
}

/// Decodes the part `labels`.
pub fn decode_labels(content: &Content) -> Result<LabelSet, StatusError> {
    decode_part(&PartKey::labels(), content, node::read_labels)
}

/// Decodes the part `layout`.
pub fn decode_layout(content: &Content) -> Result<NodeLayoutStatus, StatusError> {
    decode_part(&PartKey::layout(), content, layout::read)
}

/// Decodes the part `sharing`.
pub fn decode_sharing(content: &Content) -> Result<SharingStatus, StatusError> {
    decode_part(&PartKey::sharing(), content, sharing::read)
}

/// Decodes the part `usage`. It consists of small items, so the limit on its bytes also limits its memory use.
pub fn decode_usage(content: &Content) -> Result<Usage, StatusError> {
    decode_usage_part(&PartKey::usage(), content, usage::read)
}

/// Decodes the part `past-usage`.
pub fn decode_past_usage(content: &Content) -> Result<Vec<PastUsage>, StatusError> {
    decode_usage_part(&PartKey::past_usage(), content, usage::read_past)
}

fn decode_usage_part<M: Message + Default, T>(
    key: &PartKey,
    content: &Content,
    read: impl FnOnce(M) -> FieldResult<T>,
) -> Result<T, StatusError> {
    let length = content.bytes().len();
    if length > MAX_USAGE_BYTES {
        return Err(StatusError::part(key, StatusProblem::TooLong { length }));
    }
    decode_part(key, content, read)
}

/// Decodes the parts `neuron` and `neuron/<number>`. Returns `None` if there are none.
pub fn decode_neuron(parts: &Parts) -> Result<Option<Neuron>, StatusError> {
    let key = PartKey::neuron();
    let devices = || neuron_parts(parts).filter(|(found, _)| **found != key);
    let count = devices().count();
    if count > MAX_NEURON_DEVICES {
        let limit = MAX_NEURON_DEVICES;
        return Err(StatusError::part(&key, StatusProblem::TooMany { count, limit }));
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
    // Keys sort as text.
    all.devices.sort_by_key(|device| device.number);
    Ok(Some(all))
}

/// Returns the Neuron device number in a key.
fn neuron_number(key: &PartKey) -> Result<u32, StatusError> {
    let text = key.as_str().strip_prefix(NEURON_DEVICE_PREFIX).unwrap_or_default();
    let number = text.parse().ok();
    // A number can be spelled in several ways, but each device has only one part.
    number
        .filter(|number| PartKey::neuron_device(*number) == *key)
        .ok_or_else(|| StatusError::part(key, StatusProblem::NonCanonicalNumber))
}

/// Decodes a part `device/<PCI address>`, using the profile catalogs of the same status.
pub fn decode_device(
    key: &PartKey,
    content: &Content,
    catalogs: &Catalogs,
) -> Result<Device, StatusError> {
    let pci = device_address(key)?;
    decode_part(key, content, |message: v1::Device| {
        device::read(pci, message, |named| catalogs.get(named))
    })
}

/// Decodes all devices, ordered by their addresses.
pub fn decode_devices(parts: &Parts) -> Result<Vec<Device>, StatusError> {
    let catalogs = Catalogs::decode(parts)?;
    let devices = device_parts(parts);
    let devices = devices.map(|(key, content)| decode_device(key, content, &catalogs));
    let mut devices: Vec<Device> = devices.collect::<Result<_, _>>()?;
    // Keys sort as text, addresses sort numerically.
    devices.sort_by_key(|device| device.pci);
    Ok(devices)
}

/// Parts that are devices.
pub fn device_parts(parts: &Parts) -> impl Iterator<Item = (&PartKey, &Content)> {
    let parts = parts.iter();
    parts.filter(|(key, _)| key.as_str().starts_with(DEVICE_PREFIX))
}

/// Parts of the Neuron driver and its devices.
pub fn neuron_parts(parts: &Parts) -> impl Iterator<Item = (&PartKey, &Content)> {
    let is_neurons = |key: &str| key == PartKey::NEURON || key.starts_with(NEURON_DEVICE_PREFIX);
    let parts = parts.iter();
    parts.filter(move |(key, _)| is_neurons(key.as_str()))
}

/// Parts that are profile catalogs.
pub fn profile_parts(parts: &Parts) -> impl Iterator<Item = (&PartKey, &Content)> {
    let parts = parts.iter();
    parts.filter(|(key, _)| key.as_str().starts_with(PROFILES_PREFIX))
}

/// Returns the PCI address in a key.
pub fn device_address(key: &PartKey) -> Result<PciAddress, StatusError> {
    let pci = parse_device_address(key).map_err(|error| StatusError::part(key, error))?;
    // An address can be spelled in several ways, but each device has only one part.
    if PartKey::device(pci) != *key {
        return Err(StatusError::part(key, StatusProblem::NonCanonicalAddress));
    }
    Ok(pci)
}

/// Returns the PCI address in a key that [`device_address`] accepted before. The form of the address is not checked again.
pub fn accepted_device_address(key: &PartKey) -> Option<PciAddress> {
    parse_device_address(key).ok()
}

fn parse_device_address(key: &PartKey) -> Result<PciAddress, ParseError> {
    key.as_str().strip_prefix(DEVICE_PREFIX).unwrap_or_default().parse()
}

impl Catalogs {
    /// Decodes the profile catalogs of a status.
    pub fn decode(parts: &Parts) -> Result<Self, StatusError> {
        let mut catalogs = BTreeMap::new();
        for (key, content) in profile_parts(parts) {
            let catalog = decode_part(key, content, mig::read_profiles)?;
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
    read: impl FnOnce(M) -> FieldResult<T>,
) -> Result<T, StatusError> {
    let message = M::decode(content.bytes()).map_err(|error| StatusError::part(key, error))?;
    read(message).map_err(|error| StatusError::field(key, error))
}

#[cfg(test)]
mod tests;
