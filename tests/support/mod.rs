//! Helpers of both integration test binaries, `it` and `it-cluster`.

pub(crate) mod agent_stream;
pub(crate) mod cdi_runtime;
pub(crate) mod device_plugin;
pub(crate) mod engine;
pub(crate) mod fleet_api;
pub(crate) mod kubelet;
pub(crate) mod machine;
pub(crate) mod manifests;
pub(crate) mod node;
pub(crate) mod peer;
pub(crate) mod problem;
pub(crate) mod process;
pub(crate) mod record;
pub(crate) mod sockets;
pub(crate) mod sweep;
pub(crate) mod time_limits;
pub(crate) mod tree;

/// The root of the repository.
pub(crate) fn root() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
}
