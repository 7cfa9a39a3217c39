//! What devices report and show, and what becomes of their units.

use proptest::prelude::*;

use super::*;
use crate::domain::inventory::tests_support::gpu;
use crate::domain::inventory::{Condition, Device, Driver, Machine, RecoveryAction, RemappedRows};
use crate::domain::sharing::offer::Partition;

const HOUR: u64 = 3600;

fn pci(number: u8) -> PciAddress {
    PciAddress::new(0, number, 0, 0).unwrap()
}

fn ready() -> NvmlState {
    NvmlState::Ready(Driver {
        version: "580.95.05".parse().unwrap(),
        cuda: None,
    })
}

fn stalled() -> NvmlState {
    NvmlState::Stalled {
        call: "nvmlDeviceGetMigMode".to_owned(),
        driver: None,
    }
}

fn lost() -> NvmlState {
    NvmlState::Lost {
        reason: "gone".to_owned(),
    }
}

type Change = fn(&mut Node);

/// Three devices that work, and a monitor of them.
struct Node {
    inventory: Inventory,
    monitor: Monitor,
}

impl Node {
    fn new() -> Self {
        let device = |number| Device {
            pci: pci(number),
            ..gpu()
        };
        let mut node = Self {
            inventory: Inventory {
                machine: Machine::default(),
                nvml: ready(),
                devices: [0, 1, 2].map(device).to_vec(),
            },
            monitor: Monitor::default(),
        };
        node.look(0, &[]);
        node
    }

    fn look(&mut self, now: u64, xids: &[Xid]) {
        self.monitor
            .see(Duration::from_secs(now), &self.inventory, xids);
    }

    fn device(&mut self, number: usize) -> &mut Device {
        &mut self.inventory.devices[number]
    }

    fn lose(&mut self, number: usize) {
        self.device(number).condition = Condition::Failing {
            reason: "GPU is lost (15)".to_owned(),
        };
    }

    fn wish(&mut self, number: usize, action: RecoveryAction) {
        self.device(number).health.recovery_action = Some(action);
    }

    fn is_fit(&self, unit: &Unit) -> bool {
        self.monitor.health(unit).is_healthy()
    }

    /// Which of the three whole devices are fit.
    fn fit(&self) -> [bool; 3] {
        [0, 1, 2].map(|number| self.is_fit(&whole(number)))
    }

    fn reason(&self, unit: &Unit) -> String {
        match self.monitor.health(unit) {
            Health::Unhealthy { reason } => reason,
            Health::Healthy => panic!("{unit:?} is fit"),
        }
    }

    /// Looks whenever something is due, until nothing is, and tells when that was.
    fn settle(&mut self) -> Duration {
        let mut now = Duration::ZERO;
        for _ in 0..10_000 {
            let Some(next) = self.monitor.again() else {
                return now;
            };
            assert!(next > now, "again at {next:?}, which is not after {now:?}");
            now = next;
            self.monitor.see(now, &self.inventory, &[]);
        }
        panic!("it never settles");
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
    let partition = Partition {
        gpu_instance,
        compute_instance,
        profile: "1g.10gb".parse().unwrap(),
    };
    Unit {
        uuid: format!("MIG-{number}-{gpu_instance}-{compute_instance}"),
        partition: Some(partition),
        ..whole(number)
    }
}

fn xid(device: u8, number: u64) -> Xid {
    Xid {
        pci: pci(device),
        gpu_instance: None,
        compute_instance: None,
        number,
    }
}

fn confined(device: u8, number: u64, gi: u32, ci: Option<u32>) -> Xid {
    Xid {
        gpu_instance: Some(gi),
        compute_instance: ci,
        ..xid(device, number)
    }
}

#[test]
fn a_fault_of_a_program_is_none_of_the_device() {
    let mut node = Node::new();
    let harmless = [13, 31, 43, 45, 68, 109, 63, 154];
    node.look(1, &harmless.map(|number| xid(0, number)));
    assert_eq!(node.fit(), [true; 3]);
    assert_eq!(node.monitor.again(), None);
}

#[test]
fn what_concerns_a_whole_gpu_concerns_all_its_units_and_no_others() {
    let mut node = Node::new();
    node.look(1, &[xid(1, 95)]);
    let replicas = Unit {
        replicas: Some(4),
        ..whole(1)
    };
    for unit in [whole(1), replicas, part(1, 3, 0), part(1, 7, 1)] {
        assert!(!node.is_fit(&unit), "{unit:?}");
    }
    for unit in [whole(0), whole(2), part(0, 3, 0), part(2, 7, 1)] {
        assert!(node.is_fit(&unit), "{unit:?}");
    }
}

#[test]
fn what_is_confined_to_an_instance_concerns_only_what_is_in_it() {
    let mut node = Node::new();
    node.look(1, &[confined(1, 94, 3, None), confined(1, 94, 5, Some(1))]);
    for unit in [part(1, 3, 0), part(1, 3, 1), part(1, 5, 1)] {
        assert!(!node.is_fit(&unit), "{unit:?}");
    }
    for unit in [part(1, 5, 0), part(1, 4, 1), part(0, 3, 0)] {
        assert!(node.is_fit(&unit), "{unit:?}");
    }
}

#[test]
fn a_passing_error_is_over_after_a_quiet_minute_and_a_look_that_answers() {
    let mut node = Node::new();
    node.look(10, &[xid(0, 94)]);
    node.look(40, &[xid(0, 94)]);
    assert_eq!(
        node.reason(&whole(0)),
        "it reported Xid 94, a memory error that one program had; it is fit after 60 s without another"
    );
    assert_eq!(node.monitor.again(), Some(Duration::from_secs(100)));
    node.look(99, &[]);
    assert_eq!(node.fit(), [false, true, true]);
    node.look(100, &[]);
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn a_number_that_nobody_knows_is_one_to_be_watched() {
    let mut node = Node::new();
    node.look(10, &[xid(0, 999)]);
    assert!(
        node.reason(&whole(0))
            .contains("Xid 999, which nobody knows")
    );
    node.look(70, &[]);
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn a_reset_that_was_seen_brings_the_device_back_after_a_minute() {
    let seen_by: [(&str, Change, Change); 4] = [
        (
            "recovery action",
            |node| node.wish(0, RecoveryAction::ResetGpu),
            |node| node.wish(0, RecoveryAction::None),
        ),
        (
            "absence",
            |node| node.lose(0),
            |node| node.device(0).condition = Condition::Working,
        ),
        (
            "driver",
            |node| node.inventory.nvml = lost(),
            |node| node.inventory.nvml = ready(),
        ),
        (
            "counter",
            |node| node.device(0).health.uncorrected_errors = Some(2),
            |node| node.device(0).health.uncorrected_errors = Some(0),
        ),
    ];
    for (how, before, after) in seen_by {
        let mut node = Node::new();
        node.device(0).health.uncorrected_errors = Some(1);
        node.look(5, &[]);
        node.look(10, &[xid(0, 95)]);
        before(&mut node);
        node.look(20, &[]);
        after(&mut node);
        node.look(200, &[]);
        assert!(!node.is_fit(&whole(0)), "{how}");
        assert_eq!(node.settle(), Duration::from_secs(260), "{how}");
        assert_eq!(node.fit(), [true; 3], "{how}");
    }
}

#[test]
fn without_a_reset_it_takes_longer_and_longest_where_the_driver_wants_nothing_told() {
    for (wish, wait) in [(Some(RecoveryAction::None), 300), (None, 1800)] {
        let mut node = Node::new();
        node.device(0).health.recovery_action = wish;
        node.look(10, &[xid(0, 119)]);
        node.look(400, &[xid(1, 13)]);
        let is_over = wait == 300;
        assert_eq!(node.is_fit(&whole(0)), is_over);
        if !is_over {
            assert_eq!(node.settle(), Duration::from_secs(10 + wait));
        }
        assert_eq!(node.fit(), [true; 3]);
    }
}

#[test]
fn the_way_back_is_told() {
    let mut node = Node::new();
    node.look(10, &[xid(0, 79)]);
    assert_eq!(
        node.reason(&whole(0)),
        "it reported Xid 79, it has fallen off the bus; it is fit 60 s after the machine was restarted, or after 30 min without another"
    );
    node.lose(0);
    node.look(11, &[]);
    assert_eq!(
        node.reason(&whole(0)),
        "the driver cannot read it: GPU is lost (15); it is fit after it has answered for 60 s"
    );
    let mut node = Node::new();
    node.wish(1, RecoveryAction::DrainAndReset);
    node.look(1, &[]);
    assert_eq!(
        node.reason(&whole(1)),
        "the driver wants it to be drained and reset; it is fit 60 s after the driver says otherwise"
    );
}

#[test]
fn rows_that_wait_for_a_reset_or_could_not_be_remapped_keep_work_away() {
    let rows = |pending, failed| {
        Some(RemappedRows {
            pending,
            failed,
            ..RemappedRows::default()
        })
    };
    let mut node = Node::new();
    node.device(0).health.remapped_rows = rows(true, false);
    node.device(1).health.remapped_rows = rows(false, true);
    node.device(2).health.remapped_rows = rows(false, false);
    node.look(1, &[]);
    assert_eq!(node.fit(), [false, false, true]);
    node.device(0).health.remapped_rows = rows(false, false);
    node.look(10, &[]);
    assert_eq!(node.settle(), Duration::from_secs(70));
    assert_eq!(node.fit(), [true, false, true]);
}

#[test]
fn memory_errors_that_grow_keep_work_away_and_old_ones_do_not() {
    let mut node = Node::new();
    node.device(0).health.uncorrected_errors = Some(7);
    node.look(1, &[]);
    assert_eq!(node.fit(), [true; 3]);
    node.device(0).health.uncorrected_errors = Some(8);
    node.look(2, &[]);
    assert_eq!(node.fit(), [false, true, true]);
    assert_eq!(node.settle(), Duration::from_secs(62));
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn a_lost_gpu_is_lost_alone_and_comes_back() {
    let mut node = Node::new();
    node.lose(1);
    node.look(10, &[xid(1, 79)]);
    assert_eq!(node.fit(), [true, false, true]);
    assert_eq!(node.monitor.again(), None, "only the device can change it");
    node.device(1).condition = Condition::Working;
    node.look(1000, &[]);
    assert_eq!(node.settle(), Duration::from_secs(1060));
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn a_device_that_is_taken_out_is_not_fit_and_is_forgotten_in_the_end() {
    let mut node = Node::new();
    let taken = node.inventory.devices.remove(2);
    node.look(10, &[]);
    assert_eq!(node.fit(), [true, true, false]);
    node.look(10 + 2 * HOUR, &[]);
    assert_eq!(node.monitor.patients.len(), 2);
    assert_eq!(node.fit(), [true, true, false]);
    node.inventory.devices.push(taken);
    node.look(20 + 2 * HOUR, &[]);
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn a_driver_that_hangs_changes_nothing_for_two_minutes() {
    let mut node = Node::new();
    node.lose(0);
    node.look(5, &[]);
    node.inventory.nvml = stalled();
    node.look(10, &[]);
    assert_eq!(node.fit(), [false, true, true]);
    assert_eq!(node.monitor.again(), Some(Duration::from_secs(130)));
    node.look(129, &[]);
    assert_eq!(node.fit(), [false, true, true]);
    node.look(130, &[]);
    assert_eq!(node.fit(), [false; 3]);
    assert_eq!(
        node.reason(&whole(2)),
        "NVML does not answer: nvmlDeviceGetMigMode does not return; it is fit 10 s after NVML answers"
    );
    assert_eq!(node.monitor.again(), None);
    node.inventory.nvml = ready();
    node.look(500, &[]);
    node.look(510, &[]);
    assert_eq!(node.fit(), [false, true, true]);
}

#[test]
fn what_hangs_and_answers_in_time_was_never_unfit() {
    let mut node = Node::new();
    for round in 0..10 {
        node.inventory.nvml = stalled();
        node.look(round * 200 + 10, &[]);
        node.look(round * 200 + 110, &[]);
        assert_eq!(node.fit(), [true; 3]);
        node.inventory.nvml = ready();
        node.look(round * 200 + 150, &[]);
        assert_eq!(node.fit(), [true; 3]);
    }
}

#[test]
fn nothing_ends_while_the_driver_says_nothing() {
    let mut node = Node::new();
    node.look(10, &[xid(0, 94)]);
    node.inventory.nvml = stalled();
    node.look(11, &[]);
    node.look(100, &[]);
    assert_eq!(node.fit(), [false, true, true]);
}

#[test]
fn without_a_driver_nothing_is_fit_and_soon_after_it_came_all_is() {
    let mut node = Node::new();
    node.inventory.nvml = lost();
    node.look(10, &[]);
    assert_eq!(node.fit(), [false; 3]);
    node.inventory.nvml = ready();
    node.look(100, &[]);
    assert_eq!(node.settle(), Duration::from_secs(110));
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn who_comes_and_goes_waits_twice_as_long_each_time_but_an_hour_at_most() {
    let mut node = Node::new();
    let mut now = 10;
    let mut waits = Vec::new();
    for _ in 0..9 {
        node.look(now, &[xid(0, 94)]);
        let over = node.settle().as_secs();
        assert!(node.is_fit(&whole(0)));
        waits.push(over - now);
        now = over + 30;
    }
    assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
    now += 2 * HOUR;
    node.look(now, &[xid(0, 94)]);
    assert_eq!(node.settle().as_secs() - now, 60, "that is forgotten");
}

#[test]
fn a_storm_is_one_trouble() {
    let mut node = Node::new();
    let storm: Vec<Xid> = (0..10_000_u32)
        .map(|number| confined(0, number.into(), number, Some(number % 7)))
        .collect();
    node.look(10, &storm);
    let kept = |node: &Node| {
        node.monitor
            .patients
            .values()
            .map(Patient::len)
            .sum::<usize>()
    };
    assert!(kept(&node) <= 80, "{}", kept(&node));
    assert_eq!(node.fit(), [false, true, true]);
    node.settle();
    assert_eq!(node.fit(), [true; 3]);
}

#[test]
fn what_an_administrator_leaves_out_is_not_looked_at() {
    let mut node = Node::new();
    node.monitor = Monitor::new(Table::default().without([95]));
    node.look(1, &[xid(0, 95)]);
    assert_eq!(node.fit(), [true; 3]);
    node.look(2, &[xid(0, 48)]);
    assert_eq!(node.fit(), [false, true, true]);
}

/// Something that happens to a device.
#[derive(Debug, Clone)]
enum Mishap {
    Xid(u64, Option<(u32, Option<u32>)>),
    Works(bool),
    Wish(Option<u32>),
    Rows(bool, bool),
    Errors(Option<u64>),
}

/// Something that happens to all of them.
#[derive(Debug, Clone)]
enum Step {
    To(usize, Mishap),
    Nvml(u8),
}

fn mishap() -> impl Strategy<Value = Mishap> {
    let part = proptest::option::of((0_u32..4, proptest::option::of(0_u32..2)));
    let number = prop_oneof![
        proptest::sample::select(vec![13_u64, 48, 63, 74, 79, 94, 95, 119, 154]),
        0_u64..200,
    ];
    prop_oneof![
        3 => (number, part).prop_map(|(number, part)| Mishap::Xid(number, part)),
        1 => any::<bool>().prop_map(Mishap::Works),
        1 => proptest::option::of(0_u32..7).prop_map(Mishap::Wish),
        1 => any::<(bool, bool)>().prop_map(|(pending, failed)| Mishap::Rows(pending, failed)),
        1 => proptest::option::of(0_u64..5).prop_map(Mishap::Errors),
    ]
}

fn steps(devices: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        8 => (devices, mishap()).prop_map(|(device, mishap)| Step::To(device, mishap)),
        1 => (0_u8..4).prop_map(Step::Nvml),
    ];
    let pause = prop_oneof![0_u64..30, 0_u64..4000];
    proptest::collection::vec((pause, step), 0..60)
}

impl Node {
    /// One step and a look.
    fn take(&mut self, now: u64, step: &Step) {
        let mut xids = Vec::new();
        match step {
            Step::To(number, mishap) => {
                let device = self.device(*number);
                match mishap {
                    Mishap::Xid(error, part) => xids.push(Xid {
                        gpu_instance: part.map(|(gi, _)| gi),
                        compute_instance: part.and_then(|(_, ci)| ci),
                        ..xid(u8::try_from(*number).unwrap(), *error)
                    }),
                    Mishap::Works(true) => device.condition = Condition::Working,
                    Mishap::Works(false) => self.lose(*number),
                    Mishap::Wish(action) => {
                        device.health.recovery_action = action.map(|action| match action {
                            0 => RecoveryAction::None,
                            1 => RecoveryAction::ResetGpu,
                            2 => RecoveryAction::RebootNode,
                            3 => RecoveryAction::DrainP2p,
                            4 => RecoveryAction::DrainAndReset,
                            other => RecoveryAction::Other(other),
                        });
                    }
                    Mishap::Rows(pending, failed) => {
                        device.health.remapped_rows = Some(RemappedRows {
                            pending: *pending,
                            failed: *failed,
                            ..RemappedRows::default()
                        });
                    }
                    Mishap::Errors(count) => device.health.uncorrected_errors = *count,
                }
            }
            Step::Nvml(state) => {
                self.inventory.nvml = match state {
                    0 => ready(),
                    1 => stalled(),
                    2 => lost(),
                    _ => NvmlState::Loading,
                }
            }
        }
        self.look(now, &xids);
    }

    fn healths(&self, number: u8) -> Vec<Health> {
        let units = [
            whole(number),
            part(number, 0, 0),
            part(number, 1, 1),
            part(number, 3, 0),
        ];
        units.map(|unit| self.monitor.health(&unit)).to_vec()
    }
}

proptest! {
    #[test]
    fn what_happens_to_one_gpu_concerns_no_other(steps in steps(0..3)) {
        let (mut all, mut without) = (Node::new(), Node::new());
        let mut now = 1;
        for (pause, step) in &steps {
            now += pause;
            all.take(now, step);
            match step {
                Step::To(0, _) => without.look(now, &[]),
                Step::To(..) | Step::Nvml(_) => without.take(now, step),
            }
            for number in [1, 2] {
                prop_assert_eq!(all.healths(number), without.healths(number));
            }
        }
    }

    #[test]
    fn when_the_faults_are_gone_all_is_fit_within_a_bounded_time(steps in steps(0..3)) {
        let mut node = Node::new();
        let mut now = 1;
        for (pause, step) in &steps {
            now += pause;
            node.take(now, step);
            prop_assert!(node.monitor.again().is_none_or(|next| next > Duration::from_secs(now)));
        }
        let healed = Node::new().inventory;
        node.inventory = healed;
        node.look(now, &[]);
        let over = node.settle();
        prop_assert!(over <= Duration::from_secs(now + HOUR), "{:?}", over);
        for number in 0..3 {
            for health in node.healths(number) {
                prop_assert_eq!(health, Health::Healthy);
            }
        }
    }

    #[test]
    fn a_device_that_shows_a_fault_is_not_fit(steps in steps(0..3)) {
        let mut node = Node::new();
        let mut now = 1;
        for (pause, step) in &steps {
            now += pause;
            node.take(now, step);
            let is_ready = matches!(node.inventory.nvml, NvmlState::Ready(_));
            for (number, device) in (0..).zip(&node.inventory.devices) {
                let is_failing = device.condition != Condition::Working;
                let wants = device.health.recovery_action;
                let wants = !matches!(wants, None | Some(RecoveryAction::None));
                if is_ready && (is_failing || wants) {
                    prop_assert!(node.healths(number).iter().all(|one| !one.is_healthy()));
                }
            }
        }
    }
}
