//! Reference provider: the vendor's peak performance times an efficiency interval.
//!
//! Training needs 6 operations per parameter and token (Kaplan et al., "Scaling Laws for Neural Language Models",
//! arXiv:2001.08361: C = 6 N D). Decoding one sequence reads all weights for each token, so memory bandwidth is the
//! bound. Products of one type differ; the interval covers all products for which the catalog has figures.

use octavo_model::accelerators::{Facts, MemoryUnit, products};

use super::workload::{Precision, Workload};
use super::{DeviceGroup, EstimateValue, Interval, NoEstimate};

/// Name of this provider.
pub const SOURCE_NAME: &str =
    "octavo roofline model (peak values from the catalog x assumed efficiency)";

/// Assumed fraction of a peak that is reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Efficiency {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Justification.
    pub why: &'static str,
}

/// Efficiency of dense arithmetic during training.
pub const TRAINING: Efficiency = Efficiency {
    low: 0.20,
    high: 0.48,
    why: "assumed efficiency: 20 % to 48 % of the dense peak; Megatron-LM's README reports 41 % to 48 % end to end on \
     H100 with tuned software; the lower bound is Octavo's assumption for untuned software",
};

/// Efficiency of memory bandwidth while decoding one sequence.
pub const DECODING: Efficiency = Efficiency {
    low: 0.30,
    high: 0.85,
    why: "assumed efficiency: 30 % to 85 % of the memory bandwidth of all devices; both bounds are Octavo's assumptions; \
     several devices must communicate for each token",
};

/// Operations per parameter and token.
const OPERATIONS_PER_PARAMETER_TOKEN: f64 = 6.0;
const TERA: f64 = 1e12;
const GIGA: f64 = 1e9;

/// Assumptions behind an estimate, as text.
pub fn assumptions(workload: &Workload) -> Vec<String> {
    let lines: &[&str] = match workload {
        Workload::Training { .. } => &[
            "a dense transformer: 6 operations per parameter and token (Kaplan et al., arXiv:2001.08361)",
            TRAINING.why,
            "speed scales linearly with the number of devices; the efficiency includes links, data loading and \
             restarts",
            "it is not checked whether model, gradients and optimizer fit into memory",
        ],
        Workload::Decoding { .. } => &[
            "one sequence at a time: only the time to read all weights for each token is counted",
            DECODING.why,
            "concurrent sequences produce more tokens per second in total; this is not estimated",
        ],
    };
    let text = lines.iter();
    text.map(|text| (*text).to_owned()).collect()
}

/// Estimate for `devices`, or the reason why there is none.
pub fn roofline(workload: &Workload, devices: &DeviceGroup) -> Result<EstimateValue, NoEstimate> {
    let of_type = |facts: &&Facts| facts.type_name == devices.type_name.as_str();
    let products: Vec<&Facts> = products().iter().filter(of_type).collect();
    if products.is_empty() {
        return Err(NoEstimate::UnknownType(devices.type_name.clone()));
    }
    let count = f64::from(devices.count);
    match workload {
        Workload::Training { parameters, tokens, precision, .. } => {
            let precision = *precision;
            let tokens = tokens.unwrap_or_default();
            let what = || format!("dense {} throughput", precision.as_str());
            let peaks = products.iter().filter_map(|one| peak(one, precision));
            let (least, most) = min_max(peaks).ok_or_else(|| missing(devices, what()))?;
            let operations = OPERATIONS_PER_PARAMETER_TOKEN * parameters * tokens;
            let seconds = |peak: f64, reached: f64| operations / (peak * TERA * reached * count);
            interval(seconds(most, TRAINING.high), seconds(least, TRAINING.low))
                .map(EstimateValue::Seconds)
        }
        Workload::Decoding { parameters, precision, .. } => {
            let weights = parameters * precision.bytes();
            fits(weights, &products, devices)?;
            let bandwidths = products.iter().filter_map(|one| one.memory_bandwidth_gbs);
            let (least, most) = min_max(bandwidths)
                .ok_or_else(|| missing(devices, "memory bandwidth".to_owned()))?;
            let speed = |bandwidth: f64, reached: f64| bandwidth * GIGA * reached * count / weights;
            interval(speed(least, DECODING.low), speed(most, DECODING.high))
                .map(EstimateValue::TokensPerSecond)
        }
    }
}

fn peak(facts: &Facts, precision: Precision) -> Option<f64> {
    match precision {
        Precision::Bf16 => facts.tflops.bf16,
        Precision::Fp16 => facts.tflops.fp16,
        Precision::Fp8 => facts.tflops.fp8,
    }
}

fn min_max(figures: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    figures.fold(None, |ends, figure| {
        let (least, most) = ends.unwrap_or((figure, figure));
        Some((figure.min(least), figure.max(most)))
    })
}

fn missing(devices: &DeviceGroup, what: String) -> NoEstimate {
    NoEstimate::NoFigure { what, type_name: devices.type_name.clone() }
}

fn interval(low: f64, high: f64) -> Result<Interval, NoEstimate> {
    Interval::new(low, high).map_err(NoEstimate::Interval)
}

fn fits(weights: f64, products: &[&Facts], devices: &DeviceGroup) -> Result<(), NoEstimate> {
    let memory = products.iter().filter_map(|one| one.memory);
    let memory = memory.map(|memory| {
        let unit = match memory.unit {
            MemoryUnit::Gigabytes => GIGA,
            MemoryUnit::Gibibytes => 1_073_741_824.0,
        };
        f64::from(memory.size) * unit
    });
    let (_, most) = min_max(memory).ok_or_else(|| missing(devices, "memory".to_owned()))?;
    let all = most * f64::from(devices.count);
    let amount = |bytes: f64| format!("{:.1} GB", bytes / GIGA);
    if weights > all {
        return Err(NoEstimate::TooLarge {
            needed: amount(weights),
            count: devices.count,
            type_name: devices.type_name.clone(),
            has: amount(all),
        });
    }
    Ok(())
}
