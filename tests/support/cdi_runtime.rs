//! The library with which container runtimes read CDI specifications.

use crate::peer::Peer;

/// Version 1.1.0 of the library is that of the specification.
pub(crate) const RUNTIME: Peer =
    Peer { pinned: "cdi", package: "octavo.dev/tests/peers/cdi", version: "v1.1.0" };
