//! Property test: a count that reuses the rows of unchanged nodes equals one that determines all rows.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Change of the cluster or of an agent between two counts.
#[derive(Debug, Clone)]
enum Change {
    Node(usize, NodeState),
    NodeGone(usize),
    Pod(usize, PodState),
    PodGone(usize),
    Agent(usize, AgentState),
    AgentGone(usize),
    /// The cluster can be read, or not.
    Cluster(bool),
    Time(i64),
}

#[derive(Debug, Clone)]
struct NodeState {
    kind: usize,
    capacity: u64,
    is_cordoned: bool,
}

#[derive(Debug, Clone)]
struct PodState {
    on: Option<usize>,
    count: u64,
    is_partition: bool,
    started_at: i64,
    until: Option<i64>,
}

#[derive(Debug, Clone)]
struct AgentState {
    report: usize,
    is_stale: bool,
    is_changing: bool,
}

const NODES: [&str; 4] = ["a", "b", "c", "d"];
const TYPES: [&str; 3] = [H200, "nvidia-l4-24gb", "mixed"];
const PARTITION: &str = "nvidia.com/mig-3g.40gb";

fn any_change() -> impl Strategy<Value = Change> {
    let index = 0..NODES.len();
    let node = (index.clone(), 0..TYPES.len(), 0..5_u64, any::<bool>()).prop_map(
        |(index, kind, capacity, is_cordoned)| {
            Change::Node(index, NodeState { kind, capacity, is_cordoned })
        },
    );
    let on = prop::option::weighted(0.8, index.clone());
    let until = prop::option::of(0..500_i64);
    let pod = (0..12_usize, on, 0..3_u64, any::<bool>(), 0..500_i64, until).prop_map(
        |(index, on, count, is_partition, started_at, until)| {
            Change::Pod(index, PodState { on, count, is_partition, started_at, until })
        },
    );
    let agent = (index.clone(), 0..4_usize, any::<bool>(), any::<bool>()).prop_map(
        |(index, report, is_stale, is_changing)| {
            Change::Agent(index, AgentState { report, is_stale, is_changing })
        },
    );
    prop_oneof![
        4 => node,
        8 => pod,
        4 => agent,
        1 => index.clone().prop_map(Change::NodeGone),
        2 => (0..12_usize).prop_map(Change::PodGone),
        1 => index.prop_map(Change::AgentGone),
        1 => any::<bool>().prop_map(Change::Cluster),
        2 => (1..1000_i64).prop_map(Change::Time),
    ]
}

/// The cluster and the agents. Unchanged objects are shared between counts, as in the aggregator.
struct Fleet {
    snapshot: Arc<ClusterSnapshot>,
    has_cluster: bool,
    agents: BTreeMap<&'static str, (Arc<AgentUnits>, AgentState)>,
    reports: [Arc<AgentUnits>; 4],
    holders: HoldingObserver,
    history: HoldingHistory,
    now: i64,
}

impl Fleet {
    fn new() -> Self {
        let mut broken = seen(&[(H200, GPU, 4)]);
        unit(&mut broken, 0).broken = 1;
        let reports = [
            seen(&[(H200, GPU, 4)]),
            seen(&[(H200, GPU, 2), ("nvidia-l4-24gb", GPU, 2)]),
            seen(&[(H200, PARTITION, 3)]),
            broken,
        ];
        Self {
            snapshot: Arc::default(),
            has_cluster: true,
            agents: BTreeMap::new(),
            reports,
            holders: HoldingObserver::default(),
            history: HoldingHistory::default(),
            now: 1000,
        }
    }

    fn apply(&mut self, change: Change) {
        let snapshot = Arc::make_mut(&mut self.snapshot);
        let key = |index| pod(&format!("pod-{index}"), None, GPU, 0).key;
        match change {
            Change::Node(index, state) => {
                let mut node = node(NODES[index], &[(TYPE, TYPES[state.kind])], state.capacity);
                node.is_cordoned = state.is_cordoned;
                snapshot.nodes.insert(node.name.clone(), Arc::new(node));
            }
            Change::NodeGone(index) => drop(snapshot.nodes.remove(NODES[index])),
            Change::Pod(index, state) => {
                let resource = if state.is_partition { PARTITION } else { GPU };
                let on = state.on.map(|index| NODES[index]);
                let mut pod = pod(&format!("pod-{index}"), on, resource, state.count);
                pod.started_at = on.map(|_| state.started_at);
                pod.until = state.until;
                snapshot.insert_pod(Arc::new(pod));
            }
            Change::PodGone(index) => snapshot.remove_pod(&key(index)),
            Change::Agent(index, state) => {
                let report = Arc::clone(&self.reports[state.report]);
                self.agents.insert(NODES[index], (report, state));
            }
            Change::AgentGone(index) => drop(self.agents.remove(NODES[index])),
            Change::Cluster(has_cluster) => self.has_cluster = has_cluster,
            Change::Time(seconds) => self.now += seconds,
        }
    }

    fn count(&mut self, cache: &mut CountCache) -> Availability {
        let agents = self.agents.iter().map(|(name, (seen, state))| AgentNode {
            name,
            seen,
            is_stale: state.is_stale,
            is_changing: state.is_changing,
        });
        let agents: Vec<AgentNode<'_>> = agents.collect();
        let snapshot = self.has_cluster.then_some(&*self.snapshot);
        let past = HoldingTimes { history: &mut self.history, now: self.now };
        count(&agents, snapshot, cache, Some(past))
    }
}

/// Sums of the rows of all nodes, one after the other.
fn sums(availability: &Availability) -> BTreeMap<RowKey, [u64; 6]> {
    let mut sums: BTreeMap<RowKey, [u64; 6]> = BTreeMap::new();
    for row in availability.nodes.iter().flat_map(|(_, rows)| &rows.rows) {
        let sum = sums.entry(row.key.clone()).or_default();
        for (sum, one) in sum.iter_mut().zip(figures(row)) {
            *sum += one;
        }
    }
    sums
}

fn figures(row: &Row) -> [u64; 6] {
    let nodes = u64::from(row.nodes);
    [row.capacity, row.allocatable, row.taken, row.free, nodes, row.unavailable_units()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn incremental_count_equals_complete_count(
        rounds in prop::collection::vec(prop::collection::vec(any_change(), 0..6), 1..12),
    ) {
        let mut fleet = Fleet::new();
        let mut cache = CountCache::new(Catalog::built_in());
        for changes in rounds {
            for change in changes {
                fleet.apply(change);
            }
            for shown in fleet.holders.observe(&fleet.snapshot, fleet.now) {
                fleet.history.record(shown);
            }
            let history = fleet.history.clone();
            let incremental = fleet.count(&mut cache);
            let learned = std::mem::replace(&mut fleet.history, history);
            let complete = fleet.count(&mut CountCache::new(Catalog::built_in()));
            prop_assert_eq!(&incremental, &complete);
            fleet.history = learned;
            let sums = sums(&complete);
            for row in &complete.rows {
                let expected = sums.get(&row.key).copied().unwrap_or_default();
                prop_assert_eq!(figures(row), expected, "{:?}", row.key);
            }
        }
    }
}

#[test]
fn rows_of_unchanged_nodes_are_reused_and_equal_rows_are_shared() {
    let nodes = ["a", "b", "c"].map(|name| node(name, &[(TYPE, H200)], 8));
    let mut all = snapshot(nodes.to_vec(), vec![pod("runs", Some("a"), GPU, 1)]);
    let mut cache = CountCache::new(Catalog::built_in());
    let mut rows = |snapshot: &ClusterSnapshot| -> Vec<Arc<NodeRows>> {
        let counted = count(&[], Some(snapshot), &mut cache, None);
        counted.nodes.into_iter().map(|(_, rows)| rows).collect()
    };
    let first = rows(&all);
    assert!(Arc::ptr_eq(&first[1], &first[2]) && !Arc::ptr_eq(&first[0], &first[1]));
    all.insert_pod(Arc::new(pod("new", Some("b"), GPU, 1)));
    let second = rows(&all);
    // The second node now equals the first one.
    let is_same = |one: usize, other: usize| Arc::ptr_eq(&second[one], &first[other]);
    assert!(is_same(0, 0) && is_same(1, 0) && is_same(2, 2));
}
