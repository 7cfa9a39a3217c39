//! How long those lasted who held something, by type, resource and shape, within bounds; and what follows for who waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::holders::{Left, Shown};
use super::kind::{Names, PRODUCT};
use super::pending::{Members, Works, work};
use super::row::{Key, Unknown};
use super::shape::Shape;
use super::survival::{Chance, Hazard, Spell};

/// Who held what how long, as far as it was watched.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// From when on it is known who ended when; `None` where nobody watches.
    since: Option<i64>,
    unplaced: Vec<Left>,
    kinds: BTreeMap<Key, Lived>,
    /// Whether ends were not kept, because there are more kinds than any fleet has.
    is_cut: bool,
}

/// Those of one kind that have ended.
#[derive(Debug, Clone)]
struct Lived {
    /// All that have ended since then are here.
    since: i64,
    /// When each began and ended, in the order in which they were seen to, and in which namespace.
    ends: VecDeque<(i64, i64, String)>,
    /// The pieces of work that these are of. Of each, the first end counts: then some of what it holds is given back.
    works: BTreeSet<(String, i64)>,
}

/// What the past says of who waits now. Times are seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guess {
    /// Nothing.
    Unknown(Unknown),
    /// When the first ends, as likely as not, and nine times in ten, where so much can be said.
    Likely {
        from: i64,
        to: Option<i64>,
        samples: u32,
        since: i64,
    },
}

/// So far back is looked: work of last month is another's.
const WINDOW: i64 = 14 * 86_400;
/// Of fewer pieces of work that have ended nothing is said.
pub(super) const FEWEST_ENDS: u32 = 20;
/// Ends that are kept of one kind, the last ones.
const MOST_ENDS: usize = 512;
/// Kinds of which ends are kept: types and resources are words of others.
const MOST_KINDS: usize = 256;

impl History {
    /// Takes in what was seen. It is learned from with the next count, which knows of which type the nodes are.
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

    /// Learns what was seen, of `members`, the nodes as they are counted. What a node that is gone had is told by its labels.
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
                self.is_cut = true;
                return;
            }
        }
        let since = if self.is_cut { left.ended } else { since };
        let lived = self.kinds.entry(key).or_insert_with(|| Lived {
            since,
            ends: VecDeque::new(),
            works: BTreeSet::new(),
        });
        lived.keep(left);
    }

    /// What it says of the first of `works` that ends, which hold some of `key` at `now`.
    pub(super) fn guess(&self, key: &Key, works: &Works<'_>, now: i64) -> Guess {
        let Some(watched) = self.since else {
            return Guess::Unknown(Unknown::NoDeadline);
        };
        let lived = self.kinds.get(key);
        let since = lived.map_or(watched, |lived| lived.since);
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
            // Of what ended then, not everything is known any more.
            self.since = self.since.max(ended.saturating_add(1));
        }
    }

    fn last(&self) -> i64 {
        self.ends.back().map_or(self.since, |(_, ended, _)| *ended)
    }
}

/// Of how many seconds it was then.
fn age(began: i64, at: i64) -> u64 {
    u64::try_from(at.saturating_sub(began)).unwrap_or(0)
}
