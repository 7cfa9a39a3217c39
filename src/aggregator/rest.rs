//! The REST API over HTTP: what the fleet is, as JSON.

pub mod rows;
