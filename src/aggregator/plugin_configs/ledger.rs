//! Desired keys of the `ConfigMap`: those that nodes request, after validation, and recently requested ones for a grace
//! period. Time is an argument.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::domain::id::NodeName;
use crate::domain::sharing::status::HandOff;
use crate::k8s::plugin_config::Contents;
use crate::wire::plugin_config;

/// Requests of all nodes that have any.
pub type Wishes = BTreeMap<NodeName, Wish>;

/// Request of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wish {
    /// Configuration for its device plugin.
    pub told: Option<HandOff>,
    /// Key that its label names. Its device plugin does not start without that key, so the key is retained unchanged.
    pub named: Option<String>,
}

/// History of requests.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    asked: BTreeMap<String, Duration>,
    /// Keys that were dropped, and those that reappeared because agents of another aggregator request them.
    dropped: BTreeSet<String>,
    kept_by_another: BTreeSet<String>,
    /// Owner of each key.
    owners: BTreeMap<String, Owner>,
    askers: BTreeMap<NodeName, Asker>,
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
struct Asker {
    /// Last granted key.
    last: Option<String>,
    /// Times of changes to a key that no node had requested, within the last [`GRACE`].
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
pub const MOST_KEYS: usize = 128;
/// Retention of keys that no node requests: a node may be offline, and its device plugin would not start without its
/// key.
pub const GRACE: Duration = Duration::from_hours(1);
/// Maximum number of changes of a node to a key that does not exist, within [`GRACE`]. More than an administrator
/// needs, but few enough to prevent a node from causing constant writes of the `ConfigMap` or evicting other nodes'
/// keys.
pub const MOST_CHANGES: usize = 12;
/// Maximum number of nodes with a history but no current request.
const REMEMBERED: usize = 1024;

impl Ledger {
    /// Compares the requests with the `ConfigMap`.
    pub fn decide(&mut self, now: Duration, wishes: &Wishes, contents: &Contents) -> Decision {
        let mut wanted: BTreeMap<String, String> = BTreeMap::new();
        let mut refused = BTreeMap::new();
        // Keys in use take precedence over requested ones.
        let named = wishes.values().filter_map(|wish| wish.named.as_ref());
        for key in named.filter(|key| contents.ours.contains(*key)) {
            if let Some(text) = contents.all.get(key) {
                wanted.insert(key.clone(), text.clone());
            }
        }
        self.forget(now, wishes);
        let told = wishes.iter();
        let told = told.filter_map(|(node, wish)| Some((node, wish.told.as_ref()?)));
        // Nodes at their limit of changes come last, because another node may request the same key.
        let (patient, told): (Vec<_>, Vec<_>) = told.partition(|(node, _)| self.has_to_wait(node));
        for (node, told) in told.into_iter().chain(patient) {
            match check(told, &wanted, contents) {
                Err(why) => {
                    refused.insert(node.clone(), why);
                }
                Ok(Need::Nothing) => {}
                Ok(Need::Key) if wanted.len() >= MOST_KEYS && !wanted.contains_key(&told.key) => {
                    let why = format!("nodes ask for more than {MOST_KEYS} configurations");
                    refused.insert(node.clone(), why);
                }
                Ok(Need::Key) => {
                    let is_there = contents.ours.contains(&told.key);
                    if !self.may_have(
                        now,
                        (node, &told.key),
                        is_there || wanted.contains_key(&told.key),
                    ) {
                        let why = format!(
                            "it asked for more than {MOST_CHANGES} new configurations within an hour"
                        );
                        refused.insert(node.clone(), why);
                        continue;
                    }
                    wanted.insert(told.key.clone(), told.config.clone());
                }
            }
        }
        for key in wanted.keys() {
            self.asked.insert(key.clone(), now);
            self.dropped.remove(key);
        }
        self.keep_for_a_while(now, (wishes, &mut wanted), contents);
        let is = |key: &String| contents.ours.contains(key);
        self.asked
            .retain(|key, _| wanted.contains_key(key) || is(key));
        self.owners.retain(|key, _| self.asked.contains_key(key));
        self.kept_by_another.retain(is);
        let there = |key: &String| Some((key.clone(), contents.all.get(key)?.clone()));
        let ours: BTreeMap<String, String> = contents.ours.iter().filter_map(there).collect();
        Decision {
            apply: (ours != wanted).then_some(wanted),
            refused,
        }
    }

    /// Applies the node's limit of changes. An existing key and the node's last key are always granted, because another
    /// client may have deleted the key.
    fn may_have(
        &mut self,
        now: Duration,
        (node, key): (&NodeName, &String),
        is_there: bool,
    ) -> bool {
        let asker = self.askers.entry(node.clone()).or_default();
        if !is_there && asker.last.as_ref() != Some(key) {
            if asker.changes.len() >= MOST_CHANGES {
                return false;
            }
            asker.changes.push_back(now);
        }
        asker.last = Some(key.clone());
        let owner = self.owners.get(key);
        if owner.is_none() && !is_there {
            self.owners.insert(key.clone(), Owner::One(node.clone()));
        } else if owner.is_some_and(|owner| *owner != Owner::One(node.clone())) {
            self.owners.insert(key.clone(), Owner::Several);
        }
        true
    }

    fn has_to_wait(&self, node: &NodeName) -> bool {
        let asker = self.askers.get(node);
        asker.is_some_and(|asker| asker.changes.len() >= MOST_CHANGES)
    }

    fn forget(&mut self, now: Duration, wishes: &Wishes) {
        for asker in self.askers.values_mut() {
            let is_old = |at: &Duration| now.saturating_sub(*at) >= GRACE;
            while asker.changes.front().is_some_and(is_old) {
                asker.changes.pop_front();
            }
        }
        // A node that disconnects and reconnects keeps its history.
        let mut room = REMEMBERED;
        self.askers.retain(|node, asker| {
            let is_news = !asker.changes.is_empty() && room > 0;
            let is_here = wishes.contains_key(node);
            if is_news && !is_here {
                room = room.saturating_sub(1);
            }
            is_here || is_news
        });
    }

    /// Retains keys that no node requests for a grace period. If there is no room for all, keys are evicted by the
    /// number of later requests of their owner, so that a node with ever more requests evicts its own keys and not
    /// those of offline nodes; ties go to the key that was requested longest ago.
    fn keep_for_a_while(
        &mut self,
        now: Duration,
        (wishes, wanted): (&Wishes, &mut BTreeMap<String, String>),
        contents: &Contents,
    ) {
        let mut idle: Vec<(Duration, &String)> = Vec::new();
        for key in contents
            .ours
            .iter()
            .filter(|key| !wanted.contains_key(*key))
        {
            if self.dropped.remove(key) {
                self.kept_by_another.insert(key.clone());
            }
            let last = *self.asked.entry(key.clone()).or_insert(now);
            let is_kept = self.kept_by_another.contains(key);
            if is_kept || now.saturating_sub(last) < GRACE {
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
                    let asks = wishes.get(node).is_some_and(|wish| wish.told.is_some());
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
        let room = MOST_KEYS.saturating_sub(wanted.len());
        for (_, key) in ranked.into_iter().take(room) {
            if let Some(text) = contents.all.get(key) {
                wanted.insert(key.clone(), text.clone());
            }
        }
        // A dropped key may never reappear.
        while self.dropped.len() > MOST_KEYS {
            self.dropped.pop_first();
        }
    }
}

enum Need {
    /// The key must be ours.
    Key,
    /// The key exists with the same text and belongs to another field manager.
    Nothing,
}

fn check(
    told: &HandOff,
    wanted: &BTreeMap<String, String>,
    contents: &Contents,
) -> Result<Need, String> {
    let HandOff { key, config } = told;
    plugin_config::read(key, config).map_err(|error| error.to_string())?;
    let there = contents.all.get(key);
    if let Some(owner) = contents
        .others
        .get(key)
        .filter(|_| !contents.ours.contains(key))
    {
        return if there == Some(config) {
            Ok(Need::Nothing)
        } else {
            Err(format!(
                "{owner} has the key {key} in the ConfigMap; it is left alone"
            ))
        };
    }
    // Collisions of so short a digest can be constructed, so the first text keeps the key.
    let first = wanted.get(key).or(there);
    let is_taken =
        first.is_some_and(|first| first != config && plugin_config::read(key, first).is_ok());
    if is_taken {
        return Err(format!("another configuration has the key {key}"));
    }
    Ok(Need::Key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::labels::MigStrategy;
    use crate::domain::sharing::ResourceName;
    use crate::domain::sharing::hand_off::{PluginConfig, Replicated};

    fn told(layout: &str, replicas: u32) -> HandOff {
        let config = plugin_config::text(&PluginConfig {
            mig_strategy: MigStrategy::None,
            rename_by_default: false,
            fail_requests_greater_than_one: false,
            resources: vec![Replicated {
                name: ResourceName::gpu(),
                replicas,
            }],
        });
        HandOff {
            key: plugin_config::key(layout, &config),
            config,
        }
    }

    fn wishes(all: &[(&str, HandOff)]) -> Wishes {
        let all = all.iter();
        all.map(|(node, told)| {
            let wish = Wish {
                told: Some(told.clone()),
                named: None,
            };
            (node.parse().unwrap(), wish)
        })
        .collect()
    }

    /// Nodes whose labels name these keys, without a request.
    fn labelled(all: &[(&str, &str)]) -> Wishes {
        let all = all.iter();
        all.map(|(node, key)| {
            let wish = Wish {
                told: None,
                named: Some((*key).to_owned()),
            };
            (node.parse().unwrap(), wish)
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
    fn what_nodes_ask_for_is_applied_once_and_what_is_there_is_not_written() {
        let mut ledger = Ledger::default();
        let wishes = wishes(&[
            ("a", told("x", 2)),
            ("b", told("x", 2)),
            ("c", told("y", 3)),
        ]);
        let nothing = Contents::default();
        let first = ledger.decide(Duration::ZERO, &wishes, &nothing);
        assert_eq!(first.apply.as_ref().unwrap().len(), 2);
        assert!(first.refused.is_empty());
        let there = done(&first, &nothing);
        let again = ledger.decide(Duration::from_secs(1), &wishes, &there);
        assert_eq!(again, Decision::default());
        // Another client deleted a key.
        let mut less = there.clone();
        less.all.remove(&told("y", 3).key);
        less.ours.remove(&told("y", 3).key);
        let again = ledger.decide(Duration::from_secs(2), &wishes, &less);
        assert_eq!(done(&again, &less), there);
    }

    #[test]
    fn what_nobody_asks_for_any_more_goes_after_an_hour_and_not_before() {
        let mut ledger = Ledger::default();
        let all = wishes(&[("a", told("x", 2))]);
        let nothing = Contents::default();
        let there = done(&ledger.decide(Duration::ZERO, &all, &nothing), &nothing);
        let none = Wishes::new();
        let just_before = GRACE.saturating_sub(Duration::from_secs(1));
        assert_eq!(ledger.decide(just_before, &none, &there).apply, None);
        let gone = ledger.decide(GRACE, &none, &there);
        assert_eq!(gone.apply, Some(BTreeMap::new()));
        // A restarted aggregator does not know the history and waits for the full grace period.
        let mut other = Ledger::default();
        assert_eq!(other.decide(GRACE, &none, &there).apply, None);
        assert!(other.decide(GRACE * 2, &none, &there).apply.is_some());
    }

    #[test]
    fn a_key_that_a_nodes_label_names_stays_for_as_long_as_it_does() {
        let mut ledger = Ledger::default();
        let old = told("x", 2);
        let nothing = Contents::default();
        let first = ledger.decide(Duration::ZERO, &wishes(&[("a", old.clone())]), &nothing);
        let mut there = done(&first, &nothing);
        // The node's layout requests nothing now, or something that is rejected.
        let mut waits = labelled(&[("a", &old.key)]);
        for hours in 1..5 {
            assert_eq!(
                ledger.decide(GRACE * hours, &waits, &there),
                Decision::default()
            );
        }
        waits.values_mut().next().unwrap().told = Some(told("y", 3));
        there = done(&ledger.decide(GRACE * 5, &waits, &there), &there);
        assert!(ledger.decide(GRACE * 9, &waits, &there).apply.is_none());
        assert!(there.ours.contains(&old.key) && there.ours.len() == 2);
        // From here on, no node requests the key.
        waits.values_mut().next().unwrap().named = None;
        assert!(ledger.decide(GRACE * 9, &waits, &there).apply.is_none());
        let gone = ledger.decide(GRACE * 10, &waits, &there).apply.unwrap();
        assert!(!gone.contains_key(&old.key) && gone.len() == 1);
    }

    #[test]
    fn i12_a_label_keeps_no_key_of_others_and_makes_none() {
        let mut ledger = Ledger::default();
        let contents = Contents {
            all: [("default".to_owned(), "d".to_owned())].into(),
            others: [("default".to_owned(), "helm".to_owned())].into(),
            ..Contents::default()
        };
        let wishes = labelled(&[("a", "default"), ("b", "octavo-x-00000000")]);
        let decision = ledger.decide(Duration::ZERO, &wishes, &contents);
        assert_eq!(decision, Decision::default());
    }

    #[test]
    fn what_labels_name_stays_however_much_else_is_asked_for() {
        let mut ledger = Ledger::default();
        let old = told("old", 2);
        let nothing = Contents::default();
        let first = ledger.decide(Duration::ZERO, &wishes(&[("a", old.clone())]), &nothing);
        let there = done(&first, &nothing);
        let count = u32::try_from(MOST_KEYS).unwrap() + 10;
        let many = (0..count).map(|number| (format!("n{number}"), told("x", number + 2)));
        let many: Vec<(String, HandOff)> = many.collect();
        let many: Vec<(&str, HandOff)> = many
            .iter()
            .map(|(node, told)| (node.as_str(), told.clone()))
            .collect();
        let mut all = wishes(&many);
        all.extend(labelled(&[("a", &old.key)]));
        let now = done(&ledger.decide(Duration::from_secs(1), &all, &there), &there);
        assert_eq!(now.ours.len(), MOST_KEYS);
        assert!(now.ours.contains(&old.key));
    }

    #[test]
    fn what_another_aggregator_brings_back_is_dropped_no_second_time() {
        let mut ledger = Ledger::default();
        let all = wishes(&[("a", told("x", 2))]);
        let nothing = Contents::default();
        let there = done(&ledger.decide(Duration::ZERO, &all, &nothing), &nothing);
        let none = Wishes::new();
        let gone = done(&ledger.decide(GRACE, &none, &there), &there);
        assert!(gone.ours.is_empty());
        for hours in 2..6 {
            assert_eq!(ledger.decide(GRACE * hours, &none, &there).apply, None);
        }
    }

    #[test]
    fn keys_of_others_are_left_to_them_and_the_node_that_asks_is_told_whose_they_are() {
        let mut ledger = Ledger::default();
        let mine = told("x", 2);
        let contents = |text: &str| Contents {
            all: [
                (mine.key.clone(), text.to_owned()),
                ("default".to_owned(), "d".to_owned()),
            ]
            .into(),
            ours: BTreeSet::new(),
            others: [
                (mine.key.clone(), "helm".to_owned()),
                ("default".to_owned(), "helm".to_owned()),
            ]
            .into(),
            version: None,
        };
        let wishes = wishes(&[("a", mine.clone())]);
        let refused = ledger.decide(Duration::ZERO, &wishes, &contents("else"));
        assert_eq!(refused.apply, None);
        let why = refused.refused.values().next().unwrap();
        assert!(why.contains("helm has the key"), "{why}");
        // With the same text there is nothing to do.
        let same = ledger.decide(Duration::ZERO, &wishes, &contents(&mine.config));
        assert_eq!(same, Decision::default());
    }

    #[test]
    fn i12_what_no_agent_would_write_is_refused_and_holds_up_nobody() {
        let mut ledger = Ledger::default();
        let good = told("x", 2);
        let forged = HandOff {
            key: good.key.clone(),
            config: "version: v1\nflags: {plugin: {passDeviceSpecs: true}}\n".to_owned(),
        };
        let takes = HandOff {
            key: "default".to_owned(),
            ..good.clone()
        };
        let wishes = wishes(&[("a", forged), ("b", takes), ("c", good.clone())]);
        let decision = ledger.decide(Duration::ZERO, &wishes, &Contents::default());
        assert_eq!(decision.apply, Some([(good.key, good.config)].into()));
        assert_eq!(decision.refused.len(), 2);
    }

    #[test]
    fn however_many_are_asked_for_there_is_a_bound_and_what_is_asked_for_now_goes_first() {
        let mut ledger = Ledger::default();
        let many = |from: u32| {
            let count = u32::try_from(MOST_KEYS).unwrap() + 10;
            let all = (from..from + count).map(|number| (format!("n{number}"), told("x", number)));
            let all: Vec<(String, HandOff)> = all.collect();
            let all: Vec<(&str, HandOff)> = all
                .iter()
                .map(|(node, told)| (node.as_str(), told.clone()))
                .collect();
            wishes(&all)
        };
        let nothing = Contents::default();
        let first = ledger.decide(Duration::ZERO, &many(2), &nothing);
        assert_eq!(first.refused.len(), 10);
        let there = done(&first, &nothing);
        assert_eq!(there.ours.len(), MOST_KEYS);
        let now = wishes(&[("z", told("new", 7))]);
        let then = done(&ledger.decide(Duration::from_secs(1), &now, &there), &there);
        assert_eq!(then.ours.len(), MOST_KEYS);
        assert!(then.ours.contains(&told("new", 7).key));
    }

    /// A `ConfigMap` full of keys of nodes that are now offline.
    fn of_nodes_that_are_away(ledger: &mut Ledger) -> (Contents, Vec<String>) {
        let many = (0..u32::try_from(MOST_KEYS).unwrap())
            .map(|number| (format!("away-{number}"), told("x", number + 2)));
        let many: Vec<(String, HandOff)> = many.collect();
        let all: Vec<(&str, HandOff)> = many
            .iter()
            .map(|(node, told)| (node.as_str(), told.clone()))
            .collect();
        let nothing = Contents::default();
        let there = done(
            &ledger.decide(Duration::ZERO, &wishes(&all), &nothing),
            &nothing,
        );
        let keys = many.into_iter().map(|(_, told)| told.key).collect();
        (there, keys)
    }

    #[test]
    fn a_node_that_asks_for_ever_more_pushes_its_own_keys_out_and_one_of_others() {
        let mut ledger = Ledger::default();
        let (mut there, keys) = of_nodes_that_are_away(&mut ledger);
        for second in 1..u64::try_from(MOST_CHANGES).unwrap() {
            let asked = told("mine", 500 + u32::try_from(second).unwrap());
            let wish = wishes(&[("hostile", asked.clone())]);
            there = done(
                &ledger.decide(Duration::from_secs(second), &wish, &there),
                &there,
            );
            assert!(there.ours.contains(&asked.key));
        }
        let lost = keys.iter().filter(|key| !there.ours.contains(*key)).count();
        assert_eq!(lost, 1, "what it asks for now has to be somewhere");
    }

    #[test]
    fn i10_a_node_brings_so_many_new_keys_in_an_hour_and_no_more_and_keeps_nobody_from_the_same() {
        let mut ledger = Ledger::default();
        let mut there = Contents::default();
        let mut writes = 0;
        let mut last = None;
        for second in 0..600 {
            let asked = told("mine", 2 + u32::try_from(second).unwrap());
            let wish = wishes(&[("hostile", asked.clone())]);
            let decision = ledger.decide(Duration::from_secs(second), &wish, &there);
            writes += usize::from(decision.apply.is_some());
            there = done(&decision, &there);
            last = Some((asked, decision));
        }
        assert_eq!(writes, MOST_CHANGES);
        let (asked, decision) = last.unwrap();
        let why = decision.refused.values().next().unwrap();
        assert!(why.contains("new configurations within an hour"), "{why}");
        // Another node requests the same key, and both receive it.
        let both = wishes(&[("hostile", asked.clone()), ("other", asked.clone())]);
        let decision = ledger.decide(Duration::from_secs(601), &both, &there);
        assert!(decision.refused.is_empty(), "{:?}", decision.refused);
        assert!(done(&decision, &there).ours.contains(&asked.key));
        // A disconnect does not reset the limit; an hour does.
        let wish = wishes(&[("hostile", told("mine", 900))]);
        ledger.decide(Duration::from_secs(602), &Wishes::new(), &there);
        let decision = ledger.decide(Duration::from_secs(603), &wish, &there);
        assert_eq!(decision.refused.len(), 1);
        let decision = ledger.decide(Duration::from_secs(603) + GRACE, &wish, &there);
        assert!(decision.refused.is_empty());
    }

    #[test]
    fn a_key_that_somebody_takes_away_is_brought_back_however_often() {
        let mut ledger = Ledger::default();
        let all = wishes(&[("a", told("x", 2))]);
        let nothing = Contents::default();
        for second in 0..100 {
            let decision = ledger.decide(Duration::from_secs(second), &all, &nothing);
            assert_eq!(decision.apply.unwrap().len(), 1);
        }
    }
}
