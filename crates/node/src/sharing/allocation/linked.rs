//! Choice of whole devices: the best-linked set, and among equals the one that leaves the best-linked devices free.
//!
//! Sets of devices are compared by these criteria; the first that differs decides:
//!
//! 1. fewer failed devices
//! 2. more pairs that are linked, directly or through a switch
//! 3. more links
//! 4. more pairs on one NUMA node
//! 5. more linked pairs among the *remaining* devices, then more of them on one NUMA node. A single device is thus
//!    taken from the small domain, and the large one stays whole.
//! 6. lower addresses
//!
//! All sets are evaluated if there are few enough, which holds for up to sixteen devices. For more devices, one set
//! is grown greedily from each device.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Device, Inventory, LinkRemote, SwitchGroup};

use super::{CandidateUnit, ShareId};

/// Maximum number of sets to evaluate. There are 12870 sets of eight among sixteen devices.
const MAX_SETS: u64 = 20_000;

/// Maximum number of devices: a set is a `u64` with one bit for each. No known machine has more.
const MAX_DEVICES: usize = 64;

/// Score of a set; greater is better.
type Score = (Reverse<u32>, usize, usize, usize, usize, usize);

/// Chooses at most `count` free devices; `None` unless all candidates are whole, unshared devices.
pub(super) fn choose(
    rows: &[CandidateUnit<'_>],
    count: usize,
    inventory: &Inventory,
) -> Option<Vec<ShareId>> {
    let rows: Vec<&CandidateUnit<'_>> =
        rows.iter().filter(|row| row.must > 0 || !row.free.is_empty()).collect();
    let is_whole =
        |row: &&CandidateUnit<'_>| row.unit.partition.is_none() && row.unit.replicas.is_none();
    if rows.len() > MAX_DEVICES || !rows.iter().all(is_whole) {
        return None;
    }
    let search = Search::new(&rows, inventory);
    let set = search.best(count.min(count_ones(search.free)));
    let chosen = bits(set).filter_map(|node| rows.get(node)?.free.first().copied().cloned());
    Some(chosen.collect())
}

/// The candidate devices, as bit sets of their positions.
struct Search {
    free: u64,
    /// Devices that must be chosen.
    must: u64,
    lost: u64,
    /// For each link strength, its increase over the previous one, and for each device the devices linked at least
    /// that strongly.
    links: Vec<(usize, Vec<u64>)>,
    /// For each device, the other devices on its NUMA node.
    same_numa_node: Vec<u64>,
}

impl Search {
    fn new(rows: &[&CandidateUnit<'_>], inventory: &Inventory) -> Self {
        let devices: BTreeMap<PciAddress, &Device> = inventory
            .devices
            .iter()
            .filter(|device| device.condition == Condition::Working)
            .map(|device| (device.pci, device))
            .collect();
        let devices: Vec<Option<&Device>> =
            rows.iter().map(|row| devices.get(&row.unit.pci).copied()).collect();
        let which = |is: &dyn Fn(usize) -> bool| {
            let nodes = (0..rows.len()).filter(|node| is(*node));
            nodes.fold(0_u64, |set, node| set | (1 << node))
        };
        let row = |node: usize| rows.get(node);
        let numa_node = |node| row(node).and_then(|row| row.unit.numa_node);
        let strengths = strengths(&devices);
        let strength = |pair: (usize, usize)| strengths.get(&pair).copied().unwrap_or(0);
        let mut steps: Vec<usize> = strengths.values().copied().collect();
        steps.sort_unstable();
        steps.dedup();
        let mut before = 0;
        let mut links = Vec::new();
        for step in steps {
            let linked = (0..rows.len()).map(|a| which(&|b| strength((a, b)) >= step));
            links.push((step - before, linked.collect()));
            before = step;
        }
        Self {
            free: which(&|node| row(node).is_some_and(|row| !row.free.is_empty())),
            must: which(&|node| row(node).is_some_and(|row| row.must > 0)),
            lost: which(&|node| devices.get(node).is_none_or(Option::is_none)),
            links,
            same_numa_node: (0..rows.len())
                .map(|a| {
                    which(&|b| a != b && numa_node(a).is_some() && numa_node(a) == numa_node(b))
                })
                .collect(),
        }
    }

    fn best(&self, count: usize) -> u64 {
        if count_sets(count_ones(self.free), count) > MAX_SETS {
            return self.grow_from_each(count);
        }
        let mut best = None;
        self.try_all(0, self.free, count, &mut best);
        best.map_or(0, |(_, set)| set)
    }

    /// Evaluates `set` with every combination of `count` devices of `open`.
    fn try_all(&self, set: u64, mut open: u64, count: usize, best: &mut Option<(Score, u64)>) {
        if count == 0 {
            let score = self.score(set);
            if best.is_none_or(|(found, _)| score > found) {
                *best = Some((score, set));
            }
            return;
        }
        while count_ones(open) >= count {
            let next = open & open.wrapping_neg();
            open &= !next;
            self.try_all(set | next, open, count - 1, best);
        }
    }

    /// Grows one set from each device by adding the best-linked device repeatedly.
    fn grow_from_each(&self, count: usize) -> u64 {
        let starts = bits(self.free).map(|start| {
            let mut set = 1 << start;
            while count_ones(set) < count {
                let open = bits(self.free & !set);
                let next = open.max_by_key(|node| (self.gain(set, *node), Reverse(*node)));
                let Some(next) = next else {
                    break;
                };
                set |= 1 << next;
            }
            set
        });
        let best = starts.max_by_key(|set| (self.score(*set), set.reverse_bits()));
        best.unwrap_or(0)
    }

    fn gain(&self, set: u64, node: usize) -> (bool, usize, usize, usize) {
        let all = set | self.must;
        let with = |linked: &[u64]| linked.get(node).map_or(0, |others| count_ones(others & all));
        let first = self.links.first().map_or(0, |(_, linked)| with(linked));
        let links = self.links.iter().map(|(more, linked)| more * with(linked));
        let works = self.lost & (1 << node) == 0;
        (works, first, links.sum(), with(&self.same_numa_node))
    }

    fn score(&self, set: u64) -> Score {
        let all = set | self.must;
        let rest = self.free & !set & !self.lost;
        let linked = |set| self.links.first().map_or(0, |(_, linked)| pairs(linked, set));
        let links = self.links.iter().map(|(more, linked)| more * pairs(linked, all));
        (
            Reverse((set & self.lost).count_ones()),
            linked(all),
            links.sum(),
            pairs(&self.same_numa_node, all),
            linked(rest),
            pairs(&self.same_numa_node, rest),
        )
    }
}

/// Number of links between two devices, directly or through shared switches, for pairs that have any.
fn strengths(devices: &[Option<&Device>]) -> BTreeMap<(usize, usize), usize> {
    let mut direct: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let at: BTreeMap<PciAddress, usize> = (0..)
        .zip(devices)
        .filter_map(|(node, device)| Some((device.as_ref()?.pci, node)))
        .collect();
    let mut behind: BTreeMap<SwitchGroup<'_>, BTreeMap<usize, usize>> = BTreeMap::new();
    for (node, device) in (0..).zip(devices) {
        let Some(device) = device else { continue };
        for link in &device.links {
            if let LinkRemote::Device(other) = link.remote
                && let Some(other) = at.get(&other).filter(|other| **other != node)
            {
                *direct.entry((node, *other)).or_default() += 1;
            }
            if let Some(group) = device.switch_group(link.remote) {
                *behind.entry(group).or_default().entry(node).or_default() += 1;
            }
        }
    }
    // A link reported by one end counts for both, because the other end may not respond.
    let mut both = direct.clone();
    for ((a, b), count) in direct {
        let back = both.entry((b, a)).or_default();
        *back = count.max(*back);
    }
    for members in behind.values() {
        for (a, of_a) in members {
            for (b, of_b) in members.iter().filter(|(b, _)| *b != a) {
                *both.entry((*a, *b)).or_default() += of_a.min(of_b);
            }
        }
    }
    both
}

/// Number of sets of `count` devices among `all`; stops counting above [`MAX_SETS`].
fn count_sets(all: usize, count: usize) -> u64 {
    let count = count.min(all - count.min(all));
    let mut sets = 1_u64;
    for (more, under) in (0..count).map(|step| ((all - step) as u64, step as u64 + 1)) {
        sets = sets.saturating_mul(more) / under;
        if sets > MAX_SETS {
            break;
        }
    }
    sets
}

fn pairs(linked: &[u64], set: u64) -> usize {
    let each = bits(set).filter_map(|node| Some(count_ones(linked.get(node)? & set)));
    each.sum::<usize>() / 2
}

fn count_ones(set: u64) -> usize {
    set.count_ones() as usize
}

/// The positions of the bits that are set.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let node = set.trailing_zeros() as usize;
        let is_there = set != 0;
        set &= set.wrapping_sub(1);
        is_there.then_some(node)
    })
}
