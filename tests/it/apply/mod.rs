//! Layouts put in force by the real programs on simulated machines: what is asked for, what is in the way, what goes wrong.

mod command;
mod driver;
mod faults;
mod interrupted;
mod journal;
mod life;
pub(crate) mod pods;
