//! Carrying plans out, as state machines without I/O: what to do next follows from what came of what was done before.

pub mod call;
