//! Recorder: turns reports of nodes into intervals.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_model::id::NodeName;

use crate::device::Device;
use crate::interval::{Day, Interval, IntervalKey, Utilization};
use crate::part::{Activity, Holder, PPM, Part};
use crate::parts::MeasuredPart;

/// Longest gap that is accounted for. After a longer one, a device is accounted for from its next report on, as if it were new.
pub const MAX_BRIDGED_SECONDS: i64 = 86_400;

/// Maximum age of a report about the past. Earlier observations are ignored.
pub const MAX_PAST_SECONDS: i64 = 7 * 86_400;

/// Maximum number of devices of a node within [`MAX_PAST_SECONDS`], because agents choose what they report. Further ones are
/// not accounted for.
const MAX_DEVICES: usize = 256;

/// A device and its parts, as reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceState {
    /// The device.
    pub device: Device,
    /// Its parts. They must add up to [`PPM`].
    pub parts: Vec<MeasuredPart>,
}

/// Open intervals of all devices, and the intervals that are not yet written.
///
/// A device is accounted for up to the time of its last report, and never twice for the same second, whatever order and
/// times the reports have.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    nodes: BTreeMap<NodeName, BTreeMap<String, Account>>,
    changed: BTreeMap<IntervalKey, Interval>,
}

/// Account of a device.
#[derive(Debug, Clone)]
struct Account {
    device: Arc<Device>,
    /// End of the accounted time, in seconds since 1970.
    until: i64,
    open: Vec<OpenPart>,
    /// Number of parts that started at a time, to number further ones.
    started: (i64, u32),
}

/// A part of a device since its last change.
#[derive(Debug, Clone)]
struct OpenPart {
    part: Part,
    percent: Option<u8>,
    start: i64,
    slot: u32,
    utilization: Utilization,
}

impl Recorder {
    /// Continues after a restart. `last` are the written intervals with the latest end of each device; further ones are
    /// ignored. New intervals begin where they end.
    pub fn recover(last: impl IntoIterator<Item = Interval>) -> Self {
        let mut recorder = Self::default();
        for Interval { device, end, part, .. } in last {
            let devices = recorder.nodes.entry(device.node.clone()).or_default();
            let account = devices.entry(device.id.clone());
            let account = account.or_insert_with(|| Account::new(Arc::clone(&device), end));
            if end > account.until {
                *account = Account::new(device, end);
            }
            if end == account.until {
                account.start(part, None);
            }
        }
        recorder
    }

    /// Continues after another recorder has written to the ledger. `last` are the written intervals with the latest end of each device.
    /// The usage that this recorder has observed after that end is retained; usage before it is discarded, because it is written.
    ///
    /// Usage before `since` is discarded too: the details of its day can be deleted, and the sums of that day would lose the usage of
    /// other devices. Returns the number of such intervals that are not written.
    pub fn resume(&mut self, last: impl IntoIterator<Item = Interval>, since: i64) -> usize {
        let written = Self::recover(last).nodes;
        let mut slots: BTreeMap<Arc<Device>, u32> = BTreeMap::new();
        let mut discarded = 0_usize;
        for mut interval in std::mem::take(&mut self.changed).into_values() {
            let devices = written.get(&interval.device.node);
            let account = devices.and_then(|devices| devices.get(&interval.device.id));
            let until = account.map_or(since, |account| account.until.max(since));
            if interval.end <= until {
                if account.is_none_or(|account| interval.end > account.until) {
                    discarded = discarded.saturating_add(1);
                }
                continue;
            }
            if interval.start < until {
                // Only its sum over the whole interval is known.
                interval.utilization = Utilization::default();
            }
            if interval.start <= until {
                // Several intervals can now start at the same time.
                let slot = slots.entry(Arc::clone(&interval.device)).or_default();
                interval = Interval { start: until, slot: *slot, ..interval };
                *slot = slot.saturating_add(1);
            }
            self.changed.insert(interval.key(), interval);
        }
        for account in self.nodes.values_mut().flat_map(BTreeMap::values_mut) {
            // An extension of an interval that now starts later would count its seconds twice.
            if account.open.iter().any(|open| open.start <= since) {
                account.restart_parts();
            }
        }
        for (node, devices) in written {
            let accounts = self.nodes.entry(node).or_default();
            for (id, account) in devices {
                match accounts.get_mut(&id) {
                    Some(own) if own.until > account.until => own.restart_parts(),
                    Some(_) | None => drop(accounts.insert(id, account)),
                }
            }
        }
        discarded
    }

    /// Records that the node had these devices at `at`. `max_silence` is the number of seconds that may pass between two
    /// reports; a longer time is a gap, in which only allocations that exist before and after it are accounted for.
    pub fn observe(
        &mut self,
        node: &NodeName,
        at: i64,
        max_silence: i64,
        devices: Vec<DeviceState>,
    ) {
        self.record(node, at, Some(max_silence), devices);
    }

    /// Like [`Self::observe`]; without `max_silence`, the agent has observed the node since its last report.
    fn record(
        &mut self,
        node: &NodeName,
        at: i64,
        max_silence: Option<i64>,
        devices: Vec<DeviceState>,
    ) {
        let Self { nodes, changed } = self;
        let is_gap = |since: i64| max_silence.is_some_and(|max| at.saturating_sub(since) > max);
        let accounts = nodes.entry(node.clone()).or_default();
        let mut reported = BTreeMap::new();
        for state in devices {
            reported.entry(state.device.id.clone()).or_insert(state);
        }
        for (_, account) in accounts.iter_mut().filter(|(id, _)| !reported.contains_key(*id)) {
            if !account.open.is_empty() && !is_gap(account.until) {
                account.extend(at, changed);
            }
            // The end of its time remains known, in case the device returns after the clock was set back.
            account.open.clear();
        }
        for (id, state) in reported {
            let account = accounts.get_mut(&id);
            let account = account.filter(|one| max_silence.is_none() || one.continues(at));
            let Some(account) = account else {
                if accounts.len() >= MAX_DEVICES && !accounts.contains_key(&id) {
                    continue;
                }
                let mut account = Account::new(Arc::new(state.device.clone()), at);
                account.replace(state);
                accounts.insert(id, account);
                continue;
            };
            if account.open.is_empty() {
                account.until = account.until.max(at);
            } else if is_gap(account.until) {
                account.bridge(at, &state.parts, changed);
            } else {
                account.extend(at, changed);
            }
            account.replace(state);
        }
    }

    /// Like [`Self::observe`], preceded by earlier observations: the devices from each time on, in the order of the times, and finally
    /// the current ones. The agent has observed the node without a gap since the first time.
    pub fn observe_history(
        &mut self,
        node: &NodeName,
        max_silence: i64,
        mut history: Vec<(i64, Vec<DeviceState>)>,
    ) {
        let Some((at, devices)) = history.pop() else { return };
        let accounts = self.nodes.get(node);
        let until = accounts.and_then(|known| known.values().map(|account| account.until).max());
        let earliest = at.saturating_sub(MAX_PAST_SECONDS);
        let since = until.map_or(earliest, |until| until.max(earliest));
        let ends: Vec<i64> = history.iter().skip(1).map(|(start, _)| *start).chain([at]).collect();
        let mut max_silence = Some(max_silence);
        for ((start, devices), end) in history.into_iter().zip(ends) {
            // The clocks of the node and of the aggregator can differ.
            if end > since {
                self.record(node, start.max(since).min(at), max_silence, devices);
                max_silence = None;
            }
        }
        self.record(node, at, max_silence, devices);
    }

    /// Forgets the devices that have not been reported since `before`.
    pub fn forget(&mut self, before: i64) {
        for devices in self.nodes.values_mut() {
            devices.retain(|_, account| account.until >= before);
        }
        self.nodes.retain(|_, devices| !devices.is_empty());
    }

    /// Takes the intervals that are new or longer than when they were last taken, in the order of nodes, devices and times.
    pub fn take_changed(&mut self) -> Vec<Interval> {
        let mut changed: Vec<Interval> = std::mem::take(&mut self.changed).into_values().collect();
        // A key also contains the price of the device, which can change.
        changed.sort_by(|one, other| one.position().cmp(&other.position()));
        changed
    }

    /// Puts back intervals that could not be written. Newer versions of them take precedence.
    pub fn put_back(&mut self, intervals: Vec<Interval>) {
        for interval in intervals {
            self.changed.entry(interval.key()).or_insert(interval);
        }
    }

    /// Number of intervals to be written.
    pub fn changed_count(&self) -> usize {
        self.changed.len()
    }
}

impl Account {
    /// Account without parts.
    fn new(device: Arc<Device>, until: i64) -> Self {
        Self { device, until, open: Vec::new(), started: (until, 0) }
    }

    /// Adds a part from the end of the accounted time on.
    fn start(&mut self, part: Part, percent: Option<u8>) {
        let (start, slot) = (self.until, self.next_slot());
        self.open.push(OpenPart {
            part,
            percent,
            start,
            slot,
            utilization: Utilization::default(),
        });
    }

    /// Returns whether a report at `at` continues the account.
    fn continues(&self, at: i64) -> bool {
        at.saturating_sub(self.until) <= MAX_BRIDGED_SECONDS
    }

    /// Extends all parts until `at`. An earlier time changes nothing.
    fn extend(&mut self, at: i64, changed: &mut BTreeMap<IntervalKey, Interval>) {
        while self.until < at {
            let end = at.min(Day::of(self.until).end());
            let seconds = end.saturating_sub(self.until);
            for open in &mut self.open {
                open.utilization.add(open.percent, seconds);
                let interval = Interval {
                    device: Arc::clone(&self.device),
                    start: open.start,
                    end,
                    slot: open.slot,
                    part: open.part.clone(),
                    inferred: false,
                    utilization: open.utilization,
                };
                changed.insert(interval.key(), interval);
            }
            self.until = end;
            if end == Day::of(end).start() {
                self.restart_parts();
            }
        }
    }

    /// Accounts for a gap until `at`: an allocation that also exists after it continued, the rest is unknown.
    fn bridge(
        &mut self,
        at: i64,
        after: &[MeasuredPart],
        changed: &mut BTreeMap<IntervalKey, Interval>,
    ) {
        let mut parts = Vec::new();
        let mut rest = PPM;
        for open in &self.open {
            let same = after.iter().find(|other| open.part.is_same_allocation(&other.part));
            let Some(same) = same else { continue };
            let ppm = open.part.ppm.min(same.part.ppm).min(rest);
            rest = rest.saturating_sub(ppm);
            parts.push(Part { ppm, activity: Activity::Unknown, ..open.part.clone() });
        }
        if rest > 0 {
            parts.push(Part { ppm: rest, ..Part::whole(Holder::Unknown) });
        }
        while self.until < at {
            let end = at.min(Day::of(self.until).end());
            for part in &parts {
                let interval = Interval {
                    device: Arc::clone(&self.device),
                    start: self.until,
                    end,
                    slot: self.next_slot(),
                    part: part.clone(),
                    inferred: part.holder != Holder::Unknown,
                    utilization: Utilization::default(),
                };
                changed.insert(interval.key(), interval);
            }
            self.until = end;
        }
        self.restart_parts();
    }

    /// Replaces the parts by those of a report at the end of the accounted time. Unchanged parts continue.
    fn replace(&mut self, state: DeviceState) {
        if *self.device != state.device {
            self.device = Arc::new(state.device);
            self.open.clear();
        }
        let mut before: BTreeMap<Part, OpenPart> =
            self.open.drain(..).map(|open| (open.part.clone(), open)).collect();
        for MeasuredPart { part, percent } in state.parts {
            let same = before.keys().find(|known| known.is_same_allocation(&part));
            let part = match same {
                Some(known) => part.with_attribution(known),
                None => part,
            };
            match before.remove(&part) {
                Some(open) => self.open.push(OpenPart { percent, ..open }),
                None => self.start(part, percent),
            }
        }
    }

    /// Starts new intervals for all parts at the end of the accounted time, so that an interval belongs to one day.
    fn restart_parts(&mut self) {
        for OpenPart { part, percent, .. } in std::mem::take(&mut self.open) {
            self.start(part, percent);
        }
    }

    /// Next number of a part that starts at the end of the accounted time.
    fn next_slot(&mut self) -> u32 {
        if self.started.0 != self.until {
            self.started = (self.until, 0);
        }
        let slot = self.started.1;
        self.started.1 = slot.saturating_add(1);
        slot
    }
}
