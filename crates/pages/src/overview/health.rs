//! Nodes and devices by state, and figures of the whole fleet.

use std::collections::BTreeMap;

use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::availability::{Availability, CountBasis, Row, Shape};
use octavo_fleet::summary::{NodeState, UtilizationSum};
use octavo_model::tone::Tone;
use octavo_store::clock::Moment;
use octavo_store::fleet::{Fleet, Node, TypeTotals};

use crate::address::{LIST, encoded};
use crate::badges::{Badge, count_noun, device_state, node_state};
use crate::bar::{Bar, LegendEntry};
use crate::list::attention_summary;

/// Bar of the objects by state, with their number and a link for each state.
#[derive(Debug)]
pub(super) struct StateBar {
    pub(super) total: usize,
    pub(super) noun: &'static str,
    pub(super) verdict: String,
    pub(super) bar: Bar,
    pub(super) states: Vec<StateCount>,
}

/// Number of objects in a state, with a link to the nodes that have one.
#[derive(Debug)]
pub(super) struct StateCount {
    pub(super) badge: Badge,
    pub(super) count: usize,
    pub(super) href: Option<String>,
}

/// Figure of the whole fleet.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) about: String,
}

/// Nodes by state, most severe state first.
pub(super) fn node_states(fleet: &Fleet, is_starting: bool, now: Moment) -> StateBar {
    let states = fleet.states(now).into_iter().rev();
    let states = states.filter(|(_, count)| *count > 0).map(|(state, count)| {
        let href = Some(format!("{LIST}?state={}", state.as_str()));
        (state.tone(), StateCount { badge: node_state(state), count, href })
    });
    let nodes = fleet.nodes.len();
    let noun = if nodes == 1 { "node" } else { "nodes" };
    state_bar(nodes, noun, attention_summary(fleet, is_starting, now), states.collect())
}

/// Devices of these types by health, most severe state first. The devices of a stale node are as stale as it.
pub(super) fn device_states(fleet: &Fleet, types: &VisibleTypes, now: Moment) -> StateBar {
    let mut counts: BTreeMap<(Tone, &'static str), usize> = BTreeMap::new();
    let mut count = |state: (Tone, &'static str), more: usize| {
        if more > 0 {
            let all = counts.entry(state).or_default();
            *all = all.saturating_add(more);
        }
    };
    for node in fleet.nodes.iter() {
        let state = node.state(now);
        if matches!(state, NodeState::Stale | NodeState::NoAgent) {
            count((state.tone(), state.as_str()), devices_of(node, types));
            continue;
        }
        for device in node.devices.iter().filter(|one| types.contains(one.type_name.as_ref())) {
            count((device.health.tone, device.health.state.as_str()), 1);
        }
    }
    let total = counts.values().fold(0_usize, |sum, count| sum.saturating_add(*count));
    let unhealthy = counts.iter().filter(|((tone, _), _)| *tone >= Tone::Warning);
    let unhealthy = unhealthy.fold(0_usize, |sum, (_, count)| sum.saturating_add(*count));
    let verdict = match unhealthy {
        0 => "no issues".to_owned(),
        1 => "1 needs attention".to_owned(),
        several => format!("{several} need attention"),
    };
    let states = counts.into_iter().rev().map(|((tone, word), count)| {
        let href = (tone >= Tone::Warning).then(|| format!("{LIST}?problem={}", encoded(word)));
        (tone, StateCount { badge: device_state(word, tone), count, href })
    });
    let noun = if total == 1 { "device" } else { "devices" };
    state_bar(total, noun, verdict, states.collect())
}

fn devices_of(node: &Node, types: &VisibleTypes) -> usize {
    let all = node.summary.types.iter().filter(|one| types.contains(one.type_name.as_ref()));
    all.fold(0, |sum, one| sum.saturating_add(usize::try_from(one.counts.total).unwrap_or(0)))
}

fn state_bar(
    total: usize,
    noun: &'static str,
    verdict: String,
    states: Vec<(Tone, StateCount)>,
) -> StateBar {
    let keys: Vec<LegendEntry> = states
        .iter()
        .map(|(tone, state)| LegendEntry {
            kind: match tone {
                Tone::Good => "state-good",
                Tone::Neutral => "state-soft",
                Tone::Warning => "state-warn",
                Tone::Bad => "state-bad",
            },
            fill: match tone {
                Tone::Bad => Some("crosses"),
                Tone::Good | Tone::Neutral | Tone::Warning => None,
            },
            word: state.badge.word,
            count: u32::try_from(state.count).unwrap_or(u32::MAX),
        })
        .collect();
    let states = states.into_iter().map(|(_, state)| state);
    StateBar { total, noun, verdict, bar: Bar::from_legend(&keys, 15), states: states.collect() }
}

/// Utilization and allocation. `types` are those of the fleet.
pub(super) fn figures(
    (fleet, types): (&Fleet, &[TypeTotals]),
    availability: &Availability,
    visibility: &Visibility,
    now: Moment,
) -> Vec<Figure> {
    // The sum of a node covers all of its types.
    let sees_all = visibility.types == VisibleTypes::All;
    let utilization = sees_all.then(|| utilization(fleet, now));
    utilization.into_iter().chain(allocations(availability, types, visibility)).collect()
}

fn utilization(fleet: &Fleet, now: Moment) -> Figure {
    let (mut sum, mut devices) = (UtilizationSum::default(), 0_u64);
    for node in fleet.nodes.iter() {
        devices = devices.saturating_add(node.counts(now).total.into());
        if !node.freshness.is_stale(now) {
            sum = sum.plus(node.usage.utilization());
        }
    }
    let reporting = usize::try_from(sum.devices).unwrap_or(usize::MAX);
    let (value, about) = match sum.mean() {
        Some(mean) => (
            format!("{mean} %"),
            format!(
                "mean of the {} that report it, of {devices}",
                count_noun(reporting, "device", "devices")
            ),
        ),
        None => ("-".to_owned(), "no device reports it; agents need --usage-interval".to_owned()),
    };
    Figure { name: "Utilization", value, about }
}

type IsKind = fn(&Shape) -> bool;

/// Allocated units by kind, for the kinds that the fleet has.
fn allocations(
    availability: &Availability,
    types: &[TypeTotals],
    visibility: &Visibility,
) -> Vec<Figure> {
    let of = match availability.basis {
        CountBasis::Cluster => "allocated to pods",
        CountBasis::Agents => "in use; allocations to pods are unknown",
    };
    let kinds: [(&str, IsKind); 4] = [
        ("Whole devices", |shape| matches!(shape, Shape::Device)),
        ("Partitions", |shape| matches!(shape, Shape::Mig(_) | Shape::AmdPartition(_))),
        ("Time slices", |shape| matches!(shape, Shape::TimeSlice | Shape::MigTimeSlice(_))),
        ("NeuronCores", |shape| matches!(shape, Shape::NeuronCore)),
    ];
    let kinds = kinds.into_iter().filter_map(|(name, is_kind)| {
        let rows = availability.rows.iter().filter(|row| is_kind(&row.key.shape));
        let rows = rows.filter(|row| visibility.shows_type(row.key.kind.as_str()));
        let sum =
            |of: fn(&Row) -> u64| rows.clone().fold(0_u64, |sum, row| sum.saturating_add(of(row)));
        let capacity = sum(|row| row.capacity);
        let (taken, unknown) = (sum(|row| row.taken), sum(unknown_units));
        let is_split = rows.clone().any(|row| has_partitions_as_devices(row, types));
        let units = if is_split { " units" } else { "" };
        let value = match (taken, unknown) {
            (0, unknown) if unknown > 0 => "-".to_owned(),
            (taken, _) => format!("{taken} of {capacity}{units}"),
        };
        let mut about = of.to_owned();
        if is_split {
            about.push_str(", including partitions that are offered as devices");
        }
        if unknown > 0 {
            about = format!("{about}; the use of {unknown} is unknown");
        }
        (capacity > 0).then_some(Figure { name, value, about })
    });
    kinds.collect()
}

/// Returns whether pods request partitions of the type as whole devices, as with AMD's device plugin.
fn has_partitions_as_devices(row: &Row, types: &[TypeTotals]) -> bool {
    let is_of_type = |one: &&TypeTotals| {
        one.counts.type_name.as_ref().is_some_and(|name| name.as_str() == row.key.kind.as_str())
    };
    let devices = types.iter().find(is_of_type).map(|one| u64::from(one.counts.counts.total));
    row.key.shape == Shape::Device && devices.is_some_and(|devices| row.capacity > devices)
}

fn unknown_units(row: &Row) -> u64 {
    row.units_with_use(octavo_fleet::summary::DeviceUse::Unknown)
}
