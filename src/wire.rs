//! The forms in which domain values leave and enter the program as text: JSON and YAML.
//!
//! Wire types are not domain types: they are what is promised to others, so they change only by addition, while the
//! domain changes freely. `From` leads out and cannot fail; `TryFrom` leads in and names the place of what is wrong.
//! Called by the command line and by tests that read recorded machines.

pub mod api;
pub mod inventory;
pub mod labels;
