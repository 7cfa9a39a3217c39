//! Where a node stands, as its Node's annotation `octavo.dev/status` says it: JSON for people and programs that look at Nodes.
//!
//! It changes when something turns and not with every step, and it is never longer than 16 KiB, however many devices there are
//! and however much there is to say of them.

use serde::Serialize;

use crate::domain::inventory::{Inventory, Mig, MigMode};
use crate::domain::node::Yielded;
use crate::domain::reconcile::{DeviceStatus, Status};

/// Longest annotation, in bytes.
const LONGEST: usize = 16 << 10;
/// Longest message of one device, in characters, at first and where that is still too much for all.
const MESSAGES: [usize; 3] = [600, 120, 0];

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen_by: Option<&'a str>,
    /// The file of layouts, by the first digits of its SHA-256.
    #[serde(skip_serializing_if = "Option::is_none")]
    layouts: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Keys that somebody else writes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_to_others: Vec<Left<'a>>,
    devices: Vec<Device<'a>>,
    /// Devices for which there was no room.
    #[serde(skip_serializing_if = "is_zero")]
    more_devices: usize,
}

#[derive(Debug, Serialize)]
struct Left<'a> {
    key: &'a str,
    owner: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Device<'a> {
    name: &'a str,
    pci: String,
    state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    geometry: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The annotation's value. Where even the shortest form is too long, devices are left out from the end and counted.
pub fn annotation(status: &Status, inventory: &Inventory, yielded: &[Yielded]) -> String {
    let mut text = String::new();
    for longest in MESSAGES {
        text = write(status, inventory, yielded, (longest, usize::MAX));
        if text.len() <= LONGEST {
            return text;
        }
    }
    let mut most = status.devices.len();
    while text.len() > LONGEST && most > 0 {
        most /= 2;
        text = write(status, inventory, yielded, (0, most));
    }
    text
}

fn write(
    status: &Status,
    inventory: &Inventory,
    yielded: &[Yielded],
    (longest, most): (usize, usize),
) -> String {
    let devices = status.devices.iter().take(most);
    let left = yielded.iter().take(most);
    let status = NodeStatus {
        layout: status.layout.as_deref(),
        chosen_by: chosen_by(status),
        layouts: status.layouts.as_deref(),
        plan: status.plan.as_deref(),
        state: status.state,
        message: status.notice.as_deref().map(|notice| cut(notice, 600)),
        left_to_others: left
            .map(|one| Left {
                key: &one.key,
                owner: &one.owner,
            })
            .collect(),
        devices: devices
            .map(|device| Device {
                name: &device.name,
                pci: device.pci.to_string(),
                state: device.state,
                geometry: geometry(device, inventory),
                message: cut(&device.message, longest),
            })
            .collect(),
        more_devices: status.devices.len().saturating_sub(most),
    };
    serde_json::to_string(&status).unwrap_or_default()
}

fn chosen_by(status: &Status) -> Option<&str> {
    status.layout.as_ref()?;
    Some(match (status.label, status.by_hand) {
        (Some(label), _) => label,
        (None, true) => "hand",
        (None, false) => "settings",
    })
}

/// What a device has, in the order of its slices: `3g.40gb,2g.20gb`, or `disabled` for a whole GPU.
fn geometry(device: &DeviceStatus, inventory: &Inventory) -> Option<String> {
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
    let names = instances.into_iter().map(|instance| {
        let profile = state.catalog.by_id(instance.profile_id);
        profile.map_or_else(
            || format!("profile {}", instance.profile_id),
            |profile| profile.name.to_string(),
        )
    });
    Some(names.collect::<Vec<String>>().join(","))
}

fn cut(text: &str, longest: usize) -> String {
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
    use super::*;
    use crate::domain::inventory::{Machine, NvmlState};

    fn empty() -> Inventory {
        Inventory {
            machine: Machine::default(),
            nvml: NvmlState::Loading,
            devices: Vec::new(),
        }
    }

    fn status(devices: usize, message: &str) -> Status {
        let device = |number: usize| DeviceStatus {
            pci: format!("0000:{number:02x}:00.0").parse().unwrap(),
            name: format!("GPU {number}"),
            state: "blocked",
            message: message.to_owned(),
            is_held: false,
            holders: Vec::new(),
            waits_for_holders: false,
            progress: None,
        };
        Status {
            layout: Some("night".to_owned()),
            label: Some("octavo.dev/layout"),
            layouts: Some("0123456789ab".to_owned()),
            state: Some("blocked"),
            devices: (0..devices).map(device).collect(),
            ..Status::default()
        }
    }

    #[test]
    fn it_says_what_was_chosen_by_whom_and_who_is_in_the_way() {
        let yielded = [Yielded {
            key: "nvidia.com/gpu.count".to_owned(),
            owner: "nfd-master".to_owned(),
        }];
        let text = annotation(&status(1, "pid 7"), &empty(), &yielded);
        assert_eq!(
            text,
            r#"{"layout":"night","chosenBy":"octavo.dev/layout","layouts":"0123456789ab","state":"blocked","leftToOthers":[{"key":"nvidia.com/gpu.count","owner":"nfd-master"}],"devices":[{"name":"GPU 0","pci":"0000:00:00.0","state":"blocked","message":"pid 7"}]}"#
        );
        let text = annotation(&Status::default(), &empty(), &[]);
        assert_eq!(text, r#"{"devices":[]}"#);
    }

    #[test]
    fn however_much_there_is_to_say_it_fits() {
        for (devices, length) in [(16, 5000), (64, 5000), (200, 5000), (16, 0)] {
            let text = annotation(&status(devices, &"ä".repeat(length)), &empty(), &[]);
            assert!(text.len() <= LONGEST, "{devices}: {}", text.len());
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            let told = read["devices"].as_array().unwrap().len();
            let left = usize::try_from(read["moreDevices"].as_u64().unwrap_or_default()).unwrap();
            assert_eq!(told + left, devices);
        }
    }
}
