//! Pagination compared with a naive model, on arbitrary fleets and while they change; and parsing of parameters.

mod index;

use std::time::Duration;

use octavo_fleet::summary::{
    DeviceHealth, DeviceSummary, LayoutSummary, NodeGroup, NodeState, NodeSummary, Occupancy,
    PartitionCounts,
};
use octavo_model::id::NodeName;
use octavo_model::inventory::{Inventory, NvmlState};
use octavo_model::quantity::Mebibytes;
use octavo_model::reported::Reported;
use octavo_node::label_set::LabelSet;
use octavo_stream::protocol::{Parts, Run};
use proptest::prelude::*;

use super::error::PARAMETERS;
use super::*;
use crate::fleet::{Freshness, ReportingAgent, StatusSummary};

const BOUND: Duration = Duration::from_secs(30);
const NOW: u64 = 60_000;

fn device() -> impl Strategy<Value = DeviceSummary> {
    let occupancy = prop_oneof![
        Just(Occupancy::Free),
        Just(Occupancy::InUse),
        Just(Occupancy::Unavailable),
        Just(Occupancy::Partitioned(PartitionCounts { total: 3, free: 2, in_use: 1 })),
    ];
    let name = prop::option::of(prop::sample::select(vec!["nvidia-a30-24gb", "nvidia-l4-24gb"]));
    let state = prop::sample::select(vec![NodeState::Ok, NodeState::Degraded]);
    (name, prop::option::of(1_u64..3), state, occupancy).prop_map(
        |(name, memory, node_state, occupancy)| DeviceSummary {
            facts: DeviceSummary::new(&octavo_model::examples::gpu(), &NvmlState::Loading).facts,
            sharing: None,
            worst_issue: None,
            is_manual_type: false,
            type_name: name.map(|name| name.parse().unwrap()),
            memory: memory.map(Mebibytes::new),
            health: DeviceHealth::OK,
            node_state,
            occupancy,
        },
    )
}

fn labels() -> impl Strategy<Value = Arc<LabelSet>> {
    let values = prop::option::of(prop::sample::select(vec!["", "1", "2"]));
    [values.clone(), values].prop_map(|values| {
        let pairs = ["k", "octavo.dev/k"].into_iter().zip(values);
        let labels =
            pairs.filter_map(|(key, value)| Some((key.parse().unwrap(), value?.parse().unwrap())));
        Arc::new(labels.collect())
    })
}

/// Any layout state of a node.
fn layout() -> impl Strategy<Value = Option<LayoutSummary>> {
    let word = |words: &[&'static str]| {
        prop::option::of(prop::sample::select(words.to_vec()))
            .prop_map(|word| word.map(str::to_owned))
    };
    let layout = (word(&["one", "two"]), word(&["applied", "blocked", "later"])).prop_map(
        |(name, state)| LayoutSummary {
            name,
            state: state.as_deref().map(Reported::parse),
            ..LayoutSummary::default()
        },
    );
    prop::option::of(layout)
}

/// A node. Names collide often enough that a later node replaces an earlier one.
fn node() -> impl Strategy<Value = Node> {
    let devices = prop::collection::vec(device(), 0..3);
    let drawn = (0_u16..60, devices, labels(), layout(), 0..NOW);
    drawn.prop_map(|(number, devices, labels, layout, confirmed)| {
        let inventory = Inventory::default();
        let origin = ReportingAgent {
            name: format!("gpu-{number}").parse().unwrap(),
            run: Run { epoch: 1, boot_id: "b".to_owned() },
            agent_version: "1".to_owned(),
        };
        let freshness = Freshness::new(Moment::from_millis(confirmed), BOUND);
        let mut node = Node::new(
            origin,
            Parts::default(),
            StatusSummary::new(&inventory, labels, None),
            freshness,
        );
        node.summary = NodeSummary::new(&devices, &inventory.nvml, layout);
        node.devices = devices;
        node
    })
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    prop::collection::vec(node(), 0..60)
}

fn fleet(nodes: &[Node]) -> Fleet {
    let mut fleet = Fleet::default();
    for node in nodes {
        fleet.nodes.insert(Arc::new(node.clone()));
        fleet.revision += 1;
    }
    fleet
}

/// Query parameters, mostly with few filters.
fn parameters() -> impl Strategy<Value = Vec<(String, String)>> {
    let filter = |name: &'static str, values: &[&'static str]| {
        prop::option::weighted(0.2, prop::sample::select(values.to_vec()))
            .prop_map(move |value| value.map(|value| (name.to_owned(), value.to_owned())))
    };
    let sort = prop::sample::select(SortKey::ALL.to_vec());
    let filters = (
        filter("search", &["1", "GPU-2", "x"]),
        filter("type", &["unknown", "nvidia-l4-24gb", "nvidia-l4-24gb,unknown"]),
        filter("state", &["stale", "ok,stale", "empty,degraded"]),
        filter("problem", &["blocked", "degraded,stale", "x"]),
        filter("sharing", &["mig", "none,exclusive"]),
        filter("layout", &["one", "one,three"]),
        filter("layoutState", &["applied", "none,blocked"]),
        filter("selector", &["k", "!k", "k=1", "octavo.dev/k in (1,2),k!=1"]),
    );
    (filters, sort, any::<bool>(), 1_usize..9).prop_map(|(filters, key, descending, limit)| {
        let mut all: Vec<_> = <[_; 8]>::from(filters).into_iter().flatten().collect();
        all.push(("sort".to_owned(), Sort { key, descending }.to_string()));
        all.push(("limit".to_owned(), limit.to_string()));
        all
    })
}

fn query(parameters: &[(String, String)], token: Option<&ContinueToken>) -> Query {
    let token = token.map(|token| ("continue".to_owned(), token.to_string()));
    Query::parse(parameters.iter().cloned().chain(token)).unwrap()
}

fn names(nodes: &[Arc<Node>]) -> Vec<&NodeName> {
    nodes.iter().map(|node| &node.name).collect()
}

/// Reference implementation of a query.
fn model(fleet: &Fleet, query: &Query, now: Moment) -> Vec<Arc<Node>> {
    let has_type = |node: &Node| {
        let mut all = node.devices.iter();
        query.types.is_empty() || all.any(|device| query.types.contains(&device.type_name))
    };
    let mut matching: Vec<Arc<Node>> = fleet
        .nodes
        .iter()
        .filter(|node| {
            let name = node.name.as_str();
            query.search.as_ref().is_none_or(|part| name.contains(part))
                && has_type(node)
                && (query.states.is_empty() || query.states.contains(&node.state(now)))
                && (query.sharing.is_empty() || query.sharing.contains(&node.summary.sharing))
                && (query.problems.is_empty()
                    || node
                        .problems(now)
                        .iter()
                        .any(|one| query.problems.contains(&one.reason.to_owned())))
                && query.selector.matches(&node.labels)
                && {
                    let layout = node.summary.layout.clone().unwrap_or_default();
                    let name = layout.name.unwrap_or_default();
                    let state = layout.state.unwrap_or_default().to_string();
                    let mut words = query.layout_states.iter();
                    (query.layouts.is_empty() || query.layouts.contains(&name))
                        && (query.layout_states.is_empty()
                            || words.any(|word| word.unwrap_or_default() == state))
                }
        })
        .cloned()
        .collect();
    let first_type = |node: &Node| {
        let name = node.summary.types.first().and_then(|one| one.type_name.clone());
        (name.is_none(), name)
    };
    matching.sort_by(|a, b| {
        let by = match query.sort.key {
            SortKey::Name => a.name.cmp(&b.name),
            SortKey::State => a.state(now).cmp(&b.state(now)),
            SortKey::Devices => a.devices.len().cmp(&b.devices.len()),
            SortKey::Free => a.counts(now).free.cmp(&b.counts(now).free),
            SortKey::Memory => a.summary.memory.cmp(&b.summary.memory),
            SortKey::Age => a.freshness.age(now).cmp(&b.freshness.age(now)),
            SortKey::Type => first_type(a).cmp(&first_type(b)),
            SortKey::Sharing => a.summary.sharing.cmp(&b.summary.sharing),
        };
        let by = if query.sort.descending { by.reverse() } else { by };
        by.then_with(|| a.name.cmp(&b.name))
    });
    matching
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn pages_contain_each_matching_node_once_in_order(
        nodes in nodes(),
        parameters in parameters(),
    ) {
        let (fleet, now) = (fleet(&nodes), Moment::from_millis(NOW));
        let expected = model(&fleet, &query(&parameters, None), now);
        let mut seen = Vec::new();
        let mut token = None;
        loop {
            let query = query(&parameters, token.as_ref());
            let page = find(&fleet, &query, now);
            prop_assert!(page.items.len() <= query.limit);
            prop_assert_eq!(page.total, expected.len());
            seen.extend(page.items);
            let Some(next) = page.next else { break };
            prop_assert!(seen.len() < expected.len(), "a page follows the last");
            token = Some(next);
        }
        prop_assert_eq!(names(&seen), names(&expected));
    }

    #[test]
    fn groups_contain_each_matching_node_once_within_limits(
        nodes in nodes(),
        parameters in parameters(),
        (each, most) in (0_usize..4, 0_usize..12),
    ) {
        let (fleet, now) = (fleet(&nodes), Moment::from_millis(NOW));
        let query = query(&parameters, None);
        let expected = model(&fleet, &query, now);
        let types = |node: &Node| {
            let types = node.summary.types.iter();
            NodeGroup::from_types(types.map(|one| one.type_name.as_ref()))
        };
        let few = Query { limit: each, ..query };
        let groups = group_nodes(&fleet, &few, most, now);
        prop_assert!(groups.is_sorted_by(|one, next| one.group < next.group));
        let mut left = most;
        for one in &groups {
            let all: Vec<_> = expected.iter().filter(|node| types(node) == one.group).collect();
            prop_assert_eq!(one.total, all.len());
            let devices: usize = all.iter().map(|node| node.devices.len()).sum();
            prop_assert_eq!(one.counts.total as usize, devices);
            let shown = all.iter().take(each.min(left)).map(|node| &node.name);
            prop_assert_eq!(names(&one.items), shown.collect::<Vec<_>>());
            left -= one.items.len();
        }
        let total: usize = groups.iter().map(|one| one.total).sum();
        prop_assert_eq!(total, expected.len());
    }

    #[test]
    fn unchanged_nodes_are_neither_skipped_nor_repeated_between_pages(
        staying in nodes(),
        others in prop::collection::vec(nodes(), 1..4),
        parameters in parameters(),
    ) {
        // Nodes that come and go have separate names, anywhere in the order.
        let others: Vec<Vec<Node>> = others.into_iter().map(|nodes| {
            nodes.into_iter().map(|mut node| {
                node.name = format!("{}-x", node.name).parse().unwrap();
                node
            }).collect()
        }).collect();
        let now = Moment::from_millis(NOW);
        let stayed = model(&fleet(&staying), &query(&parameters, None), now);
        let mut seen = Vec::new();
        let mut token = None;
        for turn in 0.. {
            let all = [staying.clone(), others[turn % others.len()].clone()].concat();
            let page = find(&fleet(&all), &query(&parameters, token.as_ref()), now);
            seen.extend(page.items);
            let Some(next) = page.next else { break };
            token = Some(next);
        }
        seen.retain(|node| !node.name.as_str().ends_with("-x"));
        prop_assert_eq!(names(&seen), names(&stayed));
    }

    #[test]
    fn arbitrary_parameters_do_not_panic(name in "[a-z]{0,9}", value in "\\PC{0,40}") {
        let _ = Query::parse([(name, value.clone())]);
        for parameter in PARAMETERS {
            let _ = Query::parse([(parameter.to_owned(), value.clone())]);
        }
    }
}

fn refusal(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let error = Query::parse(pairs).unwrap_err();
    format!("{}: {}", error.parameter(), octavo_toolkit::error::chain(&error))
}

#[test]
fn error_lists_valid_values() {
    for (pairs, expected) in [
        (
            &[("stat", "ok")][..],
            "stat: unknown parameter \"stat\"; did you mean state? Valid parameters: search, type, state, problem, sharing, layout, layoutState, selector, sort, limit, continue",
        ),
        (
            &[("search", "a"), ("search", "b")],
            "search: the parameter search can be given only once",
        ),
        (
            &[("state", "ok,bad")],
            "state: the parameter state cannot be \"bad\"; valid values: empty, passthrough, ok, applying, no-agent, attention, degraded, no-driver, nvml-lost, nvml-stalled, stale",
        ),
        (
            &[("sharing", "MIG")],
            "sharing: the parameter sharing cannot be \"MIG\"; valid values: none, exclusive, mig, partitioned, time-slicing, mixed",
        ),
        (
            &[("layoutState", "done")],
            "layoutState: the parameter layoutState cannot be \"done\"; valid values: none, applied, pending, applying, yielded, drifted, blocked, rolled-back, needs-reset, infeasible, failed",
        ),
        (
            &[("sort", "+name")],
            "sort: the parameter sort cannot be \"+name\"; valid values: name, state, devices, free, memory, age, type, sharing, each with an optional - for descending order",
        ),
        (&[("limit", "0")], "limit: the parameter limit cannot be \"0\"; valid values: 1 to 1000"),
        (
            &[("limit", "1001")],
            "limit: the parameter limit cannot be \"1001\"; valid values: 1 to 1000",
        ),
        (
            &[("type", "H 200")],
            "type: the parameter type cannot be \"H 200\"; use `unknown` or a type such as nvidia-h200-141gb: \"H 200\" is not an accelerator type like nvidia-a100-80gb",
        ),
        (
            &[("selector", "a in b")],
            "selector: the parameter selector is invalid: at column 6: expected values in parentheses, found \"b\"",
        ),
        (
            &[("continue", "x")],
            "continue: the parameter continue is invalid; restart from the first page without it: the value is not from the field `continue` of a response",
        ),
    ] {
        assert_eq!(refusal(pairs), expected);
    }
}

#[test]
fn token_is_bound_to_its_filters_and_order() {
    let mut query = Query::parse([("state".to_owned(), "ok,stale".to_owned())]).unwrap();
    let token =
        ContinueToken::new(&query, Rank::Text("a".into()), "a".parse().unwrap()).to_string();
    let with = |pairs: &[(&str, &str)]| refusal(&[pairs, &[("continue", &token)]].concat());
    assert!(with(&[("state", "ok")]).contains("other values of search, type"));
    assert!(with(&[("state", "ok,stale"), ("search", "a")]).contains("other values"));
    assert!(
        with(&[("state", "ok,stale"), ("sort", "-age")])
            .contains("the value belongs to a request with sort=name, not sort=-age")
    );
    query.states.reverse();
    assert_eq!(token.parse::<ContinueToken>().unwrap().check(&query), Ok(()));
}

#[test]
fn empty_parameter_counts_as_absent() {
    let empty = PARAMETERS.map(|name| (name.to_owned(), " ".to_owned()));
    assert_eq!(Query::parse(empty), Ok(Query::default()));
}
