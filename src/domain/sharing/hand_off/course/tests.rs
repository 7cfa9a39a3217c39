//! A rollout, step by step.

use super::*;

const LIMITS: Limits = Limits {
    deadline: Duration::from_mins(3),
    settle: Duration::from_mins(2),
};

struct World {
    view: View,
    heard: Heard,
    wish: HandOff,
    course: Course,
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl World {
    fn new() -> Self {
        Self {
            view: View::default(),
            heard: Heard {
                key: "k".to_owned(),
                ..Heard::default()
            },
            wish: HandOff {
                key: "k".to_owned(),
                config: "text".to_owned(),
            },
            course: Course::default(),
        }
    }

    fn look(&mut self, seconds: u64) -> Step {
        self.look_as(seconds, true)
    }

    fn look_as(&mut self, seconds: u64, is_certain: bool) -> Step {
        let facts = Facts {
            wish: &self.wish,
            wanted: &[("nvidia.com/gpu".to_owned(), 8)].into(),
            strategy: MigStrategy::None,
            view: &self.view,
            config_map: "ns/name",
            heard: &self.heard,
            is_certain,
        };
        self.course.look(at(seconds), LIMITS, &facts)
    }

    fn map(&mut self, text: &str, written: Option<u64>) {
        self.heard.config_map = Some(Found::There(ConfigMap {
            keys: ["k".to_owned()].into(),
            content: Some(text.to_owned()),
            written: written.map(at),
        }));
    }

    fn label(&mut self, value: &str, owner: &str) {
        let labels = &mut self.view.owners.labels;
        self.view
            .labels
            .insert(PLUGIN_CONFIG.to_owned(), value.to_owned());
        labels.insert(PLUGIN_CONFIG.to_owned(), [owner.to_owned()].into());
    }

    fn offer(&mut self, count: u64) {
        self.view
            .allocatable
            .insert("nvidia.com/gpu".to_owned(), count);
    }
}

fn is() -> PluginLabel {
    PluginLabel::Is("k".to_owned())
}

#[test]
fn a_key_is_waited_for_then_kubelet_then_the_label_says_it_then_the_node_offers_it() {
    let mut world = World::new();
    let first = world.look(0);
    assert!(matches!(&first.standing, Standing::Pending(why) if why.contains("ConfigMap ns/name")));
    assert_eq!(
        (first.label, first.orders.key.as_deref()),
        (PluginLabel::Leave, Some("k"))
    );
    world.map("text", Some(5));
    let second = world.look(10);
    assert!(matches!(&second.standing, Standing::Pending(why) if why.contains("kubelet")));
    assert_eq!(
        (second.label, second.again),
        (PluginLabel::Leave, Some(at(115)))
    );
    let third = world.look(125);
    assert_eq!(third.label, is());
    assert!(matches!(third.standing, Standing::Pending(_)));
    world.label("k", SHARING_MANAGER);
    world.offer(8);
    let last = world.look(130);
    assert_eq!(
        (last.standing, last.label, last.orders),
        (Standing::InForce, is(), Orders::default())
    );
}

#[test]
fn a_key_that_is_old_is_not_waited_for_and_one_that_says_something_else_is() {
    let mut world = World::new();
    world.map("text", Some(3600));
    assert_eq!(world.look(0).label, is());
    let mut world = World::new();
    world.map("something else", Some(3600));
    assert_eq!(world.look(0).label, PluginLabel::Leave);
}

#[test]
fn while_kubelet_brings_a_key_that_goes_again_nothing_is_said() {
    let mut world = World::new();
    world.map("text", Some(0));
    world.look(0);
    world.heard.config_map = Some(Found::Missing);
    assert_eq!(world.look(119).label, PluginLabel::Leave);
    assert_eq!(world.look(121).label, PluginLabel::Leave);
}

#[test]
fn what_an_agent_before_this_one_has_said_stands_and_is_in_force_at_once() {
    let mut world = World::new();
    world.label("k", SHARING_MANAGER);
    world.offer(8);
    let step = world.look(0);
    assert_eq!((step.standing, step.label), (Standing::InForce, is()));
}

#[test]
fn a_label_of_somebody_else_is_left_alone_and_named_until_it_is_gone() {
    let mut world = World::new();
    world.map("text", Some(3600));
    world.label("theirs", "kubectl-label");
    let step = world.look(0);
    let Standing::Refused(finding) = step.standing else {
        panic!("{:?}", step.standing)
    };
    assert!(
        finding
            .proof
            .contains("says theirs, and kubectl-label writes it"),
        "{finding}"
    );
    assert_eq!(step.label, PluginLabel::Leave);
    world.view.labels.clear();
    world.view.owners.labels.clear();
    assert_eq!(world.look(1).label, is());
    // An identical value written by another owner is not a conflict.
    world.label("k", "kubectl-label");
    world.offer(8);
    assert_eq!(world.look(2).standing, Standing::InForce);
}

#[test]
fn after_the_deadline_it_is_looked_into_and_what_is_found_is_said_until_it_is_mended() {
    let mut world = World::new();
    world.map("text", Some(3600));
    world.look(0);
    world.label("k", SHARING_MANAGER);
    world.offer(2);
    assert!(!world.look(179).orders.investigate);
    let late = world.look(180);
    assert!(late.orders.investigate && matches!(late.standing, Standing::Pending(_)));
    world.heard.evidence = Some(Evidence {
        config_map: Found::Missing,
        plugins: Found::There(Vec::new()),
        pods: Found::There(Vec::new()),
    });
    let found = world.look(181).standing;
    assert!(
        matches!(&found, Standing::NotInForce(all) if !all.is_empty()),
        "{found:?}"
    );
    // An unchanged finding has an unchanged text.
    assert_eq!(world.look(9000).standing, found);
    world.offer(8);
    assert_eq!(world.look(9001).standing, Standing::InForce);
    // When the Node deviates again, the same deadline applies.
    world.offer(0);
    assert!(matches!(world.look(9002).standing, Standing::Pending(_)));
}

#[test]
fn another_configuration_begins_anew_and_the_label_stays_until_its_key_is_there() {
    let mut world = World::new();
    world.label("k", SHARING_MANAGER);
    world.offer(8);
    world.look(0);
    world.wish.key = "other".to_owned();
    let step = world.look(1);
    assert_eq!(
        (step.label, step.orders.key.as_deref()),
        (PluginLabel::Leave, Some("other"))
    );
    // Answers about the previous key do not count for the new one.
    world.map("text", Some(3600));
    assert_eq!(world.look(2).label, PluginLabel::Leave);
}

#[test]
fn where_the_plugin_was_not_promised_it_is_waited_for_and_then_missed() {
    let mut world = World::new();
    world.map("text", Some(3600));
    assert_eq!(world.look_as(0, false).label, PluginLabel::Leave);
    let step = world.look_as(180, false);
    assert!(
        matches!(&step.standing, Standing::NotInForce(all) if all[0].proof.contains("offers no nvidia.com/gpu"))
    );
    for (key, value) in [
        (operands::PLUGIN, "true"),
        (operands::PLUGIN, "paused-for-octavo"),
    ] {
        let mut there = View::default();
        there.labels.insert(key.to_owned(), value.to_owned());
        assert!(runs(&there), "{key}={value}");
    }
    world.offer(2);
    assert_eq!(world.look_as(181, false).label, is());
}
