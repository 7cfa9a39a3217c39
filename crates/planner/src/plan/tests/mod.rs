//! Compares plans with an oracle written independently of the planner, and tests blockers by table.

mod boards;
mod exhaustive;
mod hostile;
mod model;
mod oracle;
mod random;
mod tables;
