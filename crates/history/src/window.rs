//! Time range and resolution of a request.

use strum::{Display, IntoStaticStr};

use crate::{SAMPLE_SECONDS, SAMPLES_PER_MINUTE};

/// Length of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Display, IntoStaticStr)]
pub enum Span {
    /// The last hour, with a value every 15 s.
    #[default]
    #[strum(serialize = "1h")]
    Hour,
    /// The last 24 hours, with a value every minute.
    #[strum(serialize = "24h")]
    Day,
}

/// Time between two values of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, IntoStaticStr)]
pub enum Step {
    /// 15 seconds.
    #[strum(serialize = "15s")]
    Sample,
    /// One minute.
    #[strum(serialize = "1m")]
    Minute,
    /// Five minutes.
    #[strum(serialize = "5m")]
    FiveMinutes,
    /// A quarter of an hour.
    #[strum(serialize = "15m")]
    QuarterHour,
    /// One hour.
    #[strum(serialize = "1h")]
    Hour,
}

/// Points in time of an answer: they are multiples of the step, and the last one contains the last sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    span: Span,
    /// First unit: a sample or a minute, by the span.
    start: u32,
    units_per_point: u32,
    points: u32,
}

impl Span {
    /// All spans.
    pub const ALL: [Self; 2] = [Self::Hour, Self::Day];

    /// Identifier: `24h`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Steps that divide the span and are not shorter than its resolution.
    pub fn steps(self) -> &'static [Step] {
        match self {
            Self::Hour => &[Step::Sample, Step::Minute, Step::FiveMinutes, Step::QuarterHour],
            Self::Day => &[Step::Minute, Step::FiveMinutes, Step::QuarterHour, Step::Hour],
        }
    }

    /// Step of a chart with up to 300 points.
    pub fn default_step(self) -> Step {
        match self {
            Self::Hour => Step::Sample,
            Self::Day => Step::FiveMinutes,
        }
    }

    /// Samples per stored value.
    fn samples_per_unit(self) -> u32 {
        match self {
            Self::Hour => 1,
            Self::Day => SAMPLES_PER_MINUTE,
        }
    }

    /// Number of stored values.
    fn units(self) -> u32 {
        match self {
            Self::Hour => 240,
            Self::Day => 1440,
        }
    }

    /// Samples per chunk of 60 stored values.
    pub(crate) fn steps_per_chunk(self) -> u32 {
        60 * self.samples_per_unit()
    }

    /// First sample of the span that ends with this one.
    pub(crate) fn first_step(self, last: u32) -> u32 {
        last.saturating_add(1).saturating_sub(self.units() * self.samples_per_unit())
    }
}

impl Step {
    /// All steps.
    pub const ALL: [Self; 5] =
        [Self::Sample, Self::Minute, Self::FiveMinutes, Self::QuarterHour, Self::Hour];

    /// Identifier: `5m`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    pub(crate) fn samples(self) -> u32 {
        match self {
            Self::Sample => 1,
            Self::Minute => SAMPLES_PER_MINUTE,
            Self::FiveMinutes => 5 * SAMPLES_PER_MINUTE,
            Self::QuarterHour => 15 * SAMPLES_PER_MINUTE,
            Self::Hour => 60 * SAMPLES_PER_MINUTE,
        }
    }
}

impl Window {
    /// Points of `span` that ends with the sample `last`. A step that is shorter than the resolution is lengthened.
    pub(crate) fn new(span: Span, step: Step, last: u32) -> Self {
        let units_per_point = (step.samples() / span.samples_per_unit()).max(1);
        let end = (last / span.samples_per_unit() / units_per_point).saturating_add(1);
        let points = span.units() / units_per_point;
        let start = end.saturating_sub(points).saturating_mul(units_per_point);
        Self { span, start, units_per_point, points }
    }

    /// Start of the first point, in seconds since 1970.
    pub fn start(&self) -> u64 {
        u64::from(self.start) * self.unit_seconds()
    }

    /// Time between two points, in seconds.
    pub fn step_seconds(&self) -> u64 {
        u64::from(self.units_per_point) * self.unit_seconds()
    }

    /// Number of points.
    pub fn points(&self) -> usize {
        usize::try_from(self.points).unwrap_or_default()
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }

    pub(crate) fn start_unit(&self) -> u32 {
        self.start
    }

    pub(crate) fn units_per_point(&self) -> usize {
        usize::try_from(self.units_per_point).unwrap_or(1).max(1)
    }

    fn unit_seconds(&self) -> u64 {
        u64::from(self.span.samples_per_unit()) * SAMPLE_SECONDS
    }
}
