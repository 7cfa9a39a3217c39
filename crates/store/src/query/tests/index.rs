//! Lists, totals by type and states compared with a scan of all nodes, while nodes change and time passes.

use std::collections::BTreeMap;

use octavo_fleet::type_source::TypeSource;

use super::*;
use crate::fleet::TypeTotals;

/// Number of names: several chunks of nodes.
const NAMES: usize = 700;

/// Change of a fleet.
#[derive(Debug, Clone)]
enum Step {
    /// The node reports the status with this number.
    Report(usize),
    Remove,
    /// A heartbeat of the node, which creates no new version.
    Confirm,
    /// The writer compares the age of each node with its bound.
    Sweep,
    /// Milliseconds pass.
    Pass(u64),
}

/// Number of a name, often a small one, so that a name is drawn several times.
fn number() -> impl Strategy<Value = usize> {
    prop_oneof![0..20_usize, 0..NAMES]
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        4 => any::<usize>().prop_map(Step::Report),
        2 => Just(Step::Remove),
        2 => Just(Step::Confirm),
        3 => Just(Step::Sweep),
        1 => (0..NOW).prop_map(Step::Pass),
    ];
    prop::collection::vec((number(), step), 1..120)
}

fn name(number: usize) -> NodeName {
    format!("gpu-{number}").parse().unwrap()
}

/// Node with the status, and possibly the age, of one of the drawn nodes.
fn reported(drawn: &[Node], number: usize, status: usize, freshness: Option<Freshness>) -> Node {
    let mut node = drawn[status % drawn.len()].clone();
    node.name = name(number);
    node.freshness = freshness.unwrap_or(node.freshness);
    if status.is_multiple_of(5) {
        node.source = TypeSource::Unknown;
    }
    if status.is_multiple_of(3) {
        node.summary.types.iter_mut().for_each(|one| one.manual = one.counts.total);
    }
    node
}

fn play(fleet: &mut Fleet, now: &mut Moment, drawn: &[Node], (number, step): &(usize, Step)) {
    let known = fleet.nodes.get(&name(*number)).cloned();
    match step {
        Step::Report(status) => {
            let fresh = Freshness::new(*now, BOUND);
            let node = reported(drawn, *number, *status, Some(fresh));
            fleet.nodes.insert(Arc::new(node));
        }
        Step::Remove => drop(fleet.nodes.remove(&name(*number))),
        Step::Confirm => known.iter().for_each(|node| node.freshness.confirm(*now)),
        Step::Sweep => {
            for node in fleet.clone().nodes.iter() {
                let is_stale = node.freshness.is_stale(*now);
                if is_stale != node.freshness.found_stale() {
                    let freshness = node.freshness.with_found_stale(is_stale);
                    fleet.nodes.insert(Arc::new(Node { freshness, ..Node::clone(node) }));
                }
            }
        }
        Step::Pass(millis) => *now = Moment::from_millis(now.as_millis() + millis),
    }
}

/// Totals by type from each node.
fn scanned_types(fleet: &Fleet, now: Moment) -> Vec<TypeTotals> {
    let mut all: BTreeMap<_, TypeTotals> = BTreeMap::new();
    for node in fleet.nodes.iter() {
        let without_agent = u32::from(!node.has_agent());
        for counts in node.types(now) {
            let key = (counts.type_name.is_none(), counts.type_name.clone());
            let one = TypeTotals { counts: counts.into_owned(), nodes: 1, without_agent };
            if let Some(known) = all.get_mut(&key) {
                known.counts.merge(&one.counts);
                known.nodes += 1;
                known.without_agent += without_agent;
            } else {
                all.insert(key, one);
            }
        }
    }
    all.into_values().collect()
}

fn check(fleet: &Fleet, queries: &[Vec<(String, String)>], now: Moment) {
    let mut states: BTreeMap<NodeState, usize> = NodeState::ALL.map(|state| (state, 0)).into();
    for node in fleet.nodes.iter() {
        *states.entry(node.state(now)).or_default() += 1;
    }
    assert_eq!(fleet.states(now), states);
    assert_eq!(fleet.types(now), scanned_types(fleet, now));
    for parameters in queries {
        let expected = model(fleet, &query(parameters, None), now);
        let first = find(fleet, &query(parameters, None), now);
        assert_eq!(first.total, expected.len());
        let mut found = first.items;
        if let Some(token) = first.next {
            found.extend(find(fleet, &query(parameters, Some(&token)), now).items);
        }
        let expected = expected.get(..found.len()).unwrap();
        assert_eq!(names(&found), names(expected), "{parameters:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn lists_types_and_states_equal_a_scan_while_nodes_change_and_time_passes(
        drawn in prop::collection::vec(node(), 1..9),
        present in number(),
        steps in steps(),
        queries in prop::collection::vec(parameters(), 1..4),
    ) {
        let mut now = Moment::from_millis(NOW);
        let nodes: Vec<Node> =
            (0..present).map(|number| reported(&drawn, number, number, None)).collect();
        let mut fleet = fleet(&nodes);
        check(&fleet, &queries, now);
        for some in steps.chunks(30) {
            let old = fleet.clone();
            for step in some {
                play(&mut fleet, &mut now, &drawn, step);
            }
            check(&fleet, &queries, now);
            check(&old, &queries, now);
        }
    }
}
