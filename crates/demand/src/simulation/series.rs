//! Slices of the fleet over the simulated time.

use std::time::Duration;

/// Maximum number of samples of a time series.
pub const MAX_SAMPLES: usize = 200;

/// Slices of the fleet over the simulated time, at a bounded number of times with equal distances.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TimeSeries {
    /// Time between two samples. The first sample is at the beginning of the trace.
    pub step: Duration,
    /// Time at which the figures begin.
    pub measured_from: Duration,
    /// Last arrival, or the time from which no request waits.
    pub end: Duration,
    /// The samples; none if no time passes.
    pub samples: Vec<Sample>,
}

/// Slices of the fleet at one time. They add up to all slices of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sample {
    /// Slices in use.
    pub used: f64,
    /// Slices that are free and that a random request cannot use.
    pub fragmented: f64,
    /// Other free slices.
    pub free: f64,
}

/// Records a time series whose end is not known. When it has too many samples, it drops every second one.
#[derive(Debug)]
pub(super) struct Sampler {
    step: Duration,
    samples: Vec<Sample>,
}

impl Sampler {
    /// Creates a sampler. A series that ends at the last arrival has [`MAX_SAMPLES`] samples.
    pub(super) fn new(last_arrival: Duration) -> Self {
        let steps = u32::try_from(MAX_SAMPLES).unwrap_or(u32::MAX);
        let step = last_arrival.checked_div(steps).unwrap_or(last_arrival);
        // Rounded up, so that there is not one sample too many.
        Self { step: step.saturating_add(Duration::from_nanos(1)), samples: Vec::new() }
    }

    /// Returns whether a sample before this time is missing.
    pub(super) fn is_due_before(&self, time: Duration) -> bool {
        self.next() < time
    }

    /// Adds the samples before this time, until which the fleet does not change.
    pub(super) fn record_until(&mut self, time: Duration, sample: Sample) {
        while self.is_due_before(time) {
            if self.samples.len() >= MAX_SAMPLES {
                self.thin_out();
            } else {
                self.samples.push(sample);
            }
        }
    }

    /// The series until this time.
    pub(super) fn finish(self, measured_from: Duration, end: Duration) -> TimeSeries {
        TimeSeries { step: self.step, measured_from, end, samples: self.samples }
    }

    /// Time of the next sample.
    fn next(&self) -> Duration {
        let count = u32::try_from(self.samples.len()).unwrap_or(u32::MAX);
        self.step.saturating_mul(count)
    }

    fn thin_out(&mut self) {
        let mut number = 0_usize;
        self.samples.retain(|_| {
            number = number.saturating_add(1);
            number % 2 == 1
        });
        self.step = self.step.saturating_mul(2);
    }
}

impl Sample {
    /// The sum: all slices of the fleet.
    pub fn slices(&self) -> f64 {
        self.used + self.fragmented + self.free
    }
}
