//! Memory and time of the history of 1,000 nodes with 8 devices each: `cargo bench --bench history`.
//!
//! It records 26 hours of idle, busy and random devices, prints tables in Markdown for `docs/performance.md` and never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

use std::fs;
use std::time::{Duration, Instant};

use octavo_history::{
    DeviceSample, History, Metric, SAMPLE_SECONDS, Sample, SeriesKey, SeriesSum, Span, Step,
};
use octavo_model::id::{NodeName, PciAddress};
use octavo_model::quantity::Mebibytes;

const NODES: usize = 1000;
const DEVICES: u8 = 8;
const STEPS: u64 = 26 * 240;
/// Start of an hour, in seconds since 1970.
const START: u64 = 1_800_000_000;

/// Values of a device.
#[derive(Clone, Copy)]
enum Load {
    /// No process: power and temperature fluctuate a little.
    Idle,
    /// A training job: utilization and power vary from sample to sample, memory and temperature slowly.
    Busy,
    /// Every value is random.
    Random,
}

/// Pseudorandom numbers (xorshift), the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(limit)).unwrap()
    }
}

impl Load {
    fn values(self, step: u64, random: &mut Random) -> [Option<u32>; 5] {
        match self {
            Self::Idle => {
                let power = 68 + 8 * u32::from(random.below(20) == 0);
                let temperature = 33 + u32::from(random.below(40) == 0);
                [Some(0), Some(1), Some(power), Some(temperature), Some(0)]
            }
            Self::Busy => {
                // Agents report utilization in steps of 5 %. Every ten minutes, a checkpoint is written.
                let is_paused = step % 40 < 2;
                let load = if is_paused { 5 * random.below(3) } else { 85 + 5 * random.below(4) };
                let memory = 70 + u32::try_from(step / 97 % 4).unwrap();
                let temperature = 60 + u32::try_from(step / 60 % 5).unwrap() + random.below(2);
                [Some(load), Some(memory), Some(100 + 6 * load), Some(temperature), Some(100)]
            }
            Self::Random => {
                let mut value = |limit| Some(random.below(limit));
                [value(101), value(101), value(2000), value(250), value(101)]
            }
        }
    }
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn main() {
    println!(
        "| devices | bytes per device | resident memory per device | sample, median | longest sample | longest sample with a reader |"
    );
    println!("|---|---|---|---|---|---|");
    measure("idle", Load::Idle);
    measure("busy", Load::Busy);
    measure("random", Load::Random);
}

fn measure(name: &str, load: Load) {
    let nodes: Vec<NodeName> =
        (0..NODES).map(|number| format!("gpu-{number:04}").parse().unwrap()).collect();
    let key =
        |device| SeriesKey { device: PciAddress::new(0, device, 0, 0).unwrap(), partition: None };
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut samples: Vec<Vec<DeviceSample>> = nodes
        .iter()
        .map(|_| {
            let sample = |device| DeviceSample {
                key: key(device),
                type_name: "nvidia-h100-80gb".parse().ok(),
                memory: Mebibytes::new(81_559),
                sample: Sample::new([None; 5]),
            };
            (0..DEVICES).map(sample).collect()
        })
        .collect();
    let before = resident();
    let mut history = History::new(1 << 30);
    let mut times = Vec::new();
    let mut longest_with_reader = Duration::ZERO;
    for step in 0..STEPS {
        for sample in samples.iter_mut().flatten() {
            sample.sample = Sample::new(load.values(step, &mut random));
        }
        // In the last hour, each sample is recorded while a reader holds the previous history.
        let reader = (step >= STEPS - 240).then(|| history.clone());
        let start = Instant::now();
        let reports = nodes.iter().zip(&samples).map(|(node, all)| (node, all.as_slice()));
        history.record(START + step * SAMPLE_SECONDS, reports);
        let time = start.elapsed();
        if reader.is_some() {
            longest_with_reader = longest_with_reader.max(time);
        } else {
            times.push(time);
        }
    }
    times.sort_unstable();
    let status = history.status();
    let resident = resident().saturating_sub(before);
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    println!(
        "| {name} | {} | {} | {} | {} | {} |",
        status.bytes / status.series,
        resident / status.series,
        ms(times[times.len() / 2]),
        ms(*times.last().unwrap()),
        ms(longest_with_reader),
    );
    let start = Instant::now();
    let window = history.window(Span::Day, Step::FiveMinutes);
    let all = nodes.iter().flat_map(|node| history.of_node(node)).map(|(_, series)| series);
    let points = SeriesSum::of(Metric::Utilization, window, all);
    let known = points.values.iter().flatten().count();
    eprintln!("{name}: fleet over 24 h from devices: {known} values in {}", ms(start.elapsed()));
    let start = Instant::now();
    let points = history.of_fleet(Metric::Utilization, window);
    let known = points.values.iter().flatten().count();
    eprintln!("{name}: fleet over 24 h from totals: {known} values in {}", ms(start.elapsed()));
}
