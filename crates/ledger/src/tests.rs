//! Tests of the crate.

mod audit;
mod budget;
mod compare;
mod conservation;
mod focus;
mod listing;
mod rules;
mod transactions;
