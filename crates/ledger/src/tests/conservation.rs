//! Conservation: every second of a device is accounted for exactly once, whatever happens to reports, clocks and writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_model::id::NodeName;
use proptest::prelude::*;

use crate::parts::split;
use crate::{
    Activity, Container, Device, DeviceState, Holder, Interval, IntervalKey, MAX_PAST_SECONDS,
    MeasuredPart, Method, PPM, Part, Recorder,
};

/// Seconds without a report that are not a gap.
const MAX_SILENCE: i64 = 60;

/// Event in the life of a node and its ledger.
#[derive(Debug, Clone)]
enum Event {
    /// Time passes, and the agent reports.
    Report(i64),
    /// The allocations of a device change.
    Change(usize, Vec<(u8, u64)>),
    /// A device disappears or appears.
    Toggle(usize),
    /// Time passes, and the agent cannot report what it observes.
    Unreported(i64),
    /// The clock is set.
    Jump(i64),
    /// The agent sends its last report once more.
    Duplicate,
    /// The intervals are written.
    Write,
    /// A write fails.
    FailedWrite,
    /// The aggregator is killed and started again.
    Kill,
    /// Another aggregator opens the ledger. After each of these times, the agent reports to it, or to this one, which cannot write. Then
    /// this one takes over.
    OtherWriter(Vec<(i64, bool)>),
    /// The recorder forgets devices for which no usage can arrive.
    Forget,
}

fn event() -> impl Strategy<Value = Event> {
    let weights = prop::collection::vec((0_u8..5, 0_u64..4), 1..5);
    prop_oneof![
        6 => (0_i64..50).prop_map(Event::Report),
        2 => (60_i64..40_000).prop_map(Event::Report),
        1 => (80_000_i64..200_000).prop_map(Event::Report),
        5 => (0_usize..3, weights).prop_map(|(device, parts)| Event::Change(device, parts)),
        1 => (0_usize..3).prop_map(Event::Toggle),
        3 => (0_i64..40_000).prop_map(Event::Unreported),
        1 => (-5_000_i64..5_000).prop_map(Event::Jump),
        1 => Just(Event::Duplicate),
        4 => Just(Event::Write),
        1 => Just(Event::FailedWrite),
        2 => Just(Event::Kill),
        2 => prop::collection::vec((0_i64..2_000, any::<bool>()), 0..6).prop_map(Event::OtherWriter),
        1 => Just(Event::Forget),
    ]
}

fn node() -> NodeName {
    "node-a".parse().unwrap()
}

fn state(number: usize, holders: &[(u8, u64)]) -> DeviceState {
    let device = Device { node: node(), id: format!("GPU-{number}"), price_key: None };
    let mut weights: BTreeMap<u8, u64> = BTreeMap::new();
    for (holder, weight) in holders {
        *weights.entry(*holder).or_default() += weight;
    }
    let shares = split(PPM, &weights.values().copied().collect::<Vec<_>>());
    let parts = weights.keys().zip(shares).filter(|(_, ppm)| *ppm > 0).map(|(holder, ppm)| {
        let uid = format!("uid-{holder}");
        let holder = match holder {
            0 => Holder::Unallocated,
            _ => Holder::Container(Arc::new(Container { uid, ..Container::default() })),
        };
        let method = Method::TimeSlicingReplicas;
        let part = Part { method, activity: Activity::Idle, ppm, ..Part::whole(holder) };
        MeasuredPart::new(part, Some(50))
    });
    DeviceState { device, parts: parts.collect() }
}

/// A node with its real state, and the ledger with what is written.
struct World {
    now: i64,
    devices: BTreeMap<usize, DeviceState>,
    absent: BTreeMap<usize, DeviceState>,
    past: Vec<(i64, Vec<DeviceState>)>,
    recorder: Recorder,
    written: BTreeMap<IntervalKey, Interval>,
}

impl World {
    fn new() -> Self {
        Self {
            now: 1_800_000_000,
            devices: (0..3).map(|number| (number, state(number, &[(0, 1)]))).collect(),
            absent: BTreeMap::new(),
            past: Vec::new(),
            recorder: Recorder::default(),
            written: BTreeMap::new(),
        }
    }

    fn report(&mut self) {
        let devices = self.devices.values().cloned().collect();
        // An agent also reports a part of what it has reported before.
        let recent = self.now - 20_000;
        let mut history = self.past.clone();
        self.past.retain(|(at, _)| *at >= recent);
        self.past.push((self.now, self.devices.values().cloned().collect()));
        history.push((self.now, devices));
        self.recorder.observe_history(&node(), MAX_SILENCE, history);
    }

    fn write(&mut self) {
        for interval in self.recorder.take_changed() {
            self.written.insert(interval.key(), interval);
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Report(seconds) => {
                self.now += seconds;
                self.report();
            }
            Event::Change(device, holders) => {
                if let Some(known) = self.devices.get_mut(&device) {
                    *known = state(device, &holders);
                }
            }
            Event::Toggle(device) => match self.devices.remove(&device) {
                Some(state) => drop(self.absent.insert(device, state)),
                None => self.devices.extend(self.absent.remove(&device).map(|one| (device, one))),
            },
            Event::Unreported(seconds) => {
                self.now += seconds;
                self.past.push((self.now, self.devices.values().cloned().collect()));
            }
            Event::Jump(seconds) => self.now += seconds,
            Event::Duplicate => self.report(),
            Event::Write => self.write(),
            Event::FailedWrite => {
                let taken = self.recorder.take_changed();
                self.report();
                self.recorder.put_back(taken);
            }
            Event::Forget => self.recorder.forget(self.now - MAX_PAST_SECONDS),
            Event::OtherWriter(reports) => {
                let mut other = Recorder::recover(self.written.values().cloned());
                for (seconds, is_to_other) in reports {
                    self.now += seconds;
                    if is_to_other {
                        std::mem::swap(&mut self.recorder, &mut other);
                        self.report();
                        self.write();
                        std::mem::swap(&mut self.recorder, &mut other);
                    } else {
                        self.report();
                    }
                }
                let since = self.now - MAX_PAST_SECONDS;
                self.recorder.resume(self.written.values().cloned(), since);
            }
            Event::Kill => {
                // More than the last ones of each device, in any order, must not matter.
                let written = self.written.values().rev().cloned();
                self.recorder = Recorder::recover(written);
            }
        }
    }
}

/// Checks that the intervals of each device cover contiguous or separate times, with whole shares at every second.
fn check(written: &BTreeMap<IntervalKey, Interval>) -> Result<i64, TestCaseError> {
    let mut by_device: BTreeMap<&str, Vec<&Interval>> = BTreeMap::new();
    for interval in written.values() {
        prop_assert!(interval.seconds() > 0, "empty: {interval:?}");
        prop_assert!(interval.end <= interval.day().end(), "longer than its day: {interval:?}");
        let measured = interval.utilization;
        prop_assert!(measured.seconds <= interval.seconds());
        prop_assert!(measured.percent_seconds <= measured.seconds * 100);
        by_device.entry(&interval.device.id).or_default().push(interval);
    }
    let mut accounted = 0;
    for intervals in by_device.values() {
        let mut changes: BTreeMap<i64, i64> = BTreeMap::new();
        for interval in intervals {
            *changes.entry(interval.start).or_default() += i64::from(interval.part.ppm);
            *changes.entry(interval.end).or_default() -= i64::from(interval.part.ppm);
        }
        let (mut share, mut since) = (0, 0);
        for (at, change) in changes {
            prop_assert!(share == 0 || share == i64::from(PPM), "{share} ppm until {at}");
            if share > 0 {
                accounted += at - since;
            }
            (share, since) = (share + change, at);
        }
        prop_assert_eq!(share, 0);
    }
    Ok(accounted)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_second_of_a_device_is_accounted_for_once(
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut world = World::new();
        for event in events {
            world.apply(event);
        }
        world.write();
        check(&world.written)?;
    }

    #[test]
    fn all_time_between_first_and_last_report_is_accounted_for(
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut world = World::new();
        let begin = world.now;
        world.report();
        world.apply(Event::Report(1));
        world.write();
        let lasting = |event: &Event| match event {
            Event::Toggle(_) => false,
            Event::Jump(seconds) => *seconds >= 0,
            Event::Report(seconds) => *seconds < 80_000,
            Event::Unreported(_) | Event::Change(..)
            | Event::Duplicate
            | Event::Write
            | Event::FailedWrite
            | Event::Forget
            | Event::OtherWriter(_)
            | Event::Kill => true,
        };
        let mut last = world.now;
        for event in events.into_iter().filter(lasting) {
            // A longer time without a written report is not bridged.
            if world.now - last > 20_000 {
                world.report();
                world.write();
                last = world.now;
            }
            world.apply(event);
        }
        world.report();
        world.write();
        prop_assert_eq!(check(&world.written)?, (world.now - begin) * 3);
    }

    #[test]
    fn what_an_agent_could_not_report_is_accounted_for_to_the_second(
        steps in prop::collection::vec(
            (1_i64..20_000, prop::collection::vec((0_u8..5, 0_u64..4), 1..5), any::<bool>()),
            1..20,
        ),
    ) {
        let mut world = World::new();
        let mut expected: BTreeMap<Holder, i64> = BTreeMap::new();
        let mut past = Vec::new();
        let last = steps.len() - 1;
        world.report();
        for (number, (seconds, holders, is_reported)) in steps.into_iter().enumerate() {
            let devices: Vec<DeviceState> = world.devices.values().cloned().collect();
            past.push((world.now, devices.clone()));
            for MeasuredPart { part, .. } in devices.into_iter().flat_map(|device| device.parts) {
                *expected.entry(part.holder).or_default() += i64::from(part.ppm) * seconds;
            }
            world.now += seconds;
            world.apply(Event::Change(number % 3, holders));
            if is_reported || number == last {
                // The report can arrive more than once, also after a restart.
                for _repetition in 0..2 {
                    world.past.clone_from(&past);
                    world.report();
                    world.write();
                    world.apply(Event::Kill);
                }
                past.clear();
            }
        }
        check(&world.written)?;
        let mut accounted: BTreeMap<Holder, i64> = BTreeMap::new();
        for interval in world.written.values() {
            prop_assert!(!interval.inferred);
            let share = i64::from(interval.part.ppm) * interval.seconds();
            *accounted.entry(interval.part.holder.clone()).or_default() += share;
        }
        expected.retain(|_, share| *share > 0);
        prop_assert_eq!(accounted, expected);
    }

    #[test]
    fn shares_add_up_to_the_whole(total in 0_u32..=PPM, weights in prop::collection::vec(0_u64..2_000_000, 1..60)) {
        let parts = split(total, &weights);
        prop_assert_eq!(parts.len(), weights.len());
        prop_assert_eq!(parts.iter().sum::<u32>(), total);
        let sum: u64 = weights.iter().sum();
        for (part, weight) in parts.iter().zip(&weights).filter(|_| sum > 0) {
            let exact = u64::from(total) * weight / sum;
            prop_assert!((exact..=exact + 1).contains(&u64::from(*part)));
        }
    }
}
