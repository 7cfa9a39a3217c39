//! Layouts applied by the real programs on simulated machines: requests, blockers and failures.

mod command;
mod driver;
mod faults;
mod interrupted;
mod journal;
mod life;
pub(crate) mod pods;
