//! The forms in which domain values leave and enter the program: JSON, YAML, and the messages of the status stream.
//!
//! Wire types are not domain types: they are what is promised to others, so they change only by addition, while the
//! domain changes freely. `From` leads out and cannot fail; `TryFrom` leads in and names the place of what is wrong.
//! Called by the command line, by both ends of the stream, and by tests that read recorded machines.

pub mod api;
pub mod availability;
pub mod catalogue;
pub mod cdi;
pub mod checkpoint;
pub mod diagnosis;
pub mod estimates;
pub mod hardware_profiles;
pub mod history;
pub mod hooks;
pub mod inventory;
pub mod journal;
pub mod labels;
pub mod layouts;
pub mod local;
pub mod matching;
pub mod node_status;
pub mod offers;
pub mod performance;
pub mod plan;
pub mod plugin_config;
pub mod sharing;
pub mod slo;
pub mod starting;
pub mod status;
pub mod stream;
pub mod strict;
pub mod usage;
