//! Bounded history of holding times by type, resource and shape, and waiting times estimated from it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::holders::{Left, Shown};
use super::kind::{Names, PRODUCT};
use super::pending::{Members, Works, work};
use super::row::{Key, Unknown};
use super::shape::Shape;
use super::survival::{Chance, Hazard, Spell};

/// Observed holding times.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Time since which every end is observed; `None` if nothing is observed.
    since: Option<i64>,
    unplaced: Vec<Left>,
    kinds: BTreeMap<Key, Lived>,
    /// Last end that was not recorded because there are too many kinds.
    cut: Option<i64>,
}

/// Ended holdings of one kind.
#[derive(Debug, Clone)]
struct Lived {
    /// Time since which all ends are recorded here.
    since: i64,
    /// Begin, end and namespace of each holding, in order of observation.
    ends: VecDeque<(i64, i64, String)>,
    /// Workloads of these ends. Only the first end of a workload counts, because it already releases some units.
    works: BTreeSet<(String, i64)>,
}

/// Waiting time estimated from the history. Times are seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guess {
    /// No estimate.
    Unknown(Unknown),
    /// Median and 90th percentile (if known) of the time at which the first holder ends.
    Likely {
        from: i64,
        to: Option<i64>,
        samples: u32,
        since: i64,
    },
}

/// Length of the observation window in seconds; older workloads are not representative.
const WINDOW: i64 = 14 * 86_400;
/// Minimum number of ended workloads for an estimate.
pub(super) const FEWEST_ENDS: u32 = 20;
/// Maximum number of ends recorded per kind; the oldest are dropped.
const MOST_ENDS: usize = 512;
/// Maximum number of kinds, because types and resource names come from the cluster and are unbounded.
const MOST_KINDS: usize = 256;

impl History {
    /// Records an observation. The next count classifies it, because only the count knows the types of the nodes.
    pub fn show(&mut self, shown: Shown) {
        match shown {
            Shown::Since(since) => {
                *self = Self {
                    since: Some(since),
                    ..Self::default()
                }
            }
            Shown::Left(left) => self.unplaced.push(left),
        }
    }

    /// Classifies recorded observations by `members`, the nodes of each row. For a node that no longer exists the
    /// type comes from its labels.
    pub(super) fn learn(&mut self, members: &Members<'_>, names: &mut Names) {
        let unplaced = std::mem::take(&mut self.unplaced);
        let Some(since) = self.since.filter(|_| !unplaced.is_empty()) else {
            return;
        };
        let mut places: BTreeMap<(&str, &str), &Key> = BTreeMap::new();
        for (key, nodes) in members {
            let nodes = nodes.iter().map(|node| node.name.as_str());
            places.extend(nodes.map(|node| ((node, key.resource.as_str()), key)));
        }
        for left in unplaced {
            let place = (left.node.name.as_str(), left.resource.as_str());
            let key = places.get(&place).map_or_else(
                || Key {
                    kind: names.of_labels(&left.node).0,
                    shape: Shape::of(&left.resource, left.node.label(PRODUCT)),
                    resource: left.resource.clone(),
                },
                |key| (*key).clone(),
            );
            self.keep(key, &left, since);
        }
    }

    fn keep(&mut self, key: Key, left: &Left, since: i64) {
        if !self.kinds.contains_key(&key) && self.kinds.len() >= MOST_KINDS {
            let oldest = left.ended.saturating_sub(WINDOW);
            self.kinds.retain(|_, lived| lived.last() >= oldest);
            if self.kinds.len() >= MOST_KINDS {
                self.cut = self.cut.max(Some(left.ended));
                return;
            }
        }
        let since = self.known_since(since);
        let lived = self.kinds.entry(key).or_insert_with(|| Lived {
            since,
            ends: VecDeque::new(),
            works: BTreeSet::new(),
        });
        lived.keep(left);
    }

    /// Time since which every end of an unrecorded kind would have been observed, if observation began at `since`.
    fn known_since(&self, since: i64) -> i64 {
        let cut = self.cut.map(|cut| cut.saturating_add(1));
        cut.map_or(since, |cut| cut.max(since))
    }

    /// Estimates when the first of `works` ends, which hold units of `key` at `now`.
    pub(super) fn guess(&self, key: &Key, works: &Works<'_>, now: i64) -> Guess {
        let Some(watched) = self.since else {
            return Guess::Unknown(Unknown::NoDeadline);
        };
        let lived = self.kinds.get(key);
        let since = lived.map_or_else(|| self.known_since(watched), |lived| lived.since);
        let since = since.max(now.saturating_sub(WINDOW));
        let ended = lived.into_iter().flat_map(|lived| &lived.ends);
        let ended = ended.filter(|(_, ended, _)| *ended >= since);
        let mut spells: Vec<Spell> = ended
            .map(|(began, ended, _)| Spell::new(age(*began, since), age(*began, *ended), true))
            .collect();
        let samples = u32::try_from(spells.len()).unwrap_or(u32::MAX);
        if samples < FEWEST_ENDS {
            let ended = samples;
            return Guess::Unknown(Unknown::TooFew { ended, since });
        }
        let here = works.values().filter(|work| work.began < now);
        spells.extend(
            here.map(|work| Spell::new(age(work.began, since), age(work.began, now), false)),
        );
        let usable = works.values().filter(|work| work.is_usable);
        let ages: Vec<u64> = usable.map(|work| age(work.began, now)).collect();
        let hazard = Hazard::of(&spells);
        let by = |chance: Chance| {
            let seconds = i64::try_from(hazard.first_end(&ages, chance)?).ok()?;
            now.checked_add(seconds)
        };
        match by(Chance::Even) {
            Some(from) => Guess::Likely {
                from,
                to: by(Chance::NineInTen),
                samples,
                since,
            },
            None => Guess::Unknown(Unknown::Longer { samples, since }),
        }
    }
}

impl Lived {
    fn keep(&mut self, left: &Left) {
        let of = |namespace: &str, began| {
            let (namespace, minute) = work(namespace, began);
            (namespace.to_owned(), minute)
        };
        if !self.works.insert(of(&left.namespace, left.began)) {
            return;
        }
        let namespace = left.namespace.clone();
        self.ends.push_back((left.began, left.ended, namespace));
        let oldest = left.ended.saturating_sub(WINDOW);
        while let Some((_, ended, _)) = self.ends.front()
            && (self.ends.len() > MOST_ENDS || *ended < oldest)
            && let Some((began, ended, namespace)) = self.ends.pop_front()
        {
            self.works.remove(&of(&namespace, began));
            // Some ends at that time are no longer recorded.
            self.since = self.since.max(ended.saturating_add(1));
        }
    }

    fn last(&self) -> i64 {
        self.ends.back().map_or(self.since, |(_, ended, _)| *ended)
    }
}

/// Age in seconds at the time `at`.
fn age(began: i64, at: i64) -> u64 {
    u64::try_from(at.saturating_sub(began)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::accelerators::Catalogue;
    use crate::domain::availability::Kind;
    use crate::domain::cluster::ClusterNode;

    /// Resource name number `number`.
    fn resource(number: usize) -> String {
        format!("nvidia.com/mig-{number}g.10gb")
    }

    /// A pod that ran for ten minutes and ended at `ended`.
    fn left(resource: &str, ended: i64) -> Shown {
        Shown::Left(Left {
            node: Arc::new(ClusterNode::default()),
            resource: resource.to_owned(),
            namespace: "team".to_owned(),
            began: ended - 600,
            ended,
        })
    }

    fn learned(shown: impl IntoIterator<Item = Shown>) -> History {
        let mut history = History::default();
        history.show(Shown::Since(0));
        for shown in shown {
            history.show(shown);
        }
        let mut names = Names::new(Catalogue::built_in());
        history.learn(&Members::new(), &mut names);
        history
    }

    fn guess(history: &History, resource: &str, now: i64) -> Guess {
        let key = Key {
            kind: Kind::Unknown,
            resource: resource.to_owned(),
            shape: Shape::of(resource, None),
        };
        let work = super::super::pending::Work {
            began: now - 60,
            is_usable: true,
        };
        history.guess(&key, &Works::from([(("team", now), work)]), now)
    }

    #[test]
    fn of_more_ends_than_are_kept_the_last_ones_count_and_since_when_is_said() {
        let one = resource(1);
        let history = learned((1..=600).map(|number| left(&one, number * 600)));
        let Guess::Likely { samples, since, .. } = guess(&history, &one, 360_060) else {
            panic!("nothing is said")
        };
        assert_eq!((samples, since), (512, 88 * 600 + 1));
    }

    #[test]
    fn of_a_kind_of_which_an_end_was_not_kept_nothing_is_known_up_to_then() {
        let mut all: Vec<Shown> = (0..257).map(|kind| left(&resource(kind), 1000)).collect();
        let few = |ended, since| Guess::Unknown(Unknown::TooFew { ended, since });
        let history = learned(all.clone());
        for (kind, told) in [(0, few(1, 0)), (255, few(1, 0)), (256, few(0, 1001))] {
            assert_eq!(guess(&history, &resource(kind), 2000), told, "{kind}");
        }
        // Once the other kinds have had no ends for two weeks, there is room again.
        let late = 1001 + WINDOW;
        all.push(left(&resource(256), late));
        assert_eq!(
            guess(&learned(all), &resource(256), late),
            few(1, late - WINDOW)
        );
    }
}
