//! Tests of the history: comparison with a model, limits, and samples from usage.

mod totals;

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::{NodeName, PciAddress};
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_model::resource::ShareId;
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Start of an hour, in steps.
const START: u32 = 480_000 * 240;

fn node(number: usize) -> NodeName {
    format!("node-{number}").parse().unwrap()
}

fn key(number: u8) -> SeriesKey {
    SeriesKey { device: PciAddress::new(0, number, 0, 0).unwrap(), partition: None }
}

fn sample(number: u8, values: [Option<u32>; 5]) -> DeviceSample {
    DeviceSample {
        key: key(number),
        type_name: Some("nvidia-h100-80gb".parse().unwrap()),
        memory: Mebibytes::new(1000 * (u64::from(number) + 1)),
        sample: Sample::new(values),
    }
}

fn busy(number: u8, value: u32) -> DeviceSample {
    sample(number, [Some(value); 5])
}

fn record(history: &mut History, step: u32, samples: &[(usize, Vec<DeviceSample>)]) {
    let named: Vec<_> = samples.iter().map(|(number, all)| (node(*number), all)).collect();
    let seconds = u64::from(step) * SAMPLE_SECONDS;
    history.record(seconds, named.iter().map(|(node, all)| (node, all.as_slice())));
}

fn device(history: &History, number: u8, metric: Metric, window: Window) -> Points {
    history.of_device(&node(0), &key(number), metric, window)
}

/// A tick: its distance from the previous one in steps, and the samples of three devices.
type Tick = (i64, Vec<Option<[Option<u32>; 5]>>);

fn ticks() -> impl Strategy<Value = Vec<Tick>> {
    let value = prop_oneof![1 => Just(None), 4 => (0..100_u32).prop_map(Some), 1 => Just(Some(7))];
    let values = vec(value, 5).prop_map(|all| [all[0], all[1], all[2], all[3], all[4]]);
    let device = prop_oneof![1 => Just(None), 3 => values.prop_map(Some)];
    let distance = prop_oneof![
        40 => Just(1_i64), 3 => Just(0), 2 => -300..0_i64, 4 => 2..70_i64, 1 => 70..8000_i64,
    ];
    vec((distance, vec(device, 3)), 1..400)
}

/// Samples by device and step, without any limit.
#[derive(Default)]
struct Model {
    samples: BTreeMap<(u8, u32), [Option<u32>; 5]>,
    last: Option<u32>,
}

impl Model {
    fn record(&mut self, step: u32, devices: &[Option<[Option<u32>; 5]>]) {
        if self.last.is_some_and(|last| step <= last) {
            return;
        }
        for (number, values) in (0..).zip(devices) {
            if let Some(values) = values {
                self.samples.insert((number, step), *values);
            }
        }
        self.last = Some(step);
    }

    /// Stored value of a step or minute, in the metric's unit.
    fn value(&self, number: u8, metric: Metric, span: Span, unit: u32) -> Option<u32> {
        let steps = match span {
            Span::Hour => unit..unit + 1,
            Span::Day => unit * 4..unit * 4 + 4,
        };
        let value = |step| self.samples.get(&(number, step))?[metric as usize];
        let values: Vec<u32> =
            steps.filter_map(value).map(|value| rounded(value, metric.precision())).collect();
        let (sum, count) = (values.iter().sum::<u32>(), u32::try_from(values.len()).unwrap());
        let value = if metric == Metric::Temperature {
            values.into_iter().max()
        } else {
            (sum + count / 2).checked_div(count)
        };
        Some(value? * metric.precision())
    }

    fn points(&self, devices: &[u8], metric: Metric, window: Window) -> Points {
        let (span, unit) = (window.span(), window.start_unit());
        let per_point = u32::try_from(window.units_per_point()).unwrap();
        let mut points = Points::default();
        for point in 0..u32::try_from(window.points()).unwrap() {
            let begin = unit + point * per_point;
            let (mut sum, mut weights, mut used, mut most, mut counts) =
                (0, 0, 0, None, Vec::new());
            for unit in begin..begin + per_point {
                let values = devices.iter().filter_map(|number| {
                    let weight = if metric == Metric::Memory { u64::from(*number) + 1 } else { 1 };
                    Some((u64::from(self.value(*number, metric, span, unit)?), weight))
                });
                let values: Vec<(u64, u64)> = values.collect();
                sum += values.iter().map(|(value, weight)| value * weight).sum::<u64>();
                weights += values.iter().map(|(_, weight)| weight).sum::<u64>();
                used += u64::from(!values.is_empty());
                most = most.max(values.iter().map(|(value, _)| *value).max());
                counts.push(u32::try_from(values.len()).unwrap());
            }
            let by = if metric == Metric::Power { used } else { weights };
            let mean = (sum + by / 2).checked_div(by);
            let value = if metric == Metric::Temperature { most } else { mean };
            points.values.push(value.map(|value| u32::try_from(value).unwrap()));
            points.devices.push(counts.into_iter().max().unwrap());
        }
        points
    }
}

fn rounded(value: u32, step: u32) -> u32 {
    (value + step / 2) / step
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_window_equals_a_model_whatever_the_clock_does(ticks in ticks()) {
        let (mut history, mut model) = (History::new(usize::MAX), Model::default());
        let mut now = i64::from(START);
        for (distance, devices) in &ticks {
            now = (now + distance).max(i64::from(START));
            let step = u32::try_from(now).unwrap();
            model.record(step, devices);
            let samples = (0..).zip(devices);
            let samples = samples.filter_map(|(number, values)| Some(sample(number, (*values)?)));
            record(&mut history, step, &[(0, samples.collect())]);
        }
        for span in Span::ALL {
            for step in span.steps() {
                let window = history.window(span, *step);
                for metric in Metric::ALL {
                    for number in 0..3 {
                        let expected = model.points(&[number], metric, window);
                        prop_assert_eq!(device(&history, number, metric, window), expected);
                    }
                    let expected = model.points(&[0, 1, 2], metric, window);
                    let all = history.of_node(&node(0)).iter().map(|(_, series)| series);
                    let sum = SeriesSum::of(metric, window, all);
                    prop_assert_eq!(&sum, &expected, "{}", metric);
                    // A minute of the totals has the samples of all devices in place of the means of the devices.
                    if span == Span::Hour {
                        prop_assert_eq!(&history.of_fleet(metric, window), &expected);
                        prop_assert_eq!(history.of_types(metric, window, |_| true), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn accounted_bytes_are_those_of_the_series_and_within_the_limit(
        ticks in ticks(), budget in 0..20_000_usize,
    ) {
        let mut history = History::new(budget);
        let mut now = i64::from(START);
        for (number, (distance, devices)) in ticks.iter().enumerate() {
            now = (now + distance).max(i64::from(START));
            let samples = (0..).zip(devices);
            let samples = samples.filter_map(|(number, values)| Some(sample(number, (*values)?)));
            let samples: Vec<DeviceSample> = samples.collect();
            let accepted = history.clone();
            record(&mut history, u32::try_from(now).unwrap(), &[(number % 7, samples.clone())]);
            let status = history.status();
            prop_assert!(status.bytes <= budget, "{:?}", status);
            let names: Vec<NodeName> = history.nodes().cloned().collect();
            let all = names.iter().map(|name| (name, history.of_node(name)));
            let bytes = all.clone().map(|(name, all)| recorder::bytes_of(name, all)).sum::<usize>();
            prop_assert!(history.totals_bytes() <= budget / 8);
            let bytes = bytes + history.totals_bytes();
            let series = all.map(|(_, all)| all.len()).sum::<usize>();
            prop_assert_eq!((status.bytes, status.series), (bytes, series));
            if budget > 0 && accepted.begins().is_some() {
                prop_assert!(history.begins() == accepted.begins());
            }
        }
    }
}

#[test]
fn clone_does_not_change_and_two_records_of_a_step_count_once() {
    let mut history = History::new(1 << 20);
    record(&mut history, START, &[(0, vec![busy(0, 40)])]);
    let window = history.window(Span::Hour, Step::Sample);
    let before = history.clone();
    record(&mut history, START, &[(0, vec![busy(0, 80)])]);
    record(&mut history, START + 1, &[(0, vec![busy(0, 60)])]);
    assert_eq!(before.window(Span::Hour, Step::Sample), window);
    assert_eq!(device(&before, 0, Metric::Utilization, window).values.last(), Some(&Some(40)));
    let later = history.window(Span::Hour, Step::Sample);
    let values = device(&history, 0, Metric::Utilization, later).values;
    assert_eq!(values[values.len() - 3..], [None, Some(40), Some(60)]);
    assert_eq!(history.begins(), Some(u64::from(START) * 15));
    let minute = history.window(Span::Day, Step::Minute);
    assert_eq!(device(&history, 0, Metric::Utilization, minute).values.last(), Some(&Some(50)));
    assert_eq!(device(&history, 0, Metric::Temperature, minute).values.last(), Some(&Some(60)));
}

#[test]
fn vanished_device_ages_out_after_a_day() {
    let mut history = History::new(1 << 20);
    for step in START..START + 8 {
        record(&mut history, step, &[(0, vec![busy(0, 40)]), (1, vec![busy(0, 40)])]);
    }
    let values = |history: &History, span| {
        let window = history.window(span, Span::steps(span)[0]);
        device(history, 0, Metric::Power, window).values.into_iter().flatten().count()
    };
    for (minutes, hour, day) in
        [(59, 8, 2), (62, 0, 2), (23 * 60, 0, 2), (24 * 60, 0, 1), (26 * 60, 0, 0)]
    {
        let mut later = history.clone();
        record(&mut later, START + minutes * 4, &[(1, vec![busy(0, 40)])]);
        assert_eq!(
            (values(&later, Span::Hour), values(&later, Span::Day)),
            (hour, day),
            "{minutes}"
        );
        assert_eq!(later.nodes().count(), if day == 0 { 1 } else { 2 });
    }
}

#[test]
fn at_the_limit_vanished_devices_make_room_for_new_ones() {
    let mut history = History::new(1 << 20);
    let one = |number: u8| vec![busy(number, 40)];
    record(&mut history, START, &[(0, one(0)), (1, one(1))]);
    // Room for two nodes and no more, and none for totals.
    let nodes = [node(0), node(1)].map(|name| recorder::bytes_of(&name, history.of_node(&name)));
    let mut history = History::new(nodes.iter().sum::<usize>() + 100);
    record(&mut history, START, &[(0, one(0)), (1, one(1))]);
    record(&mut history, START + 1, &[(0, one(0)), (1, one(1)), (2, one(2))]);
    assert_eq!((history.status().series, history.status().omitted_series), (2, 1));
    record(&mut history, START + 2, &[(1, one(1)), (2, one(2))]);
    let names = |history: &History| history.nodes().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(&history), ["node-1"]);
    record(&mut history, START + 3, &[(1, one(1)), (2, one(2))]);
    assert_eq!(names(&history), ["node-1", "node-2"]);
    assert_eq!(history.status().omitted_series, 0);
}

#[test]
fn growth_beyond_the_limit_removes_the_youngest_history() {
    let random = |number: u8, step: u32| {
        let value = |at: u32| Some(step.wrapping_mul(2_654_435_761).rotate_left(at * 5) % 250);
        sample(number, [value(0), value(1), value(2), value(3), value(4)])
    };
    let mut history = History::new(12_000);
    for step in START..START + 2000 {
        let many = if step < START + 3 { 1 } else { 6 };
        record(&mut history, step, &[(0, (0..many).map(|number| random(number, step)).collect())]);
    }
    let status = history.status();
    assert!(status.bytes <= 12_000 && status.series < 6, "{status:?}");
    assert_eq!(status.series + status.omitted_series, 6);
    assert_eq!(history.of_node(&node(0))[0].0, key(0), "the oldest series is omitted");
}

#[test]
fn no_history_is_recorded_without_memory() {
    let mut history = History::new(0);
    record(&mut history, START, &[(0, vec![busy(0, 40)])]);
    assert!(!history.is_enabled());
    assert_eq!((history.status(), history.begins()), (HistoryStatus::default(), None));
}

fn partition(device: u8, uuid: String) -> DeviceSample {
    let of = busy(device, 40);
    DeviceSample { key: SeriesKey { partition: Some(uuid.into()), ..of.key }, ..of }
}

#[test]
fn waiting_devices_take_the_room_of_current_partitions() {
    let mut history = History::new(12_000);
    let partitions = |step: u32| {
        let new = (0..40).map(|number| partition(0, format!("MIG-{step}-{number:02}")));
        std::iter::once(busy(0, 40)).chain(new).collect::<Vec<_>>()
    };
    let others = |count| (1..count).map(|number| (usize::from(number), vec![busy(number, 40)]));
    record(&mut history, START, &[(0, partitions(0))]);
    assert!(history.status().omitted_series > 0);
    for step in 1..60 {
        // The first node has new partitions in each step.
        let all: Vec<_> = std::iter::once((0, partitions(step))).chain(others(6)).collect();
        record(&mut history, START + step, &all);
        assert!(history.status().bytes <= 12_000);
    }
    assert_eq!(history.nodes().count(), 6, "{:?}", history.status());
}

#[test]
fn repeated_keys_are_recorded_once() {
    let mut history = History::new(1 << 20);
    let twice = || partition(0, "MIG-1".to_owned());
    record(&mut history, START, &[(0, vec![twice(), busy(0, 40), twice(), busy(0, 80)])]);
    let keys: Vec<&SeriesKey> = history.of_node(&node(0)).iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [&key(0), &twice().key]);
    let window = history.window(Span::Hour, Step::Sample);
    assert_eq!(device(&history, 0, Metric::Utilization, window).values.last(), Some(&Some(40)));
}

fn share(id: &str) -> ShareId {
    match id.split_once("::") {
        Some((uuid, number)) => ShareId::replica(uuid, number.parse().unwrap()),
        None => ShareId::whole(id),
    }
}

fn unit(partition: Option<u32>, replicas: Option<u32>, ids: &[&str]) -> UnitUsage {
    let memory = |total| MemoryUse {
        total: Mebibytes::new(total),
        used: Mebibytes::new(total / 4),
        ..MemoryUse::default()
    };
    let tenant = |id: &&str| Tenant { ids: vec![share(id)], ..Tenant::default() };
    UnitUsage {
        uuid: format!("MIG-{}", partition.unwrap_or_default()),
        gpu_instance: partition,
        compute_instance: partition.map(|_| 0),
        replicas,
        // Half of the memory for instance 9, an eighth for the others, less what the driver reserves.
        memory: Some(memory(if partition == Some(9) { 40_192 } else { 9_728 })),
        tenants: ids.iter().map(tenant).collect(),
        ..UnitUsage::default()
    }
}

fn usage(units: Vec<UnitUsage>) -> Usage {
    let memory = MemoryUse {
        total: Mebibytes::new(81_559),
        used: Mebibytes::new(40_000),
        reserved: Mebibytes::default(),
    };
    let device = DeviceUsage {
        pci: key(7).device,
        name: "GPU 0".to_owned(),
        memory: Some(memory),
        utilization: Some(Percent(35)),
        power_watts: Some(395),
        temperature_celsius: Some(61),
        units,
    };
    Usage { devices: vec![device], ..Usage::default() }
}

#[test]
fn allocation_is_the_allocated_share_of_the_device() {
    let allocated = |units: Vec<UnitUsage>| {
        let Sample(values) = samples(&usage(units), &BTreeMap::new()).remove(0).sample;
        Some(values[4]).filter(|value| *value != u8::MAX)
    };
    let whole = |replicas, ids: &[&str]| allocated(vec![unit(None, replicas, ids)]);
    assert_eq!(whole(None, &[]), Some(0));
    assert_eq!(whole(None, &["GPU-1"]), Some(100));
    assert_eq!(whole(Some(3), &["GPU-1::0", "GPU-1::2"]), Some(67));
    assert_eq!(whole(Some(3), &["GPU-1::0", "GPU-1::0"]), Some(33));
    // The number of replicas is unknown.
    assert_eq!(whole(None, &["GPU-1::0"]), None);
    let partitioned = |ids: &[&str]| {
        allocated(vec![
            unit(Some(9), None, ids),
            unit(Some(9), None, &[]),
            unit(Some(1), None, &["MIG-1"]),
            unit(Some(2), None, &[]),
        ])
    };
    assert_eq!(partitioned(&[]), Some(13));
    assert_eq!(partitioned(&["MIG-9"]), Some(63));
    assert_eq!(allocated(Vec::new()), Some(0));
}

#[test]
fn samples_have_steps_of_the_precision_and_unknown_values_are_gaps() {
    let types = BTreeMap::from([(key(7).device, "nvidia-h100-80gb".parse().unwrap())]);
    let mut usage = usage(vec![unit(Some(1), None, &["MIG-1"])]);
    let all = samples(&usage, &types);
    assert_eq!(
        all.iter().map(|one| one.sample.0).collect::<Vec<_>>(),
        [[35, 49, 49, 61, 13], [255, 25, 255, 255, 100]]
    );
    assert_eq!(all[1].key, SeriesKey { partition: Some("MIG-1".into()), ..key(7) });
    assert_eq!(all[1].type_name.as_ref().unwrap().as_str(), "nvidia-h100-80gb");
    usage.devices[0].units[0].utilization = Some(Percent(0));
    assert_eq!(samples(&usage, &types)[1].sample.0, [0, 25, 255, 255, 100]);
    usage.are_allocations_unknown = true;
    usage.devices[0].utilization = None;
    usage.devices[0].power_watts = Some(90_000);
    let all = samples(&usage, &BTreeMap::new());
    assert_eq!(all[0].sample.0, [255, 49, 254, 61, 255]);
    assert_eq!((all[1].sample.0[4], &all[1].type_name), (255, &None));
}

#[test]
fn samples_of_a_device_are_limited() {
    let mut usage = usage((0..3000).map(|number| unit(Some(number), None, &[])).collect());
    usage.devices.push(usage.devices[0].clone());
    assert_eq!(samples(&usage, &BTreeMap::new()).len(), 57);
}

#[test]
fn steps_divide_their_span() {
    let seconds_of = |step: Step| u64::from(step.samples()) * SAMPLE_SECONDS;
    for span in Span::ALL {
        for step in span.steps() {
            let window = Window::new(span, *step, START + 777);
            assert_eq!(window.step_seconds(), seconds_of(*step));
            let seconds = u64::try_from(window.points()).unwrap() * seconds_of(*step);
            assert_eq!(seconds, if span == Span::Hour { 3600 } else { 86_400 });
            let last = u64::from(START + 777) * 15;
            let end = window.start() + seconds;
            assert!((last + 1..=last + seconds_of(*step)).contains(&end), "{span} {step}");
        }
        assert!(span.steps().contains(&span.default_step()));
    }
    let words: BTreeSet<&str> = Step::ALL.into_iter().map(Step::as_str).collect();
    assert_eq!(words.len(), 5);
}
