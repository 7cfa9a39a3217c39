//! Desired keys of the `ConfigMap`: those that nodes request, after validation, and recently requested ones for a grace
//! period. Time is an argument.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use octavo_files::plugin_config;
use octavo_kube::nvidia_plugin_config::Contents;
use octavo_model::id::NodeName;
use octavo_model::sharing_status::HandOffConfig;

/// Requests of all nodes that have any.
pub type ConfigRequests = BTreeMap<NodeName, ConfigRequest>;

/// Request of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigRequest {
    /// Configuration for its device plugin.
    pub hand_off: Option<HandOffConfig>,
    /// Key that its label names. Its device plugin does not start without that key, so the key is retained unchanged.
    pub named: Option<String>,
}

/// History of requests.
#[derive(Debug, Clone, Default)]
pub struct KeyLedger {
    requested_at: BTreeMap<String, Duration>,
    /// Keys that were dropped, and those that reappeared because agents of another aggregator request them.
    dropped: BTreeSet<String>,
    owned_elsewhere: BTreeSet<String>,
    /// Owner of each key.
    owners: BTreeMap<String, Owner>,
    histories: BTreeMap<NodeName, RequestHistory>,
}

/// Owner of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    /// The only node that has requested it.
    One(NodeName),
    /// Several nodes have requested it, so a further request by one of them does not evict it first.
    Several,
}

/// Request history of a node.
#[derive(Debug, Clone, Default)]
struct RequestHistory {
    /// Last granted key.
    last: Option<String>,
    /// Times of changes to a key that no node had requested, within the last [`RETENTION`].
    changes: VecDeque<Duration>,
}

/// Outcome of comparing requests with the `ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// All keys to apply; `None` if they are up to date.
    pub apply: Option<BTreeMap<String, String>>,
    /// Rejected requests with the reason.
    pub refused: BTreeMap<NodeName, String>,
}

/// Maximum number of keys: with texts of maximum length, they take half of a `ConfigMap`.
pub const MAX_KEYS: usize = 128;
/// Retention of keys that no node requests: a node may be offline, and its device plugin would not start without its
/// key.
pub const RETENTION: Duration = Duration::from_hours(1);
/// Maximum number of changes of a node to a key that does not exist, within [`RETENTION`]. More than an administrator
/// needs, but few enough to prevent a node from causing constant writes of the `ConfigMap` or evicting other nodes'
/// keys.
pub const MAX_CHANGES: usize = 12;
/// Maximum number of nodes with a history but no current request.
const MAX_REMEMBERED_NODES: usize = 1024;

impl KeyLedger {
    /// Compares the requests with the `ConfigMap`.
    pub fn decide(
        &mut self,
        now: Duration,
        requests: &ConfigRequests,
        contents: &Contents,
    ) -> Decision {
        let mut wanted: BTreeMap<String, String> = BTreeMap::new();
        let mut refused = BTreeMap::new();
        // Keys in use take precedence over requested ones.
        let named = requests.values().filter_map(|request| request.named.as_ref());
        for key in named.filter(|key| contents.ours.contains(*key)) {
            if let Some(text) = contents.all.get(key) {
                wanted.insert(key.clone(), text.clone());
            }
        }
        self.forget(now, requests);
        let hand_offs =
            requests.iter().filter_map(|(node, request)| Some((node, request.hand_off.as_ref()?)));
        // Nodes at their limit of changes come last, because another node may request the same key.
        let (limited, others): (Vec<_>, Vec<_>) =
            hand_offs.partition(|(node, _)| self.is_rate_limited(node));
        for (node, hand_off) in others.into_iter().chain(limited) {
            match check(hand_off, &wanted, contents) {
                Err(why) => {
                    refused.insert(node.clone(), why);
                }
                Ok(KeyAction::Nothing) => {}
                Ok(KeyAction::Apply)
                    if wanted.len() >= MAX_KEYS && !wanted.contains_key(&hand_off.key) =>
                {
                    let why = format!("nodes request more than {MAX_KEYS} configurations");
                    refused.insert(node.clone(), why);
                }
                Ok(KeyAction::Apply) => {
                    let is_there = contents.ours.contains(&hand_off.key);
                    if !self.admit_change(
                        now,
                        (node, &hand_off.key),
                        is_there || wanted.contains_key(&hand_off.key),
                    ) {
                        let why = format!(
                            "the node requested more than {MAX_CHANGES} new configurations within an hour"
                        );
                        refused.insert(node.clone(), why);
                        continue;
                    }
                    wanted.insert(hand_off.key.clone(), hand_off.config.clone());
                }
            }
        }
        for key in wanted.keys() {
            self.requested_at.insert(key.clone(), now);
            self.dropped.remove(key);
        }
        self.retain_unrequested(now, (requests, &mut wanted), contents);
        let is = |key: &String| contents.ours.contains(key);
        self.requested_at.retain(|key, _| wanted.contains_key(key) || is(key));
        self.owners.retain(|key, _| self.requested_at.contains_key(key));
        self.owned_elsewhere.retain(is);
        let there = |key: &String| Some((key.clone(), contents.all.get(key)?.clone()));
        let ours: BTreeMap<String, String> = contents.ours.iter().filter_map(there).collect();
        Decision { apply: (ours != wanted).then_some(wanted), refused }
    }

    /// Applies the node's limit of changes. An existing key and the node's last key are always granted, because another
    /// client may have deleted the key.
    fn admit_change(
        &mut self,
        now: Duration,
        (node, key): (&NodeName, &String),
        is_there: bool,
    ) -> bool {
        let history = self.histories.entry(node.clone()).or_default();
        if !is_there && history.last.as_ref() != Some(key) {
            if history.changes.len() >= MAX_CHANGES {
                return false;
            }
            history.changes.push_back(now);
        }
        history.last = Some(key.clone());
        let owner = self.owners.get(key);
        if owner.is_none() && !is_there {
            self.owners.insert(key.clone(), Owner::One(node.clone()));
        } else if owner.is_some_and(|owner| *owner != Owner::One(node.clone())) {
            self.owners.insert(key.clone(), Owner::Several);
        }
        true
    }

    fn is_rate_limited(&self, node: &NodeName) -> bool {
        let history = self.histories.get(node);
        history.is_some_and(|history| history.changes.len() >= MAX_CHANGES)
    }

    fn forget(&mut self, now: Duration, requests: &ConfigRequests) {
        for history in self.histories.values_mut() {
            let is_old = |at: &Duration| now.saturating_sub(*at) >= RETENTION;
            while history.changes.front().is_some_and(is_old) {
                history.changes.pop_front();
            }
        }
        // A node that disconnects and reconnects keeps its history.
        let mut room = MAX_REMEMBERED_NODES;
        self.histories.retain(|node, history| {
            let is_retained = !history.changes.is_empty() && room > 0;
            let is_connected = requests.contains_key(node);
            if is_retained && !is_connected {
                room = room.saturating_sub(1);
            }
            is_connected || is_retained
        });
    }

    /// Retains keys that no node requests for a grace period. If there is no room for all, keys are evicted by the
    /// number of later requests of their owner, so that a node with ever more requests evicts its own keys and not
    /// those of offline nodes; ties go to the key that was requested longest ago.
    fn retain_unrequested(
        &mut self,
        now: Duration,
        (requests, wanted): (&ConfigRequests, &mut BTreeMap<String, String>),
        contents: &Contents,
    ) {
        let mut idle: Vec<(Duration, &String)> = Vec::new();
        for key in contents.ours.iter().filter(|key| !wanted.contains_key(*key)) {
            if self.dropped.remove(key) {
                self.owned_elsewhere.insert(key.clone());
            }
            let last = *self.requested_at.entry(key.clone()).or_insert(now);
            let is_retained = self.owned_elsewhere.contains(key);
            if is_retained || now.saturating_sub(last) < RETENTION {
                idle.push((last, key));
            } else {
                self.dropped.insert(key.clone());
            }
        }
        idle.sort_by(|one, other| other.cmp(one));
        let mut since: BTreeMap<&NodeName, usize> = BTreeMap::new();
        let mut ranked: Vec<(usize, &String)> = Vec::new();
        for (_, key) in idle {
            let rank = match self.owners.get(key) {
                Some(Owner::One(node)) => {
                    let asks = requests.get(node).is_some_and(|request| request.hand_off.is_some());
                    let since = since.entry(node).or_insert_with(|| usize::from(asks));
                    let rank = *since;
                    *since = since.saturating_add(1);
                    rank
                }
                Some(Owner::Several) | None => 0,
            };
            ranked.push((rank, key));
        }
        // The sort is stable: within a rank, the most recently requested key comes first.
        ranked.sort_by_key(|(rank, _)| *rank);
        let room = MAX_KEYS.saturating_sub(wanted.len());
        for (_, key) in ranked.into_iter().take(room) {
            if let Some(text) = contents.all.get(key) {
                wanted.insert(key.clone(), text.clone());
            }
        }
        // A dropped key may never reappear.
        while self.dropped.len() > MAX_KEYS {
            self.dropped.pop_first();
        }
    }
}

enum KeyAction {
    /// The key must be ours.
    Apply,
    /// The key exists with the same text and belongs to another field manager.
    Nothing,
}

fn check(
    hand_off: &HandOffConfig,
    wanted: &BTreeMap<String, String>,
    contents: &Contents,
) -> Result<KeyAction, String> {
    let HandOffConfig { key, config } = hand_off;
    plugin_config::read(key, config).map_err(|error| error.to_string())?;
    let there = contents.all.get(key);
    if let Some(owner) = contents.others.get(key).filter(|_| !contents.ours.contains(key)) {
        return if there == Some(config) {
            Ok(KeyAction::Nothing)
        } else {
            Err(format!("the key {key} in the ConfigMap is owned by {owner}"))
        };
    }
    // Collisions of so short a digest can be constructed, so the first text keeps the key.
    let first = wanted.get(key).or(there);
    let is_taken =
        first.is_some_and(|first| first != config && plugin_config::read(key, first).is_ok());
    if is_taken {
        return Err(format!("the key {key} already contains a different configuration"));
    }
    Ok(KeyAction::Apply)
}

#[cfg(test)]
mod tests {
    use octavo_model::resource::ResourceName;
    use octavo_node::mig_strategy::MigStrategy;
    use octavo_node::sharing::hand_off::{PluginConfig, ReplicatedResource};

    use super::*;

    fn hand_off(layout: &str, replicas: u32) -> HandOffConfig {
        let config = plugin_config::text(&PluginConfig {
            mig_strategy: MigStrategy::None,
            rename_by_default: false,
            fail_requests_greater_than_one: false,
            resources: vec![ReplicatedResource { name: ResourceName::gpu(), replicas }],
        });
        HandOffConfig { key: plugin_config::key(layout, &config), config }
    }

    fn requests(all: &[(&str, HandOffConfig)]) -> ConfigRequests {
        let all = all.iter();
        all.map(|(node, hand_off)| {
            let request = ConfigRequest { hand_off: Some(hand_off.clone()), named: None };
            (node.parse().unwrap(), request)
        })
        .collect()
    }

    /// Nodes whose labels name these keys, without a request.
    fn labeled(all: &[(&str, &str)]) -> ConfigRequests {
        let all = all.iter();
        all.map(|(node, key)| {
            let request = ConfigRequest { hand_off: None, named: Some((*key).to_owned()) };
            (node.parse().unwrap(), request)
        })
        .collect()
    }

    /// The `ConfigMap` after applying the decision.
    fn done(decision: &Decision, contents: &Contents) -> Contents {
        let Some(apply) = &decision.apply else {
            return contents.clone();
        };
        let mut all = contents.all.clone();
        all.retain(|key, _| !contents.ours.contains(key));
        all.extend(apply.clone());
        Contents {
            all,
            ours: apply.keys().cloned().collect(),
            others: contents.others.clone(),
            version: None,
        }
    }

    #[test]
    fn requested_keys_are_applied_once() {
        let mut ledger = KeyLedger::default();
        let requests =
            requests(&[("a", hand_off("x", 2)), ("b", hand_off("x", 2)), ("c", hand_off("y", 3))]);
        let nothing = Contents::default();
        let first = ledger.decide(Duration::ZERO, &requests, &nothing);
        assert_eq!(first.apply.as_ref().unwrap().len(), 2);
        assert!(first.refused.is_empty());
        let there = done(&first, &nothing);
        let again = ledger.decide(Duration::from_secs(1), &requests, &there);
        assert_eq!(again, Decision::default());
        // Another client deleted a key.
        let mut less = there.clone();
        less.all.remove(&hand_off("y", 3).key);
        less.ours.remove(&hand_off("y", 3).key);
        let again = ledger.decide(Duration::from_secs(2), &requests, &less);
        assert_eq!(done(&again, &less), there);
    }

    #[test]
    fn unrequested_key_is_removed_after_the_retention() {
        let mut ledger = KeyLedger::default();
        let all = requests(&[("a", hand_off("x", 2))]);
        let nothing = Contents::default();
        let there = done(&ledger.decide(Duration::ZERO, &all, &nothing), &nothing);
        let none = ConfigRequests::new();
        let just_before = RETENTION.saturating_sub(Duration::from_secs(1));
        assert_eq!(ledger.decide(just_before, &none, &there).apply, None);
        let gone = ledger.decide(RETENTION, &none, &there);
        assert_eq!(gone.apply, Some(BTreeMap::new()));
        // A restarted aggregator does not know the history and waits for the full grace period.
        let mut other = KeyLedger::default();
        assert_eq!(other.decide(RETENTION, &none, &there).apply, None);
        assert!(other.decide(RETENTION * 2, &none, &there).apply.is_some());
    }

    #[test]
    fn key_named_by_a_label_is_retained() {
        let mut ledger = KeyLedger::default();
        let old = hand_off("x", 2);
        let nothing = Contents::default();
        let first = ledger.decide(Duration::ZERO, &requests(&[("a", old.clone())]), &nothing);
        let mut there = done(&first, &nothing);
        // The node's layout requests nothing now, or something that is rejected.
        let mut waits = labeled(&[("a", &old.key)]);
        for hours in 1..5 {
            assert_eq!(ledger.decide(RETENTION * hours, &waits, &there), Decision::default());
        }
        waits.values_mut().next().unwrap().hand_off = Some(hand_off("y", 3));
        there = done(&ledger.decide(RETENTION * 5, &waits, &there), &there);
        assert!(ledger.decide(RETENTION * 9, &waits, &there).apply.is_none());
        assert!(there.ours.contains(&old.key) && there.ours.len() == 2);
        // From here on, no node requests the key.
        waits.values_mut().next().unwrap().named = None;
        assert!(ledger.decide(RETENTION * 9, &waits, &there).apply.is_none());
        let gone = ledger.decide(RETENTION * 10, &waits, &there).apply.unwrap();
        assert!(!gone.contains_key(&old.key) && gone.len() == 1);
    }

    #[test]
    fn i12_label_neither_retains_foreign_keys_nor_creates_keys() {
        let mut ledger = KeyLedger::default();
        let contents = Contents {
            all: [("default".to_owned(), "d".to_owned())].into(),
            others: [("default".to_owned(), "helm".to_owned())].into(),
            ..Contents::default()
        };
        let requests = labeled(&[("a", "default"), ("b", "octavo-x-00000000")]);
        let decision = ledger.decide(Duration::ZERO, &requests, &contents);
        assert_eq!(decision, Decision::default());
    }

    #[test]
    fn labeled_keys_survive_any_number_of_requests() {
        let mut ledger = KeyLedger::default();
        let old = hand_off("old", 2);
        let nothing = Contents::default();
        let first = ledger.decide(Duration::ZERO, &requests(&[("a", old.clone())]), &nothing);
        let there = done(&first, &nothing);
        let count = u32::try_from(MAX_KEYS).unwrap() + 10;
        let many = (0..count).map(|number| (format!("n{number}"), hand_off("x", number + 2)));
        let many: Vec<(String, HandOffConfig)> = many.collect();
        let many: Vec<(&str, HandOffConfig)> =
            many.iter().map(|(node, hand_off)| (node.as_str(), hand_off.clone())).collect();
        let mut all = requests(&many);
        all.extend(labeled(&[("a", &old.key)]));
        let now = done(&ledger.decide(Duration::from_secs(1), &all, &there), &there);
        assert_eq!(now.ours.len(), MAX_KEYS);
        assert!(now.ours.contains(&old.key));
    }

    #[test]
    fn key_restored_by_another_aggregator_is_not_dropped_again() {
        let mut ledger = KeyLedger::default();
        let all = requests(&[("a", hand_off("x", 2))]);
        let nothing = Contents::default();
        let there = done(&ledger.decide(Duration::ZERO, &all, &nothing), &nothing);
        let none = ConfigRequests::new();
        let gone = done(&ledger.decide(RETENTION, &none, &there), &there);
        assert!(gone.ours.is_empty());
        for hours in 2..6 {
            assert_eq!(ledger.decide(RETENTION * hours, &none, &there).apply, None);
        }
    }

    #[test]
    fn foreign_keys_are_left_alone_and_the_request_is_rejected() {
        let mut ledger = KeyLedger::default();
        let mine = hand_off("x", 2);
        let contents = |text: &str| Contents {
            all: [(mine.key.clone(), text.to_owned()), ("default".to_owned(), "d".to_owned())]
                .into(),
            ours: BTreeSet::new(),
            others: [
                (mine.key.clone(), "helm".to_owned()),
                ("default".to_owned(), "helm".to_owned()),
            ]
            .into(),
            version: None,
        };
        let requests = requests(&[("a", mine.clone())]);
        let refused = ledger.decide(Duration::ZERO, &requests, &contents("else"));
        assert_eq!(refused.apply, None);
        let why = refused.refused.values().next().unwrap();
        assert!(why.contains("is owned by helm"), "{why}");
        // With the same text there is nothing to do.
        let same = ledger.decide(Duration::ZERO, &requests, &contents(&mine.config));
        assert_eq!(same, Decision::default());
    }

    #[test]
    fn i12_forged_request_is_rejected_without_affecting_others() {
        let mut ledger = KeyLedger::default();
        let good = hand_off("x", 2);
        let forged = HandOffConfig {
            key: good.key.clone(),
            config: "version: v1\nflags: {plugin: {passDeviceSpecs: true}}\n".to_owned(),
        };
        let takes = HandOffConfig { key: "default".to_owned(), ..good.clone() };
        let requests = requests(&[("a", forged), ("b", takes), ("c", good.clone())]);
        let decision = ledger.decide(Duration::ZERO, &requests, &Contents::default());
        assert_eq!(decision.apply, Some([(good.key, good.config)].into()));
        assert_eq!(decision.refused.len(), 2);
    }

    #[test]
    fn number_of_keys_is_bounded_and_current_requests_win() {
        let mut ledger = KeyLedger::default();
        let many = |from: u32| {
            let count = u32::try_from(MAX_KEYS).unwrap() + 10;
            let all =
                (from..from + count).map(|number| (format!("n{number}"), hand_off("x", number)));
            let all: Vec<(String, HandOffConfig)> = all.collect();
            let all: Vec<(&str, HandOffConfig)> =
                all.iter().map(|(node, hand_off)| (node.as_str(), hand_off.clone())).collect();
            requests(&all)
        };
        let nothing = Contents::default();
        let first = ledger.decide(Duration::ZERO, &many(2), &nothing);
        assert_eq!(first.refused.len(), 10);
        let there = done(&first, &nothing);
        assert_eq!(there.ours.len(), MAX_KEYS);
        let now = requests(&[("z", hand_off("new", 7))]);
        let then = done(&ledger.decide(Duration::from_secs(1), &now, &there), &there);
        assert_eq!(then.ours.len(), MAX_KEYS);
        assert!(then.ours.contains(&hand_off("new", 7).key));
    }

    /// A `ConfigMap` full of keys of nodes that are now offline.
    fn of_nodes_that_are_away(ledger: &mut KeyLedger) -> (Contents, Vec<String>) {
        let many = (0..u32::try_from(MAX_KEYS).unwrap())
            .map(|number| (format!("away-{number}"), hand_off("x", number + 2)));
        let many: Vec<(String, HandOffConfig)> = many.collect();
        let all: Vec<(&str, HandOffConfig)> =
            many.iter().map(|(node, hand_off)| (node.as_str(), hand_off.clone())).collect();
        let nothing = Contents::default();
        let there = done(&ledger.decide(Duration::ZERO, &requests(&all), &nothing), &nothing);
        let keys = many.into_iter().map(|(_, hand_off)| hand_off.key).collect();
        (there, keys)
    }

    #[test]
    fn excessive_requests_evict_the_nodes_own_keys() {
        let mut ledger = KeyLedger::default();
        let (mut there, keys) = of_nodes_that_are_away(&mut ledger);
        for second in 1..u64::try_from(MAX_CHANGES).unwrap() {
            let config = hand_off("mine", 500 + u32::try_from(second).unwrap());
            let request = requests(&[("hostile", config.clone())]);
            there = done(&ledger.decide(Duration::from_secs(second), &request, &there), &there);
            assert!(there.ours.contains(&config.key));
        }
        let lost = keys.iter().filter(|key| !there.ours.contains(*key)).count();
        assert_eq!(lost, 1, "only its requested key evicts another");
    }

    #[test]
    fn i10_new_keys_per_node_and_hour_are_bounded() {
        let mut ledger = KeyLedger::default();
        let mut there = Contents::default();
        let mut writes = 0;
        let mut last = None;
        for second in 0..600 {
            let config = hand_off("mine", 2 + u32::try_from(second).unwrap());
            let request = requests(&[("hostile", config.clone())]);
            let decision = ledger.decide(Duration::from_secs(second), &request, &there);
            writes += usize::from(decision.apply.is_some());
            there = done(&decision, &there);
            last = Some((config, decision));
        }
        assert_eq!(writes, MAX_CHANGES);
        let (config, decision) = last.unwrap();
        let why = decision.refused.values().next().unwrap();
        assert!(why.contains("new configurations within an hour"), "{why}");
        // Another node requests the same key, and both receive it.
        let both = requests(&[("hostile", config.clone()), ("other", config.clone())]);
        let decision = ledger.decide(Duration::from_secs(601), &both, &there);
        assert!(decision.refused.is_empty(), "{:?}", decision.refused);
        assert!(done(&decision, &there).ours.contains(&config.key));
        // A disconnect does not reset the limit; an hour does.
        let request = requests(&[("hostile", hand_off("mine", 900))]);
        ledger.decide(Duration::from_secs(602), &ConfigRequests::new(), &there);
        let decision = ledger.decide(Duration::from_secs(603), &request, &there);
        assert_eq!(decision.refused.len(), 1);
        let decision = ledger.decide(Duration::from_secs(603) + RETENTION, &request, &there);
        assert!(decision.refused.is_empty());
    }

    #[test]
    fn deleted_key_is_always_restored() {
        let mut ledger = KeyLedger::default();
        let all = requests(&[("a", hand_off("x", 2))]);
        let nothing = Contents::default();
        for second in 0..100 {
            let decision = ledger.decide(Duration::from_secs(second), &all, &nothing);
            assert_eq!(decision.apply.unwrap().len(), 1);
        }
    }
}
