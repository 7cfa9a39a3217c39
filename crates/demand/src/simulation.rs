//! Simulation of a fleet under a trace of requests: the choice of this crate, compared with others.

mod comparison;
mod run;
mod strategy;
mod trace;

pub use self::comparison::{Comparison, MeanAndDeviation, StrategyResult, WaitingTime, compare};
pub use self::run::{Discipline, Options, Outcome, pool_acceptance, run};
pub use self::strategy::Strategy;
pub use self::trace::{Job, Load, Mix, TraceError, parse_trace, random_profiles};
