//! Files of a support bundle, without secrets and, on request, with replaced names.
//!
//! ```text
//! contents.rs  the files, in a temporary file
//! secrets.rs   removal of tokens, passwords and keys
//! names.rs     replacement of the names of nodes, pods, namespaces and users
//! archive.rs   the archive in the format tar.gz
//! ```

mod archive;
mod contents;
mod names;
mod secrets;

pub use self::contents::{Contents, ContentsError, PackedBundle};
pub use self::names::NameKind;
