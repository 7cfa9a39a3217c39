//! Round trips, deterministic encoding, and rejection of invalid input from a peer with its location.

mod amd_neuron;
mod sharing_and_usage;
mod truncation;

use octavo_model::inventory::{Condition, LinkRemote, Mig, Vendor};
use octavo_model::label::{LabelKey, LabelValue};
use octavo_model::reported::Reported;
use octavo_model::text::{MAX_TEXT_BYTES, MAX_WORD_BYTES};
use octavo_planner::reconcile::{ChangeProgress, DeviceLayoutStatus};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::inventories;

fn labels() -> impl Strategy<Value = LabelSet> {
    let pairs = btree_map("[a-z]{1,6}[.]dev/[a-z]{1,8}", "([a-z0-9]{1,8})?", 0..6);
    pairs.prop_map(|pairs| {
        let pairs = pairs.into_iter();
        let pairs = pairs.map(|(key, value)| {
            let key: LabelKey = key.parse().unwrap();
            let value: LabelValue = value.parse().unwrap();
            (key, value)
        });
        pairs.collect()
    })
}

/// Inventory as read from hardware: the vendor matches the PCI IDs.
fn inventory() -> impl Strategy<Value = Inventory> {
    inventories::inventory().prop_map(|mut inventory| {
        for device in &mut inventory.devices {
            device.vendor = Vendor::from_pci(device.pci_ids.vendor);
        }
        inventory
    })
}

/// Arbitrary layout status, in known and unknown states.
fn layout() -> impl Strategy<Value = NodeLayoutStatus> {
    let text = || "[ -~]{0,12}";
    let progress =
        (text(), 0..9_usize, 0..9_usize, any::<bool>()).prop_map(|fields| ChangeProgress {
            current_step: fields.0,
            done: fields.1,
            steps: fields.1 + fields.2,
            back: fields.3,
        });
    let progress = proptest::option::of(progress);
    let fields = (text(), "[a-z-]{1,12}", text(), progress);
    let devices = btree_map(0..32_u8, fields, 0..4).prop_map(|devices| {
        let devices = devices.into_iter();
        let device = |(number, (name, state, message, progress)): (u8, (_, String, _, _))| {
            DeviceLayoutStatus {
                message,
                progress,
                ..DeviceLayoutStatus::new(
                    PciAddress::new(0, number, 0, 0).unwrap(),
                    name,
                    Reported::parse(&state),
                )
            }
        };
        devices.map(device).collect()
    });
    let maybe = || proptest::option::of(text());
    let words = (maybe(), maybe(), maybe(), maybe(), maybe());
    (words, any::<bool>(), devices).prop_map(
        |((layout, plan, state, notice, drain), by_hand, devices)| NodeLayoutStatus {
            layout,
            is_manual: by_hand,
            plan,
            state: state.as_deref().map(Reported::parse),
            notice,
            drain,
            devices,
            ..NodeLayoutStatus::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn status_round_trips(
        inventory in inventory(), labels in labels(), layout in proptest::option::of(layout()),
    ) {
        let parts = encode(&inventory, &labels, layout.as_ref());
        prop_assert_eq!(&parts, &encode(&inventory, &labels, layout.as_ref()));
        let status = decode(&parts).unwrap();
        prop_assert_eq!(status, NodeStatus { inventory, labels, layout, sharing: None, usage: None });
    }

    #[test]
    fn decoder_never_panics_on_arbitrary_bytes(
        contents in vec((0..11_usize, vec(any::<u8>(), 0..40)), 0..8),
    ) {
        let keys = [
            "node", "labels", "device/0000:07:00.0", "profiles/x", "layout", "sharing", "usage", "later",
            "neuron", "neuron/0", "neuron/00",
        ];
        let parts = contents.into_iter().map(|(key, bytes)| {
            (keys[key].parse().unwrap(), Content::new(bytes))
        });
        let _ = decode(&parts.collect());
    }

    #[test]
    fn decoder_never_panics_on_modified_status(
        inventory in inventory(), place in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let parts = encode(&inventory, &LabelSet::default(), None);
        for (key, content) in parts.iter() {
            let mut bytes = content.bytes().to_vec();
            if bytes.is_empty() {
                continue;
            }
            let place = place.index(bytes.len());
            bytes[place] = byte;
            let _ = decode(&with(&parts, key.as_str(), Content::new(bytes)));
        }
    }
}

fn with(parts: &Parts, key: &str, content: Content) -> Parts {
    let old = parts.iter().map(|(key, content)| (key.clone(), content.clone()));
    old.chain([(key.parse().unwrap(), content)]).collect()
}

fn without(parts: &Parts, start: &str) -> Parts {
    let retained = parts.iter().filter(|(key, _)| !key.as_str().starts_with(start));
    retained.map(|(key, content)| (key.clone(), content.clone())).collect()
}

/// Two MIG-capable GPUs with the same profile catalog.
fn two_gpus() -> Inventory {
    let text = r#"{"apiVersion": "octavo.dev/v1", "kind": "Inventory",
"nvml": {"state": "ready", "driverVersion": "570.133.20", "cudaVersion": "12.8"},
"devices": [
{"pci": "0000:07:00.0", "vendor": "nvidia", "condition": {"state": "working"},
"pciIds": {"vendor": "10de", "device": "20b2", "subsystemVendor": "10de", "subsystemDevice": "1463"},
"mig": {"mode": "enabled", "pendingMode": "enabled", "gpuInstances": [
{"id": 1, "profileId": 19, "placement": {"start": 0, "size": 1}}],
"profiles": [{"id": 19, "index": 0, "name": "1g.10gb", "maxCount": 7, "memoryMiB": 9728, "resources": {
"gpuSlices": 1, "computeSlices": 1, "multiprocessors": 14, "copyEngines": 1, "decoders": 0, "encoders": 0,
"jpegEngines": 0, "ofaEngines": 0}}]}}]}"#;
    let mut inventory = serde_json::from_str::<Inventory>(text).unwrap();
    let mut second = inventory.devices[0].clone();
    second.pci = "0000:0f:00.0".parse().unwrap();
    inventory.devices.push(second);
    inventory
}

#[test]
fn devices_with_equal_profiles_share_a_part() {
    let parts = encode(&two_gpus(), &LabelSet::default(), None);
    let keys: Vec<&str> = parts.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys[..4], ["device/0000:07:00.0", "device/0000:0f:00.0", "labels", "node"]);
    assert_eq!(keys.len(), 5);
    assert_eq!(keys[4], format!("profiles/{:016x}", parts.get(keys[4]).unwrap().digest()));
}

#[test]
fn changing_one_device_changes_one_part() {
    let before = two_gpus();
    let mut after = before.clone();
    after.devices[1].index = Some(7);
    let labels = LabelSet::default();
    let change = encode(&before, &labels, None).change_to(&encode(&after, &labels, None));
    let changed: Vec<&str> = change.changed.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!((changed, change.removed), (vec!["device/0000:0f:00.0"], vec![]));
}

#[test]
fn unknown_parts_and_fields_are_ignored() {
    let inventory = two_gpus();
    let parts = encode(&inventory, &LabelSet::default(), None);
    let newer = with(&parts, "power/0000:07:00.0", Content::new(*b"what is this"));
    assert_eq!(decode(&newer), decode(&parts));

    // Field 1000, a number.
    let mut bytes = parts.get("node").unwrap().bytes().to_vec();
    bytes.extend([0xc0, 0x3e, 0x01]);
    assert_eq!(decode(&with(&parts, "node", Content::new(bytes))), decode(&parts));
    assert_eq!(decode(&without(&parts, "labels")), decode(&parts));
}

/// The status of [`two_gpus`] after applying `edit` to the first device.
fn edited(edit: impl FnOnce(&mut v1::Device)) -> Result<NodeStatus, StatusError> {
    let parts = encode(&two_gpus(), &LabelSet::default(), None);
    let key = "device/0000:07:00.0";
    let mut device = v1::Device::decode(parts.get(key).unwrap().bytes()).unwrap();
    edit(&mut device);
    decode(&with(&parts, key, content(&device)))
}

#[test]
fn unknown_enum_value_uses_fallback_if_available() {
    let first = |edit: fn(&mut v1::Device)| edited(edit).unwrap().inventory.devices.remove(0);
    let device = first(|device| {
        device.mig.as_mut().unwrap().capability = 77;
        device.links = vec![v1::NvLink { link: 3, remote: 77, remote_pci: None }];
    });
    assert_eq!(device.mig, Mig::Unknown);
    assert_eq!(device.links[0].remote, LinkRemote::Unknown);
    assert_eq!(first(|device| device.mig = None).mig, Mig::Unknown);
    assert_eq!(device.condition, Condition::Working);
}

#[test]
fn i12_invalid_device_is_rejected_with_its_field() {
    type Edit = fn(&mut v1::Device);
    let cases: [(Edit, &str, &str); 12] = [
        (|d| d.pci_ids = None, "pci_ids", "it is missing"),
        (|d| d.condition = None, "condition", "it is missing"),
        (
            |d| d.condition.as_mut().unwrap().state = 9,
            "condition.state",
            "9 is not a value that this version knows",
        ),
        (
            |d| d.pci_ids.as_mut().unwrap().device = 0x1_0000,
            "pci_ids.device",
            "65536 is more than the maximum of 65535",
        ),
        (|d| d.uuid = Some("7".into()), "uuid", "\"7\" is not a GPU UUID like GPU-<uuid>"),
        (|d| d.uuid = Some("x".repeat(5000)), "uuid", "5000 bytes are too long for this field"),
        (|d| d.sku = Some("a".into()), "sku", "a SKU without a type"),
        (
            |d| d.compute_capability = Some("9".into()),
            "compute_capability",
            "\"9\" is not a compute capability like \"9.0\"",
        ),
        (
            |d| d.mig.as_mut().unwrap().profiles = "profiles/0".into(),
            "mig.profiles",
            "\"profiles/0\" is not a part of this status",
        ),
        (
            |d| d.mig.as_mut().unwrap().gpu_instances[0].placement = None,
            "mig.gpu_instances[0].placement",
            "it is missing",
        ),
        (
            |d| d.mig.as_mut().unwrap().gpu_instances = vec![v1::GpuInstance::default(); 300],
            "mig.gpu_instances",
            "300 is more than the maximum of 256",
        ),
        (
            |d| d.processes = vec![v1::Process::default()],
            "processes[0].kind",
            "0 is not a value that this version knows",
        ),
    ];
    for (edit, place, problem) in cases {
        let error = edited(edit).unwrap_err();
        assert_eq!(error.field, place);
        assert_eq!(error.problem.to_string(), problem, "{place}");
        assert_eq!(
            error.to_string(),
            format!("invalid part device/0000:07:00.0 of a status, at {place}")
        );
    }
}

#[test]
fn i12_invalid_layout_is_rejected_with_its_field() {
    type Edit = fn(&mut v1::Layout);
    let cases: [(Edit, &str); 10] = [
        (|l| l.layout = Some("x".repeat(MAX_WORD_BYTES + 1)), "layout"),
        (|l| l.plan = Some("x".repeat(MAX_WORD_BYTES + 1)), "plan"),
        (|l| l.state = Some("x".repeat(MAX_WORD_BYTES + 1)), "state"),
        (|l| l.notice = Some("x".repeat(MAX_TEXT_BYTES + 1)), "notice"),
        (|l| l.drain = Some("x".repeat(MAX_TEXT_BYTES + 1)), "drain"),
        (|l| l.devices = vec![v1::LayoutDevice::default(); 300], "devices"),
        (|l| l.devices[1].pci = "7".to_owned(), "devices[1].pci"),
        (|l| l.devices[1].state = "x".repeat(MAX_WORD_BYTES + 1), "devices[1].state"),
        (|l| l.devices[1].message = "x".repeat(MAX_TEXT_BYTES + 1), "devices[1].message"),
        (
            |l| {
                l.devices[0].progress = Some(v1::LayoutProgress {
                    doing: "x".repeat(MAX_TEXT_BYTES + 1),
                    ..v1::LayoutProgress::default()
                });
            },
            "devices[0].progress.doing",
        ),
    ];
    let device = |pci: &str| v1::LayoutDevice {
        pci: pci.to_owned(),
        state: "resting".to_owned(),
        ..v1::LayoutDevice::default()
    };
    let good = v1::Layout {
        layout: Some("serving".to_owned()),
        devices: vec![device("0000:07:00.0"), device("0000:08:00.0")],
        ..v1::Layout::default()
    };
    let parts = encode(&two_gpus(), &LabelSet::default(), None);
    let read = |layout: &v1::Layout| decode(&with(&parts, "layout", content(layout)));
    // An unknown state is preserved as received.
    assert_eq!(
        read(&good).unwrap().layout.unwrap().devices[1].state,
        Reported::Unknown("resting".to_owned())
    );
    for (edit, place) in cases {
        let mut bad = good.clone();
        edit(&mut bad);
        let error = read(&bad).unwrap_err();
        assert_eq!((error.part.as_str(), error.field.as_str()), ("layout", place));
    }
}

#[test]
fn i12_invalid_part_is_rejected_by_key() {
    let parts = encode(&two_gpus(), &LabelSet::default(), None);
    let mangled = || Content::new([0xff; 3]);
    let profiles = parts.iter().last().unwrap().0.to_string();
    let nothing = || content(&v1::Node::default());
    let bad_label = v1::Labels { labels: [("a b".to_owned(), String::new())].into() };
    for (parts, key, place) in [
        (without(&parts, "node"), "node", ""),
        (without(&parts, "profiles"), "device/0000:07:00.0", "mig.profiles"),
        (with(&parts, "node", mangled()), "node", ""),
        (with(&parts, "node", nothing()), "node", "nvml"),
        (with(&parts, "labels", mangled()), "labels", ""),
        (with(&parts, "labels", content(&bad_label)), "labels", "labels"),
        (with(&parts, &profiles, mangled()), &profiles, ""),
        (with(&parts, "device/7", mangled()), "device/7", ""),
        (with(&parts, "device/", mangled()), "device/", ""),
        (with(&parts, "device/00000000:07:00.0", mangled()), "device/00000000:07:00.0", ""),
    ] {
        let error = decode(&parts).unwrap_err();
        assert_eq!((error.part.as_str(), error.field.as_str()), (key, place), "{error:?}");
    }
}
