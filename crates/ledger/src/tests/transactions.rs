//! Transactions of waiting intervals, and usage that is too old to be written.

use std::sync::Arc;

use crate::transactions::divide;
use crate::{
    Container, Device, DeviceState, Holder, Interval, MAX_PAST_SECONDS, MeasuredPart, PPM, Part,
    Recorder, Utilization, transactions,
};

const START: i64 = 1_799_971_200;

/// The only device of a node. Its halves have different holders, and that of the second one changes with `round`.
fn state(node: usize, round: i64) -> DeviceState {
    let node = format!("node-{node}").parse().unwrap();
    let device = Device { node, id: "GPU-0".to_owned(), price_key: None };
    let parts = [0, round + 1].map(|holder| {
        let container = Container { uid: format!("uid-{holder}"), ..Container::default() };
        let holder = Holder::Container(Arc::new(container));
        MeasuredPart::new(Part { ppm: PPM / 2, ..Part::whole(holder) }, Some(50))
    });
    DeviceState { device, parts: Vec::from(parts) }
}

fn observe(recorder: &mut Recorder, at: i64, state: DeviceState) {
    let node = state.device.node.clone();
    recorder.observe(&node, at, 60, vec![state]);
}

fn ppm_seconds(intervals: &[Interval]) -> i64 {
    intervals.iter().map(|one| i64::from(one.part.ppm) * one.seconds()).sum()
}

#[test]
fn transactions_of_a_backlog_end_between_devices() {
    let mut recorder = Recorder::default();
    for node in 0..500 {
        // One interval of the first half, and 49 of the second one.
        for round in 0..50 {
            observe(&mut recorder, START + round * 60, state(node, round));
        }
    }
    let changed = recorder.take_changed();
    assert_eq!(changed.len(), 25_000);
    let sizes = |parts: &[&[Interval]]| parts.iter().map(|part| part.len()).collect::<Vec<_>>();
    let parts = transactions(&changed);
    assert_eq!(sizes(&parts), [10_000, 10_000, 5_000]);
    assert_eq!(parts.concat(), changed);
    assert_eq!(sizes(&divide(&changed, 10_030)), [10_000, 10_000, 5_000]);
    // A device with too many intervals is divided nevertheless.
    assert_eq!(sizes(&divide(&changed[..50], 30)), [30, 20]);
    assert_eq!(sizes(&transactions(&[])), [0]);
}

#[test]
fn transactions_of_a_device_end_when_all_its_parts_end() {
    let mut recorder = Recorder::default();
    for round in 0..50 {
        // After a day that no report covers, the device is accounted for as if it were new.
        observe(&mut recorder, START + round * 200_000, state(0, 0));
        observe(&mut recorder, START + round * 200_000 + 60, state(0, 0));
    }
    let changed = recorder.take_changed();
    assert_eq!(changed.len(), 100);
    let parts = divide(&changed, 33);
    assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [32, 32, 32, 4]);
}

#[test]
fn usage_that_is_too_old_is_discarded_when_the_recorder_resumes() {
    let mut recorder = Recorder::default();
    let later = START + MAX_PAST_SECONDS + 86_400;
    for at in [START, START + 60, later, later + 60] {
        observe(&mut recorder, at, state(0, 0));
    }
    assert_eq!(recorder.changed_count(), 4);
    assert_eq!(recorder.resume([], later + 60 - MAX_PAST_SECONDS), 2);
    let rest = recorder.take_changed();
    assert!(rest.iter().all(|one| one.start == later), "{rest:?}");
    assert_eq!(ppm_seconds(&rest), 60 * i64::from(PPM));
}

#[test]
fn usage_that_is_partly_too_old_continues_without_counting_a_second_twice() {
    let mut recorder = Recorder::default();
    for at in [START, START + 60] {
        observe(&mut recorder, at, state(0, 0));
    }
    assert_eq!(recorder.resume([], START + 20), 0);
    observe(&mut recorder, START + 120, state(0, 0));
    let changed = recorder.take_changed();
    assert!(changed.iter().all(|one| one.start >= START + 20), "{changed:?}");
    assert_eq!(ppm_seconds(&changed), 100 * i64::from(PPM));
    let clipped: Vec<_> = changed.iter().filter(|one| one.start == START + 20).collect();
    assert_eq!(clipped.len(), 2);
    assert!(clipped.iter().all(|one| one.utilization == Utilization::default()));
}
