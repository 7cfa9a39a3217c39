//! Tests of the configuration that remains in place while none can be applied.

use std::collections::BTreeSet;
use std::time::Duration;

use octavo_model::inventory::Inventory;
use octavo_model::resource::ResourceName;
use octavo_model::source_position::SourcePosition;
use octavo_node::sharing::offer::{Offer, Unit};
use octavo_planner::layout::{TargetScope, UnverifiedDevice};
use octavo_planner::reconcile::DeviceLayoutStatus;

use super::*;

const KEY: &str = "octavo-a-12345678";

fn backend() -> HandOffBackend {
    let terms = HandOffSettings {
        config_map: Some("ns/name".to_owned()),
        limits: Limits { deadline: Duration::from_mins(3), settle: Duration::from_mins(2) },
        strategy: MigStrategy::None,
        is_certain: true,
    };
    HandOffBackend::new(terms, None)
}

/// A Node with this label, and this capacity of `nvidia.com/gpu`.
fn node(label: &str, capacity: u64) -> ObservedNode {
    let mut view = ObservedNode::default();
    view.labels.insert(PLUGIN_CONFIG_LABEL.to_owned(), label.to_owned());
    let owners = [SHARING_FIELD_MANAGER.to_owned()].into();
    view.owners.labels.insert(PLUGIN_CONFIG_LABEL.to_owned(), owners);
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

fn reconcile(backend: &mut HandOffBackend, view: Option<&ObservedNode>) -> SharingOutcome {
    let inventory = Inventory::default();
    backend.reconcile(Observation {
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
fn labeled_key_stays_configured_without_other_information() {
    let mut backend = backend();
    assert_eq!(reconcile(&mut backend, None).status, None);
    let view = node(KEY, 4);
    // Also while the API server is unreachable.
    for seen in [Some(&view), None] {
        let outcome = reconcile(&mut backend, seen);
        let status = outcome.status.unwrap();
        assert_eq!(outcome.plugin_label, PluginLabel::Unchanged);
        assert_eq!((status.named.as_deref(), status.hand_off), (Some(KEY), None));
        assert_eq!(status.state, Reason::SharingPending);
    }
    let mut theirs = node("mine", 4);
    let owners = theirs.owners.labels.values_mut();
    owners.for_each(|all| *all = ["kubectl".to_owned()].into());
    assert_eq!(reconcile(&mut backend, Some(&theirs)).status, None);
}

#[test]
fn verified_offers_count_until_label_or_capacity_changes() {
    let verified = || {
        let mut backend = backend();
        let mut outcome =
            SharingOutcome { current_offers: Some(offers()), ..SharingOutcome::default() };
        backend.update_verified(&mut outcome, Some(&node(KEY, 4)));
        backend
    };
    let mut retained = verified();
    assert_eq!(reconcile(&mut retained, None).current_offers, Some(offers()));
    let mut ill = node(KEY, 4);
    ill.allocatable.insert("nvidia.com/gpu".to_owned(), 0);
    assert_eq!(reconcile(&mut retained, Some(&ill)).current_offers, Some(offers()));
    for other in [node("octavo-b-12345678", 4), node(KEY, 1)] {
        let mut backend = verified();
        assert_eq!(reconcile(&mut backend, Some(&other)).current_offers, None);
        // It does not come back by itself.
        assert_eq!(reconcile(&mut backend, Some(&node(KEY, 4))).current_offers, None);
    }
}

#[test]
fn failed_or_blocked_layout_is_not_reported_as_pending() {
    let message = |reason: Reason| {
        let status = NodeLayoutStatus { state: Some(reason.into()), ..NodeLayoutStatus::default() };
        before(&status, &Targets::default())
    };
    assert_eq!(message(Reason::Applied), None);
    for moving in [Reason::Pending, Reason::Applying] {
        assert!(message(moving).unwrap().contains("waiting for the partitions"));
    }
    for stuck in [Reason::Failed, Reason::Blocked, Reason::RolledBack] {
        let message = message(stuck).unwrap();
        let state = format!("whose state is {}", stuck.as_str());
        assert!(message.contains(&state) && !message.contains("waits"), "{message}");
    }
}

#[test]
fn unreadable_device_does_not_block_other_offers() {
    let lost = Targets {
        unverified: vec![UnverifiedDevice {
            pci: "0000:1b:00.0".parse().unwrap(),
            rule: SourcePosition::default(),
            scope: TargetScope::Layout,
            reason: "failing: GPU is lost".to_owned(),
        }],
        ..Targets::default()
    };
    let with = |devices: &[(&str, Reason)]| {
        let target = |(pci, _): &(&str, Reason)| DeviceTarget {
            pci: pci.parse().unwrap(),
            rule: SourcePosition::default(),
            mig: None,
            time_slicing: None,
            scope: TargetScope::Layout,
        };
        let device = |(pci, reason): &(&str, Reason)| {
            DeviceLayoutStatus::new(pci.parse().unwrap(), String::new(), (*reason).into())
        };
        let targets_with_lost =
            Targets { devices: devices.iter().map(target).collect(), ..lost.clone() };
        let status = NodeLayoutStatus {
            state: Some(Reason::Failed.into()),
            devices: devices.iter().map(device).collect(),
            ..NodeLayoutStatus::default()
        };
        before(&status, &targets_with_lost)
    };
    assert_eq!(with(&[("0000:2b:00.0", Reason::Applied)]), None);
    let blocked = with(&[("0000:2b:00.0", Reason::Blocked)]).unwrap();
    assert!(blocked.contains("whose state is failed"), "{blocked}");
}
