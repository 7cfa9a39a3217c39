//! Last known values of a node, compared with each report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_model::inventory::NvmlState;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::resource::ResourceName;
use octavo_model::text::{count_noun, first_names};
use octavo_model::tone::Tone;

use super::{Change, ChangeKind, MAX_ENTRIES};
use crate::summary::{
    DeviceFacts, DevicePlace, DeviceSummary, HealthState, LayoutSummary, NodeSummary, Replicas,
    SharedUnits,
};

/// Run of the agent that reports a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentRun<'a> {
    /// Boot ID of the node.
    pub boot_id: &'a str,
    /// Number of the run; increases with each start.
    pub epoch: u64,
    /// Version of the agent.
    pub version: &'a str,
}

/// Report of a node.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// Agent that sent it.
    pub agent: AgentRun<'a>,
    /// Summary of the node.
    pub summary: &'a NodeSummary,
    /// Its devices.
    pub devices: &'a [DeviceSummary],
}

/// Last known values of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Baseline {
    /// `None` before the first report.
    run: Option<Run>,
    is_connected: bool,
    is_stale: bool,
    /// State of NVML, except while it is loaded.
    nvml: Option<&'static str>,
    driver: Option<String>,
    neuron_driver: Option<String>,
    devices: BTreeMap<DevicePlace, KnownDevice>,
    layout: Option<KnownLayout>,
    sharing: Option<(Reported<Reason>, Arc<SharedUnits>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    boot_id: String,
    epoch: u64,
    version: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct KnownDevice {
    /// The last facts with known partitions that no layout was changing.
    facts: Arc<DeviceFacts>,
    state: HealthState,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct KnownLayout {
    /// Run of the agent that reported it.
    epoch: u64,
    name: Option<String>,
    is_manual: bool,
    state: Option<Reported<Reason>>,
    drain: Option<String>,
}

/// Maximum number of devices that a change names.
const MAX_NAMED: usize = 4;

impl Baseline {
    /// Compares the connection of the agent and the timeliness of its reports with the last known ones, and remembers
    /// them.
    pub fn set_connection(&mut self, connected: bool, stale: bool) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.run.is_some() && connected != self.is_connected {
            let word = |connected| if connected { "connected" } else { "disconnected" };
            let (from, to) = (word(self.is_connected), word(connected));
            let change = Change::between(ChangeKind::Connection, Some(from), Some(to));
            changes.push(change.attention(!connected));
        }
        if self.run.is_some() && stale != self.is_stale {
            let word = |stale: bool| if stale { Reason::Stale.as_str() } else { "current" };
            let (from, to) = (word(self.is_stale), word(stale));
            let change = Change::between(ChangeKind::Reports, Some(from), Some(to));
            changes.push(change.attention(stale));
        }
        (self.is_connected, self.is_stale) = (connected, stale);
        changes
    }

    /// Compares a report with the last known values, and remembers it. The first report has no changes.
    pub fn update(&mut self, report: &Report<'_>) -> Vec<Change> {
        let is_first = self.run.is_none();
        let mut changes = Vec::new();
        self.compare_run(report.agent, &mut changes);
        self.compare_drivers(report.summary, &mut changes);
        let layout = report.summary.layout.as_ref();
        let is_changing = layout.is_some_and(|layout| layout.is_changing);
        // The devices of a driver that is being loaded look as if they had none.
        if report.summary.nvml != NvmlState::Loading {
            self.compare_devices(report.devices, is_changing, &mut changes);
        }
        self.compare_layout(report.agent.epoch, layout, &mut changes);
        // Partitions that are about to be changed cannot be allocated.
        let state = layout.and_then(|layout| layout.state.as_ref()?.known());
        if !is_changing && state != Some(Reason::Pending) {
            self.compare_sharing(report, &mut changes);
        }
        if is_first {
            changes.clear();
        }
        changes
    }

    fn compare_run(&mut self, agent: AgentRun<'_>, changes: &mut Vec<Change>) {
        let AgentRun { boot_id, epoch, version } = agent;
        if let Some(known) = &self.run {
            if known.epoch == epoch && known.boot_id == boot_id && known.version == version {
                return;
            }
            let is_rebooted = known.boot_id != boot_id;
            if is_rebooted {
                changes.push(Change::to(ChangeKind::Boot, "rebooted"));
            }
            if known.version != version {
                let (from, to) = (Some(known.version.as_str()), Some(version));
                changes.push(Change::between(ChangeKind::Agent, from, to));
            } else if !is_rebooted {
                changes.push(Change::to(ChangeKind::Agent, "restarted").of("Agent"));
            }
        }
        let (boot_id, version) = (boot_id.to_owned(), version.to_owned());
        self.run = Some(Run { boot_id, epoch, version });
    }

    fn compare_drivers(&mut self, summary: &NodeSummary, changes: &mut Vec<Change>) {
        let driver = summary.nvml.driver().map(|driver| driver.version.as_str());
        for (known, new, object) in [
            (&mut self.driver, driver, "NVIDIA driver"),
            (&mut self.neuron_driver, summary.neuron_driver.as_deref(), "Neuron driver"),
        ] {
            // An absent version is unknown: the driver may be reloaded.
            if new.is_some() && known.as_deref() != new {
                let change = Change::between(ChangeKind::Driver, known.as_deref(), new);
                changes.push(change.of(object));
                *known = new.map(str::to_owned);
            }
        }
        let Some((word, message)) = nvml_state(&summary.nvml) else {
            return;
        };
        if self.nvml != Some(word) {
            let change = Change::between(ChangeKind::Nvml, self.nvml, Some(word));
            let needs_attention =
                matches!(summary.nvml, NvmlState::Lost { .. } | NvmlState::Stalled { .. });
            changes.push(change.because(message).attention(needs_attention));
            self.nvml = Some(word);
        }
    }

    fn compare_devices(
        &mut self,
        devices: &[DeviceSummary],
        is_changing: bool,
        changes: &mut Vec<Change>,
    ) {
        let mut all = DeviceChanges::default();
        for device in devices {
            let facts = &device.facts;
            if let Some(known) = self.devices.get_mut(&facts.place) {
                known.compare(device, is_changing, &mut all);
            } else {
                all.add(&facts.name, Change::to(ChangeKind::Device, "added"));
                let (facts, state) = (Arc::clone(facts), device.health.state);
                self.devices.insert(device.facts.place, KnownDevice { facts, state });
            }
        }
        // Several devices could claim the same place.
        if self.devices.len() != devices.len() {
            let present: BTreeSet<DevicePlace> =
                devices.iter().map(|device| device.facts.place).collect();
            self.devices.retain(|place, known| {
                let is_present = present.contains(place);
                if !is_present {
                    let change = Change::to(ChangeKind::Device, "removed").attention(true);
                    all.add(&known.facts.name, change);
                }
                is_present
            });
        }
        changes.extend(all.changes());
    }

    fn compare_layout(
        &mut self,
        epoch: u64,
        layout: Option<&LayoutSummary>,
        changes: &mut Vec<Change>,
    ) {
        let Some(layout) = layout else {
            // An agent that has just started does not know its layout yet.
            if self.layout.as_ref().is_some_and(|known| known.epoch == epoch)
                && let Some(known) = self.layout.take()
            {
                changes.push(Change::between(ChangeKind::Layout, known.name.as_deref(), None));
            }
            return;
        };
        let state = layout_state(layout);
        let drain = layout.drain.as_deref().map(drain_phase);
        if let Some(known) = &mut self.layout
            && known.name == layout.name
            && known.is_manual == layout.is_manual
            && known.state == state
            && known.drain.as_deref() == drain.map(|(phase, _)| phase)
        {
            known.epoch = epoch;
            return;
        }
        let known = self.layout.take().unwrap_or_default();
        if known.name != layout.name || known.is_manual != layout.is_manual {
            let manual = match (known.is_manual, layout.is_manual) {
                (_, true) => Some("selected manually"),
                (true, false) => Some("no longer selected manually"),
                (false, false) => None,
            };
            let (from, to) = (known.name.as_deref(), layout.name.as_deref());
            changes.push(Change::between(ChangeKind::Layout, from, to).because(manual));
        }
        if known.state != state {
            let [from, to] =
                [&known.state, &state].map(|state| state.as_ref().map(Reported::as_str));
            let change = Change::between(ChangeKind::LayoutState, from, to);
            let change = change.because(layout.message.as_deref());
            changes.push(change.attention(layout.needs_attention()));
        }
        if known.drain.as_deref() != drain.map(|(phase, _)| phase) {
            let (phase, message) = drain.unwrap_or(("ended", ""));
            let change = Change::between(ChangeKind::Drain, known.drain.as_deref(), Some(phase));
            changes.push(change.because(Some(message)));
        }
        self.layout = Some(KnownLayout {
            epoch,
            name: layout.name.clone(),
            is_manual: layout.is_manual,
            state,
            drain: drain.map(|(phase, _)| phase.to_owned()),
        });
    }

    fn compare_sharing(&mut self, report: &Report<'_>, changes: &mut Vec<Change>) {
        let sharing = report.summary.sharing_status.as_ref();
        // Each change of the kubelet briefly causes a pending state.
        let Some(sharing) = sharing.filter(|one| one.state != Reason::SharingPending) else {
            return;
        };
        if let Some((state, units)) = &self.sharing
            && *state == sharing.state
            && (Arc::ptr_eq(units, &sharing.units) || *units == sharing.units)
        {
            return;
        }
        let (state, units) = self.sharing.take().unzip();
        let needs_attention = sharing.needs_attention();
        // A node that begins to report an allocation as desired has not changed.
        let is_change = state.as_ref().map_or(needs_attention, |state| *state != sharing.state);
        if is_change {
            let (from, to) = (state.as_ref().map(Reported::as_str), Some(sharing.state.as_str()));
            let change = Change::between(ChangeKind::Allocation, from, to);
            changes.push(change.because(sharing.message.as_deref()).attention(needs_attention));
        }
        let units = units.unwrap_or_default();
        changes.extend(changed_replicas(&units, &sharing.units));
        changes.extend(changed_health(&units, &sharing.units, report.devices));
        self.sharing = Some((sharing.state.clone(), Arc::clone(&sharing.units)));
    }
}

/// Word and explanation of the state of NVML; `None` while it is loaded.
fn nvml_state(nvml: &NvmlState) -> Option<(&'static str, Option<&str>)> {
    match nvml {
        NvmlState::Loading => None,
        NvmlState::Absent { reason } => Some(("absent", Some(reason))),
        NvmlState::Ready(_) => Some(("ready", None)),
        NvmlState::Lost { reason } => Some(("lost", Some(reason))),
        NvmlState::Stalled { call, .. } => Some(("stalled", Some(call))),
    }
}

impl KnownDevice {
    fn compare(&mut self, device: &DeviceSummary, is_changing: bool, all: &mut DeviceChanges) {
        let facts = &device.facts;
        // Without NVML, the bus reports neither the UUID nor the number of a device. The known ones remain.
        let is_unidentified = facts.uuid.is_none() && self.facts.uuid.is_some();
        if self.state != device.health.state {
            let name = if is_unidentified { &self.facts.name } else { &facts.name };
            let (from, to) = (self.state.as_str(), device.health.state.as_str());
            let change = Change::between(ChangeKind::DeviceHealth, Some(from), Some(to));
            let message = device.named_issue().map(|(_, message)| message);
            let needs_attention = device.health.tone >= Tone::Warning;
            all.add(name, change.because(message).attention(needs_attention));
            self.state = device.health.state;
        }
        if is_unidentified || Arc::ptr_eq(&self.facts, facts) || self.facts == *facts {
            return;
        }
        let (known, new) = (self.facts.partitions.as_deref(), facts.partitions.as_deref());
        let is_replaced =
            self.facts.uuid.is_some() && facts.uuid.is_some() && self.facts.uuid != facts.uuid;
        if is_replaced {
            all.add(&facts.name, Change::to(ChangeKind::Device, "replaced"));
        } else if known.is_some() && known != new {
            // Intermediate steps of a layout are not recorded.
            if new.is_none() || is_changing {
                return;
            }
            all.add(&facts.name, Change::between(ChangeKind::Partitions, known, new));
        }
        self.facts = Arc::clone(facts);
    }
}

/// Changes of devices, each with the names of all devices that it concerns.
#[derive(Debug, Default)]
struct DeviceChanges(Vec<(Change, Vec<String>)>);

impl DeviceChanges {
    fn add(&mut self, name: &str, change: Change) {
        // Further changes would not be recorded, and a peer chooses their number.
        let is_full = self.0.len() == MAX_ENTRIES;
        match self.0.iter_mut().find(|(known, _)| *known == change) {
            Some((_, names)) => names.push(name.to_owned()),
            None if is_full => {}
            None => self.0.push((change, vec![name.to_owned()])),
        }
    }

    fn changes(self) -> impl Iterator<Item = Change> {
        self.0.into_iter().map(|(change, names)| change.of(&object(&names)))
    }
}

/// Names of devices and the number of partitions: `GPU 0 to GPU 7`, or `GPU 2, GPU 5 and 3 partitions`.
fn object(names: &[String]) -> String {
    let (partitions, devices): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| name.starts_with("MIG-"));
    let devices = device_names(&devices);
    let count = count_noun(partitions.len(), "partition", "partitions");
    match (partitions.as_slice(), devices.is_empty()) {
        ([], _) => devices,
        ([one], true) => (*one).clone(),
        (_, true) => count,
        (_, false) => format!("{devices} and {count}"),
    }
}

/// First and last name if the numbers are consecutive, otherwise the first few.
fn device_names(names: &[&String]) -> String {
    let numbered = |name: &&String| {
        let (noun, number) = name.rsplit_once(' ')?;
        Some((noun.to_owned(), number.parse::<usize>().ok()?))
    };
    let numbers: Option<Vec<(String, usize)>> = names.iter().map(numbered).collect();
    let Some(mut numbers) = numbers else {
        return first_names(names, MAX_NAMED);
    };
    numbers.sort_unstable();
    if let [(noun, start), _, .., (_, end)] = numbers.as_slice()
        && numbers.iter().enumerate().all(|(at, (name, number))| {
            name == noun && start.checked_add(at).is_some_and(|expected| *number == expected)
        })
    {
        return format!("{noun} {start} to {noun} {end}");
    }
    let names = numbers.iter().map(|(noun, number)| format!("{noun} {number}"));
    first_names(&names.collect::<Vec<_>>(), MAX_NAMED)
}

/// State of a layout; a problem without a state counts as one.
fn layout_state(layout: &LayoutSummary) -> Option<Reported<Reason>> {
    let notice = || layout.message.as_ref().map(|_| Reason::LayoutNotice.into());
    layout.state.clone().or_else(notice)
}

/// Phase and details of a drain: `evicting pods` and `pod a: refused` of `drain (all) is evicting pods: pod a: refused`.
fn drain_phase(drain: &str) -> (&str, &str) {
    let (head, details) = drain.split_once(": ").unwrap_or((drain, ""));
    let phase = head.split_once(") ").map_or(head, |(_, phase)| phase);
    (phase.strip_prefix("is ").unwrap_or(phase), details)
}

fn changed_replicas(known: &SharedUnits, new: &SharedUnits) -> Vec<Change> {
    let names: BTreeSet<&ResourceName> = known.replicas.keys().chain(new.replicas.keys()).collect();
    let changed = names.into_iter().filter_map(|name| {
        let of = |units: &SharedUnits| units.replicas.get(name).copied().unwrap_or(Replicas::None);
        let (from, to) = (of(known), of(new));
        (from != to).then(|| {
            let (from, to) = (from.to_string(), to.to_string());
            Change::between(ChangeKind::Replicas, Some(&from), Some(&to)).of(name.as_str())
        })
    });
    changed.collect()
}

fn changed_health(
    known: &SharedUnits,
    new: &SharedUnits,
    devices: &[DeviceSummary],
) -> Vec<Change> {
    let name = |uuid: &str| {
        let device = devices
            .iter()
            .find(|device| device.facts.uuid.as_ref().is_some_and(|known| known.as_str() == uuid));
        device.map_or_else(|| uuid.to_owned(), |device| device.facts.name.clone())
    };
    let mut all = DeviceChanges::default();
    for (uuid, reason) in &new.unhealthy {
        if known.unhealthy.get(uuid) != Some(reason) {
            let change = Change::to(ChangeKind::UnitHealth, "not allocatable");
            all.add(&name(uuid), change.because(Some(reason)).attention(true));
        }
    }
    for uuid in known.unhealthy.keys().filter(|uuid| !new.unhealthy.contains_key(*uuid)) {
        all.add(&name(uuid), Change::to(ChangeKind::UnitHealth, "allocatable again"));
    }
    all.changes().collect()
}
