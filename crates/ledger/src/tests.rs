//! Tests of the crate.

mod audit;
mod budget;
mod compare;
mod conservation;
mod focus;
mod rules;
mod transactions;
