//! The history of all nodes, within a limit of memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_model::id::NodeName;

use super::SAMPLE_SECONDS;
use super::key::SeriesKey;
use super::metric::Metric;
use super::sample::DeviceSample;
use super::series::{Series, chunk_of};
use super::sum::{Points, SeriesSum};
use super::window::{Span, Step, Window};

/// History of all nodes. A clone is cheap, and does not change.
#[derive(Debug, Clone, Default)]
pub struct History {
    nodes: Arc<BTreeMap<NodeName, Arc<NodeHistory>>>,
    /// Maximum number of bytes; 0 turns the history off.
    budget: usize,
    bytes: usize,
    series: usize,
    without_room: usize,
    /// First and last step with a sample of any device.
    first: Option<u32>,
    last: Option<u32>,
}

/// Series of a node, ordered by key.
type NodeHistory = Vec<(SeriesKey, Series)>;

/// Size of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistoryStatus {
    /// Bytes in use.
    pub bytes: usize,
    /// Maximum number of bytes.
    pub budget: usize,
    /// Devices and partitions with a history.
    pub series: usize,
    /// Devices and partitions of the last sample without a history, because the limit is reached.
    pub without_room: usize,
}

/// Bytes of a node besides its name and its series: its entry in the map, and its allocations.
const NODE_BYTES: usize = 128;

impl History {
    /// Creates an empty history that uses at most `budget` bytes; 0 turns it off.
    pub fn new(budget: usize) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Returns whether samples are recorded.
    pub fn is_enabled(&self) -> bool {
        self.budget > 0
    }

    /// Records the samples of all nodes at this time, in seconds since 1970. Does nothing unless a new step of 15 s has
    /// begun: if the clock is set back, samples are recorded again once it reaches the last step.
    pub fn record<'a>(
        &mut self,
        seconds: u64,
        reports: impl IntoIterator<Item = (&'a NodeName, &'a [DeviceSample])>,
    ) {
        let Ok(step) = u32::try_from(seconds / SAMPLE_SECONDS) else { return };
        if !self.is_enabled() || self.last.is_some_and(|last| step <= last) {
            return;
        }
        if self.last.is_some_and(|last| chunk_of(last) < chunk_of(step)) {
            self.retain(|_, _, series| {
                series.seal_before(step);
                !series.is_empty()
            });
        }
        self.without_room = 0;
        for (node, samples) in reports {
            self.record_node(node, samples, step);
        }
        self.first = self.first.or(Some(step));
        self.last = Some(step);
        self.enforce_limit(step);
    }

    /// Size of the history.
    pub fn status(&self) -> HistoryStatus {
        HistoryStatus {
            bytes: self.bytes,
            budget: self.budget,
            series: self.series,
            without_room: self.without_room,
        }
    }

    /// Time of the first sample, in seconds since 1970; `None` before it.
    pub fn begins(&self) -> Option<u64> {
        self.first.map(|step| u64::from(step) * SAMPLE_SECONDS)
    }

    /// Time of the last sample, in seconds since 1970; `None` before the first one.
    pub fn last_sample(&self) -> Option<u64> {
        self.last.map(|step| u64::from(step) * SAMPLE_SECONDS)
    }

    /// Points of `span` up to the last sample.
    pub fn window(&self, span: Span, step: Step) -> Window {
        Window::new(span, step, self.last.unwrap_or_default())
    }

    /// Nodes with a history, ordered by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// Series of a node, ordered by device; a device comes before its partitions.
    pub fn of_node(&self, node: &NodeName) -> &[(SeriesKey, Series)] {
        self.nodes.get(node).map_or(&[], |series| series.as_slice())
    }

    /// One metric of a device or partition.
    pub fn of_device(
        &self,
        node: &NodeName,
        key: &SeriesKey,
        metric: Metric,
        window: Window,
    ) -> Points {
        let all = self.of_node(node);
        let found =
            all.binary_search_by(|(known, _)| known.cmp(key)).ok().and_then(|at| all.get(at));
        SeriesSum::of(metric, window, found.map(|(_, series)| series))
    }

    /// One metric of all devices of the fleet.
    pub fn of_fleet(&self, metric: Metric, window: Window) -> Points {
        let all = self.nodes.values().flat_map(|series| series.iter());
        SeriesSum::of(
            metric,
            window,
            all.filter(|(key, _)| key.partition.is_none()).map(|(_, series)| series),
        )
    }

    fn record_node(&mut self, node: &NodeName, samples: &[DeviceSample], step: u32) {
        if samples.is_empty() {
            return;
        }
        // A new series needs as much room as an average one, because it will grow.
        let average = self.bytes.checked_div(self.series).unwrap_or_default();
        let all = Arc::make_mut(&mut self.nodes).entry(node.clone()).or_default();
        let all = Arc::make_mut(all);
        let before = (bytes_of(node, all), all.len());
        all.reserve_exact(samples.len().saturating_sub(all.len()));
        let mut room = self.budget.saturating_sub(self.bytes);
        for sample in samples {
            match all.binary_search_by(|(key, _)| key.cmp(&sample.key)) {
                Ok(at) => {
                    if let Some((_, series)) = all.get_mut(at) {
                        series.record(sample, step);
                    }
                }
                Err(at) => {
                    let series = Series::new(sample, step);
                    let size = series.bytes(&sample.key).saturating_add(NODE_BYTES).max(average);
                    if size <= room {
                        room = room.saturating_sub(size);
                        all.insert(at, (sample.key.clone(), series));
                    } else {
                        self.without_room = self.without_room.saturating_add(1);
                    }
                }
            }
        }
        let after = (bytes_of(node, all), all.len());
        if all.is_empty() {
            Arc::make_mut(&mut self.nodes).remove(node);
        }
        self.bytes = self.bytes.saturating_sub(before.0).saturating_add(after.0);
        self.series = self.series.saturating_sub(before.1).saturating_add(after.1);
    }

    /// Removes series until the limit is met: those without a recent sample first, then partitions, then those that
    /// began last. For devices without a history, room is made only from series without a recent sample.
    fn enforce_limit(&mut self, step: u32) {
        let is_over = self.bytes > self.budget;
        if !is_over && self.without_room == 0 {
            return;
        }
        let average = self.bytes.checked_div(self.series).unwrap_or_default();
        let wanted = self.without_room.saturating_mul(average);
        let all = self.nodes.iter().flat_map(|(node, all)| all.iter().map(move |one| (node, one)));
        let mut ranked: Vec<_> = all
            .map(|(node, (key, series))| {
                let (first, last) = series.steps();
                (last, key.partition.is_none(), Reverse(first), node, key, series.bytes(key))
            })
            .filter(|(last, ..)| is_over || *last < step)
            .collect();
        ranked.sort_unstable();
        let mut left = self.bytes;
        let mut removed = BTreeSet::new();
        for (last, _, _, node, key, bytes) in ranked {
            let is_current = last == step;
            let wanted = if is_current { 0 } else { wanted };
            if left <= self.budget.saturating_sub(wanted) {
                break;
            }
            left = left.saturating_sub(bytes);
            self.without_room = self.without_room.saturating_add(usize::from(is_current));
            removed.insert((node.clone(), key.clone()));
        }
        if !removed.is_empty() {
            self.retain(|node, key, _| !removed.contains(&(node.clone(), key.clone())));
        }
    }

    /// Removes series that `keep` rejects.
    fn retain(&mut self, mut keep: impl FnMut(&NodeName, &SeriesKey, &mut Series) -> bool) {
        let (mut bytes, mut series) = (0_usize, 0_usize);
        Arc::make_mut(&mut self.nodes).retain(|node, all| {
            let all = Arc::make_mut(all);
            all.retain_mut(|(key, series)| keep(node, key, series));
            all.shrink_to_fit();
            bytes = bytes.saturating_add(bytes_of(node, all));
            series = series.saturating_add(all.len());
            !all.is_empty()
        });
        (self.bytes, self.series) = (bytes, series);
    }
}

/// Bytes of memory of a node's series; 0 without any.
pub(super) fn bytes_of(node: &NodeName, all: &[(SeriesKey, Series)]) -> usize {
    if all.is_empty() {
        return 0;
    }
    let fixed = NODE_BYTES.saturating_add(node.as_str().len());
    all.iter().fold(fixed, |sum, (key, series)| sum.saturating_add(series.bytes(key)))
}
