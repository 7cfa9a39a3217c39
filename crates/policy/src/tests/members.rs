//! Nodes of a policy as readers see them.

use serde_json::json;

use super::cluster::{Cluster, Controller, Fate, spec, world};
use crate::record::LAYOUT_LABEL;
use crate::{MemberState, Policy, PolicyMember, members};

fn members_of(cluster: &Cluster, name: &str) -> Vec<PolicyMember> {
    let policies: Vec<Policy> = cluster.policies.values().cloned().collect();
    let nodes = cluster.machines.values().map(|machine| &machine.node);
    members(&world(&policies, nodes, cluster.now), &cluster.policies[name])
}

fn shown(cluster: &Cluster, name: &str) -> Vec<(String, MemberState, Option<String>)> {
    let all = members_of(cluster, name).into_iter();
    all.map(|one| (one.name, one.state.known().unwrap(), one.message)).collect()
}

#[test]
fn p5_every_selected_node_has_a_state_with_its_reason() {
    let mut cluster = Cluster::new(6);
    cluster.label("node-05", LAYOUT_LABEL, Some("mine"));
    cluster.machines.get_mut("node-01").unwrap().fate = Fate::Fails;
    cluster.machines.get_mut("node-02").unwrap().fate = Fate::Blocks;
    let pace = json!({"maxUnavailable": 4, "maxFailures": 9, "nodeDeadline": "24h"});
    cluster.apply("a", spec("serving", pace));
    for _minute in 0..3 {
        while Controller::new(&cluster).work(&mut cluster, 1) > 0 {}
        cluster.tick();
    }
    cluster.join("node-06", Fate::Applies(1));
    cluster.label("node-04", "other", Some("b"));
    let mut other = spec("training", json!({}));
    other["nodeSelector"] = json!({"matchLabels": {"other": "b"}});
    cluster.apply("b", other);
    let text = |text: &str| Some(text.to_owned());
    let name = |number: u32| format!("node-{number:02}");
    assert_eq!(
        shown(&cluster, "a"),
        [
            (name(1), MemberState::Failed, text("failed")),
            (name(2), MemberState::Blocked, text("pod team/train")),
            (name(6), MemberState::Waiting, None),
            (name(4), MemberState::Conflicting, text("also selected by b")),
            (
                name(5),
                MemberState::Overridden,
                text("another user or program chose the layout mine")
            ),
            (name(0), MemberState::Applied, None),
            (name(3), MemberState::Applied, None),
        ]
    );
    let all = members_of(&cluster, "a");
    let of = |number| all.iter().find(|one| one.name == name(number)).unwrap();
    let revision = Some(cluster.policies["a"].status.revision.clone());
    assert_eq!((&of(0).revision, of(0).layout.as_deref()), (&revision, Some("serving")));
    assert_eq!((&of(6).revision, of(6).since), (&None, None));
}
