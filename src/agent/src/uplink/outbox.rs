//! Queue of length one between the loop and the uplink: it holds only the latest status, so that neither waits for the
//! other.

use std::time::Duration;

use jiff::Timestamp;
use octavo_fleet::summary::{
    MAX_REPORTED_TENANTS, MAX_USAGE_BYTES, ReportAction, ReportRate, rounded_for_report,
    usage_for_report,
};
use octavo_model::inventory::{Inventory, ReadProblem};
use octavo_model::sharing_status::SharingStatus;
use octavo_node::label_set::LabelSet;
use octavo_node::sharing::usage::Usage;
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_stream::messages::{MAX_PARTS, MAX_STATUS_BYTES};
use octavo_stream::protocol::{Change, Content, PartKey, Parts};
use octavo_stream::status::{self, MAX_LIST_ITEMS, MAX_NEURON_DEVICES, MAX_PROCESSES};
use octavo_toolkit::desired::send_if_changed;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::spool::Spool;

/// The loop's end of the queue.
#[derive(Debug)]
pub struct Outbox {
    latest: watch::Sender<QueuedStatus>,
    shortened: bool,
    /// The last observation, without usage.
    base: QueuedStatus,
    usage: Option<(PartKey, Content)>,
    /// Whether there was no room for the usage.
    crowded: bool,
    rate: ReportRate,
    spool: Spool,
    /// The last status that the aggregator has acknowledged; empty without a connection.
    acknowledged: watch::Receiver<Parts>,
    /// Time at which the current connection was noticed.
    connected: Option<Instant>,
}

/// The uplink's end of the queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum QueuedStatus {
    /// Nothing was observed yet.
    #[default]
    Empty,
    /// The status.
    Status(Parts),
    /// No aggregator would accept the status, and reporting less would be incorrect.
    TooLarge,
}

/// Time after which an aggregator has stored acknowledged usage in its ledger, even if the database was unavailable for a
/// while. Until then, past usages are reported again.
const SETTLE_TIME: Duration = Duration::from_mins(10);
/// Bytes of a part in a message in addition to key and content: two tags and three lengths.
const PART_OVERHEAD_BYTES: usize = 16;
/// Number of reported processes per device if the status is too large with all of them.
const MAX_SHORTENED_PROCESSES: usize = 64;
/// Numbers of reported tenants per device, tried in this order until the usage fits.
const TENANT_LIMITS: [usize; 4] = [64, 16, 4, 0];
/// Number of reported characters per text if the status is too large with whole texts.
const MAX_SHORTENED_CHARS: usize = 256;

/// Creates an outbox, and the uplink's end of it.
pub(super) fn outbox(
    acknowledged: watch::Receiver<Parts>,
) -> (Outbox, watch::Receiver<QueuedStatus>) {
    let (latest, uplink) = watch::channel(QueuedStatus::default());
    let outbox = Outbox {
        latest,
        shortened: false,
        base: QueuedStatus::Empty,
        usage: None,
        crowded: false,
        rate: ReportRate::default(),
        spool: Spool::default(),
        acknowledged,
        connected: None,
    };
    (outbox, uplink)
}

impl Outbox {
    /// Sets the node's current status.
    pub fn put(
        &mut self,
        inventory: &Inventory,
        labels: &LabelSet,
        status: Option<&NodeLayoutStatus>,
    ) {
        let extras = StatusExtras {
            labels,
            layout: status.and_then(NodeLayoutStatus::for_aggregator),
            sharing: status.and_then(|status| status.sharing.as_ref()).map(SharingStatus::bounded),
        };
        // Used memory changes at every scan, but is reported in steps.
        let stepped = rounded_for_report(inventory);
        let inventory = stepped.as_ref().unwrap_or(inventory);
        let whole = extras.encode(inventory);
        let fits = fits(inventory, &whole);
        if fits == self.shortened {
            self.shortened = !fits;
            if fits {
                info!("the full status is reported again");
            } else {
                warn!("the status is too large to report completely; lists are truncated");
            }
        }
        self.base = if fits { QueuedStatus::Status(whole) } else { shortened(inventory, extras) };
        self.send();
    }

    /// Sets the usage at `now`, which counts from the program's start, and `wall_clock`. Returns when to call again, if it
    /// changed but the minimum interval has not passed.
    pub fn set_usage(
        &mut self,
        now: Duration,
        wall_clock: Timestamp,
        usage: &Usage,
    ) -> Option<Duration> {
        let is_unlooked = self.usage.is_none() && *usage == Usage::default();
        if is_unlooked {
            return None;
        }
        if self.has_stored() && self.is_usage_acknowledged() {
            let stored = wall_clock.saturating_sub(SETTLE_TIME).unwrap_or(wall_clock);
            self.spool.forget_before(stored.as_second());
        }
        self.spool.record(wall_clock.as_second(), &usage_for_report(usage, MAX_REPORTED_TENANTS));
        match self.rate.next_action(now, usage) {
            ReportAction::Nothing => None,
            ReportAction::Wait(left) => Some(left),
            ReportAction::Report => {
                self.usage = Some(encode_bounded(usage));
                self.send();
                None
            }
        }
    }

    /// Returns whether the aggregator has stored the usage that it acknowledged at the start of the connection.
    fn has_stored(&mut self) -> bool {
        if self.acknowledged.borrow().is_empty() {
            self.connected = None;
            return false;
        }
        self.connected.get_or_insert_with(Instant::now).elapsed() >= SETTLE_TIME
    }

    fn is_usage_acknowledged(&self) -> bool {
        let acknowledged = self.acknowledged.borrow();
        let usage = self.usage.as_ref();
        usage.is_some_and(|(key, content)| acknowledged.get(key.as_str()) == Some(content))
    }

    fn send(&mut self) {
        let has_stored = self.has_stored();
        let latest = match (&self.base, &self.usage) {
            (QueuedStatus::Status(parts), Some(usage)) => {
                let past = if has_stored { None } else { self.spool.part() };
                let (latest, is_crowded) = with_usage(parts, usage, past);
                if is_crowded && !self.crowded {
                    warn!("the status is too large to include usage by pod");
                }
                self.crowded = is_crowded;
                latest
            }
            (base, _) => base.clone(),
        };
        send_if_changed(&self.latest, latest);
    }
}

/// Parts of the status besides the inventory.
struct StatusExtras<'a> {
    labels: &'a LabelSet,
    layout: Option<NodeLayoutStatus>,
    sharing: Option<SharingStatus>,
}

impl StatusExtras<'_> {
    fn encode(&self, inventory: &Inventory) -> Parts {
        let parts = status::encode(inventory, self.labels, self.layout.as_ref());
        let sharing = self.sharing.iter().map(status::encode_sharing);
        parts.apply(&Change { changed: sharing.collect(), removed: Vec::new() })
    }
}

/// Encodes the usage with as many tenants as fit.
fn encode_bounded(usage: &Usage) -> (PartKey, Content) {
    for most in TENANT_LIMITS {
        let part = status::encode_usage(&usage_for_report(usage, most));
        if part.1.bytes().len() <= MAX_USAGE_BYTES {
            return part;
        }
    }
    usage_omitted("usage by pod is too large to report")
}

/// Adds the usage to the status, and past usages if there is room. Without room for the usage, a notice that it is missing
/// replaces it: the node itself has priority. The second value is whether there was no room.
fn with_usage(
    parts: &Parts,
    usage: &(PartKey, Content),
    past: Option<(PartKey, Content)>,
) -> (QueuedStatus, bool) {
    let size = |(key, content): &(PartKey, Content)| {
        let bytes = key.as_str().len().saturating_add(content.bytes().len());
        bytes.saturating_add(PART_OVERHEAD_BYTES)
    };
    let remaining_bytes = remaining_bytes(parts);
    let is_crowded = size(usage) > remaining_bytes;
    let sent = if is_crowded {
        usage_omitted("the status of the node is too large to include usage by pod")
    } else {
        usage.clone()
    };
    let fits = size(&sent) <= remaining_bytes;
    let with = |parts: &Parts, part: Option<(PartKey, Content)>| {
        parts.apply(&Change { changed: part.into_iter().collect(), removed: Vec::new() })
    };
    let latest = with(parts, Some(sent).filter(|_| fits));
    let past = past.filter(|past| !is_crowded && size(past) <= self::remaining_bytes(&latest));
    (QueuedStatus::Status(with(&latest, past)), is_crowded)
}

/// Encodes an empty usage with the reason.
fn usage_omitted(why: &str) -> (PartKey, Content) {
    status::encode_usage(&Usage {
        missing: vec![why.to_owned()],
        are_allocations_unknown: true,
        ..Usage::default()
    })
}

/// Returns the bytes left for further parts.
fn remaining_bytes(parts: &Parts) -> usize {
    let frames = parts.len().saturating_mul(PART_OVERHEAD_BYTES);
    let taken = parts.size().saturating_add(frames);
    if parts.len() >= MAX_PARTS {
        return 0;
    }
    (MAX_STATUS_BYTES - PART_OVERHEAD_BYTES).saturating_sub(taken)
}

/// Returns whether an aggregator accepts the status, and no list in it is too long.
fn fits(inventory: &Inventory, parts: &Parts) -> bool {
    let frames = parts.len().saturating_mul(PART_OVERHEAD_BYTES);
    let mut devices = inventory.devices.iter();
    let mut neuron = inventory.neuron.iter();
    devices.all(|device| {
        device.processes.len() <= MAX_PROCESSES && device.problems.len() <= MAX_LIST_ITEMS
    }) && neuron.all(|all| {
        let mut lists = all.devices.iter().map(|device| &device.problems);
        all.devices.len() <= MAX_NEURON_DEVICES
            && all.problems.len() <= MAX_LIST_ITEMS
            && lists.all(|problems| problems.len() <= MAX_LIST_ITEMS)
    }) && parts.len() <= MAX_PARTS
        && parts.size().saturating_add(frames) <= MAX_STATUS_BYTES - PART_OVERHEAD_BYTES
}

/// Encodes the status with fewer processes and shorter lists; each truncated device reports a problem that says so.
fn shortened(inventory: &Inventory, mut extras: StatusExtras<'_>) -> QueuedStatus {
    if let Some(layout) = &mut extras.layout {
        layout.shorten(MAX_SHORTENED_CHARS);
    }
    if let Some(sharing) = &mut extras.sharing {
        sharing.shorten(MAX_SHORTENED_PROCESSES, MAX_SHORTENED_CHARS);
    }
    let mut inventory = inventory.clone();
    for device in &mut inventory.devices {
        let processes = device.processes.len();
        shorten(&mut device.problems);
        if processes > MAX_SHORTENED_PROCESSES {
            device.processes.truncate(MAX_SHORTENED_PROCESSES);
            // This name marks the processes as unknown for readers: a partition must not look idle.
            device.problems.push(ReadProblem {
                source: "Processes".to_owned(),
                error: format!(
                    "only {MAX_SHORTENED_PROCESSES} of {processes} processes are reported: the status is too large"
                ),
            });
        }
    }
    if let Some(neuron) = &mut inventory.neuron {
        shorten(&mut neuron.problems);
        for device in &mut neuron.devices {
            shorten(&mut device.problems);
        }
    }
    let parts = extras.encode(&inventory);
    if fits(&inventory, &parts) { QueuedStatus::Status(parts) } else { QueuedStatus::TooLarge }
}

fn shorten(problems: &mut Vec<ReadProblem>) {
    problems.truncate(MAX_SHORTENED_PROCESSES);
    for problem in problems {
        problem.source = beginning(&problem.source);
        problem.error = beginning(&problem.error);
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(MAX_SHORTENED_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use octavo_fleet::summary::MIN_REPORT_INTERVAL;
    use octavo_model::id::PciAddress;
    use octavo_model::inventory::{
        Amd, Condition, Device, DeviceProcesses, DriverLayout, Neuron, NeuronDevice, PciIds,
        Process, ProcessKind,
    };
    use octavo_model::quantity::Mebibytes;
    use octavo_model::reason::Reason;
    use octavo_model::resource::ShareId;
    use octavo_model::sharing_status::{DeviceProvider, HandOffConfig, SharingStatus};
    use octavo_model::text::MAX_TEXT_BYTES;
    use octavo_node::labels::Options;
    use octavo_node::sharing;
    use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage};
    use octavo_planner::reconcile::DeviceLayoutStatus;
    use tokio::time::advance;

    use super::*;
    use crate::Outputs;
    use crate::liveness::Liveness;
    use crate::sink::StdoutSink;
    use crate::status_reporter::StatusReporter;

    /// An outbox without a connection.
    fn outbox() -> (Outbox, watch::Receiver<QueuedStatus>) {
        super::outbox(watch::channel(Parts::default()).1)
    }

    fn busy(processes: u32) -> Inventory {
        let ids = PciIds {
            vendor: 0x10de,
            device: 0x2330,
            subsystem_vendor: 0,
            subsystem_device: 0,
            class: None,
        };
        let mut device = Device::new(PciAddress::new(0, 7, 0, 0).unwrap(), ids);
        device.condition = Condition::Working;
        device.processes = (0..processes)
            .map(|pid| Process {
                pid,
                kind: ProcessKind::Compute,
                gpu_instance: Some(1),
                compute_instance: Some(0),
                memory: None,
            })
            .collect();
        Inventory { devices: vec![device], ..Inventory::default() }
    }

    fn reported(inventory: &Inventory) -> QueuedStatus {
        let (mut outbox, uplink) = outbox();
        outbox.put(inventory, &LabelSet::default(), None);
        uplink.borrow().clone()
    }

    fn read(latest: QueuedStatus) -> Inventory {
        let QueuedStatus::Status(parts) = latest else {
            panic!("{latest:?}");
        };
        let inventory = status::decode(&parts).unwrap().inventory;
        assert!(fits(&inventory, &parts));
        inventory
    }

    #[test]
    fn fitting_status_is_sent_whole_and_once() {
        let inventory = busy(1000);
        assert_eq!(read(reported(&inventory)), inventory);
        let (mut outbox, mut uplink) = outbox();
        outbox.put(&inventory, &LabelSet::default(), None);
        assert!(uplink.has_changed().unwrap());
        uplink.mark_unchanged();
        outbox.put(&inventory, &LabelSet::default(), None);
        assert!(!uplink.has_changed().unwrap());
    }

    #[test]
    fn truncated_processes_are_reported_and_device_is_not_idle() {
        for many in [5_000, 100_000] {
            let device = read(reported(&busy(many))).devices.remove(0);
            assert_eq!(device.processes.len(), 64);
            assert_eq!(device.usage(), DeviceProcesses::Unknown);
            let error = &device.problems[0].error;
            assert!(error.contains(&format!("of {many} processes")), "{error}");
        }
    }

    #[test]
    fn layout_messages_are_truncated_to_the_limit() {
        let device = |number: u8| DeviceLayoutStatus {
            message: "\u{e9}".repeat(5_000),
            ..DeviceLayoutStatus::new(
                PciAddress::new(0, number, 0, 0).unwrap(),
                "GPU 0".to_owned(),
                Reason::Blocked.into(),
            )
        };
        let status = NodeLayoutStatus {
            layout: Some("serving".to_owned()),
            state: Some(Reason::Blocked.into()),
            devices: (0..200).map(device).collect(),
            ..NodeLayoutStatus::default()
        };
        let message = |inventory: &Inventory, status: &NodeLayoutStatus| {
            let (mut outbox, uplink) = outbox();
            outbox.put(inventory, &LabelSet::default(), Some(status));
            let QueuedStatus::Status(parts) = uplink.borrow().clone() else {
                panic!("no status is queued");
            };
            assert!(fits(inventory, &parts));
            let layout = status::decode(&parts).unwrap().layout.unwrap();
            layout.devices[0].message.clone()
        };
        // 200 long messages exceed the maximum status; one does not.
        assert_eq!(message(&busy(1), &status).len(), MAX_SHORTENED_CHARS);
        let few = NodeLayoutStatus { devices: vec![device(0)], ..status };
        assert_eq!(message(&busy(1), &few).len(), MAX_TEXT_BYTES);
    }

    /// Usage of one device of 80 GiB that `tenants` share, each with `memory`.
    fn used(tenants: usize, memory: u64, is_over: bool) -> sharing::usage::Usage {
        let tenant = |number: usize| Tenant {
            namespace: Some("team-a".to_owned()),
            pod: Some(format!("notebook-{number:060}")),
            memory: Some(Mebibytes::new(memory)),
            is_over_share: is_over,
            ..Tenant::default()
        };
        let unit = UnitUsage {
            uuid: "GPU-5fd4087b-86f3-7a43-b711-4771313afc50".to_owned(),
            replicas: Some(3),
            tenants: (0..tenants).map(tenant).collect(),
            ..UnitUsage::default()
        };
        let device = DeviceUsage {
            pci: PciAddress::new(0, 7, 0, 0).unwrap(),
            name: "GPU 0".to_owned(),
            memory: None,
            utilization: None,
            power_watts: None,
            temperature_celsius: None,
            units: vec![unit],
        };
        sharing::usage::Usage { devices: vec![device], ..sharing::usage::Usage::default() }
    }

    fn queued_usage(uplink: &watch::Receiver<QueuedStatus>) -> Option<sharing::usage::Usage> {
        let QueuedStatus::Status(parts) = uplink.borrow().clone() else {
            panic!("no status is queued");
        };
        status::decode(&parts).unwrap().usage
    }

    fn queued_memory(uplink: &watch::Receiver<QueuedStatus>) -> Option<u64> {
        let usage = queued_usage(uplink)?;
        usage.devices[0].units[0].tenants[0].memory.map(Mebibytes::get)
    }

    #[test]
    fn usage_is_throttled_except_when_a_pod_exceeds_its_share() {
        let at = Duration::from_secs;
        let (mut outbox, uplink) = outbox();
        // Before the first observation there is nothing to report.
        assert_eq!(
            outbox.set_usage(at(0), Timestamp::UNIX_EPOCH, &sharing::usage::Usage::default()),
            None
        );
        assert_eq!(outbox.set_usage(at(1), Timestamp::UNIX_EPOCH, &used(1, 1000, false)), None);
        outbox.put(&busy(1), &LabelSet::default(), None);
        assert_eq!(queued_memory(&uplink), Some(1024));
        // A change within a step is not reported.
        assert_eq!(outbox.set_usage(at(2), Timestamp::UNIX_EPOCH, &used(1, 1020, false)), None);
        assert_eq!(
            outbox.set_usage(at(4), Timestamp::UNIX_EPOCH, &used(1, 2000, false)),
            Some(at(12))
        );
        assert_eq!(queued_memory(&uplink), Some(1024));
        assert_eq!(outbox.set_usage(at(16), Timestamp::UNIX_EPOCH, &used(1, 2000, false)), None);
        assert_eq!(queued_memory(&uplink), Some(2048));
        for (second, memory, is_over) in [(17, 40_000, true), (18, 2000, false)] {
            assert_eq!(
                outbox.set_usage(at(second), Timestamp::UNIX_EPOCH, &used(1, memory, is_over)),
                None
            );
            assert_eq!(queued_memory(&uplink), Some(memory.div_ceil(64) * 64));
        }
        // A new status does not discard the usage.
        outbox.put(&busy(2), &LabelSet::default(), None);
        assert_eq!(queued_memory(&uplink), Some(2048));
    }

    #[tokio::test(start_paused = true)]
    async fn past_usage_is_reported_until_the_aggregator_has_stored_it() {
        let (acknowledge, acknowledged) = watch::channel(Parts::default());
        let (mut outbox, uplink) = super::outbox(acknowledged);
        let wall = |second| Timestamp::from_second(second).unwrap();
        let past = || {
            let QueuedStatus::Status(parts) = uplink.borrow().clone() else { return Vec::new() };
            let content = parts.get(PartKey::PAST_USAGE);
            let past = content.map(|content| status::decode_past_usage(content).unwrap());
            past.unwrap_or_default().iter().map(|past| past.at).collect::<Vec<_>>()
        };
        let allocated = |tenants| {
            let mut usage = used(tenants, 64, false);
            for tenant in &mut usage.devices[0].units[0].tenants {
                tenant.ids = vec![ShareId::whole("GPU-5fd4087b-86f3-7a43-b711-4771313afc50")];
            }
            usage
        };
        let put = |outbox: &mut Outbox| outbox.put(&busy(0), &LabelSet::default(), None);
        put(&mut outbox);
        outbox.set_usage(Duration::ZERO, wall(1000), &allocated(1));
        outbox.set_usage(Duration::from_mins(1), wall(1060), &allocated(2));
        assert_eq!(past(), [1000, 1060]);

        let QueuedStatus::Status(sent) = uplink.borrow().clone() else { panic!("no status") };
        acknowledge.send_replace(sent);
        put(&mut outbox);
        assert_eq!(past(), [1000, 1060], "the aggregator can be killed");
        advance(SETTLE_TIME).await;
        put(&mut outbox);
        assert!(past().is_empty());
        outbox.set_usage(Duration::from_mins(12), wall(1700), &allocated(3));
        assert!(past().is_empty());

        acknowledge.send_replace(Parts::default());
        put(&mut outbox);
        assert_eq!(past(), [1060, 1700]);
    }

    #[tokio::test(start_paused = true)]
    async fn usage_is_sent_without_a_scan() {
        let (mut outbox, mut uplink) = outbox();
        outbox.put(&busy(1), &LabelSet::default(), None);
        uplink.mark_unchanged();
        let (sender, usage) = watch::channel(Arc::new(sharing::usage::Usage::default()));
        let mut sink = StdoutSink::new(Vec::new());
        let outputs = Outputs {
            dra: None,
            sink: &mut sink,
            outbox: Some(outbox),
            cluster: None,
            sharing: None,
            usage: Some(usage),
            offered: None,
            liveness: Liveness::always_alive(),
        };
        let mut reporter = StatusReporter::new(outputs, Options::default(), None);
        let checks = async {
            sender.send_replace(Arc::new(used(1, 1000, false)));
            uplink.changed().await.unwrap();
            assert_eq!(queued_memory(&uplink), Some(1024));
            let before = Instant::now();
            sender.send_replace(Arc::new(used(1, 2000, false)));
            uplink.changed().await.unwrap();
            assert_eq!(queued_memory(&uplink), Some(2048));
            assert!(before.elapsed() >= MIN_REPORT_INTERVAL);
        };
        tokio::select! {
            _ = reporter.changed() => panic!("a change of usage causes a scan of the hardware"),
            () = checks => {}
        }
    }

    #[test]
    fn usage_of_eight_gpus_with_three_pods_each_is_four_kib() {
        let uuid = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";
        let mut usage = used(3, 20_000, false);
        let unit = &mut usage.devices[0].units[0];
        unit.resource = Some(octavo_model::resource::ResourceName::gpu());
        unit.fair_share = Some(Mebibytes::new(27_000));
        for (number, tenant) in (0..).zip(&mut unit.tenants) {
            tenant.pod = Some(format!("notebook-of-somebody-{number}"));
            tenant.container = Some("notebook".to_owned());
            tenant.ids = vec![octavo_model::resource::ShareId::replica(uuid, number)];
            tenant.processes = vec![4_000_000 + number];
            tenant.uid = Some("7d1c5a3e-1111-2222-3333-444455556666".to_owned());
        }
        usage.devices = vec![usage.devices[0].clone(); 8];
        let (_, content) = encode_bounded(&usage);
        let size = content.bytes().len();
        assert!((3000..4096).contains(&size), "{size}");
    }

    #[test]
    fn too_many_tenants_are_truncated_and_reported() {
        let (mut outbox, uplink) = outbox();
        outbox.put(&busy(1), &LabelSet::default(), None);
        outbox.set_usage(Duration::ZERO, Timestamp::UNIX_EPOCH, &used(1000, 7, false));
        let reported = queued_usage(&uplink).unwrap();
        assert_eq!(reported.devices[0].units[0].tenants.len(), 64);
        assert_eq!(reported.missing, ["GPU 0: 936 more tenants are not listed"]);
        // A machine with many devices, all as crowded: fewer of each, until it fits.
        let mut crowded = used(1000, 7, true);
        crowded.devices = vec![crowded.devices[0].clone(); 32];
        outbox.set_usage(Duration::ZERO, Timestamp::UNIX_EPOCH, &crowded);
        let reported = queued_usage(&uplink).unwrap();
        assert_eq!(reported.devices[31].units[0].tenants.len(), 16);
        assert_eq!(reported.missing[0], "GPU 0: 984 more tenants are not listed");
    }

    #[test]
    fn pod_is_sent_with_name_and_uid_prefix() {
        let (mut outbox, uplink) = outbox();
        outbox.put(&busy(1), &LabelSet::default(), None);
        let mut usage = used(2, 7, false);
        let tenants = &mut usage.devices[0].units[0].tenants;
        for tenant in tenants.iter_mut() {
            tenant.uid = Some("7d1c5a3e-1111-2222-3333-444455556666".to_owned());
        }
        tenants[1].pod = None;
        outbox.set_usage(Duration::ZERO, Timestamp::UNIX_EPOCH, &usage);
        let reported = queued_usage(&uplink).unwrap();
        let reported = reported.devices[0].units[0].tenants.iter();
        let uids: Vec<Option<&str>> = reported.map(|tenant| tenant.uid.as_deref()).collect();
        assert_eq!(uids, [Some("7d1c5a3e"), Some("7d1c5a3e")]);
    }

    #[test]
    fn status_has_priority_over_usage() {
        let (mut outbox, uplink) = outbox();
        outbox.set_usage(Duration::ZERO, Timestamp::UNIX_EPOCH, &used(64, 7, false));
        let mut inventory = busy(1);
        inventory.devices[0].product_name = Some("x".repeat(MAX_STATUS_BYTES - 1000));
        outbox.put(&inventory, &LabelSet::default(), None);
        let reported = queued_usage(&uplink).unwrap();
        assert_eq!(reported.devices, []);
        assert_eq!(
            reported.missing,
            ["the status of the node is too large to include usage by pod"]
        );
        assert!(outbox.crowded);
        // Without room even for the notice.
        inventory.devices[0].product_name = Some("x".repeat(MAX_STATUS_BYTES - 200));
        outbox.put(&inventory, &LabelSet::default(), None);
        assert_eq!(queued_usage(&uplink), None);
        outbox.put(&busy(1), &LabelSet::default(), None);
        assert_eq!(queued_usage(&uplink).unwrap().devices.len(), 1);
        assert!(!outbox.crowded);
    }

    #[test]
    fn sharing_report_is_part_of_the_status() {
        let (mut outbox, uplink) = outbox();
        let sharing = |uplink: &watch::Receiver<QueuedStatus>| {
            let QueuedStatus::Status(parts) = uplink.borrow().clone() else {
                panic!("no status is queued");
            };
            status::decode(&parts).unwrap().sharing
        };
        let status = NodeLayoutStatus {
            sharing: Some(SharingStatus {
                mode: DeviceProvider::Embedded.into(),
                state: Reason::SharingPending.into(),
                message: Some("ö".repeat(5_000)),
                hand_off: Some(HandOffConfig {
                    key: "a100".to_owned(),
                    config: "x".repeat(40_000),
                }),
                ..SharingStatus::default()
            }),
            ..NodeLayoutStatus::default()
        };
        outbox.put(&busy(1), &LabelSet::default(), Some(&status));
        let reported = sharing(&uplink).unwrap();
        assert_eq!(
            (reported.mode.as_str(), reported.state.as_str()),
            ("embedded", "sharing-pending")
        );
        assert_eq!(reported.message.map(|text| text.len()), Some(MAX_TEXT_BYTES));
        // A truncated configuration would be a different one, so it is left out.
        assert_eq!(reported.hand_off, None);
        outbox.put(&busy(1), &LabelSet::default(), None);
        assert_eq!(sharing(&uplink), None);
    }

    #[test]
    fn neuron_problems_are_truncated() {
        let problem = ReadProblem { source: "core_count".to_owned(), error: "ö".repeat(1000) };
        let device =
            NeuronDevice { number: 3, problems: vec![problem; 5000], ..NeuronDevice::default() };
        let mut inventory = busy(1);
        inventory.neuron = Some(Neuron {
            driver_version: None,
            driver_layout: DriverLayout::Known,
            ultraserver: std::collections::BTreeMap::new(),
            logical: None,
            devices: vec![device],
            problems: Vec::new(),
        });
        let reported = read(reported(&inventory)).neuron.unwrap();
        assert_eq!(reported.devices[0].problems.len(), 64);
        assert_eq!(reported.devices[0].problems[63].error.chars().count(), MAX_SHORTENED_CHARS);
    }

    #[test]
    fn memory_change_within_a_step_is_not_sent() {
        let node = |neuron: u64, amd: u64, power: u8| {
            let mut inventory = busy(1);
            inventory.devices[0].memory = Some(Mebibytes::new(196_592));
            inventory.devices[0].amd =
                Some(Amd { memory_used: Some(Mebibytes::new(amd)), ..Amd::default() });
            inventory.neuron = Some(Neuron {
                driver_version: None,
                driver_layout: DriverLayout::Known,
                ultraserver: std::collections::BTreeMap::new(),
                logical: None,
                devices: vec![NeuronDevice {
                    device_name: Some("Trainium1".to_owned()),
                    memory_used: Some(Mebibytes::new(neuron)),
                    power_percent: Some(power),
                    ..NeuronDevice::default()
                }],
                problems: Vec::new(),
            });
            inventory
        };
        let (mut outbox, mut uplink) = outbox();
        let mut put = |inventory: &Inventory| {
            outbox.put(inventory, &LabelSet::default(), None);
            uplink.borrow_and_update().clone()
        };
        let first = put(&node(1000, 2000, 41));
        for (neuron, amd, power) in [(1024, 1990, 45), (970, 2048, 42), (961, 1985, 41)] {
            assert_eq!(put(&node(neuron, amd, power)), first, "{neuron} {amd} {power}");
        }
        let reported = read(first.clone());
        let used = |reported: &Inventory| {
            let neuron = reported.neuron.as_ref().unwrap().devices[0].memory_used;
            let amd = reported.devices[0].amd.as_ref().unwrap().memory_used;
            [neuron, amd].map(|used| used.map(Mebibytes::get))
        };
        assert_eq!(used(&reported), [Some(1024), Some(2048)]);
        let more = put(&node(1025, 2000, 41));
        assert_ne!(more, first);
        // Zero stays zero, and full memory does not exceed the total.
        assert_eq!(used(&read(put(&node(0, 0, 0)))), [Some(0), Some(0)]);
        let full = read(put(&node(32_760, 196_590, 100)));
        assert_eq!(used(&full), [Some(32_768), Some(196_592)]);
    }

    #[test]
    fn oversized_status_is_not_sent() {
        let mut inventory = busy(1);
        inventory.devices[0].product_name = Some("x".repeat(MAX_STATUS_BYTES));
        assert_eq!(reported(&inventory), QueuedStatus::TooLarge);
    }
}
