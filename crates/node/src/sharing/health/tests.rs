//! Errors and conditions of devices, and the resulting health of their units.

mod driver;
mod random;

use octavo_model::examples::gpu;
use octavo_model::inventory::{Condition, Device, Driver, RecoveryAction, RemappedRows};

use super::*;
use crate::sharing::offer::Partition;

const HOUR: u64 = 3600;

fn pci(number: u8) -> PciAddress {
    PciAddress::new(0, number, 0, 0).unwrap()
}

fn ready() -> NvmlState {
    NvmlState::Ready(Driver { version: "580.95.05".parse().unwrap(), cuda: None })
}

fn stalled() -> NvmlState {
    NvmlState::Stalled { call: "nvmlDeviceGetMigMode".to_owned(), driver: None }
}

fn lost() -> NvmlState {
    NvmlState::Lost { reason: "gone".to_owned() }
}

type Change = fn(&mut Node);

/// Three working devices and their monitor.
struct Node {
    inventory: Inventory,
    monitor: HealthMonitor,
}

impl Node {
    fn new() -> Self {
        let device = |number| Device { pci: pci(number), ..gpu() };
        let mut node = Self {
            inventory: Inventory {
                nvml: ready(),
                devices: [0, 1, 2].map(device).to_vec(),
                ..Inventory::default()
            },
            monitor: HealthMonitor::default(),
        };
        node.read(0, &[]);
        node
    }

    fn read(&mut self, now: u64, xids: &[Xid]) {
        self.monitor.record_inventory(Duration::from_secs(now), &self.inventory, xids);
    }

    fn device(&mut self, number: usize) -> &mut Device {
        &mut self.inventory.devices[number]
    }

    fn lose(&mut self, number: usize) {
        self.device(number).condition =
            Condition::Failing { reason: "GPU is lost (15)".to_owned() };
    }

    fn recovery(&mut self, number: usize, action: RecoveryAction) {
        self.device(number).health.recovery_action = Some(action);
    }

    fn is_fit(&self, unit: &Unit) -> bool {
        self.monitor.health(unit).is_healthy()
    }

    /// Returns whether each of the three whole devices is healthy.
    fn fit(&self) -> [bool; 3] {
        [0, 1, 2].map(|number| self.is_fit(&whole(number)))
    }

    fn reason(&self, unit: &Unit) -> String {
        match self.monitor.health(unit) {
            Health::Unhealthy { reason } => reason,
            Health::Healthy => panic!("{unit:?} is healthy"),
        }
    }

    /// Reads the devices whenever something is due, until nothing is; returns the time of the last reading.
    fn settle(&mut self) -> Duration {
        let mut now = Duration::ZERO;
        for _ in 0..10_000 {
            let Some(next) = self.monitor.again() else {
                return now;
            };
            assert!(next > now, "again at {next:?}, which is not after {now:?}");
            now = next;
            self.monitor.record_inventory(now, &self.inventory, &[]);
        }
        panic!("the monitor does not settle");
    }
}

fn whole(number: u8) -> Unit {
    Unit {
        uuid: format!("GPU-{number}"),
        pci: pci(number),
        partition: None,
        replicas: None,
        memory: None,
        memory_per_replica: None,
        numa_node: None,
    }
}

fn part(number: u8, gpu_instance: u32, compute_instance: u32) -> Unit {
    let partition =
        Partition { gpu_instance, compute_instance, profile: "1g.10gb".parse().unwrap() };
    Unit {
        uuid: format!("MIG-{number}-{gpu_instance}-{compute_instance}"),
        partition: Some(partition),
        ..whole(number)
    }
}

fn xid(device: u8, number: u64) -> Xid {
    Xid { pci: pci(device), gpu_instance: None, compute_instance: None, number }
}

fn confined(device: u8, number: u64, gi: u32, ci: Option<u32>) -> Xid {
    Xid { gpu_instance: Some(gi), compute_instance: ci, ..xid(device, number) }
}

#[test]
fn application_xid_does_not_affect_device_health() {
    let mut node = Node::new();
    let harmless = [13, 31, 43, 45, 68, 109, 63, 154];
    node.read(1, &harmless.map(|number| xid(0, number)));
    assert_eq!(node.fit(), [true; 3]);
    assert_eq!(node.monitor.again(), None);
}

#[test]
fn device_fault_affects_all_its_units_only() {
    let mut node = Node::new();
    node.read(1, &[xid(1, 95)]);
    let replicas = Unit { replicas: Some(4), ..whole(1) };
    for unit in [whole(1), replicas, part(1, 3, 0), part(1, 7, 1)] {
        assert!(!node.is_fit(&unit), "{unit:?}");
    }
    for unit in [whole(0), whole(2), part(0, 3, 0), part(2, 7, 1)] {
        assert!(node.is_fit(&unit), "{unit:?}");
    }
}

#[test]
fn confined_fault_affects_only_its_instance() {
    let mut node = Node::new();
    node.read(1, &[confined(1, 94, 3, None), confined(1, 94, 5, Some(1))]);
    for unit in [part(1, 3, 0), part(1, 3, 1), part(1, 5, 1)] {
        assert!(!node.is_fit(&unit), "{unit:?}");
    }
    for unit in [part(1, 5, 0), part(1, 4, 1), part(0, 3, 0)] {
        assert!(node.is_fit(&unit), "{unit:?}");
    }
}

#[test]
fn restart_application_xid_ends_after_quiet_minute_and_reading() {
    let mut node = Node::new();
    node.read(10, &[xid(0, 94)]);
    node.read(40, &[xid(0, 94)]);
    assert_eq!(
        node.reason(&whole(0)),
        "it reported Xid 94 (a memory error contained in one application); it becomes healthy after 60 s without another such error"
    );
    assert_eq!(node.monitor.again(), Some(Duration::from_secs(100)));
    node.read(99, &[]);
    assert_eq!(node.fit(), [false, true, true]);
    node.read(100, &[]);
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn unknown_xid_starts_observation() {
    let mut node = Node::new();
    node.read(10, &[xid(0, 999)]);
    assert!(node.reason(&whole(0)).contains("the unknown Xid 999"));
    node.read(70, &[]);
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn observed_reset_restores_health_after_a_minute() {
    let seen_by: [(&str, Change, Change); 4] = [
        (
            "recovery action",
            |node| node.recovery(0, RecoveryAction::ResetGpu),
            |node| node.recovery(0, RecoveryAction::None),
        ),
        ("absence", |node| node.lose(0), |node| node.device(0).condition = Condition::Working),
        ("driver", |node| node.inventory.nvml = lost(), |node| node.inventory.nvml = ready()),
        (
            "counter",
            |node| node.device(0).health.uncorrected_errors = Some(2),
            |node| node.device(0).health.uncorrected_errors = Some(0),
        ),
    ];
    for (how, before, after) in seen_by {
        let mut node = Node::new();
        node.device(0).health.uncorrected_errors = Some(1);
        node.read(5, &[]);
        node.read(10, &[xid(0, 95)]);
        before(&mut node);
        node.read(20, &[]);
        after(&mut node);
        node.read(200, &[]);
        assert!(!node.is_fit(&whole(0)), "{how}");
        assert_eq!(node.settle(), Duration::from_secs(260), "{how}");
        assert_eq!(node.fit(), [true; 3], "{how}");
    }
}

#[test]
fn recovery_without_reset_takes_longer() {
    for (recovery, wait) in [(Some(RecoveryAction::None), 300), (None, 1800)] {
        let mut node = Node::new();
        node.device(0).health.recovery_action = recovery;
        node.read(10, &[xid(0, 119)]);
        node.read(400, &[xid(1, 13)]);
        let is_over = wait == 300;
        assert_eq!(node.is_fit(&whole(0)), is_over);
        if !is_over {
            assert_eq!(node.settle(), Duration::from_secs(10 + wait));
        }
        assert_eq!(node.fit(), [true; 3]);
    }
}

#[test]
fn unhealthy_reason_contains_recovery_condition() {
    let mut node = Node::new();
    node.read(10, &[xid(0, 79)]);
    assert_eq!(
        node.reason(&whole(0)),
        "it reported Xid 79 (the GPU has fallen off the bus); it becomes healthy 60 s after a restart of the machine, or after 30 min without another such error"
    );
    node.lose(0);
    node.read(11, &[]);
    assert_eq!(
        node.reason(&whole(0)),
        "the driver cannot read it: GPU is lost (15); it becomes healthy after it has responded for 60 s"
    );
    let mut node = Node::new();
    node.recovery(1, RecoveryAction::DrainAndReset);
    node.read(1, &[]);
    assert_eq!(
        node.reason(&whole(1)),
        "the driver requests a drain and a reset; it becomes healthy 60 s after the driver no longer reports this"
    );
}

#[test]
fn pending_or_failed_row_remapping_is_unhealthy() {
    let rows = |pending, failed| Some(RemappedRows { pending, failed, ..RemappedRows::default() });
    let mut node = Node::new();
    node.device(0).health.remapped_rows = rows(true, false);
    node.device(1).health.remapped_rows = rows(false, true);
    node.device(2).health.remapped_rows = rows(false, false);
    node.read(1, &[]);
    assert_eq!(node.fit(), [false, false, true]);
    node.device(0).health.remapped_rows = rows(false, false);
    node.read(10, &[]);
    assert_eq!(node.settle(), Duration::from_secs(70));
    assert_eq!(node.fit(), [true, false, true]);
}

#[test]
fn new_uncorrected_errors_make_device_unhealthy() {
    let mut node = Node::new();
    node.device(0).health.uncorrected_errors = Some(7);
    node.read(1, &[]);
    assert_eq!(node.fit(), [true; 3]);
    node.device(0).health.uncorrected_errors = Some(8);
    node.read(2, &[]);
    assert_eq!(node.fit(), [false, true, true]);
    assert_eq!(node.settle(), Duration::from_secs(62));
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn error_reported_while_device_is_lost_ends_like_an_earlier_one() {
    for is_late in [false, true] {
        let mut node = Node::new();
        node.lose(1);
        let error = [xid(1, 79)];
        node.read(10, if is_late { &[] } else { &error });
        if is_late {
            node.monitor.record_errors(Duration::from_secs(11), &error);
        }
        node.device(1).condition = Condition::Working;
        node.read(20, &[]);
        assert_eq!(node.settle(), Duration::from_secs(80), "{is_late}");
        assert_eq!(node.fit(), [true; 3], "{is_late}");
    }
}

#[test]
fn lost_gpu_affects_only_itself_and_recovers() {
    let mut node = Node::new();
    node.lose(1);
    node.read(10, &[xid(1, 79)]);
    assert_eq!(node.fit(), [true, false, true]);
    assert_eq!(node.monitor.again(), None, "only the device can change it");
    node.device(1).condition = Condition::Working;
    node.read(1000, &[]);
    assert_eq!(node.settle(), Duration::from_secs(1060));
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn removed_device_is_unhealthy_and_eventually_forgotten() {
    let mut node = Node::new();
    let taken = node.inventory.devices.remove(2);
    node.read(10, &[]);
    assert_eq!(node.fit(), [true, true, false]);
    node.read(10 + 2 * HOUR, &[]);
    assert_eq!(node.monitor.devices.len(), 2);
    assert_eq!(node.fit(), [true, true, false]);
    node.inventory.devices.push(taken);
    node.read(20 + 2 * HOUR, &[]);
    assert_eq!(node.fit(), [true; 3]);
}
