//! Tests of the crate.

mod conservation;
mod rules;
