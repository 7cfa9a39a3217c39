//! Simulation of a fleet under a trace of requests: the choice of production, compared with others.

mod comparison;
mod run;
mod strategy;
mod trace;

pub use self::comparison::{Comparison, Spread, StrategyResult, WaitingTime, compare};
pub use self::run::{Discipline, Options, Outcome, free_defragmentation, run};
pub use self::strategy::Strategy;
pub use self::trace::{Job, Load, Mix, TraceError, parse_trace};
