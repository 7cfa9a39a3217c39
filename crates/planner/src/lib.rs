//! From a layout file to steps: [`layout`] resolves what each device must become, [`plan`] finds the steps with an
//! exact search, and [`reconcile`] runs them as state machines without I/O.

pub mod layout;
pub mod plan;
pub mod reconcile;
pub mod split;
