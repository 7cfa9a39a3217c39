//! Tests of the configuration that remains in place while none can be applied.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::domain::inventory::{Inventory, Machine};
use crate::domain::layout::{Place, UnverifiedDevice};
use crate::domain::reconcile::DeviceStatus;
use crate::domain::sharing::ResourceName;
use crate::domain::sharing::offer::{Offer, Unit};

const KEY: &str = "octavo-a-12345678";

fn giver() -> HandOff {
    let terms = Terms {
        config_map: Some("ns/name".to_owned()),
        limits: Limits {
            deadline: Duration::from_mins(3),
            settle: Duration::from_mins(2),
        },
        strategy: MigStrategy::None,
        is_certain: true,
    };
    HandOff::new(terms, None)
}

/// A Node with this label, and this capacity of `nvidia.com/gpu`.
fn node(label: &str, capacity: u64) -> View {
    let mut view = View::default();
    view.labels
        .insert(PLUGIN_CONFIG.to_owned(), label.to_owned());
    let owners = [SHARING_MANAGER.to_owned()].into();
    view.owners.labels.insert(PLUGIN_CONFIG.to_owned(), owners);
    view.capacity.insert("nvidia.com/gpu".to_owned(), capacity);
    view
}

/// An offer of one GPU with four replicas.
fn offers() -> Offers {
    Offers {
        resources: vec![Offer {
            name: ResourceName::gpu(),
            fail_requests_greater_than_one: false,
            units: vec![Unit {
                uuid: "GPU-1".to_owned(),
                pci: "0000:01:00.0".parse().unwrap(),
                partition: None,
                replicas: Some(4),
                memory: None,
                memory_per_replica: None,
                numa_node: None,
            }],
        }],
    }
}

fn look(giver: &mut HandOff, view: Option<&View>) -> Outcome {
    let inventory = Inventory {
        neuron: None,
        machine: Machine::default(),
        nvml: NvmlState::Loading,
        devices: Vec::new(),
    };
    giver.look(Scene {
        is_read: true,
        now: Duration::ZERO,
        inventory: &inventory,
        xids: &[],
        status: None,
        view,
        drained: &BTreeSet::new(),
    })
}

#[test]
fn the_key_that_the_label_names_is_told_while_nothing_else_is_known() {
    let mut giver = giver();
    assert_eq!(look(&mut giver, None).status, None);
    let view = node(KEY, 4);
    // Also while the API server is unreachable.
    for seen in [Some(&view), None] {
        let outcome = look(&mut giver, seen);
        let status = outcome.status.unwrap();
        assert_eq!(outcome.plugin_label, PluginLabel::Leave);
        assert_eq!(
            (status.named.as_deref(), status.hand_off),
            (Some(KEY), None)
        );
        assert_eq!(status.state, Reason::SharingPending.word());
    }
    let mut theirs = node("mine", 4);
    let owners = theirs.owners.labels.values_mut();
    owners.for_each(|all| *all = ["kubectl".to_owned()].into());
    assert_eq!(look(&mut giver, Some(&theirs)).status, None);
}

#[test]
fn what_was_verified_is_in_force_until_label_or_capacity_say_otherwise() {
    let verified = || {
        let mut giver = giver();
        let mut outcome = Outcome {
            in_force: Some(offers()),
            ..Outcome::default()
        };
        giver.remember(&mut outcome, Some(&node(KEY, 4)));
        giver
    };
    let mut kept = verified();
    assert_eq!(look(&mut kept, None).in_force, Some(offers()));
    let mut ill = node(KEY, 4);
    ill.allocatable.insert("nvidia.com/gpu".to_owned(), 0);
    assert_eq!(look(&mut kept, Some(&ill)).in_force, Some(offers()));
    for other in [node("octavo-b-12345678", 4), node(KEY, 1)] {
        let mut giver = verified();
        assert_eq!(look(&mut giver, Some(&other)).in_force, None);
        // It does not come back by itself.
        assert_eq!(look(&mut giver, Some(&node(KEY, 4))).in_force, None);
    }
}

#[test]
fn what_failed_or_is_blocked_is_not_said_to_be_on_its_way() {
    let said = |reason: Reason| {
        let status = Status {
            state: Some(reason.word()),
            ..Status::default()
        };
        before(&status, &Targets::default())
    };
    assert_eq!(said(Reason::Applied), None);
    for moving in [Reason::Pending, Reason::Applying] {
        assert!(said(moving).unwrap().contains("waits for the layout"));
    }
    for stuck in [Reason::Failed, Reason::Blocked, Reason::RolledBack] {
        let said = said(stuck).unwrap();
        let state = format!("whose state is {}", stuck.word());
        assert!(said.contains(&state) && !said.contains("waits"), "{said}");
    }
}

#[test]
fn a_device_that_cannot_be_read_does_not_hold_up_what_is_offered_of_the_others() {
    let lost = Targets {
        unverified: vec![UnverifiedDevice {
            pci: "0000:1b:00.0".parse().unwrap(),
            rule: Place::default(),
            reason: "failing: GPU is lost".to_owned(),
        }],
        ..Targets::default()
    };
    let with = |devices: &[(&str, Reason)]| {
        let target = |(pci, _): &(&str, Reason)| DeviceTarget {
            pci: pci.parse().unwrap(),
            rule: Place::default(),
            mig: None,
            time_slicing: None,
        };
        let device = |(pci, reason): &(&str, Reason)| DeviceStatus {
            pci: pci.parse().unwrap(),
            name: String::new(),
            state: reason.word(),
            message: String::new(),
            is_held: false,
            holders: Vec::new(),
            waits_for_holders: false,
            progress: None,
        };
        let asked = Targets {
            devices: devices.iter().map(target).collect(),
            ..lost.clone()
        };
        let status = Status {
            state: Some(Reason::Failed.word()),
            devices: devices.iter().map(device).collect(),
            ..Status::default()
        };
        before(&status, &asked)
    };
    assert_eq!(with(&[("0000:2b:00.0", Reason::Applied)]), None);
    let blocked = with(&[("0000:2b:00.0", Reason::Blocked)]).unwrap();
    assert!(blocked.contains("whose state is failed"), "{blocked}");
}
