//! The history of all nodes, within a limit of memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use octavo_model::id::{NodeName, TypeName};

use crate::SAMPLE_SECONDS;
use crate::key::SeriesKey;
use crate::metric::Metric;
use crate::sample::DeviceSample;
use crate::series::{Series, chunk_of};
use crate::sum::{Points, SeriesSum};
use crate::totals::{StepTotals, Totals};
use crate::window::{Span, Step, Window};

/// History of all nodes. A clone is cheap, and does not change.
#[derive(Debug, Clone, Default)]
pub struct History {
    nodes: Arc<BTreeMap<NodeName, Arc<NodeHistory>>>,
    totals: Arc<Totals>,
    /// Totals of the step that is being recorded.
    recording: StepTotals,
    /// Maximum number of bytes; 0 turns the history off.
    budget: usize,
    /// Bytes and number of the series of nodes.
    bytes: usize,
    series: usize,
    /// Bytes of the totals.
    totals_bytes: usize,
    /// Series of the last step that the limit omits.
    omitted_series: Waiting,
    /// Series of the step that is being recorded that the limit omits.
    waiting: Waiting,
    /// First and last step with a sample of any device.
    first: Option<u32>,
    last: Option<u32>,
}

/// Series of a node, ordered by key.
type NodeHistory = Vec<(SeriesKey, Series)>;

/// Numbers of devices and partitions without a history.
#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    devices: usize,
    partitions: usize,
}

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
    pub omitted_series: usize,
}

/// Bytes of a node besides its name and its series: its entry in the map, and its allocations.
const NODE_BYTES: usize = 128;
/// Part of the memory that the totals can use: one eighth.
const TOTALS_SHARE: usize = 8;

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
    /// begun. Times are those of the caller's clock: if it is wrong, so are all times of the history.
    pub fn record<'a>(
        &mut self,
        seconds: u64,
        reports: impl IntoIterator<Item = (&'a NodeName, &'a [DeviceSample])>,
    ) {
        let Some(step) = self.next_step(seconds) else { return };
        self.record_nodes(step, reports);
        let outdated = self.outdated(step);
        self.seal(step, &outdated);
        self.finish(step);
    }

    /// Step at this time, in seconds since 1970; `None` if it is not newer than the last one. It can be recorded in parts:
    /// [`Self::record_nodes`] for all nodes, [`Self::seal`] for [`Self::outdated`], then [`Self::finish`].
    pub fn next_step(&self, seconds: u64) -> Option<u32> {
        let step = u32::try_from(seconds / SAMPLE_SECONDS).ok()?;
        (self.is_enabled() && self.last.is_none_or(|last| last < step)).then_some(step)
    }

    /// Records the samples of some nodes. The windows of readers end before this step until [`Self::finish`].
    pub fn record_nodes<'a>(
        &mut self,
        step: u32,
        reports: impl IntoIterator<Item = (&'a NodeName, &'a [DeviceSample])>,
    ) {
        for (node, samples) in reports {
            self.record_node(node, samples, step);
            for sample in samples {
                self.recording.add(sample);
            }
        }
    }

    /// Nodes with a series that has no sample in the chunk of this step; empty unless the step is the first of a chunk.
    pub fn outdated(&self, step: u32) -> Vec<NodeName> {
        if self.last.is_none_or(|last| chunk_of(last) == chunk_of(step)) {
            return Vec::new();
        }
        let nodes = self.nodes.iter();
        let outdated =
            nodes.filter(|(_, all)| all.iter().any(|(_, series)| series.is_before(step)));
        outdated.map(|(node, _)| node.clone()).collect()
    }

    /// Compresses the values of these nodes, and removes those that are too old.
    pub fn seal(&mut self, step: u32, nodes: &[NodeName]) {
        for node in nodes {
            self.retain(node, |_, series| {
                series.seal_before(step);
                !series.is_empty()
            });
        }
    }

    /// Ends the recording of a step, and enforces the limit of memory.
    pub fn finish(&mut self, step: u32) {
        self.first = self.first.or(Some(step));
        self.last = Some(step);
        self.omitted_series = mem::take(&mut self.waiting);
        let totals = Arc::make_mut(&mut self.totals);
        totals.record(step, mem::take(&mut self.recording), self.budget / TOTALS_SHARE);
        self.totals_bytes = totals.bytes();
        self.enforce_limit(step);
    }

    /// Size of the history.
    pub fn status(&self) -> HistoryStatus {
        HistoryStatus {
            bytes: self.used(),
            budget: self.budget,
            series: self.series,
            omitted_series: self.omitted_series.sum(),
        }
    }

    /// Time of the first sample, in seconds since 1970; `None` before it.
    pub fn begins(&self) -> Option<u64> {
        self.first.map(|step| u64::from(step) * SAMPLE_SECONDS)
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

    /// One metric of all devices, without decoding their series.
    pub fn of_fleet(&self, metric: Metric, window: Window) -> Points {
        SeriesSum::of_totals(metric, window, &self.totals.fleet)
    }

    /// One metric of the devices of the accepted types, without decoding their series. `None` is the unknown type. A device
    /// counts for the type that it had at the time.
    pub fn of_types(
        &self,
        metric: Metric,
        window: Window,
        mut accepts: impl FnMut(Option<&TypeName>) -> bool,
    ) -> Points {
        let types = self.totals.types.iter().filter(|(name, _)| accepts(name.as_ref()));
        SeriesSum::of_totals(metric, window, types.map(|(_, series)| series))
    }

    /// Types with totals, ordered by name; `None` is the unknown type.
    pub fn types(&self) -> impl Iterator<Item = Option<&TypeName>> {
        self.totals.types.keys().map(Option::as_ref)
    }

    /// Returns whether every type has all of its totals in a window. There can be too many types.
    pub fn has_all_types(&self, window: Window) -> bool {
        let last_partial = self.totals.last_partial.map(|step| u64::from(step) * SAMPLE_SECONDS);
        last_partial.is_none_or(|partial| partial < window.start())
    }

    #[cfg(test)]
    pub(crate) fn totals_bytes(&self) -> usize {
        self.totals_bytes
    }

    /// Bytes in use.
    fn used(&self) -> usize {
        self.bytes.saturating_add(self.totals_bytes)
    }

    fn record_node(&mut self, node: &NodeName, samples: &[DeviceSample], step: u32) {
        if samples.is_empty() {
            return;
        }
        // A new series needs as much room as an average one, because it will grow.
        let average = self.bytes.checked_div(self.series).unwrap_or_default();
        let mut room = self.budget.saturating_sub(self.used());
        let all = Arc::make_mut(&mut self.nodes).entry(node.clone()).or_default();
        let all = Arc::make_mut(all);
        let before = (bytes_of(node, all), all.len());
        let mut added = Vec::new();
        for sample in samples {
            if let Ok(at) = all.binary_search_by(|(key, _)| key.cmp(&sample.key)) {
                if let Some((_, series)) = all.get_mut(at) {
                    series.record(sample, step);
                }
                continue;
            }
            let is_device = sample.key.partition.is_none();
            let series = Series::new(sample, step);
            let size = series.bytes(&sample.key).saturating_add(NODE_BYTES).max(average);
            // Devices precede partitions: new partitions must not take the room that was made for devices.
            if size <= room && (is_device || self.omitted_series.devices == 0) {
                room = room.saturating_sub(size);
                added.push((sample.key.clone(), series));
            } else {
                self.waiting.add(is_device);
            }
        }
        if !added.is_empty() {
            // Sorts once: a report can have thousands of new partitions.
            all.reserve_exact(added.len());
            all.append(&mut added);
            all.sort_by(|(one, _), (other, _)| one.cmp(other));
            all.dedup_by(|(one, _), (other, _)| one == other);
        }
        let after = (bytes_of(node, all), all.len());
        if all.is_empty() {
            Arc::make_mut(&mut self.nodes).remove(node);
        }
        self.account(before, after);
    }

    /// Removes series until the limit is met: those without a recent sample first, then partitions, then those that
    /// began last. Room for devices without a history is made from series without a recent sample and from partitions,
    /// and room for partitions only from series without a recent sample.
    fn enforce_limit(&mut self, step: u32) {
        let is_over = self.used() > self.budget;
        if !is_over && self.omitted_series.sum() == 0 {
            return;
        }
        let average = self.bytes.checked_div(self.series).unwrap_or_default();
        let for_all = self.omitted_series.sum().saturating_mul(average);
        let for_devices = self.omitted_series.devices.saturating_mul(average);
        let all = self.nodes.iter().flat_map(|(node, all)| all.iter().map(move |one| (node, one)));
        let mut ranked: Vec<_> = all
            .map(|(node, (key, series))| {
                let (first, last) = series.steps();
                (last, key.partition.is_none(), Reverse(first), node, key, series.bytes(key))
            })
            .filter(|(last, is_device, ..)| {
                is_over || *last < step || (!is_device && for_devices > 0)
            })
            .collect();
        ranked.sort_unstable();
        let mut left = self.used();
        let mut removed: BTreeMap<NodeName, Vec<SeriesKey>> = BTreeMap::new();
        for (last, is_device, _, node, key, bytes) in ranked {
            let is_current = last == step;
            let wanted = match (is_current, is_device) {
                (false, _) => for_all,
                (true, false) => for_devices,
                (true, true) => 0,
            };
            if left <= self.budget.saturating_sub(wanted) {
                break;
            }
            left = left.saturating_sub(bytes);
            if is_current {
                self.omitted_series.add(is_device);
            }
            removed.entry(node.clone()).or_default().push(key.clone());
        }
        for (node, mut keys) in removed {
            keys.sort_unstable();
            self.retain(&node, |key, _| keys.binary_search(key).is_err());
        }
    }

    /// Removes series of a node that `keep` rejects.
    fn retain(&mut self, node: &NodeName, mut keep: impl FnMut(&SeriesKey, &mut Series) -> bool) {
        let nodes = Arc::make_mut(&mut self.nodes);
        let Some(all) = nodes.get_mut(node) else { return };
        let all = Arc::make_mut(all);
        let before = (bytes_of(node, all), all.len());
        all.retain_mut(|(key, series)| keep(key, series));
        all.shrink_to_fit();
        let after = (bytes_of(node, all), all.len());
        if all.is_empty() {
            nodes.remove(node);
        }
        self.account(before, after);
    }

    /// Replaces the bytes and the number of series of a node.
    fn account(&mut self, before: (usize, usize), after: (usize, usize)) {
        self.bytes = self.bytes.saturating_sub(before.0).saturating_add(after.0);
        self.series = self.series.saturating_sub(before.1).saturating_add(after.1);
    }
}

impl Waiting {
    fn add(&mut self, is_device: bool) {
        let count = if is_device { &mut self.devices } else { &mut self.partitions };
        *count = count.saturating_add(1);
    }

    fn sum(self) -> usize {
        self.devices.saturating_add(self.partitions)
    }
}

/// Bytes of memory of a node's series; 0 without any.
pub(crate) fn bytes_of(node: &NodeName, all: &[(SeriesKey, Series)]) -> usize {
    if all.is_empty() {
        return 0;
    }
    let fixed = NODE_BYTES.saturating_add(node.as_str().len());
    all.iter().fold(fixed, |sum, (key, series)| sum.saturating_add(series.bytes(key)))
}
