//! A simulated cluster: nodes that apply layouts, fail, block or disappear, users who interfere, and controllers that crash or see an
//! older state.

mod cluster;
mod demand;
mod demand_random;
mod evictions;
mod members;
mod random;
mod reservations;
mod rules;
mod sweep;
mod unknown_use;
