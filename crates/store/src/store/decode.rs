//! Decoding of a status. An update of a known status decodes only what changed, with the same result as a complete
//! decoding.
//!
//! Most changes affect one device, and a peer can send small changes of a large status at any rate.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_fleet::summary::{
    DevicePlace, DeviceSummary, LayoutSummary, NodeSummary, SharingSummary, UsageRank,
};
use octavo_history::{DeviceSample, samples};
use octavo_model::id::{PciAddress, TypeName};
use octavo_stream::protocol::{Content, PartKey, Parts};
use octavo_stream::status::{self, StatusError};

use super::intern::ContentInterner;
use crate::fleet::{Node, StatusSummary};

/// Decodes `parts` to a summary, using the previous state of the node if there is one.
pub(super) fn decode(
    parts: &Parts,
    known: Option<&Node>,
    interned: &mut ContentInterner,
) -> Result<StatusSummary, StatusError> {
    match known {
        Some(known) if has_same_context(parts, &known.parts) => {
            decode_changes(parts, known, interned)
        }
        _ => {
            let status = status::decode(parts)?;
            let labels = interned.insert(parts, status.labels);
            let summary = StatusSummary::new(&status.inventory, labels, status.layout.as_ref());
            let summary = summary.with_sharing(status.sharing.as_ref().map(SharingSummary::of));
            let devices = status.inventory.devices.iter();
            let types = devices
                .filter_map(|device| Some((device.pci, device.identity.type_name()?.clone())));
            let types: BTreeMap<PciAddress, TypeName> = types.collect();
            let samples = status.usage.as_ref().map(|usage| samples(usage, &types).into());
            let summary = summary.with_samples(samples.unwrap_or_default());
            Ok(summary.with_usage(status.usage.as_ref()))
        }
    }
}

/// Returns whether device parts have the same meaning in both: it depends on the node's part and on the profile
/// catalogs. Neuron parts affect the meaning of other parts, so statuses with them, which are small, are decoded
/// completely.
fn has_same_context(one: &Parts, other: &Parts) -> bool {
    let has_neuron = |parts| status::neuron_parts(parts).next().is_some();
    one.get(PartKey::NODE) == other.get(PartKey::NODE)
        && !has_neuron(one)
        && !has_neuron(other)
        && status::profile_parts(one).eq(status::profile_parts(other))
}

fn decode_changes(
    parts: &Parts,
    known: &Node,
    interned: &mut ContentInterner,
) -> Result<StatusSummary, StatusError> {
    let nvml = &known.summary.nvml;
    let mut devices = Vec::with_capacity(known.devices.len());
    for (key, content) in status::device_parts(parts) {
        let is_same = known.parts.get(key.as_str()) == Some(content);
        devices.push(if let Some(device) = known_device(known, key).filter(|_| is_same) {
            device.clone()
        } else {
            let catalogs = interned.catalogs(parts)?;
            DeviceSummary::new(&status::decode_device(key, content, &catalogs)?, nvml)
        });
    }
    // Keys sort as text, addresses sort numerically.
    devices.sort_by_key(|device| device.facts.place);
    let layout = unless_same(parts, known, PartKey::LAYOUT, &known.summary.layout, |content| {
        let layout = content.map(status::decode_layout).transpose()?;
        Ok(layout.as_ref().map(LayoutSummary::of))
    })?;
    let sharing =
        unless_same(parts, known, PartKey::SHARING, &known.summary.sharing_status, |content| {
            let sharing = content.map(status::decode_sharing).transpose()?;
            Ok(sharing.as_ref().map(SharingSummary::of))
        })?;
    // Usage changes often and is decoded on request, so only its sort keys and samples are stored beside the part. An
    // invalid part is refused.
    let of_usage = (known.usage.clone(), Arc::clone(&known.samples));
    let (usage, samples) = unless_same(parts, known, PartKey::USAGE, &of_usage, |content| {
        let Some(usage) = content.map(status::decode_usage).transpose()? else {
            return Ok((UsageRank::default(), Arc::default()));
        };
        let types = devices.iter().filter_map(|device| {
            let DevicePlace::Pci(pci) = device.facts.place else { return None };
            Some((pci, device.type_name.clone()?))
        });
        Ok((UsageRank::from_usage(&usage), samples(&usage, &types.collect()).into()))
    })?;
    unless_same(parts, known, PartKey::PAST_USAGE, &(), |content| {
        content.map(status::decode_past_usage).transpose()?;
        Ok(())
    })?;
    let labels = unless_same(parts, known, PartKey::LABELS, &known.labels, |content| {
        let labels = content.map(status::decode_labels).transpose()?;
        Ok(interned.insert(parts, labels.unwrap_or_default()))
    })?;
    let summary = NodeSummary::new(&devices, nvml, layout);
    let samples = with_types(samples, &devices);
    let whole = StatusSummary { labels, devices, summary, usage: UsageRank::default(), samples };
    Ok(whole.with_sharing(sharing).with_usage_rank(usage))
}

/// Content that is derived from one part: `value` of the known node if the part is the same, otherwise decoded.
fn unless_same<T: Clone>(
    parts: &Parts,
    known: &Node,
    key: &str,
    value: &T,
    decode: impl FnOnce(Option<&Content>) -> Result<T, StatusError>,
) -> Result<T, StatusError> {
    let content = parts.get(key);
    if content == known.parts.get(key) {
        return Ok(value.clone());
    }
    decode(content)
}

/// Sets the types of the devices, which can change without their usage.
fn with_types(samples: Arc<[DeviceSample]>, devices: &[DeviceSummary]) -> Arc<[DeviceSample]> {
    let type_of = |sample: &DeviceSample| {
        let device = device_at(devices, sample.key.device);
        device.and_then(|device| device.type_name.as_ref())
    };
    if samples.iter().all(|sample| sample.type_name.as_ref() == type_of(sample)) {
        return samples;
    }
    let with_type = |sample: &DeviceSample| DeviceSample {
        type_name: type_of(sample).cloned(),
        ..sample.clone()
    };
    samples.iter().map(with_type).collect()
}

/// Known summary of the device whose part has this key.
fn known_device<'a>(known: &'a Node, key: &PartKey) -> Option<&'a DeviceSummary> {
    device_at(&known.devices, status::accepted_device_address(key)?)
}

/// The device at this address; `devices` are ordered by their places.
fn device_at(devices: &[DeviceSummary], pci: PciAddress) -> Option<&DeviceSummary> {
    let place = DevicePlace::Pci(pci);
    let at = devices.binary_search_by_key(&place, |device| device.facts.place);
    devices.get(at.ok()?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use octavo_stream::proto::v1;
    use octavo_stream::protocol::Run;
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::clock::Moment;
    use crate::fleet::{Freshness, ReportingAgent};

    fn bytes(message: &impl Message) -> Vec<u8> {
        message.encode_to_vec()
    }

    fn node(state: v1::nvml::State) -> Vec<u8> {
        bytes(&v1::Node {
            nvml: Some(v1::Nvml {
                state: state.into(),
                driver_version: Some("570.133.20".to_owned()),
                ..v1::Nvml::default()
            }),
            ..v1::Node::default()
        })
    }

    fn device(memory: u64, profiles: &str) -> Vec<u8> {
        bytes(&v1::Device {
            pci_ids: Some(v1::PciIds::default()),
            condition: Some(v1::Condition {
                state: v1::condition::State::Working.into(),
                ..v1::Condition::default()
            }),
            memory_mib: Some(memory),
            mig: Some(v1::Mig {
                capability: v1::mig::Capability::Capable.into(),
                profiles: profiles.to_owned(),
                ..v1::Mig::default()
            }),
            ..v1::Device::default()
        })
    }

    fn label(value: &str) -> Vec<u8> {
        let labels = [("octavo.dev/type".to_owned(), value.to_owned())];
        bytes(&v1::Labels { labels: labels.into() })
    }

    fn layout(state: &str) -> Vec<u8> {
        bytes(&v1::Layout {
            layout: Some("serving".to_owned()),
            state: Some(state.to_owned()),
            ..v1::Layout::default()
        })
    }

    fn sharing(state: &str) -> Vec<u8> {
        bytes(&v1::Sharing {
            mode: "embedded".to_owned(),
            state: state.to_owned(),
            ..v1::Sharing::default()
        })
    }

    fn usage(utilization: u32) -> Vec<u8> {
        let device = v1::DeviceUsage {
            pci: "0000:07:00.0".to_owned(),
            utilization: Some(utilization),
            units: vec![v1::UnitUsage {
                tenants: vec![v1::Tenant {
                    memory_mib: Some(utilization.into()),
                    ..v1::Tenant::default()
                }],
                ..v1::UnitUsage::default()
            }],
            ..v1::DeviceUsage::default()
        };
        bytes(&v1::Usage { devices: vec![device], ..v1::Usage::default() })
    }

    fn neuron(version: &str) -> Vec<u8> {
        bytes(&v1::Neuron { driver_version: Some(version.to_owned()), ..v1::Neuron::default() })
    }

    fn neuron_device(memory: u64) -> Vec<u8> {
        bytes(&v1::NeuronDevice { memory_used_mib: Some(memory), ..v1::NeuronDevice::default() })
    }

    /// Possible contents of a part; the last one is invalid.
    fn choices(key: &str) -> Vec<Vec<u8>> {
        let garbage = b"\xff\xff\xff".to_vec();
        match key {
            "node" => vec![node(v1::nvml::State::Ready), node(v1::nvml::State::Lost), garbage],
            "labels" => vec![label("one"), label("two"), label("not a value")],
            "layout" => vec![layout("applied"), layout("blocked"), garbage],
            "sharing" => vec![sharing("sharing-in-force"), sharing("sharing-refused"), garbage],
            "usage" => vec![usage(5), usage(100), usage(101)],
            "neuron" => vec![neuron("2.26"), neuron("2.30"), garbage],
            "neuron/0" => vec![neuron_device(0), neuron_device(7), garbage],
            "profiles/a" | "profiles/b" => vec![Vec::new(), garbage],
            _ => vec![device(1, ""), device(2, "profiles/a"), device(3, "profiles/b"), garbage],
        }
    }

    const KEYS: [&str; 14] = [
        "node",
        "labels",
        "layout",
        "sharing",
        "usage",
        "neuron",
        "neuron/0",
        "profiles/a",
        "profiles/b",
        "device/0000:07:00.0",
        "device/0000:08:00.0",
        // Text and number sort differently.
        "device/10000:01:00.0",
        "device/00000000:07:00.0",
        "another/part",
    ];

    fn statuses() -> impl Strategy<Value = (Parts, Parts)> {
        let part = (
            prop::option::weighted(0.9, 0_usize..30),
            prop::option::weighted(0.2, prop::option::weighted(0.7, 0_usize..30)),
        );
        prop::collection::vec(part, KEYS.len()).prop_map(|drawn| {
            let (mut before, mut after) = (Vec::new(), Vec::new());
            for (key, (was, change)) in KEYS.into_iter().zip(drawn) {
                let choices = choices(key);
                let part = |drawn: usize| {
                    let good = choices.len() - 1;
                    let at = if drawn == 0 { good } else { drawn % good };
                    (key.parse().unwrap(), Content::new(choices[at].clone()))
                };
                // A noncanonical key makes the whole status invalid, so it is generated rarely.
                let odd = key.starts_with("device/00000000");
                let was = was.filter(|drawn| !odd || *drawn == 0);
                let is = change.unwrap_or(was).filter(|drawn| !odd || *drawn == 0);
                before.extend(was.map(part));
                after.extend(is.map(part));
            }
            (before.into_iter().collect(), after.into_iter().collect())
        })
    }

    fn known(parts: Parts) -> Option<Node> {
        let summary = decode(&parts, None, &mut ContentInterner::default()).ok()?;
        let origin = ReportingAgent {
            name: "gpu-1".parse().unwrap(),
            run: Run { epoch: 1, boot_id: String::new() },
            agent_version: String::new(),
        };
        let fresh = Freshness::new(Moment::default(), Duration::from_secs(1));
        Some(Node::new(origin, parts, summary, fresh))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn incremental_decoding_equals_full_decoding((before, after) in statuses()) {
            let text = |error: StatusError| octavo_toolkit::error::chain(&error);
            let known = known(before);
            let mut interned = ContentInterner::default();
            let part = decode(&after, known.as_ref(), &mut interned).map_err(text);
            let again = decode(&after, known.as_ref(), &mut interned).map_err(text);
            prop_assert_eq!(&part, &again);
            let whole = decode(&after, None, &mut ContentInterner::default()).map_err(text);
            prop_assert_eq!(part, whole);
        }
    }
}
