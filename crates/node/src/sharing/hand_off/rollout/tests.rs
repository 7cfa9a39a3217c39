//! A rollout, step by step.

use super::*;

const LIMITS: Limits = Limits { deadline: Duration::from_mins(3), settle: Duration::from_mins(2) };

struct World {
    view: ObservedNode,
    answers: ApiAnswers,
    desired: HandOffConfig,
    course: Rollout,
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl World {
    fn new() -> Self {
        Self {
            view: ObservedNode::default(),
            answers: ApiAnswers { key: "k".to_owned(), ..ApiAnswers::default() },
            desired: HandOffConfig { key: "k".to_owned(), config: "text".to_owned() },
            course: Rollout::default(),
        }
    }

    fn reconcile_at(&mut self, seconds: u64) -> RolloutStep {
        self.reconcile_as(seconds, true)
    }

    fn reconcile_as(&mut self, seconds: u64, is_certain: bool) -> RolloutStep {
        let facts = RolloutInput {
            desired: &self.desired,
            wanted: &[("nvidia.com/gpu".to_owned(), 8)].into(),
            strategy: MigStrategy::None,
            view: &self.view,
            config_map: "ns/name",
            answers: &self.answers,
            is_plugin_configured: is_certain,
        };
        self.course.evaluate(at(seconds), LIMITS, &facts)
    }

    fn map(&mut self, text: &str, written: Option<u64>) {
        self.answers.config_map = Some(LookupResult::Present(ConfigMap {
            keys: ["k".to_owned()].into(),
            content: Some(text.to_owned()),
            written: written.map(at),
        }));
    }

    fn label(&mut self, value: &str, owner: &str) {
        let labels = &mut self.view.owners.labels;
        self.view.labels.insert(PLUGIN_CONFIG_LABEL.to_owned(), value.to_owned());
        labels.insert(PLUGIN_CONFIG_LABEL.to_owned(), [owner.to_owned()].into());
    }

    fn offer(&mut self, count: u64) {
        self.view.allocatable.insert("nvidia.com/gpu".to_owned(), count);
    }
}

fn is() -> PluginLabel {
    PluginLabel::Set("k".to_owned())
}

#[test]
fn rollout_waits_for_key_kubelet_label_and_node() {
    let mut world = World::new();
    let first = world.reconcile_at(0);
    assert!(
        matches!(&first.state, RolloutState::Pending(why) if why.contains("ConfigMap ns/name"))
    );
    assert_eq!((first.label, first.orders.key.as_deref()), (PluginLabel::Unchanged, Some("k")));
    world.map("text", Some(5));
    let second = world.reconcile_at(10);
    assert!(matches!(&second.state, RolloutState::Pending(why) if why.contains("kubelet")));
    assert_eq!((second.label, second.again), (PluginLabel::Unchanged, Some(at(115))));
    let third = world.reconcile_at(125);
    assert_eq!(third.label, is());
    assert!(matches!(third.state, RolloutState::Pending(_)));
    world.label("k", SHARING_FIELD_MANAGER);
    world.offer(8);
    let last = world.reconcile_at(130);
    assert_eq!(
        (last.state, last.label, last.orders),
        (RolloutState::Applied, is(), ApiQueries::default())
    );
}

#[test]
fn existing_key_skips_wait_unless_content_differs() {
    let mut world = World::new();
    world.map("text", Some(3600));
    assert_eq!(world.reconcile_at(0).label, is());
    let mut world = World::new();
    world.map("something else", Some(3600));
    assert_eq!(world.reconcile_at(0).label, PluginLabel::Unchanged);
}

#[test]
fn removed_key_restarts_wait() {
    let mut world = World::new();
    world.map("text", Some(0));
    world.reconcile_at(0);
    world.answers.config_map = Some(LookupResult::Missing);
    assert_eq!(world.reconcile_at(119).label, PluginLabel::Unchanged);
    assert_eq!(world.reconcile_at(121).label, PluginLabel::Unchanged);
}

#[test]
fn existing_label_of_earlier_agent_is_applied_immediately() {
    let mut world = World::new();
    world.label("k", SHARING_FIELD_MANAGER);
    world.offer(8);
    let step = world.reconcile_at(0);
    assert_eq!((step.state, step.label), (RolloutState::Applied, is()));
}

#[test]
fn foreign_label_is_preserved_and_reported() {
    let mut world = World::new();
    world.map("text", Some(3600));
    world.label("theirs", "kubectl-label");
    let step = world.reconcile_at(0);
    let RolloutState::Refused(finding) = step.state else { panic!("{:?}", step.state) };
    assert!(finding.proof.contains("is theirs and is managed by kubectl-label"), "{finding}");
    assert_eq!(step.label, PluginLabel::Unchanged);
    world.view.labels.clear();
    world.view.owners.labels.clear();
    assert_eq!(world.reconcile_at(1).label, is());
    // An identical value written by another owner is not a conflict.
    world.label("k", "kubectl-label");
    world.offer(8);
    assert_eq!(world.reconcile_at(2).state, RolloutState::Applied);
}

#[test]
fn diagnosis_is_reported_after_deadline_until_fixed() {
    let mut world = World::new();
    world.map("text", Some(3600));
    world.reconcile_at(0);
    world.label("k", SHARING_FIELD_MANAGER);
    world.offer(2);
    assert!(!world.reconcile_at(179).orders.investigate);
    let late = world.reconcile_at(180);
    assert!(late.orders.investigate && matches!(late.state, RolloutState::Pending(_)));
    world.answers.evidence = Some(Evidence {
        config_map: LookupResult::Missing,
        plugins: LookupResult::Present(Vec::new()),
        pods: LookupResult::Present(Vec::new()),
    });
    let found = world.reconcile_at(181).state;
    assert!(matches!(&found, RolloutState::Failed(all) if !all.is_empty()), "{found:?}");
    // An unchanged finding has an unchanged text.
    assert_eq!(world.reconcile_at(9000).state, found);
    world.offer(8);
    assert_eq!(world.reconcile_at(9001).state, RolloutState::Applied);
    // When the Node deviates again, the same deadline applies.
    world.offer(0);
    assert!(matches!(world.reconcile_at(9002).state, RolloutState::Pending(_)));
}

#[test]
fn new_configuration_restarts_rollout_and_keeps_label() {
    let mut world = World::new();
    world.label("k", SHARING_FIELD_MANAGER);
    world.offer(8);
    world.reconcile_at(0);
    world.desired.key = "other".to_owned();
    let step = world.reconcile_at(1);
    assert_eq!((step.label, step.orders.key.as_deref()), (PluginLabel::Unchanged, Some("other")));
    // Answers about the previous key do not count for the new one.
    world.map("text", Some(3600));
    assert_eq!(world.reconcile_at(2).label, PluginLabel::Unchanged);
}

#[test]
fn absent_plugin_is_reported_after_deadline() {
    let mut world = World::new();
    world.map("text", Some(3600));
    assert_eq!(world.reconcile_as(0, false).label, PluginLabel::Unchanged);
    let step = world.reconcile_as(180, false);
    assert!(
        matches!(&step.state, RolloutState::Failed(all) if all[0].proof.contains("advertises no nvidia.com/gpu"))
    );
    for (key, value) in
        [(operands::PLUGIN_LABEL, "true"), (operands::PLUGIN_LABEL, "paused-for-octavo")]
    {
        let mut there = ObservedNode::default();
        there.labels.insert(key.to_owned(), value.to_owned());
        assert!(is_plugin_present(&there), "{key}={value}");
    }
    world.offer(2);
    assert_eq!(world.reconcile_as(181, false).label, is());
}
