//! Simulation of a fleet under a trace of requests: the choice of this crate, compared with others.

mod comparison;
mod ledger_rows;
mod limits;
mod run;
mod series;
mod strategy;
mod trace;
mod trace_file;

pub use self::comparison::{
    Comparison, MeanAndDeviation, StrategyResult, TraceReport, WaitingTime, compare,
};
pub use self::limits::NodeLimits;
pub use self::run::{Discipline, Options, Outcome, pool_acceptance, run};
pub use self::series::{MAX_SAMPLES, Sample, TimeSeries};
pub use self::strategy::Strategy;
pub use self::trace::{Job, Load, Mix, random_profiles};
pub use self::trace_file::{OmittedRows, Trace, TraceError, parse_trace};
