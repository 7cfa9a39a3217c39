//! Queue of length one between the loop and the uplink: it holds only the latest status, so that neither waits for the
//! other.

use std::time::Duration;

use tokio::sync::watch;
use tracing::{info, warn};

use crate::domain::fleet::{LARGEST_USAGE, LayoutStatus, Pace, SharingReport, Step, stepped, told};
use crate::domain::inventory::{Inventory, Problem};
use crate::domain::labels::LabelSet;
use crate::domain::reconcile::Status;
use crate::domain::sharing::usage::Usage;
use crate::domain::stream::{Change, Content, PartKey, Parts};
use crate::wire::status::{self, MOST, MOST_NEURON, MOST_PROCESSES};
use crate::wire::stream::{LARGEST_STATUS, MOST_PARTS};

/// The loop's end of the queue.
#[derive(Debug)]
pub struct Outbox {
    latest: watch::Sender<Latest>,
    shortened: bool,
    /// The last observation, without usage.
    base: Latest,
    usage: Option<(PartKey, Content)>,
    /// Whether there was no room for the usage.
    crowded: bool,
    pace: Pace,
}

/// The uplink's end of the queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Latest {
    /// Nothing was observed yet.
    #[default]
    Nothing,
    /// The status.
    Status(Parts),
    /// No aggregator would accept the status, and reporting less would be incorrect.
    TooLarge,
}

/// Bytes of a part in a message in addition to key and content: two tags and three lengths.
const FRAME: usize = 16;
/// Number of reported processes per device if the status is too large with all of them.
const FEW: usize = 64;
/// Numbers of reported tenants per device, tried in this order until the usage fits.
const TENANTS: [usize; 4] = [64, 16, 4, 0];
/// Number of reported characters per text if the status is too large with whole texts.
const SHORT: usize = 256;

/// Creates an outbox, and the uplink's end of it.
pub(super) fn outbox() -> (Outbox, watch::Receiver<Latest>) {
    let (latest, uplink) = watch::channel(Latest::default());
    let outbox = Outbox {
        latest,
        shortened: false,
        base: Latest::Nothing,
        usage: None,
        crowded: false,
        pace: Pace::default(),
    };
    (outbox, uplink)
}

impl Outbox {
    /// Sets the node's current status.
    pub fn put(&mut self, inventory: &Inventory, labels: &LabelSet, status: Option<&Status>) {
        let said = Said {
            labels,
            layout: status.and_then(LayoutStatus::of),
            sharing: status
                .and_then(|status| status.sharing.as_ref())
                .map(SharingReport::of),
        };
        // Used memory changes at every scan, but is reported in steps.
        let stepped = stepped(inventory);
        let inventory = stepped.as_ref().unwrap_or(inventory);
        let whole = said.encode(inventory);
        let fits = fits(inventory, &whole);
        if fits == self.shortened {
            self.shortened = !fits;
            if fits {
                info!("the status is reported whole again");
            } else {
                warn!("the status is too large to be reported whole: lists are cut");
            }
        }
        self.base = if fits {
            Latest::Status(whole)
        } else {
            shortened(inventory, said)
        };
        self.send();
    }

    /// Sets the usage at `now`, which counts from the program's start. Returns when to call again, if it changed but
    /// the minimum interval has not passed.
    pub fn put_usage(&mut self, now: Duration, usage: &Usage) -> Option<Duration> {
        let is_unlooked = self.usage.is_none() && *usage == Usage::default();
        if is_unlooked {
            return None;
        }
        match self.pace.look(now, usage) {
            Step::Nothing => None,
            Step::Wait(left) => Some(left),
            Step::Tell => {
                self.usage = Some(bounded(usage));
                self.send();
                None
            }
        }
    }

    fn send(&mut self) {
        let latest = match (&self.base, &self.usage) {
            (Latest::Status(parts), Some(usage)) => {
                let (latest, is_crowded) = with_usage(parts, usage);
                if is_crowded && !self.crowded {
                    warn!("the status leaves no room for who uses what, so that is not reported");
                }
                self.crowded = is_crowded;
                latest
            }
            (base, _) => base.clone(),
        };
        self.latest.send_if_modified(|known| {
            let new = *known != latest;
            if new {
                *known = latest;
            }
            new
        });
    }
}

/// Parts of the status besides the inventory.
struct Said<'a> {
    labels: &'a LabelSet,
    layout: Option<LayoutStatus>,
    sharing: Option<SharingReport>,
}

impl Said<'_> {
    fn encode(&self, inventory: &Inventory) -> Parts {
        let parts = status::encode(inventory, self.labels, self.layout.as_ref());
        let sharing = self.sharing.iter().map(status::encode_sharing);
        parts.with(&Change {
            changed: sharing.collect(),
            removed: Vec::new(),
        })
    }
}

/// Encodes the usage with as many tenants as fit.
fn bounded(usage: &Usage) -> (PartKey, Content) {
    for most in TENANTS {
        let part = status::encode_usage(&told(usage, most));
        if part.1.bytes().len() <= LARGEST_USAGE {
            return part;
        }
    }
    untold("there is too much to be told")
}

/// Adds the usage to the status. Without room for it, a notice that it is missing replaces it: the node itself has
/// priority. The second value is whether there was no room.
fn with_usage(parts: &Parts, usage: &(PartKey, Content)) -> (Latest, bool) {
    let size = |(key, content): &(PartKey, Content)| {
        let bytes = key.as_str().len().saturating_add(content.bytes().len());
        bytes.saturating_add(FRAME)
    };
    let room = room(parts);
    let is_crowded = size(usage) > room;
    let told = if is_crowded {
        untold("the rest of what the node says leaves no room for who uses what")
    } else {
        usage.clone()
    };
    let fits = size(&told) <= room;
    let changed = Some(told).filter(|_| fits).into_iter().collect();
    let removed = Vec::new();
    let latest = Latest::Status(parts.with(&Change { changed, removed }));
    (latest, is_crowded)
}

/// Encodes an empty usage with the reason.
fn untold(why: &str) -> (PartKey, Content) {
    status::encode_usage(&Usage {
        devices: Vec::new(),
        missing: vec![why.to_owned()],
    })
}

/// Returns the bytes left for further parts.
fn room(parts: &Parts) -> usize {
    let frames = parts.len().saturating_mul(FRAME);
    let taken = parts.size().saturating_add(frames);
    if parts.len() >= MOST_PARTS {
        return 0;
    }
    (LARGEST_STATUS - FRAME).saturating_sub(taken)
}

/// Returns whether an aggregator accepts the status, and no list in it is too long.
fn fits(inventory: &Inventory, parts: &Parts) -> bool {
    let frames = parts.len().saturating_mul(FRAME);
    let mut devices = inventory.devices.iter();
    let mut neuron = inventory.neuron.iter();
    devices.all(|device| device.processes.len() <= MOST_PROCESSES && device.problems.len() <= MOST)
        && neuron.all(|all| {
            let mut lists = all.devices.iter().map(|device| &device.problems);
            all.devices.len() <= MOST_NEURON
                && all.problems.len() <= MOST
                && lists.all(|problems| problems.len() <= MOST)
        })
        && parts.len() <= MOST_PARTS
        && parts.size().saturating_add(frames) <= LARGEST_STATUS - FRAME
}

/// Encodes the status with fewer processes and shorter lists; each truncated device reports a problem that says so.
fn shortened(inventory: &Inventory, mut said: Said<'_>) -> Latest {
    if let Some(layout) = &mut said.layout {
        layout.shorten(SHORT);
    }
    if let Some(sharing) = &mut said.sharing {
        sharing.shorten(FEW, SHORT);
    }
    let mut inventory = inventory.clone();
    for device in &mut inventory.devices {
        let told = device.processes.len();
        shorten(&mut device.problems);
        if told > FEW {
            device.processes.truncate(FEW);
            // This name marks the processes as unknown for readers: a partition must not look idle.
            device.problems.push(Problem {
                what: "Processes".to_owned(),
                error: format!("{told} are too many to be reported, {FEW} of them are"),
            });
        }
    }
    if let Some(neuron) = &mut inventory.neuron {
        shorten(&mut neuron.problems);
        for device in &mut neuron.devices {
            shorten(&mut device.problems);
        }
    }
    let parts = said.encode(&inventory);
    if fits(&inventory, &parts) {
        Latest::Status(parts)
    } else {
        Latest::TooLarge
    }
}

fn shorten(problems: &mut Vec<Problem>) {
    problems.truncate(FEW);
    for problem in problems {
        problem.what = beginning(&problem.what);
        problem.error = beginning(&problem.error);
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(SHORT).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::agent::Outputs;
    use crate::agent::pulse::Pulse;
    use crate::agent::sink::Stdout;
    use crate::agent::teller::Teller;
    use crate::domain::fleet::LONGEST_TEXT;
    use crate::domain::fleet::USAGE_EVERY;
    use crate::domain::id::PciAddress;
    use crate::domain::inventory::{
        Amd, Condition, Device, DriverLayout, Machine, Neuron, NeuronDevice, NvmlState, PciIds,
        Process, ProcessKind, Usage,
    };
    use crate::domain::labels::Options;

    use crate::domain::quantity::Mebibytes;
    use crate::domain::reason::Reason;
    use crate::domain::reconcile::DeviceStatus;
    use crate::domain::sharing::status::{HandOff, Mode};
    use crate::domain::sharing::usage::{DeviceUsage, Tenant, UnitUsage};
    use crate::domain::sharing::{self, SharingStatus};

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
        Inventory {
            neuron: None,
            machine: Machine::default(),
            nvml: NvmlState::Loading,
            devices: vec![device],
        }
    }

    fn told(inventory: &Inventory) -> Latest {
        let (mut outbox, uplink) = outbox();
        outbox.put(inventory, &LabelSet::default(), None);
        uplink.borrow().clone()
    }

    fn read(latest: Latest) -> Inventory {
        let Latest::Status(parts) = latest else {
            panic!("{latest:?}");
        };
        let inventory = status::decode(&parts).unwrap().inventory;
        assert!(fits(&inventory, &parts));
        inventory
    }

    #[test]
    fn what_fits_is_told_whole_and_told_once() {
        let inventory = busy(1000);
        assert_eq!(read(told(&inventory)), inventory);
        let (mut outbox, mut uplink) = outbox();
        outbox.put(&inventory, &LabelSet::default(), None);
        assert!(uplink.has_changed().unwrap());
        uplink.mark_unchanged();
        outbox.put(&inventory, &LabelSet::default(), None);
        assert!(!uplink.has_changed().unwrap());
    }

    #[test]
    fn a_device_with_too_many_processes_says_so_and_does_not_look_idle() {
        for many in [5_000, 100_000] {
            let device = read(told(&busy(many))).devices.remove(0);
            assert_eq!(device.processes.len(), 64);
            assert_eq!(device.usage(), Usage::Unknown);
            let said = &device.problems[0].error;
            assert!(said.starts_with(&many.to_string()), "{said}");
        }
    }

    #[test]
    fn a_layout_s_messages_are_cut_to_what_an_aggregator_takes() {
        let device = |number: u8| DeviceStatus {
            pci: PciAddress::new(0, number, 0, 0).unwrap(),
            name: "GPU 0".to_owned(),
            state: "blocked",
            message: "\u{e9}".repeat(5_000),
            is_held: false,
            holders: Vec::new(),
            waits_for_holders: false,
            progress: None,
        };
        let status = Status {
            layout: Some("serving".to_owned()),
            state: Some("blocked"),
            devices: (0..200).map(device).collect(),
            ..Status::default()
        };
        let message = |inventory: &Inventory, status: &Status| {
            let (mut outbox, uplink) = outbox();
            outbox.put(inventory, &LabelSet::default(), Some(status));
            let Latest::Status(parts) = uplink.borrow().clone() else {
                panic!("nothing was told");
            };
            assert!(fits(inventory, &parts));
            let layout = status::decode(&parts).unwrap().layout.unwrap();
            layout.devices[0].message.clone()
        };
        // 200 long messages exceed the maximum status; one does not.
        assert_eq!(message(&busy(1), &status).len(), SHORT);
        let few = Status {
            devices: vec![device(0)],
            ..status
        };
        assert_eq!(message(&busy(1), &few).len(), LONGEST_TEXT);
    }

    /// Usage of one device of 80 GiB that `tenants` share, each with `memory`.
    fn used(tenants: usize, memory: u64, is_over: bool) -> sharing::usage::Usage {
        let tenant = |number: usize| Tenant {
            namespace: Some("team-a".to_owned()),
            pod: Some(format!("notebook-{number:060}")),
            memory: Some(Mebibytes::new(memory)),
            is_over,
            ..Tenant::default()
        };
        let unit = UnitUsage {
            uuid: "GPU-5fd4087b-86f3-7a43-b711-4771313afc50".to_owned(),
            partition: None,
            profile: None,
            resource: None,
            replicas: Some(3),
            fair_share: None,
            memory: None,
            tenants: (0..tenants).map(tenant).collect(),
            unattributed: None,
            exhausted_in: None,
            is_nearly_exhausted: false,
        };
        let device = DeviceUsage {
            pci: PciAddress::new(0, 7, 0, 0).unwrap(),
            name: "GPU 0".to_owned(),
            memory: None,
            utilization: None,
            units: vec![unit],
        };
        sharing::usage::Usage {
            devices: vec![device],
            missing: Vec::new(),
        }
    }

    fn usage_told(uplink: &watch::Receiver<Latest>) -> Option<sharing::usage::Usage> {
        let Latest::Status(parts) = uplink.borrow().clone() else {
            panic!("nothing was told");
        };
        status::decode(&parts).unwrap().usage
    }

    fn memory_told(uplink: &watch::Receiver<Latest>) -> Option<u64> {
        let usage = usage_told(uplink)?;
        usage.devices[0].units[0].tenants[0]
            .memory
            .map(Mebibytes::get)
    }

    #[test]
    fn who_has_what_is_told_seldom_and_at_once_when_somebody_is_over_their_share() {
        let at = Duration::from_secs;
        let (mut outbox, uplink) = outbox();
        // Before the first observation there is nothing to report.
        assert_eq!(
            outbox.put_usage(at(0), &sharing::usage::Usage::default()),
            None
        );
        assert_eq!(outbox.put_usage(at(1), &used(1, 1000, false)), None);
        outbox.put(&busy(1), &LabelSet::default(), None);
        assert_eq!(memory_told(&uplink), Some(1024));
        // A change within a step is not reported.
        assert_eq!(outbox.put_usage(at(2), &used(1, 1020, false)), None);
        assert_eq!(outbox.put_usage(at(4), &used(1, 2000, false)), Some(at(12)));
        assert_eq!(memory_told(&uplink), Some(1024));
        assert_eq!(outbox.put_usage(at(16), &used(1, 2000, false)), None);
        assert_eq!(memory_told(&uplink), Some(2048));
        for (second, memory, is_over) in [(17, 40_000, true), (18, 2000, false)] {
            assert_eq!(
                outbox.put_usage(at(second), &used(1, memory, is_over)),
                None
            );
            assert_eq!(memory_told(&uplink), Some(memory.div_ceil(64) * 64));
        }
        // A new status does not discard the usage.
        outbox.put(&busy(2), &LabelSet::default(), None);
        assert_eq!(memory_told(&uplink), Some(2048));
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_what_goes_out_without_a_look_at_the_hardware() {
        let (mut outbox, mut uplink) = outbox();
        outbox.put(&busy(1), &LabelSet::default(), None);
        uplink.mark_unchanged();
        let (tell, usage) = watch::channel(Arc::new(sharing::usage::Usage::default()));
        let mut sink = Stdout::new(Vec::new());
        let outputs = Outputs {
            sink: &mut sink,
            outbox: Some(outbox),
            cluster: None,
            giver: None,
            usage: Some(usage),
            offered: None,
            pulse: Pulse::still(),
        };
        let mut teller = Teller::new(outputs, Options::default(), None);
        let told = async {
            tell.send_replace(Arc::new(used(1, 1000, false)));
            uplink.changed().await.unwrap();
            assert_eq!(memory_told(&uplink), Some(1024));
            let before = Instant::now();
            tell.send_replace(Arc::new(used(1, 2000, false)));
            uplink.changed().await.unwrap();
            assert_eq!(memory_told(&uplink), Some(2048));
            assert!(before.elapsed() >= USAGE_EVERY);
        };
        tokio::select! {
            _ = teller.changed() => panic!("the hardware would be looked at for it"),
            () = told => {}
        }
    }

    #[test]
    fn who_has_what_of_eight_gpus_shared_by_three_each_is_four_kibibytes() {
        let uuid = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";
        let mut usage = used(3, 20_000, false);
        let unit = &mut usage.devices[0].units[0];
        unit.resource = Some(sharing::ResourceName::gpu());
        unit.fair_share = Some(Mebibytes::new(27_000));
        for (number, tenant) in (0..).zip(&mut unit.tenants) {
            tenant.pod = Some(format!("notebook-of-somebody-{number}"));
            tenant.container = Some("notebook".to_owned());
            tenant.ids = vec![sharing::ShareId::replica(uuid, number)];
            tenant.processes = vec![4_000_000 + number];
            tenant.uid = Some("7d1c5a3e-1111-2222-3333-444455556666".to_owned());
        }
        usage.devices = vec![usage.devices[0].clone(); 8];
        let (_, content) = bounded(&usage);
        let size = content.bytes().len();
        assert!((3000..4096).contains(&size), "{size}");
    }

    #[test]
    fn of_too_many_who_have_a_device_some_are_told_and_it_says_so() {
        let (mut outbox, uplink) = outbox();
        outbox.put(&busy(1), &LabelSet::default(), None);
        outbox.put_usage(Duration::ZERO, &used(1000, 7, false));
        let told = usage_told(&uplink).unwrap();
        assert_eq!(told.devices[0].units[0].tenants.len(), 64);
        assert_eq!(told.missing, ["GPU 0: 936 more who have it are not told"]);
        // A machine with many devices, all as crowded: fewer of each, until it fits.
        let mut crowded = used(1000, 7, true);
        crowded.devices = vec![crowded.devices[0].clone(); 32];
        outbox.put_usage(Duration::ZERO, &crowded);
        let told = usage_told(&uplink).unwrap();
        assert_eq!(told.devices[31].units[0].tenants.len(), 16);
        assert_eq!(told.missing[0], "GPU 0: 984 more who have it are not told");
    }

    #[test]
    fn a_pod_is_told_by_name_and_by_the_beginning_of_its_uid() {
        let (mut outbox, uplink) = outbox();
        outbox.put(&busy(1), &LabelSet::default(), None);
        let mut usage = used(2, 7, false);
        let tenants = &mut usage.devices[0].units[0].tenants;
        for tenant in tenants.iter_mut() {
            tenant.uid = Some("7d1c5a3e-1111-2222-3333-444455556666".to_owned());
        }
        tenants[1].pod = None;
        outbox.put_usage(Duration::ZERO, &usage);
        let told = usage_told(&uplink).unwrap();
        let told = told.devices[0].units[0].tenants.iter();
        let uids: Vec<Option<&str>> = told.map(|tenant| tenant.uid.as_deref()).collect();
        assert_eq!(uids, [Some("7d1c5a3e"), Some("7d1c5a3e")]);
    }

    #[test]
    fn a_status_without_room_goes_before_who_has_what() {
        let (mut outbox, uplink) = outbox();
        outbox.put_usage(Duration::ZERO, &used(64, 7, false));
        let mut inventory = busy(1);
        inventory.devices[0].product_name = Some("x".repeat(LARGEST_STATUS - 1000));
        outbox.put(&inventory, &LabelSet::default(), None);
        let told = usage_told(&uplink).unwrap();
        assert_eq!(told.devices, []);
        assert_eq!(
            told.missing,
            ["the rest of what the node says leaves no room for who uses what"]
        );
        assert!(outbox.crowded);
        // Without room even for the notice.
        inventory.devices[0].product_name = Some("x".repeat(LARGEST_STATUS - 200));
        outbox.put(&inventory, &LabelSet::default(), None);
        assert_eq!(usage_told(&uplink), None);
        outbox.put(&busy(1), &LabelSet::default(), None);
        assert_eq!(usage_told(&uplink).unwrap().devices.len(), 1);
        assert!(!outbox.crowded);
    }

    #[test]
    fn how_far_sharing_is_comes_with_the_status_and_goes_with_it() {
        let (mut outbox, uplink) = outbox();
        let sharing = |uplink: &watch::Receiver<Latest>| {
            let Latest::Status(parts) = uplink.borrow().clone() else {
                panic!("nothing was told");
            };
            status::decode(&parts).unwrap().sharing
        };
        let status = Status {
            sharing: Some(SharingStatus {
                mode: Mode::Embedded,
                state: Reason::SharingPending.word(),
                message: Some("ö".repeat(5_000)),
                resources: Vec::new(),
                kept: Vec::new(),
                hand_off: Some(HandOff {
                    key: "a100".to_owned(),
                    config: "x".repeat(40_000),
                }),
                named: None,
            }),
            ..Status::default()
        };
        outbox.put(&busy(1), &LabelSet::default(), Some(&status));
        let told = sharing(&uplink).unwrap();
        assert_eq!(
            (told.mode.as_str(), told.state.as_str()),
            ("embedded", "sharing-pending")
        );
        assert_eq!(told.message.map(|text| text.len()), Some(LONGEST_TEXT));
        // A truncated configuration would be a different one, so it is left out.
        assert_eq!(told.hand_off, None);
        outbox.put(&busy(1), &LabelSet::default(), None);
        assert_eq!(sharing(&uplink), None);
    }

    #[test]
    fn a_neuron_device_with_too_many_problems_tells_the_first() {
        let problem = Problem {
            what: "core_count".to_owned(),
            error: "ö".repeat(1000),
        };
        let device = NeuronDevice {
            number: 3,
            problems: vec![problem; 5000],
            ..NeuronDevice::default()
        };
        let mut inventory = busy(1);
        inventory.neuron = Some(Neuron {
            driver_version: None,
            driver_layout: DriverLayout::Known,
            ultraserver: std::collections::BTreeMap::new(),
            logical: None,
            devices: vec![device],
            problems: Vec::new(),
        });
        let told = read(told(&inventory)).neuron.unwrap();
        assert_eq!(told.devices[0].problems.len(), 64);
        assert_eq!(told.devices[0].problems[63].error.chars().count(), SHORT);
    }

    #[test]
    fn memory_of_neuron_and_amd_devices_that_moves_within_a_step_is_not_told_again() {
        let node = |neuron: u64, amd: u64, power: u8| {
            let mut inventory = busy(1);
            inventory.devices[0].memory = Some(Mebibytes::new(196_592));
            inventory.devices[0].amd = Some(Amd {
                memory_used: Some(Mebibytes::new(amd)),
                ..Amd::default()
            });
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
            assert_eq!(
                put(&node(neuron, amd, power)),
                first,
                "{neuron} {amd} {power}"
            );
        }
        let told = read(first.clone());
        let used = |told: &Inventory| {
            let neuron = told.neuron.as_ref().unwrap().devices[0].memory_used;
            let amd = told.devices[0].amd.as_ref().unwrap().memory_used;
            [neuron, amd].map(|used| used.map(Mebibytes::get))
        };
        assert_eq!(used(&told), [Some(1024), Some(2048)]);
        let more = put(&node(1025, 2000, 41));
        assert_ne!(more, first);
        // Zero stays zero, and full memory does not exceed the total.
        assert_eq!(used(&read(put(&node(0, 0, 0)))), [Some(0), Some(0)]);
        let full = read(put(&node(32_760, 196_590, 100)));
        assert_eq!(used(&full), [Some(32_768), Some(196_592)]);
    }

    #[test]
    fn a_status_that_stays_too_large_is_not_told_at_all() {
        let mut inventory = busy(1);
        inventory.devices[0].product_name = Some("x".repeat(LARGEST_STATUS));
        assert_eq!(told(&inventory), Latest::TooLarge);
    }
}
