//! Plans against an oracle that was written apart from the planner, and tables of what is in the way.

mod boards;
mod exhaustive;
mod hostile;
mod model;
mod oracle;
mod random;
mod tables;
