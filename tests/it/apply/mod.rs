//! Layouts applied by the real programs on simulated machines: requests, blockers and failures.

mod agent_lifecycle;
mod claims;
mod command;
mod driver;
mod faults;
mod interrupted;
mod journal;
pub(crate) mod pods;
