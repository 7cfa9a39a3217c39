//! The status stream between agents and the aggregator: [`protocol`] has the session state machines, [`proto`] the
//! generated Protobuf code, [`status`] and [`messages`] convert between Protobuf and the model.

pub mod messages;
pub mod proto;
pub mod protocol;
pub mod status;

#[cfg(test)]
#[path = "../../../tests/support/inventories/mod.rs"]
mod inventories;
