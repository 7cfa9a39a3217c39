//! Tests of the crate.

mod conservation;
mod focus;
mod rules;
