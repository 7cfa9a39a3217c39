//! Octavo's data model: the accelerators of a node, their catalog, and the words for their state.
//!
//! Plain data and pure functions: nothing here reads files, the clock, the environment or the network. Start with
//! [`inventory`], the accelerators of a node as they were read.

pub mod accelerators;
pub mod backoff;
pub mod call;
pub mod catalog;
pub mod claim;
pub mod device_file;
pub mod digest;
pub mod driver_link;
pub mod driver_traces;
pub mod examples;
pub mod holder;
pub mod id;
pub mod interconnect;
pub mod inventory;
pub mod label;
pub mod label_shortening;
pub mod process_origin;
pub mod profile;
pub mod quantity;
pub mod reading;
pub mod reason;
pub mod reported;
pub mod resource;
pub mod sharing_mode;
pub mod sharing_status;
pub mod similar_names;
pub mod slices;
pub mod source_position;
pub mod text;
pub mod tone;
pub mod xid;

/// `apiVersion` of the JSON documents of the REST API and of the command line.
pub const API_VERSION: &str = "octavo.dev/v1";
