//! The node status in the Node's annotation `octavo.dev/status`: JSON for users and programs that read Node objects.
//!
//! It changes when a state changes, not with every step. It is never longer than 16 KiB, regardless of the number of
//! devices and the length of their messages.

use octavo_model::inventory::{Inventory, Mig, MigMode};
use octavo_model::reported::Reported;
use octavo_model::sharing_status::{ResourceStatus, SharingStatus};
use octavo_model::text::join;
use octavo_planner::reconcile::{DeviceLayoutStatus, NodeLayoutStatus};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::ConflictingKey;
use super::drain::{Blocker, BlockerName, DrainStatus};

/// Maximum length of the annotation, in bytes.
const MAX_ANNOTATION_BYTES: usize = 16 << 10;
/// Maximum number of characters of a device's message, decreased step by step if the annotation is too long.
const MESSAGE_CHAR_LIMITS: [usize; 3] = [600, 120, 0];
/// Maximum number of blockers listed for a drain, and maximum number of characters of a reason.
const MAX_BLOCKERS: usize = 12;
const MAX_REASON_CHARS: usize = 200;
/// Maximum number of resources and of kept device IDs in the annotation.
const MAX_RESOURCES: usize = 16;
const MAX_RETAINED_IDS: usize = 4;

#[skip_serializing_none]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus<'a> {
    layout: Option<&'a str>,
    chosen_by: Option<&'a str>,
    /// First digits of the SHA-256 of the layout file.
    layouts: Option<&'a str>,
    plan: Option<&'a str>,
    state: Option<&'a str>,
    message: Option<String>,
    /// Label keys that another writer owns.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    left_to_others: &'a [ConflictingKey],
    drain: Option<Drain<'a>>,
    sharing: Option<Sharing<'a>>,
    devices: Vec<Device<'a>>,
    /// Number of devices omitted for size.
    #[serde(skip_serializing_if = "is_zero")]
    more_devices: usize,
}

#[skip_serializing_none]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Drain<'a> {
    policy: &'a str,
    phase: &'a str,
    message: Option<String>,
    waits_for: Vec<Blocker>,
    /// Number of blockers omitted for size.
    #[serde(skip_serializing_if = "is_zero")]
    more_waits_for: usize,
}

#[skip_serializing_none]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sharing<'a> {
    mode: &'a str,
    state: &'a str,
    message: Option<String>,
    resources: Vec<ResourceStatus>,
    /// Device IDs that pods hold and that differ from the desired sharing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept: Vec<String>,
    /// Number of device IDs omitted for size.
    #[serde(skip_serializing_if = "is_zero")]
    more_kept: usize,
}

#[skip_serializing_none]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Device<'a> {
    name: &'a str,
    pci: String,
    state: &'a str,
    geometry: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Returns the value of the annotation. If even the shortest messages are too long, devices are omitted from the end
/// and counted.
pub fn annotation(
    status: &NodeLayoutStatus,
    inventory: &Inventory,
    yielded: &[ConflictingKey],
    drain: Option<&DrainStatus>,
) -> String {
    let mut text = String::new();
    let extras = (yielded, drain);
    for longest in MESSAGE_CHAR_LIMITS {
        text = write(status, inventory, extras, (longest, usize::MAX));
        if text.len() <= MAX_ANNOTATION_BYTES {
            return text;
        }
    }
    let mut most = status.devices.len();
    while text.len() > MAX_ANNOTATION_BYTES && most > 0 {
        most /= 2;
        text = write(status, inventory, extras, (0, most));
    }
    text
}

fn write(
    status: &NodeLayoutStatus,
    inventory: &Inventory,
    (yielded, drain): (&[ConflictingKey], Option<&DrainStatus>),
    (longest, most): (usize, usize),
) -> String {
    let devices = status.devices.iter().take(most);
    let status = NodeStatus {
        layout: status.layout.as_deref(),
        chosen_by: chosen_by(status),
        layouts: status.layouts_version.as_deref(),
        plan: status.plan.as_deref(),
        state: status.state.as_ref().map(Reported::as_str),
        message: status.notice.as_deref().map(|notice| shorten(notice, 600)),
        left_to_others: yielded.get(..most).unwrap_or(yielded),
        drain: drain.map(drain_status),
        sharing: status.sharing.as_ref().map(sharing),
        devices: devices
            .map(|device| Device {
                name: &device.name,
                pci: device.pci.to_string(),
                state: device.state.as_str(),
                geometry: geometry(device, inventory),
                message: shorten(&device.message, longest),
            })
            .collect(),
        more_devices: status.devices.len().saturating_sub(most),
    };
    serde_json::to_string(&status).unwrap_or_default()
}

fn sharing(status: &SharingStatus) -> Sharing<'_> {
    let resources = status.resources.iter().take(MAX_RESOURCES);
    let retained = status.retained.iter().take(MAX_RETAINED_IDS);
    Sharing {
        mode: status.mode.as_str(),
        state: status.state.as_str(),
        message: status.message.as_deref().map(|text| shorten(text, 300)),
        resources: resources
            .map(|resource| ResourceStatus {
                name: resource.name.clone(),
                units: Vec::new(),
                ..*resource
            })
            .collect(),
        kept: retained
            .map(|one| {
                let by = format!("{} of {}/{}", one.id, one.namespace, one.pod);
                shorten(&by, MAX_REASON_CHARS)
            })
            .collect(),
        more_kept: status.retained.len().saturating_sub(MAX_RETAINED_IDS),
    }
}

fn drain_status(status: &DrainStatus) -> Drain<'_> {
    let named = status.waits_for.iter().take(MAX_BLOCKERS);
    Drain {
        policy: status.policy,
        phase: status.phase.as_str(),
        message: status.message.as_deref().map(|text| shorten(text, 600)),
        waits_for: named
            .map(|waiting| Blocker {
                // A Kubernetes name with its namespace, or the path of a program.
                name: match &waiting.name {
                    BlockerName::Pod(name) => BlockerName::Pod(shorten(name, 320)),
                    BlockerName::Process(name) => BlockerName::Process(shorten(name, 320)),
                },
                reason: shorten(&waiting.reason, MAX_REASON_CHARS),
            })
            .collect(),
        more_waits_for: status.waits_for.len().saturating_sub(MAX_BLOCKERS),
    }
}

fn chosen_by(status: &NodeLayoutStatus) -> Option<&str> {
    status.layout.as_ref()?;
    Some(match (status.label, status.is_manual) {
        (Some(label), _) => label,
        (None, true) => "hand",
        (None, false) => "settings",
    })
}

/// Partitions of a device in the order of their slices: `3g.40gb,2g.20gb`, or `disabled` for a whole GPU.
fn geometry(device: &DeviceLayoutStatus, inventory: &Inventory) -> Option<String> {
    let mut devices = inventory.devices.iter();
    let known = devices.find(|known| known.pci == device.pci)?;
    let Mig::Capable(state) = &known.mig else {
        return None;
    };
    if state.current == MigMode::Disabled {
        return Some("disabled".to_owned());
    }
    let mut instances: Vec<_> = state.gpu_instances.iter().collect();
    instances.sort_by_key(|instance| instance.placement.start);
    Some(join(instances.into_iter().map(|instance| state.profile_name(instance)), ","))
}

fn shorten(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(longest.saturating_sub(1)).collect();
    if longest > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::super::drain::Stage;
    use octavo_model::reason::Reason;
    use octavo_model::resource::{ResourceName, ShareId};
    use octavo_model::sharing_status::{DeviceProvider, RetainedId};

    use super::*;

    fn empty() -> Inventory {
        Inventory::default()
    }

    fn status(devices: usize, message: &str) -> NodeLayoutStatus {
        let device = |number: usize| DeviceLayoutStatus {
            message: message.to_owned(),
            ..DeviceLayoutStatus::new(
                format!("0000:{number:02x}:00.0").parse().unwrap(),
                format!("GPU {number}"),
                Reason::Blocked.into(),
            )
        };
        NodeLayoutStatus {
            layout: Some("night".to_owned()),
            label: Some("octavo.dev/layout"),
            layouts_version: Some("0123456789ab".to_owned()),
            state: Some(Reason::Blocked.into()),
            devices: (0..devices).map(device).collect(),
            ..NodeLayoutStatus::default()
        }
    }

    #[test]
    fn annotation_names_layout_source_and_blockers() {
        let yielded = [ConflictingKey {
            key: "nvidia.com/gpu.count".to_owned(),
            owner: "nfd-master".to_owned(),
        }];
        let text = annotation(&status(1, "pid 7"), &empty(), &yielded, None);
        assert_eq!(
            text,
            r#"{"layout":"night","chosenBy":"octavo.dev/layout","layouts":"0123456789ab","state":"blocked","leftToOthers":[{"key":"nvidia.com/gpu.count","owner":"nfd-master"}],"devices":[{"name":"GPU 0","pci":"0000:00:00.0","state":"blocked","message":"pid 7"}]}"#
        );
        let text = annotation(&NodeLayoutStatus::default(), &empty(), &[], None);
        assert_eq!(text, r#"{"devices":[]}"#);
    }

    /// Sharing status with texts of this length and this number of kept device IDs.
    fn shared(length: usize, retained_count: usize) -> SharingStatus {
        let retained_id = RetainedId {
            id: ShareId::replica("GPU-5fd4087b-86f3-7a43-b711-4771313afc50", 5),
            namespace: "team-a".to_owned(),
            pod: format!("notebook{}", "ö".repeat(length)),
            container: "main".to_owned(),
            resource: "nvidia.com/gpu".to_owned(),
        };
        let resource = ResourceStatus {
            name: ResourceName::gpu(),
            wanted: 24,
            allocatable: Some(23),
            units: Vec::new(),
        };
        SharingStatus {
            mode: DeviceProvider::Embedded.into(),
            state: Reason::SharingHeld.into(),
            message: Some(format!("one is held{}", "ö".repeat(length))),
            resources: vec![resource],
            retained: vec![retained_id; retained_count],
            ..SharingStatus::default()
        }
    }

    #[test]
    fn annotation_contains_sharing_status() {
        let status =
            NodeLayoutStatus { sharing: Some(shared(0, 1)), ..NodeLayoutStatus::default() };
        assert_eq!(
            annotation(&status, &empty(), &[], None),
            r#"{"sharing":{"mode":"embedded","state":"sharing-held","message":"one is held","resources":[{"name":"nvidia.com/gpu","wanted":24,"allocatable":23}],"kept":["GPU-5fd4087b-86f3-7a43-b711-4771313afc50::5 of team-a/notebook"]},"devices":[]}"#
        );
    }

    #[test]
    fn annotation_lists_drain_blockers_with_reasons() {
        let waiting = |who, reason: &str| Blocker { name: who, reason: reason.to_owned() };
        let drain_status = DrainStatus {
            policy: "affected",
            phase: Stage::Evicting,
            message: None,
            waits_for: vec![
                waiting(BlockerName::Pod("team-a/notebook-7".to_owned()), "is ending"),
                waiting(BlockerName::Process("pid 7, python".to_owned()), "it is no pod's"),
            ],
        };
        let text = annotation(&NodeLayoutStatus::default(), &empty(), &[], Some(&drain_status));
        assert_eq!(
            text,
            r#"{"drain":{"policy":"affected","phase":"emptying","waitsFor":[{"pod":"team-a/notebook-7","reason":"is ending"},{"process":"pid 7, python","reason":"it is no pod's"}]},"devices":[]}"#
        );
    }

    #[test]
    fn annotation_never_exceeds_its_size_limit() {
        for (devices, length) in [(16, 5000), (64, 5000), (200, 5000), (16, 0)] {
            let waiting = Blocker {
                name: BlockerName::Pod("ö".repeat(length)),
                reason: "ü".repeat(length),
            };
            let drain_status = DrainStatus {
                policy: "node",
                phase: Stage::Evicting,
                message: Some("ä".repeat(length)),
                waits_for: vec![waiting; 300],
            };
            let mut status = status(devices, &"ä".repeat(length));
            status.sharing = Some(shared(length, 300));
            let text = annotation(&status, &empty(), &[], Some(&drain_status));
            assert!(text.len() <= MAX_ANNOTATION_BYTES, "{devices}: {}", text.len());
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            let listed = read["devices"].as_array().unwrap().len();
            let left = usize::try_from(read["moreDevices"].as_u64().unwrap_or_default()).unwrap();
            assert_eq!(listed + left, devices);
            let drain = &read["drain"];
            let listed = drain["waitsFor"].as_array().unwrap().len();
            let left = usize::try_from(drain["moreWaitsFor"].as_u64().unwrap()).unwrap();
            assert_eq!(listed + left, 300);
            assert_eq!(read["sharing"]["moreKept"], 296);
        }
    }
}
