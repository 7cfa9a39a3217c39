//! State changes that become events, and those that do not.

use octavo_model::inventory::Driver;
use octavo_model::reported::Reported;
use octavo_planner::reconcile::DeviceLayoutStatus;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn status(layout: &str, state: &'static str, message: &str) -> NodeLayoutStatus {
    NodeLayoutStatus {
        layout: Some(layout.to_owned()),
        state: Some(Reported::parse(state)),
        devices: vec![DeviceLayoutStatus {
            message: message.to_owned(),
            ..DeviceLayoutStatus::new(
                "0000:1b:00.0".parse().unwrap(),
                "GPU 0".to_owned(),
                Reported::parse(state),
            )
        }],
        ..NodeLayoutStatus::default()
    }
}

const ABSENT: NvmlState = NvmlState::Loading;

fn events(changes: Vec<Change>) -> Vec<Event> {
    let events = changes.into_iter();
    events.filter_map(|change| change.event).collect()
}

fn observe(
    deduplicator: &mut EventDeduplicator,
    seconds: u64,
    status: &NodeLayoutStatus,
) -> Vec<(&'static str, String)> {
    let observation = NodeObservation { status: Some(status), nvml: &ABSENT, yielded: &[] };
    let changes = deduplicator.changes(at(seconds), &observation);
    events(changes)
        .into_iter()
        .map(|event| (event.reason.event().unwrap(), event.message))
        .collect()
}

fn reasons(
    deduplicator: &mut EventDeduplicator,
    seconds: u64,
    status: &NodeLayoutStatus,
) -> Vec<&'static str> {
    observe(deduplicator, seconds, status).into_iter().map(|(reason, _)| reason).collect()
}

#[test]
fn each_state_change_is_reported_once_with_its_reason() {
    let mut deduplicator = EventDeduplicator::default();
    for (state, reason) in [
        ("pending", "LayoutPlanned"),
        ("applying", "LayoutApplying"),
        ("blocked", "LayoutBlocked"),
        ("rolled-back", "LayoutRolledBack"),
        ("failed", "LayoutFailed"),
        ("drifted", "LayoutDrift"),
        ("applied", "LayoutApplied"),
    ] {
        assert_eq!(reasons(&mut deduplicator, 0, &status("night", state, "")), [reason]);
        assert!(reasons(&mut deduplicator, 1, &status("night", state, "")).is_empty());
    }
    assert_eq!(reasons(&mut deduplicator, 2, &status("day", "applied", "")), ["LayoutApplied"]);
}

#[test]
fn restart_on_an_applied_node_reports_nothing() {
    let mut deduplicator = EventDeduplicator::default();
    assert!(reasons(&mut deduplicator, 0, &status("night", "applied", "")).is_empty());
    assert!(reasons(&mut deduplicator, 9, &status("night", "applied", "")).is_empty());
}

#[test]
fn change_between_two_observations_is_reported() {
    let mut deduplicator = EventDeduplicator::default();
    assert!(reasons(&mut deduplicator, 0, &NodeLayoutStatus::default()).is_empty());
    assert_eq!(reasons(&mut deduplicator, 1, &status("night", "applied", "")), ["LayoutApplied"]);
    let mut deduplicator = EventDeduplicator::default();
    let mut changed = status("night", "applied", "");
    changed.history.changes = 1;
    assert_eq!(reasons(&mut deduplicator, 0, &changed), ["LayoutApplied"]);
}

#[test]
fn inapplicable_layout_is_reported_once_with_the_reason() {
    let mut deduplicator = EventDeduplicator::default();
    assert!(observe(&mut deduplicator, 0, &status("night", "applied", "")).is_empty());
    let mut refused = status("nope", "applied", "");
    refused.state = Some(Reason::Failed.into());
    refused.notice = Some("there is no such layout".to_owned());
    let reported = observe(&mut deduplicator, 1, &refused);
    assert_eq!(reported, [("LayoutFailed", "layout nope: there is no such layout".to_owned())]);
    // A broken file leaves the layout applied, but is an event of its own.
    let mut broken = status("night", "applied", "");
    broken.notice = Some("line 3".to_owned());
    assert_eq!(reasons(&mut deduplicator, 2, &broken), ["LayoutNotice", "LayoutApplied"]);
}

#[test]
fn changed_blockers_are_reported_again_after_an_interval() {
    let mut deduplicator = EventDeduplicator::default();
    let first = observe(&mut deduplicator, 0, &status("night", "blocked", "pid 7"));
    assert_eq!(first[0].1, "layout night: 1 blocked. GPU 0: blocked: pid 7");
    assert!(reasons(&mut deduplicator, 10, &status("night", "blocked", "pid 8")).is_empty());
    assert_eq!(
        reasons(&mut deduplicator, 300, &status("night", "blocked", "pid 9")),
        ["LayoutBlocked"]
    );
}

#[test]
fn lost_and_restored_driver_is_reported() {
    let ready = NvmlState::Ready(Driver { version: "570.133.20".parse().unwrap(), cuda: None });
    let lost = NvmlState::Lost { reason: "it was unloaded".to_owned() };
    let mut deduplicator = EventDeduplicator::default();
    let mut reported = |nvml: &NvmlState| -> Vec<&'static str> {
        let observation = NodeObservation { status: None, nvml, yielded: &[] };
        events(deduplicator.changes(at(0), &observation))
            .iter()
            .map(|event| event.reason.event().unwrap())
            .collect()
    };
    assert!(reported(&ready).is_empty());
    assert_eq!(reported(&lost), ["DriverLost"]);
    assert!(reported(&lost).is_empty());
    assert!(reported(&ABSENT).is_empty());
    assert_eq!(reported(&ready), ["DriverBack"]);
}

#[test]
fn conflicting_keys_are_reported_when_they_change() {
    let yielded =
        [ConflictingKey { key: "nvidia.com/gpu.count".to_owned(), owner: "nfd-master".to_owned() }];
    let mut deduplicator = EventDeduplicator::default();
    let mut reported = |yielded: &[ConflictingKey]| {
        events(
            deduplicator.changes(at(0), &NodeObservation { status: None, nvml: &ABSENT, yielded }),
        )
    };
    let first = reported(&yielded);
    assert_eq!(first[0].reason, Reason::KeysLeftToOthers);
    assert!(first[0].message.contains("nvidia.com/gpu.count (nfd-master)"));
    assert!(reported(&yielded).is_empty());
    assert!(reported(&[]).is_empty());
}

#[test]
fn partitions_not_offered_are_reported_with_both_counts() {
    let one = |resource: &str, there, offered| Mismatch {
        resource: resource.to_owned(),
        actual: there,
        offered,
    };
    let event = Event::from(OperandEvent::NotOffered(vec![
        one("nvidia.com/mig-1g.5gb", 7, 0),
        one("nvidia.com/mig-3g.20gb", 0, 2),
    ]));
    assert_eq!(event.reason, Reason::PartitionsNotOffered);
    assert!(
        event.message.contains(
            "(nvidia.com/mig-1g.5gb: 7 present, 0 advertised; nvidia.com/mig-3g.20gb: 0 present, 2 advertised)"
        ),
        "{}",
        event.message
    );
}

fn shared(state: Reason, message: Option<&str>) -> NodeLayoutStatus {
    NodeLayoutStatus {
        sharing: Some(SharingStatus {
            mode: octavo_model::sharing_status::DeviceProvider::Embedded.into(),
            state: state.into(),
            message: message.map(str::to_owned),
            resources: vec![octavo_model::sharing_status::ResourceStatus {
                name: octavo_model::resource::ResourceName::gpu(),
                wanted: 24,
                allocatable: Some(24),
                units: Vec::new(),
            }],
            retained: Vec::new(),
            ..SharingStatus::default()
        }),
        ..NodeLayoutStatus::default()
    }
}

#[test]
fn each_sharing_change_is_reported_once() {
    let mut deduplicator = EventDeduplicator::default();
    let held = shared(Reason::SharingHeld, Some("pod a/b has it"));
    for (seconds, status, reported) in [
        // Sharing that is applied from the start, or pending, is not an event.
        (0, shared(Reason::SharingInForce, None), None),
        (1, shared(Reason::SharingPending, None), None),
        (2, held.clone(), Some(("SharingHeld", "pod a/b has it".to_owned()))),
        (3, held, None),
        // A changed message for the same state is reported after an interval.
        (4, shared(Reason::SharingHeld, Some("pod a/c has it")), None),
        (
            303,
            shared(Reason::SharingHeld, Some("pod a/c has it")),
            Some(("SharingHeld", "pod a/c has it".to_owned())),
        ),
        (
            304,
            shared(Reason::SharingInForce, None),
            Some(("SharingInForce", "nvidia.com/gpu: 24 of 24 advertised".to_owned())),
        ),
        (305, NodeLayoutStatus::default(), None),
        (306, shared(Reason::SharingInForce, None), None),
    ] {
        let found = observe(&mut deduplicator, seconds, &status);
        assert_eq!(found, Vec::from_iter(reported), "at {seconds}");
    }
}

#[test]
fn pending_events_are_withdrawn_when_obsolete() {
    let mut deduplicator = EventDeduplicator::default();
    let mut withdrawn = |status: &NodeLayoutStatus, yielded: &[ConflictingKey]| -> Vec<Subject> {
        let observation = NodeObservation { status: Some(status), nvml: &ABSENT, yielded };
        let changes = deduplicator.changes(at(0), &observation).into_iter();
        let none = changes.filter(|change| change.event.is_none());
        none.map(|change| change.subject).collect()
    };
    let mut troubled = status("night", "blocked", "");
    troubled.notice = Some("line 3".to_owned());
    troubled.sharing = shared(Reason::SharingHeld, None).sharing;
    let yielded =
        [ConflictingKey { key: "nvidia.com/gpu.count".to_owned(), owner: "nfd-master".to_owned() }];
    assert_eq!(withdrawn(&troubled, &yielded), []);
    let gone = [Subject::Notice, Subject::Layout, Subject::Sharing, Subject::Keys];
    assert_eq!(withdrawn(&NodeLayoutStatus::default(), &[]), gone);
    assert_eq!(withdrawn(&NodeLayoutStatus::default(), &[]), []);
    // A state without an event ends the previous event.
    withdrawn(&shared(Reason::SharingHeld, None), &[]);
    let pending = shared(Reason::SharingPending, None);
    assert_eq!(withdrawn(&pending, &[]), [Subject::Sharing]);
    withdrawn(&shared(Reason::SharingInForce, None), &[]);
    assert_eq!(withdrawn(&pending, &[]), []);
}
