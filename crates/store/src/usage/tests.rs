//! Pages of any size together are the complete list in order; invalid queries are refused.

use std::sync::Arc;
use std::time::Duration;

use octavo_fleet::summary::UsageRank;
use octavo_model::inventory::Inventory;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::MemoryUse;
use octavo_model::resource::ShareId;
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
use octavo_stream::protocol::{PartKey, Parts, Run};
use octavo_stream::status;
use octavo_toolkit::error::chain;
use proptest::prelude::*;

use super::token::position;
use super::*;
use crate::clock::Moment;
use crate::fleet::{Fleet, Freshness, Node, ReportingAgent, StatusSummary};

fn tenant(name: &str, memory: u64) -> Tenant {
    Tenant {
        namespace: Some(format!("team-{}", memory % 3)),
        pod: Some(name.to_owned()),
        memory: Some(Mebibytes::new(memory)),
        is_over_share: memory.is_multiple_of(2),
        ..Tenant::default()
    }
}

fn node(name: &str, memory: &[u64]) -> Arc<Node> {
    let tenants = memory.iter().enumerate();
    let tenants = tenants.map(|(number, memory)| tenant(&format!("pod-{number}"), *memory));
    let unit = UnitUsage {
        uuid: "GPU-5fd4087b-86f3-7a43-b711-4771313afc50".to_owned(),
        replicas: Some(4),
        fair_share: Some(Mebibytes::new(10)),
        tenants: tenants.collect(),
        ..UnitUsage::default()
    };
    let usage = Usage {
        devices: vec![DeviceUsage {
            pci: "0000:07:00.0".parse().unwrap(),
            name: "GPU 0".to_owned(),
            memory: None,
            utilization: None,
            power_watts: None,
            temperature_celsius: None,
            units: vec![unit],
        }],
        missing: Vec::new(),
        ..Usage::default()
    };
    let inventory = Inventory::default();
    let origin = ReportingAgent {
        name: name.parse().unwrap(),
        run: Run { epoch: 1, boot_id: "b".to_owned() },
        agent_version: "1".to_owned(),
    };
    let parts: Parts = [status::encode_usage(&usage)].into_iter().collect();
    let summary = StatusSummary::new(&inventory, Arc::default(), None).with_usage(Some(&usage));
    let fresh = Freshness::new(Moment::default(), Duration::from_secs(1));
    Arc::new(Node::new(origin, parts, summary, fresh))
}

fn fleet(nodes: &[Vec<u64>]) -> Fleet {
    let mut fleet = Fleet::default();
    for (number, memory) in nodes.iter().enumerate() {
        fleet.nodes.insert(node(&format!("gpu-{number:02}"), memory));
    }
    fleet
}

/// Runs the search; returns the page and the number of steps.
fn run_search(mut search: Search<'_>) -> (Page, usize) {
    let mut steps = 1;
    while search.step() {
        steps += 1;
    }
    (search.page(), steps)
}

fn run(fleet: &Fleet, query: &Query, now: Moment) -> Page {
    run_search(Search::new(fleet, query, now)).0
}

fn query(text: &str) -> Result<Query, QueryError> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name.to_owned(), value.to_owned())
    });
    Query::parse(pairs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn concatenated_pages_are_the_complete_list(
        nodes in prop::collection::vec(prop::collection::vec(0..50_u64, 0..6), 0..8),
        limit in 1..7_usize,
        most in prop::sample::select(vec![1, 200, usize::MAX]),
        parameters in prop::sample::select(vec![
            "", "sort=memory", "over=true", "over=false&sort=memory", "namespace=team-1", "node=gpu-01", "pod=pod-0",
            "pod=pod-1&sort=memory",
        ]),
    ) {
        let (fleet, now) = (fleet(&nodes), Moment::default());
        let whole = run(&fleet, &query(&format!("{parameters}&limit=1000")).unwrap(), now);
        prop_assert_eq!(&whole.next, &None);
        let matching = nodes.iter().enumerate().flat_map(|(node, all)| {
            all.iter().enumerate().map(move |(pod, memory)| (node, pod, *memory))
        });
        let matching = matching.filter(|(node, pod, memory)| match parameters {
            "over=true" => memory % 2 == 0,
            "over=false&sort=memory" => memory % 2 == 1,
            "namespace=team-1" => memory % 3 == 1,
            "node=gpu-01" => *node == 1,
            "pod=pod-0" => *pod == 0,
            "pod=pod-1&sort=memory" => *pod == 1,
            _ => true,
        });
        prop_assert_eq!(whole.items.len(), matching.count());
        if parameters.contains("memory") {
            let memory: Vec<_> = whole.items.iter().map(|row| row.tenant.memory).collect();
            prop_assert!(memory.is_sorted_by(|a, b| a >= b), "{:?}", memory);
        }
        let (mut paged, mut token) = (Vec::new(), String::new());
        loop {
            let query = query(&format!("{parameters}&limit={limit}&continue={token}")).unwrap();
            let page = run_search(Search::within(&fleet, &query, now, most)).0;
            prop_assert!(page.items.len() <= limit);
            paged.extend(page.items);
            match page.next {
                Some(next) => token = next.to_string(),
                None => break,
            }
        }
        prop_assert_eq!(paged, whole.items);
    }

    #[test]
    fn changed_node_does_not_affect_rows_of_others(
        nodes in prop::collection::vec(prop::collection::vec(0..4_u64, 0..5), 1..8),
        (changed, after) in (0..8_usize, prop::option::of(prop::collection::vec(0..4_u64, 0..5))),
        (pages, limit) in (1..4_usize, 1..6_usize),
        most in prop::sample::select(vec![1, 200, usize::MAX]),
        sort in prop::sample::select(vec!["node", "memory"]),
    ) {
        let mut fleet = fleet(&nodes);
        let name = format!("gpu-{changed:02}");
        let (mut rows, mut token, mut page) = (Vec::new(), String::new(), 0);
        loop {
            let query = query(&format!("sort={sort}&limit={limit}&continue={token}")).unwrap();
            let answer = run_search(Search::within(&fleet, &query, Moment::default(), most)).0;
            prop_assert!(answer.items.len() <= limit);
            rows.extend(answer.items.iter().map(|row| (position(query.sort, row), row.node.clone())));
            let Some(next) = answer.next else { break };
            token = next.to_string();
            page += 1;
            if page == pages {
                // The node's usage changes, or the node is added or removed.
                match &after {
                    Some(memory) => fleet.nodes.insert(node(&name, memory)),
                    None => fleet.nodes.remove(&name.parse().unwrap()),
                };
            }
        }
        // No row is repeated at the same position, and none is out of order.
        prop_assert!(rows.is_sorted_by(|one, other| one.0 < other.0), "{:?}", rows);
        for (number, memory) in nodes.iter().enumerate().filter(|(number, _)| *number != changed) {
            let name = format!("gpu-{number:02}");
            let of_node = rows.iter().filter(|(_, node)| *node == name);
            prop_assert_eq!(of_node.count(), memory.len(), "{}: {:?}", name, rows);
        }
    }

    #[test]
    fn arbitrary_token_does_not_panic(text in "[0-9A-Za-z_-]{0,40}|[ -~é]{0,40}") {
        let _ = text.parse::<ContinueToken>();
    }
}

#[test]
fn rows_of_stale_nodes_are_marked() {
    let fleet = fleet(&[vec![1]]);
    let stale = |millis| {
        let page = run(&fleet, &Query::default(), Moment::from_millis(millis));
        page.items[0].stale
    };
    assert_eq!((stale(0), stale(1001)), (false, true));
}

#[test]
fn i12_error_lists_valid_values() {
    let fleet = fleet(&[vec![1, 2, 3]]);
    let page = run(&fleet, &query("limit=1").unwrap(), Moment::default());
    let token = page.next.unwrap();
    for (parameters, expected) in [
        (
            "nodes=a".to_owned(),
            "unknown parameter \"nodes\"; valid parameters: node, namespace, pod, over, sort, limit, continue",
        ),
        ("over=yes".to_owned(), "the parameter over cannot be \"yes\"; valid values: true, false"),
        ("sort=pod".to_owned(), "the parameter sort cannot be \"pod\"; valid values: node, memory"),
        ("limit=0".to_owned(), "the parameter limit cannot be \"0\"; valid values: 1 to 1000"),
        ("node=a&node=b".to_owned(), "the parameter node can be given only once"),
        (
            "continue=x".to_owned(),
            "the parameter continue is invalid; restart from the first page without it: the value is not from the field `continue` of a response",
        ),
        (
            format!("over=true&continue={token}"),
            "the parameter continue is invalid; restart from the first page without it: the value belongs to a request with other values of node, namespace, pod, over or sort",
        ),
        (
            format!("sort=memory&continue={token}"),
            "the parameter continue is invalid; restart from the first page without it: the value belongs to a request with other values of node, namespace, pod, over or sort",
        ),
    ] {
        assert_eq!(chain(&query(&parameters).unwrap_err()), expected);
    }
    // An empty form field counts as absent.
    assert_eq!(query("over=&sort=&node=").unwrap(), Query::default());
}

/// Like [`fleet`], with this many nodes and tenants; the last node uses the most.
fn large(nodes: usize, tenants: u64) -> Fleet {
    let mut fleet = Fleet::default();
    for number in 0..nodes {
        let base = u64::try_from(number).unwrap();
        let memory: Vec<u64> = (0..tenants).map(|one| 64 * (base + one) + 1).collect();
        fleet.nodes.insert(node(&format!("gpu-{number:06}"), &memory));
    }
    fleet
}

#[test]
fn at_most_one_node_per_row_is_read() {
    let (fleet, now) = (large(500, 24), Moment::default());
    let size = fleet.nodes.iter().next().unwrap().parts.size();
    for parameters in
        ["", "sort=memory", "over=false", "over=false&sort=memory", "over=true&sort=memory"]
    {
        let mut token = String::new();
        for _ in 0..5 {
            let query = query(&format!("{parameters}&limit=50&continue={token}")).unwrap();
            // With this limit of bytes, each page is still complete.
            let (page, _) = run_search(Search::within(&fleet, &query, now, 51 * size * 2));
            if parameters.starts_with("over=true") {
                assert_eq!((page.items.len(), page.next), (0, None));
                break;
            }
            assert_eq!(page.items.len(), 50, "{parameters}");
            token = page.next.unwrap().to_string();
        }
    }
    // Namespaces are known only after decoding, so all nodes are read, in steps.
    let unknown = query("namespace=unknown").unwrap();
    let (page, steps) = run_search(Search::new(&fleet, &unknown, now));
    assert_eq!((page.items.len(), page.next), (0, None));
    assert!(steps > 1, "{steps}");
}

#[test]
fn only_nodes_that_may_have_the_pod_are_read() {
    let mut fleet = large(500, 24);
    fleet.nodes.insert(node_with_idle_pods("gpu-000499", "team-a", 1_000, 30));
    let within = |parameters: &str, most: usize| {
        let query = query(parameters).unwrap();
        let (page, _) = run_search(Search::within(&fleet, &query, Moment::default(), most));
        (page.items.into_iter().map(|row| row.node).collect::<Vec<_>>(), page.next.is_some())
    };
    assert_eq!(within("pod=unknown", 0), (Vec::new(), false));
    // Other nodes have pod-0 to pod-23.
    assert_eq!(within("pod=pod-29", 1), (vec!["gpu-000499".to_owned()], false));
    assert_eq!(within("pod=pod-23&limit=1000", usize::MAX).0.len(), 500);
}

#[test]
fn ties_are_ordered_by_node() {
    // More nodes than one step reads and than one chunk of the roster holds.
    let mut fleet = Fleet::default();
    for number in 0..600 {
        fleet.nodes.insert(node(&format!("gpu-{number:06}"), &[7; 8]));
    }
    // One node uses more, and one less.
    fleet.nodes.insert(node("gpu-000100", &[8, 7]));
    fleet.nodes.insert(node("gpu-000003", &[6, 7]));
    let now = Moment::default();
    let first = query("sort=memory&pod=pod-0&limit=1000").unwrap();
    let (page, steps) = run_search(Search::new(&fleet, &first, now));
    assert!(steps > 1, "{steps}");
    let name = |number: usize| format!("gpu-{number:06}");
    let others = (0..600).filter(|number| ![3, 100].contains(number)).map(name);
    let expected = std::iter::once(name(100)).chain(others).chain([name(3)]);
    let found = page.items.into_iter().map(|row| row.node);
    assert!(found.eq(expected));
    let (mut rows, mut token) = (Vec::new(), String::new());
    loop {
        let query = query(&format!("sort=memory&limit=1000&continue={token}")).unwrap();
        let page = run(&fleet, &query, now);
        rows.extend(page.items);
        let Some(next) = page.next else { break };
        token = next.to_string();
    }
    assert_eq!(rows.len(), 598 * 8 + 4);
    let order = |row: &UsageRow| (std::cmp::Reverse(row.tenant.memory), row.node.clone());
    assert!(rows.is_sorted_by_key(order));
    assert_eq!(rows[0].node, "gpu-000100");
    assert_eq!(rows.last().unwrap().node, "gpu-000003");
    // A page in the middle continues where the previous one ended, and reads no more than necessary.
    let size = fleet.nodes.iter().next().unwrap().parts.size();
    let mut token = String::new();
    for page in rows.chunks(50).take(20) {
        let query = query(&format!("sort=memory&limit=50&continue={token}")).unwrap();
        let found = run_search(Search::within(&fleet, &query, now, 8 * size)).0;
        assert_eq!(found.items, page);
        token = found.next.unwrap().to_string();
    }
}

/// Sums up the whole fleet; returns the result and the number of steps.
fn run_summary(fleet: &Fleet, most: usize, now: Moment) -> (summary::UsageTotals, usize) {
    let mut summary = summary::Summary::within(fleet, now, most);
    let mut steps = 1;
    while summary.step() {
        steps += 1;
    }
    (summary.totals(), steps)
}

/// The same node, with a replica allocated to each pod.
fn node_with_allocations(name: &str, pods: u32) -> Arc<Node> {
    let node = node(name, &(0..u64::from(pods)).collect::<Vec<u64>>());
    let part = node.parts.get(PartKey::USAGE).unwrap();
    let mut usage = status::decode_usage(part).unwrap();
    let tenants = &mut usage.devices[0].units[0].tenants;
    for (number, tenant) in (0..).zip(tenants) {
        let uuid = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";
        tenant.ids = vec![ShareId::replica(uuid, number)];
    }
    let parts: Parts = [status::encode_usage(&usage)].into_iter().collect();
    Arc::new(Node { parts, ..Node::clone(&node) })
}

#[test]
fn ac_010_allocations_per_namespace_are_summed_over_fresh_nodes() {
    let mut fleet = Fleet::default();
    for number in 0..400 {
        fleet.nodes.insert(node_with_allocations(&format!("gpu-{number:03}"), 30));
    }
    let now = Moment::default();
    let (rows, steps) = run_summary(&fleet, usize::MAX, now);
    assert!(steps > 1, "the whole fleet was read in one step");
    assert!(!rows.is_truncated);
    let counts = rows.teams.iter();
    let counts: Vec<(String, u64, u64)> = counts
        .map(|((namespace, kind), usage)| {
            assert_eq!(*kind, None);
            (namespace.clone(), usage.held.pods, usage.held.replicas)
        })
        .collect();
    let expected = ["team-0", "team-1", "team-2"].map(|team| (team.to_owned(), 4000, 4000));
    assert_eq!(counts, expected);
    let (some, _) = run_summary(&fleet, 10_000, now);
    assert!(some.is_truncated, "{some:?}");
    let (late, _) = run_summary(&fleet, usize::MAX, Moment::from_millis(60_000));
    assert_eq!((late.stale_nodes, late.teams.len()), (400, 0));
}

/// The same node, with a pod of `namespace` on each of these devices, without a process and with this memory.
fn node_with_idle_pods(name: &str, namespace: &str, memory: u64, pods: usize) -> Arc<Node> {
    let node = node(name, &[0]);
    let part = node.parts.get(PartKey::USAGE).unwrap();
    let mut usage = status::decode_usage(part).unwrap();
    let unit = &mut usage.devices[0].units[0];
    unit.replicas = None;
    unit.fair_share = None;
    unit.memory = Some(MemoryUse {
        total: Mebibytes::new(memory),
        used: Mebibytes::default(),
        reserved: Mebibytes::default(),
    });
    let tenants = (0..pods).map(|number| Tenant {
        namespace: Some(namespace.to_owned()),
        pod: Some(format!("pod-{number}")),
        ids: vec![ShareId::whole("GPU-5fd4087b-86f3-7a43-b711-4771313afc50")],
        memory: Some(Mebibytes::default()),
        ..Tenant::default()
    });
    unit.tenants = tenants.collect();
    let parts: Parts = [status::encode_usage(&usage)].into_iter().collect();
    let usage = UsageRank::from_usage(&usage);
    Arc::new(Node { parts, usage, ..Node::clone(&node) })
}

#[test]
fn idle_allocations_of_a_namespace_are_found_behind_larger_ones_of_others() {
    let mut fleet = Fleet::default();
    for number in 0..5 {
        fleet.nodes.insert(node_with_idle_pods(&format!("large-{number}"), "other", 9_000, 100));
    }
    fleet.nodes.insert(node_with_idle_pods("small", "team-a", 1_000, 3));
    let totals = |namespace| {
        let summary = summary::Summary::new(&fleet, Moment::default());
        let mut summary = summary.of_namespace(namespace);
        while summary.step() {}
        summary.totals()
    };
    let all = totals(None);
    assert_eq!((all.idle.len(), all.omitted_idle), (summary::MAX_IDLE_HOLDERS, 303));
    assert!(all.idle.iter().all(|(_, holder)| holder.namespace == "other"));
    let one = totals(Some("team-a"));
    assert_eq!((one.idle.len(), one.omitted_idle), (3, 0));
    assert_eq!(one.teams.keys().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["team-a"]);
}
