//! Timeline of a node: recorded changes, the start of its agent, and its last report; and recent changes of all nodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use octavo_fleet::changes::{Change, ChangeEntry};
use octavo_model::id::NodeName;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::{Fleet, Node};

use super::badges::{count_noun, format_age, format_time, millis, printable};

/// Number of entries that are visible at first.
const MAX_LATEST: usize = 10;

/// Timeline of a node, newest entry first.
#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) latest: Vec<TimelineEntry>,
    pub(super) earlier: Vec<TimelineEntry>,
    /// Start of the record of changes.
    pub(super) since: String,
    /// Changes that are no longer recorded, as a sentence.
    pub(super) dropped: Option<String>,
}

/// Entry of a timeline.
#[derive(Debug)]
pub(super) struct TimelineEntry {
    /// Time since the entry in milliseconds.
    pub(super) age_ms: u64,
    pub(super) age: String,
    pub(super) time: String,
    /// True if the entry has an icon and a text for attention.
    pub(super) needs_attention: bool,
    pub(super) text: String,
    pub(super) details: Option<String>,
    /// Number of repetitions, and the time of the first one.
    pub(super) repeated: Option<(String, String)>,
}

/// Change of a node, on a page of the fleet.
#[derive(Debug)]
pub(super) struct RecentChange {
    pub(super) node: String,
    pub(super) entry: TimelineEntry,
}

impl Timeline {
    /// Timeline of a node at `now`; `None` without an agent.
    pub(super) fn new(node: &Node, clock: &Clock, now: Moment) -> Option<Self> {
        if !node.has_agent() {
            return None;
        }
        let mut entries: Vec<TimelineEntry> = node
            .changes
            .newest()
            .map(|entry| TimelineEntry::of_change(entry, clock, now))
            .collect();
        let report = |moment: Moment, text: &str| {
            TimelineEntry::new(moment.age(now), clock.wall(moment), text)
        };
        entries.push(report(node.changed, "Last change of the reported state"));
        entries.push(report(node.freshness.confirmed(), "Last report"));
        entries.extend(agent_start(node, clock, now));
        // The sort is stable, so changes of the same report stay in order.
        entries.sort_by_key(|entry| entry.age_ms);
        let dropped = usize::try_from(node.changes.dropped()).unwrap_or(usize::MAX);
        let older = count_noun(dropped, "older change is", "older changes are");
        let earlier = entries.split_off(entries.len().min(MAX_LATEST));
        Some(Self {
            latest: entries,
            earlier,
            since: format_time(clock.wall(Moment::after_start(node.changes.since()))),
            dropped: (dropped > 0).then(|| format!("{older} no longer recorded.")),
        })
    }
}

impl TimelineEntry {
    fn new(age: Duration, time: Timestamp, text: &str) -> Self {
        Self {
            age_ms: millis(age),
            age: format_age(age),
            time: format_time(time),
            needs_attention: false,
            text: text.to_owned(),
            details: None,
            repeated: None,
        }
    }

    /// Entry of a recorded change.
    pub(super) fn of_change(entry: &ChangeEntry, clock: &Clock, now: Moment) -> Self {
        let [first, last] = [entry.first, entry.last].map(Moment::after_start);
        let times = format!("{} times since", entry.count);
        Self {
            needs_attention: entry.change.needs_attention,
            details: entry.change.message.as_deref().map(printable),
            repeated: (entry.count > 1).then(|| (times, format_time(clock.wall(first)))),
            ..Self::new(last.age(now), clock.wall(last), &printable(&entry.change.summary()))
        }
    }
}

/// Start of the agent, by the clock of its node.
fn agent_start(node: &Node, clock: &Clock, now: Moment) -> Option<TimelineEntry> {
    let micros = i64::try_from(node.run.epoch).ok()?;
    let started = Timestamp::from_microsecond(micros).ok()?;
    let age = clock.wall(now).duration_since(started);
    let age = Duration::try_from(age).unwrap_or_default();
    Some(TimelineEntry::new(age, started, "Agent started"))
}

/// The latest `count` changes of all nodes that pass `filter`, newest first.
pub(super) fn recent_changes(
    fleet: &Fleet,
    (clock, now): (&Clock, Moment),
    count: usize,
    filter: impl Fn(&Change) -> bool,
) -> Vec<RecentChange> {
    let mut latest: BTreeMap<(Reverse<Duration>, &NodeName, usize), &ChangeEntry> = BTreeMap::new();
    for node in fleet.nodes.iter() {
        let changes = node.changes.newest().filter(|entry| filter(&entry.change));
        for (number, entry) in changes.take(count).enumerate() {
            latest.insert((Reverse(entry.last), &node.name, number), entry);
            if latest.len() > count {
                latest.pop_last();
            }
        }
    }
    let entries = latest.into_iter().map(|((_, node, _), entry)| RecentChange {
        node: node.to_string(),
        entry: TimelineEntry::of_change(entry, clock, now),
    });
    entries.collect()
}
