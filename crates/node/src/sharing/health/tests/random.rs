//! Invariants under any sequence of events.

use proptest::prelude::*;

use super::*;

/// An event of one device.
#[derive(Debug, Clone)]
enum DeviceEvent {
    Xid(u64, Option<(u32, Option<u32>)>),
    Works(bool),
    Wish(Option<u32>),
    Rows(bool, bool),
    Errors(Option<u64>),
}

/// An event of the node.
#[derive(Debug, Clone)]
enum Step {
    To(usize, DeviceEvent),
    Nvml(u8),
}

fn mishap() -> impl Strategy<Value = DeviceEvent> {
    let part = proptest::option::of((0_u32..4, proptest::option::of(0_u32..2)));
    let number = prop_oneof![
        proptest::sample::select(vec![13_u64, 48, 63, 74, 79, 94, 95, 119, 154]),
        0_u64..200,
    ];
    prop_oneof![
        3 => (number, part).prop_map(|(number, part)| DeviceEvent::Xid(number, part)),
        1 => any::<bool>().prop_map(DeviceEvent::Works),
        1 => proptest::option::of(0_u32..7).prop_map(DeviceEvent::Wish),
        1 => any::<(bool, bool)>().prop_map(|(pending, failed)| DeviceEvent::Rows(pending, failed)),
        1 => proptest::option::of(0_u64..5).prop_map(DeviceEvent::Errors),
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
    /// Applies one step and reads the devices.
    fn take(&mut self, now: u64, step: &Step) {
        let mut xids = Vec::new();
        match step {
            Step::To(number, mishap) => {
                let device = self.device(*number);
                match mishap {
                    DeviceEvent::Xid(error, part) => xids.push(Xid {
                        gpu_instance: part.map(|(gi, _)| gi),
                        compute_instance: part.and_then(|(_, ci)| ci),
                        ..xid(u8::try_from(*number).unwrap(), *error)
                    }),
                    DeviceEvent::Works(true) => device.condition = Condition::Working,
                    DeviceEvent::Works(false) => self.lose(*number),
                    DeviceEvent::Wish(action) => {
                        device.health.recovery_action = action.map(RecoveryAction::from);
                    }
                    DeviceEvent::Rows(pending, failed) => {
                        device.health.remapped_rows = Some(RemappedRows {
                            pending: *pending,
                            failed: *failed,
                            ..RemappedRows::default()
                        });
                    }
                    DeviceEvent::Errors(count) => device.health.uncorrected_errors = *count,
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
        self.read(now, &xids);
    }

    fn healths(&self, number: u8) -> Vec<Health> {
        let units = [whole(number), part(number, 0, 0), part(number, 1, 1), part(number, 3, 0)];
        units.map(|unit| self.monitor.health(&unit)).to_vec()
    }
}

proptest! {
    #[test]
    fn events_of_one_gpu_affect_no_other(steps in steps(0..3)) {
        let (mut all, mut without) = (Node::new(), Node::new());
        let mut now = 1;
        for (pause, step) in &steps {
            now += pause;
            all.take(now, step);
            match step {
                Step::To(0, _) => without.read(now, &[]),
                Step::To(..) | Step::Nvml(_) => without.take(now, step),
            }
            for number in [1, 2] {
                prop_assert_eq!(all.healths(number), without.healths(number));
            }
        }
    }

    #[test]
    fn all_units_recover_within_bounded_time(steps in steps(0..3)) {
        let mut node = Node::new();
        let mut now = 1;
        for (pause, step) in &steps {
            now += pause;
            node.take(now, step);
            prop_assert!(node.monitor.again().is_none_or(|next| next > Duration::from_secs(now)));
        }
        let healed = Node::new().inventory;
        node.inventory = healed;
        node.read(now, &[]);
        let over = node.settle();
        prop_assert!(over <= Duration::from_secs(now + HOUR), "{:?}", over);
        for number in 0..3 {
            for health in node.healths(number) {
                prop_assert_eq!(health, Health::Healthy);
            }
        }
    }

    #[test]
    fn device_with_fault_is_unhealthy(steps in steps(0..3)) {
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
