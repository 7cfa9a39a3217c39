//! Tests of the crate.

mod audit;
mod conservation;
mod focus;
mod rules;
