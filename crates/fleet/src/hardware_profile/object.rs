//! Profiles as Kubernetes objects.
//!
//! ```text
//! read.rs    parses objects of all three kinds, tolerating errors
//! write.rs   writes an object of the kind that is created today
//! diff.rs    compares an existing object with the desired one
//! ```
//!
//! Profiles belong to other users. Unknown fields are ignored, and a field that cannot be parsed is reported with its
//! path instead of hiding the profile.

mod diff;
mod read;
mod write;

pub use self::diff::differences;
pub use self::read::read;
pub use self::write::{annotate, object};
