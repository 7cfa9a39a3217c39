//! Order, replacement and retries of queued events.

use octavo_model::inventory::NvmlState;
use octavo_model::reported::Reported;
use octavo_model::resource::ResourceName;
use octavo_model::sharing_status::{DeviceProvider, ResourceStatus, SharingStatus};
use octavo_planner::reconcile::{DeviceLayoutStatus, NodeLayoutStatus};
use proptest::prelude::*;

use super::*;
use crate::node_object::event_deduplicator::{Change, EventDeduplicator, NodeObservation, Subject};
use crate::node_object::rate_limit::{BURST, MAX_MESSAGE_BYTES};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn event(reason: Reason, message: &str) -> Event {
    Event { reason, message: message.to_owned(), unit: None }
}

/// Sends all events that have budget and returns the accepted ones.
fn accept_all(queue: &mut EventQueue<Subject>, now: Duration) -> Vec<Event> {
    let mut accepted = Vec::new();
    while let Some(next) = queue.next(now) {
        queue.accepted(now, &next);
        accepted.push(next.event);
    }
    accepted
}

#[test]
fn events_are_sent_in_order_within_budget() {
    let mut queue = EventQueue::limited();
    let all =
        [event(Reason::Pending, "a"), event(Reason::Applying, "b"), event(Reason::Applied, "c")];
    for one in all.clone() {
        queue.push(at(0), Subject::Layout, one);
    }
    assert_eq!(queue.wait(at(0)), Some(at(0)));
    assert_eq!(accept_all(&mut queue, at(0)), all);
    assert_eq!((queue.next(at(0)), queue.wait(at(0))), (None, None));
}

#[test]
fn transient_events_use_a_separate_budget() {
    let mut queue = EventQueue::limited();
    let burst = usize::try_from(BURST).unwrap();
    for turn in 0..200 {
        let applying = event(Reason::Applying, &turn.to_string());
        queue.push(at(0), Subject::Layout, applying);
        accept_all(&mut queue, at(0));
    }
    queue.push(at(0), Subject::Layout, event(Reason::Applied, "night"));
    let refused = event(Reason::DrainRefused, "pod a/b");
    queue.push(at(0), Subject::Drain, refused.clone());
    assert_eq!(accept_all(&mut queue, at(0)), [event(Reason::Applied, "night"), refused]);
    for turn in 0..200 {
        let blocked = event(Reason::Blocked, &turn.to_string());
        queue.push(at(0), Subject::Layout, blocked);
    }
    assert_eq!(accept_all(&mut queue, at(0)).len(), burst - 2);
    // Once there is budget again, only the last event is sent.
    let wait = queue.wait(at(0)).unwrap();
    assert_eq!(accept_all(&mut queue, wait.saturating_sub(Duration::from_millis(1))), []);
    assert_eq!(accept_all(&mut queue, wait), [event(Reason::Blocked, "199")]);
    assert_eq!(queue.wait(at(10_000)), None);
}

#[test]
fn rejected_event_is_resent_unless_obsolete() {
    let mut queue = EventQueue::limited();
    let lost = event(Reason::NvmlLost, "unloaded");
    queue.push(at(0), Subject::Driver, lost.clone());
    for _ in 0..100 {
        let next = queue.next(at(0)).unwrap();
        assert_eq!(next.event, lost);
        queue.not_accepted(next);
    }
    // A later event was added while it was in flight.
    let next = queue.next(at(0)).unwrap();
    let back = event(Reason::DriverBack, "570");
    queue.push(at(1), Subject::Driver, back.clone());
    queue.not_accepted(next);
    assert_eq!(accept_all(&mut queue, at(1)), [back]);
    // It was withdrawn while in flight, or while waiting.
    queue.push(at(2), Subject::Notice, event(Reason::LayoutNotice, "line 3"));
    let next = queue.next(at(2)).unwrap();
    queue.retract(&Subject::Notice);
    queue.not_accepted(next);
    queue.push(at(3), Subject::Notice, event(Reason::LayoutNotice, "line 4"));
    queue.retract(&Subject::Notice);
    assert_eq!(accept_all(&mut queue, at(3)), []);
}

#[test]
fn i10_queue_is_bounded_and_old_pod_events_are_dropped() {
    let mut queue = EventQueue::unlimited(at(3600));
    for unit in 0..5_000 {
        let subject = Subject::Unit(unit.to_string());
        queue.push(at(unit), subject, event(Reason::MemoryOverShare, "m"));
    }
    assert_eq!(queue.pending.len(), MAX_PENDING);
    assert_eq!(queue.next(at(4_999 + 3600)).unwrap().since, at(4_999));
    assert_eq!(queue.next(at(4_999 + 3600)), None);
}

#[test]
fn message_is_truncated_to_the_event_limit() {
    let mut queue = EventQueue::limited();
    let long = event(Reason::Blocked, &"ä".repeat(900));
    queue.push(at(0), Subject::Layout, long);
    let message = queue.next(at(0)).unwrap().event.message;
    assert!(message.len() <= MAX_MESSAGE_BYTES && message.ends_with('…'));
}

/// A change on the node or of its API server.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The layout `day` or `night` is in this state.
    Layout(bool, &'static str),
    /// No layout is selected.
    NoLayout,
    /// Sharing is in this state.
    Sharing(Option<Reason>),
    Notice(bool),
    Driver(bool),
    /// This many seconds pass.
    Pass(u64),
    Api(Server),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    Accepts,
    Refuses,
    /// The API server does not respond, but may have accepted the last request.
    Away,
}

fn step() -> impl Strategy<Value = Step> {
    let states = prop::sample::select(vec![
        "pending",
        "applying",
        "applied",
        "blocked",
        "rolled-back",
        "failed",
    ]);
    let sharing = prop::sample::select(vec![
        None,
        Some(Reason::SharingPending),
        Some(Reason::SharingInForce),
        Some(Reason::SharingHeld),
        Some(Reason::SharingNotInForce),
    ]);
    let server = prop::sample::select(vec![Server::Accepts, Server::Refuses, Server::Away]);
    prop_oneof![
        6 => (any::<bool>(), states).prop_map(|(layout, state)| Step::Layout(layout, state)),
        1 => Just(Step::NoLayout),
        3 => sharing.prop_map(Step::Sharing),
        1 => any::<bool>().prop_map(Step::Notice),
        1 => any::<bool>().prop_map(Step::Driver),
        3 => (0_u64..90).prop_map(Step::Pass),
        2 => server.prop_map(Step::Api),
    ]
}

/// A node, its agent, and its API server.
struct Model {
    now: Duration,
    status: NodeLayoutStatus,
    nvml: NvmlState,
    telling: EventDeduplicator,
    queue: EventQueue<Subject>,
    server: Server,
    /// Sent without a response.
    hanging: Option<QueuedEvent<Subject>>,
    accepted: Vec<(Subject, Event)>,
    /// Subjects with at least one reported event.
    reported: BTreeSet<Subject>,
}

impl Model {
    fn new() -> Self {
        Self {
            now: Duration::ZERO,
            status: NodeLayoutStatus::default(),
            nvml: driver(true),
            telling: EventDeduplicator::default(),
            queue: EventQueue::limited(),
            server: Server::Accepts,
            hanging: None,
            accepted: Vec::new(),
            reported: BTreeSet::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Layout(day, state) => {
                self.status.layout = Some(if day { "day" } else { "night" }.to_owned());
                self.status.state = Some(Reported::parse(state));
                self.status.devices = vec![device(state)];
            }
            Step::NoLayout => {
                self.status.layout = None;
                self.status.state = None;
                self.status.devices.clear();
            }
            Step::Sharing(state) => self.status.sharing = state.map(sharing),
            Step::Notice(is_there) => {
                self.status.notice = is_there.then(|| "line 3".to_owned());
            }
            Step::Driver(answers) => self.nvml = driver(answers),
            Step::Pass(seconds) => self.now += at(seconds),
            Step::Api(server) => self.server = server,
        }
        self.observe();
        self.send();
    }

    fn observe(&mut self) {
        let observation =
            NodeObservation { status: Some(&self.status), nvml: &self.nvml, yielded: &[] };
        for Change { subject, event } in self.telling.changes(self.now, &observation) {
            match event {
                Some(event) => {
                    self.reported.insert(subject.clone());
                    self.queue.push(self.now, subject, event);
                }
                None => self.queue.retract(&subject),
            }
        }
    }

    fn send(&mut self) {
        if self.server != Server::Away
            && let Some(hung) = self.hanging.take()
        {
            self.queue.not_accepted(hung);
        }
        while self.hanging.is_none()
            && let Some(next) = self.queue.next(self.now)
        {
            match self.server {
                Server::Accepts => {
                    self.queue.accepted(self.now, &next);
                    self.accepted.push((next.subject, next.event));
                }
                Server::Refuses => {
                    self.queue.not_accepted(next);
                    break;
                }
                Server::Away => self.hanging = Some(next),
            }
        }
    }

    fn last(&self, subject: &Subject) -> Option<&Event> {
        let mut all = self.accepted.iter().rev();
        let found = all.find(|(one, _)| one == subject);
        found.map(|(_, event)| event)
    }

    /// Checks that the last event of each subject agrees with the state.
    fn check(&self) {
        if let (Some(layout), Some(state)) = (&self.status.layout, &self.status.state)
            && self.reported.contains(&Subject::Layout)
        {
            let last = self.last(&Subject::Layout).unwrap();
            assert_eq!(last.reason.as_str(), state.as_str());
            assert!(last.message.starts_with(&format!("layout {layout}: ")), "{last:?}");
        }
        let sharing = self.status.sharing.as_ref();
        let sharing = sharing.and_then(|sharing| sharing.state.known());
        if let Some(reason) = sharing.filter(|reason| reason.event().is_some())
            && let Some(last) = self.last(&Subject::Sharing)
        {
            assert_eq!(last.reason, reason);
        }
        if let Some(last) = self.last(&Subject::Driver) {
            let answers = matches!(self.nvml, NvmlState::Ready(_));
            assert_eq!(last.reason == Reason::DriverBack, answers);
        }
        let in_time = self.now.as_secs() / 30 + 1 + u64::from(BURST);
        assert!(u64::try_from(self.accepted.len()).unwrap() <= 2 * in_time);
    }
}

fn driver(answers: bool) -> NvmlState {
    if answers {
        NvmlState::Ready(octavo_model::inventory::Driver {
            version: "570.133.20".parse().unwrap(),
            cuda: None,
        })
    } else {
        NvmlState::Lost { reason: "it was unloaded".to_owned() }
    }
}

fn device(state: &'static str) -> DeviceLayoutStatus {
    DeviceLayoutStatus::new(
        "0000:1b:00.0".parse().unwrap(),
        "GPU 0".to_owned(),
        Reported::parse(state),
    )
}

fn sharing(reason: Reason) -> SharingStatus {
    SharingStatus {
        mode: DeviceProvider::Embedded.into(),
        state: reason.into(),
        message: None,
        resources: vec![ResourceStatus {
            name: ResourceName::gpu(),
            wanted: 2,
            allocatable: Some(2),
            units: Vec::new(),
        }],
        retained: Vec::new(),
        ..SharingStatus::default()
    }
}

proptest! {
    #[test]
    fn last_event_agrees_with_state_after_api_server_recovers(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut model = Model::new();
        for step in steps {
            model.take(step);
        }
        model.take(Step::Api(Server::Accepts));
        // One event of each subject may still wait for budget.
        for _ in 0..8 {
            model.take(Step::Pass(30));
        }
        prop_assert_eq!(model.queue.wait(model.now), None);
        model.check();
    }
}
