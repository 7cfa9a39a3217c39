//! Where the loop leaves what it saw for the uplink: the latest and nothing else, so that neither waits for the other.

use tokio::sync::watch;
use tracing::{info, warn};

use crate::domain::fleet::LayoutStatus;
use crate::domain::inventory::{Inventory, Problem};
use crate::domain::labels::LabelSet;
use crate::domain::reconcile::Status;
use crate::domain::stream::Parts;
use crate::wire::status::{self, MOST, MOST_PROCESSES};
use crate::wire::stream::{LARGEST_STATUS, MOST_PARTS};

/// The loop's end.
#[derive(Debug)]
pub struct Outbox {
    latest: watch::Sender<Latest>,
    shortened: bool,
}

/// What the uplink finds there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Latest {
    /// Nobody has looked yet.
    #[default]
    Nothing,
    /// The status.
    Status(Parts),
    /// No aggregator would take the status: reporting less would be a lie.
    TooLarge,
}

/// Bytes of a part in a message beside key and content: two tags and three lengths.
const FRAME: usize = 16;
/// Processes of one device that are told where all would be too many.
const FEW: usize = 64;
/// Characters of a text that are told where all would be too many.
const SHORT: usize = 256;

/// An outbox, and the uplink's end of it.
pub(super) fn outbox() -> (Outbox, watch::Receiver<Latest>) {
    let (latest, uplink) = watch::channel(Latest::default());
    let outbox = Outbox {
        latest,
        shortened: false,
    };
    (outbox, uplink)
}

impl Outbox {
    /// The node is like this now.
    pub fn put(&mut self, inventory: &Inventory, labels: &LabelSet, layout: Option<&Status>) {
        let layout = layout.and_then(LayoutStatus::of);
        let whole = status::encode(inventory, labels, layout.as_ref());
        let fits = fits(inventory, &whole);
        if fits == self.shortened {
            self.shortened = !fits;
            if fits {
                info!("the status is reported whole again");
            } else {
                warn!("the status is too large to be reported whole: lists are cut");
            }
        }
        let latest = if fits {
            Latest::Status(whole)
        } else {
            shortened(inventory, labels, layout)
        };
        self.latest.send_if_modified(|known| {
            let new = *known != latest;
            if new {
                *known = latest;
            }
            new
        });
    }
}

/// Whether an aggregator takes it, and finds in it nothing that there is too much of.
fn fits(inventory: &Inventory, parts: &Parts) -> bool {
    let frames = parts.len().saturating_mul(FRAME);
    let mut devices = inventory.devices.iter();
    devices.all(|device| device.processes.len() <= MOST_PROCESSES && device.problems.len() <= MOST)
        && parts.len() <= MOST_PARTS
        && parts.size().saturating_add(frames) <= LARGEST_STATUS - FRAME
}

/// The same with fewer processes and shorter lists; each device that has lost something says so.
fn shortened(inventory: &Inventory, labels: &LabelSet, mut layout: Option<LayoutStatus>) -> Latest {
    if let Some(layout) = &mut layout {
        layout.shorten(SHORT);
    }
    let mut inventory = inventory.clone();
    for device in &mut inventory.devices {
        let told = device.processes.len();
        device.problems.truncate(FEW);
        for problem in &mut device.problems {
            problem.what = beginning(&problem.what);
            problem.error = beginning(&problem.error);
        }
        if told > FEW {
            device.processes.truncate(FEW);
            // The name says to readers that the processes are not known: a partition must not look idle.
            device.problems.push(Problem {
                what: "Processes".to_owned(),
                error: format!("{told} are too many to be reported, {FEW} of them are"),
            });
        }
    }
    let parts = status::encode(&inventory, labels, layout.as_ref());
    if fits(&inventory, &parts) {
        Latest::Status(parts)
    } else {
        Latest::TooLarge
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(SHORT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fleet::LONGEST_TEXT;
    use crate::domain::id::PciAddress;
    use crate::domain::inventory::{
        Condition, Device, Machine, NvmlState, PciIds, Process, ProcessKind, Usage,
    };

    use crate::domain::reconcile::DeviceStatus;

    fn busy(processes: u32) -> Inventory {
        let ids = PciIds {
            vendor: 0x10de,
            device: 0x2330,
            subsystem_vendor: 0,
            subsystem_device: 0,
            class: None,
        };
        let mut device = Device::new(PciAddress::new(0, 7, 0, 0).unwrap(), ids);
        device.condition = Condition::Working;
        device.processes = (0..processes)
            .map(|pid| Process {
                pid,
                kind: ProcessKind::Compute,
                gpu_instance: Some(1),
                compute_instance: Some(0),
                memory: None,
            })
            .collect();
        Inventory {
            machine: Machine::default(),
            nvml: NvmlState::Loading,
            devices: vec![device],
        }
    }

    fn told(inventory: &Inventory) -> Latest {
        let (mut outbox, uplink) = outbox();
        outbox.put(inventory, &LabelSet::default(), None);
        uplink.borrow().clone()
    }

    fn read(latest: Latest) -> Inventory {
        let Latest::Status(parts) = latest else {
            panic!("{latest:?}");
        };
        let inventory = status::decode(&parts).unwrap().inventory;
        assert!(fits(&inventory, &parts));
        inventory
    }

    #[test]
    fn what_fits_is_told_whole_and_told_once() {
        let inventory = busy(1000);
        assert_eq!(read(told(&inventory)), inventory);
        let (mut outbox, mut uplink) = outbox();
        outbox.put(&inventory, &LabelSet::default(), None);
        assert!(uplink.has_changed().unwrap());
        uplink.mark_unchanged();
        outbox.put(&inventory, &LabelSet::default(), None);
        assert!(!uplink.has_changed().unwrap());
    }

    #[test]
    fn a_device_with_too_many_processes_says_so_and_does_not_look_idle() {
        for many in [5_000, 100_000] {
            let device = read(told(&busy(many))).devices.remove(0);
            assert_eq!(device.processes.len(), 64);
            assert_eq!(device.usage(), Usage::Unknown);
            let said = &device.problems[0].error;
            assert!(said.starts_with(&many.to_string()), "{said}");
        }
    }

    #[test]
    fn a_layout_s_messages_are_cut_to_what_an_aggregator_takes() {
        let device = |number: u8| DeviceStatus {
            pci: PciAddress::new(0, number, 0, 0).unwrap(),
            name: "GPU 0".to_owned(),
            state: "blocked",
            message: "\u{e9}".repeat(5_000),
            is_held: false,
            holders: Vec::new(),
            waits_for_holders: false,
            progress: None,
        };
        let status = Status {
            layout: Some("serving".to_owned()),
            state: Some("blocked"),
            devices: (0..200).map(device).collect(),
            ..Status::default()
        };
        let message = |inventory: &Inventory, status: &Status| {
            let (mut outbox, uplink) = outbox();
            outbox.put(inventory, &LabelSet::default(), Some(status));
            let Latest::Status(parts) = uplink.borrow().clone() else {
                panic!("nothing was told");
            };
            assert!(fits(inventory, &parts));
            let layout = status::decode(&parts).unwrap().layout.unwrap();
            layout.devices[0].message.clone()
        };
        // 200 long ones are more than a status may be; one is not.
        assert_eq!(message(&busy(1), &status).len(), SHORT);
        let few = Status {
            devices: vec![device(0)],
            ..status
        };
        assert_eq!(message(&busy(1), &few).len(), LONGEST_TEXT);
    }

    #[test]
    fn a_status_that_stays_too_large_is_not_told_at_all() {
        let mut inventory = busy(1);
        inventory.devices[0].product_name = Some("x".repeat(LARGEST_STATUS));
        assert_eq!(told(&inventory), Latest::TooLarge);
    }
}
