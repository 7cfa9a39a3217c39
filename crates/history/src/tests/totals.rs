//! Tests of the totals of types and of the fleet.

use octavo_model::id::TypeName;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{
    DeviceSample, History, Metric, START, SeriesSum, Span, Step, busy, node, partition, record,
    sample,
};

fn of_type(number: u8, value: u32, type_name: &str) -> DeviceSample {
    DeviceSample { type_name: type_name.parse().ok(), ..busy(number, value) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn totals_of_a_day_are_sums_of_devices(
        values in vec(vec([0..100_u32, 0..100_u32, 0..2000_u32, 0..100_u32, 0..100_u32], 3), 4..400),
    ) {
        let mut history = History::new(usize::MAX);
        // Complete minutes: in the totals, a minute counts by its number of samples.
        for (step, values) in (START..).zip(values.iter().take(values.len() / 4 * 4)) {
            let samples = (0..).zip(values).map(|(number, one)| {
                let kind = if number == 1 { "nvidia-l4-24gb" } else { "nvidia-h100-80gb" };
                DeviceSample { type_name: kind.parse().ok(), ..sample(number, one.map(Some)) }
            });
            record(&mut history, step, &[(0, samples.collect())]);
        }
        for step in Span::Day.steps() {
            let window = history.window(Span::Day, *step);
            for metric in Metric::ALL {
                let devices = || history.of_node(&node(0)).iter().map(|(_, series)| series);
                let l4 = |name: Option<&TypeName>| name.is_some_and(|name| name.as_str() == "nvidia-l4-24gb");
                let of_l4 = devices().filter(|series| l4(series.type_name()));
                for (total, expected) in [
                    (history.of_fleet(metric, window), SeriesSum::of(metric, window, devices())),
                    (history.of_types(metric, window, l4), SeriesSum::of(metric, window, of_l4)),
                ] {
                    prop_assert_eq!(&total.devices, &expected.devices);
                    for (total, expected) in total.values.into_iter().zip(expected.values) {
                        prop_assert_eq!(total.is_some(), expected.is_some());
                        let (total, expected) = (total.unwrap_or(0), expected.unwrap_or(0));
                        // The mean of a device is rounded before the sum, and after it.
                        let tolerance = if metric == Metric::Power { 20 } else { 1 };
                        prop_assert!(total.abs_diff(expected) <= tolerance, "{} {} {}", metric, total, expected);
                    }
                }
            }
        }
    }
}

#[test]
fn device_counts_for_the_type_that_it_had() {
    let mut history = History::new(1 << 20);
    let (before, after) = ("nvidia-a100-40gb", "nvidia-h100-80gb");
    record(&mut history, START, &[(0, vec![of_type(0, 40, before), of_type(1, 20, "")])]);
    record(
        &mut history,
        START + 1,
        &[(0, vec![of_type(0, 60, after), partition(0, "MIG-1".to_owned())])],
    );
    let window = history.window(Span::Hour, Step::Sample);
    let values = |accepts: &dyn Fn(Option<&TypeName>) -> bool| {
        let points = history.of_types(Metric::Utilization, window, accepts);
        points.values[points.values.len() - 2..].to_vec()
    };
    let named = |wanted: &'static str| {
        move |name: Option<&TypeName>| name.is_some_and(|name| name.as_str() == wanted)
    };
    assert_eq!(values(&named(before)), [Some(40), None]);
    assert_eq!(values(&named(after)), [None, Some(60)]);
    assert_eq!(values(&|name| name.is_none()), [Some(20), None]);
    let fleet = history.of_fleet(Metric::Power, window);
    // The power of 30 and 60 W has steps of 8 W.
    assert_eq!(fleet.values[238..], [Some(64), Some(64)]);
    assert_eq!(fleet.devices[238..], [2, 1]);
    let types: Vec<Option<&str>> = history.types().map(|name| name.map(TypeName::as_str)).collect();
    assert_eq!(types, [None, Some(before), Some(after)]);
    assert!(history.has_all_types(history.window(Span::Hour, Step::Sample)));
    // Types disappear from the totals after a day, like their devices.
    for minute in [24 * 60, 26 * 60] {
        record(&mut history, START + minute * 4, &[(0, vec![of_type(0, 60, after)])]);
    }
    assert_eq!(history.types().count(), 1);
}

#[test]
fn totals_are_limited_in_types_and_memory() {
    let types = |count: u8, step: u32| -> Vec<DeviceSample> {
        let value = |number: u8| (step * 37 + u32::from(number)) % 100;
        (0..count).map(|number| of_type(number, value(number), &format!("type-{number}"))).collect()
    };
    let mut history = History::new(1 << 30);
    let nodes = [(0, types(250, 0)), (1, types(9, 0)), (2, vec![of_type(0, 10, "other")])];
    record(&mut history, START, &nodes);
    assert_eq!(
        (history.types().count(), history.has_all_types(history.window(Span::Hour, Step::Sample))),
        (251, true)
    );
    let more = (0..9).map(|number| of_type(number, 10, &format!("more-{number}"))).collect();
    record(&mut history, START + 1, &[(0, types(250, 0)), (1, more)]);
    assert_eq!(
        (history.types().count(), history.has_all_types(history.window(Span::Hour, Step::Sample))),
        (256, false)
    );
    // With little memory, the first types stay.
    let mut history = History::new(400_000);
    for step in START..START + 600 {
        record(&mut history, step, &[(0, types(if step == START { 2 } else { 40 }, step))]);
        assert!(history.totals_bytes() <= 50_000);
    }
    let names: Vec<&str> = history.types().flatten().map(TypeName::as_str).collect();
    assert!(names.contains(&"type-0") && names.contains(&"type-1"), "{names:?}");
    assert!(names.len() < 40 && !history.has_all_types(history.window(Span::Hour, Step::Sample)));
    let window = history.window(Span::Hour, Step::Sample);
    assert_eq!(history.of_fleet(Metric::Utilization, window).devices[239], 40);
}
