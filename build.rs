//! Turns `data/accelerators.json` into a constant table, and `proto/` into code: what ships has nothing to read, and nothing
//! to fail on.

#[path = "build/catalogue.rs"]
mod catalogue;
#[path = "build/said.rs"]
mod said;

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

const CATALOGUE: &str = "data/accelerators.json";
const PROTOS: [&str; 2] = ["octavo/v1/fleet.proto", "octavo/v1/status.proto"];
/// Kubelet's, whose packages are called `v1beta1` and `v1`.
const DEVICE_PLUGIN: &str = "kubelet/deviceplugin/v1beta1/api.proto";
const POD_RESOURCES: &str = "kubelet/podresources/v1/api.proto";
/// Encodes and decodes with small buffers; see there.
const CODEC: &str = "crate::proto::SmallBuffers";

#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script where to write through the environment"
)]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={CATALOGUE}");
    println!("cargo::rerun-if-changed=proto");
    let json = fs::read_to_string(CATALOGUE)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("accelerators.rs"), catalogue::table(&json)?)?;
    fs::write(out.join("said.rs"), said::tables(&json)?)?;
    tonic_prost_build::configure()
        .codec_path(CODEC)
        .bytes(".octavo.v1")
        // In the order of their keys: equal labels are equal bytes.
        .btree_map(".octavo.v1")
        .emit_rerun_if_changed(false)
        .compile_fds(protox::compile(PROTOS, ["proto"])?)?;
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .compile_fds(protox::compile([DEVICE_PLUGIN], ["proto"])?)?;
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        // A kubelet of a test that answers one call need not answer the other: as an old one would.
        .generate_default_stubs(true)
        .compile_fds(protox::compile([POD_RESOURCES], ["proto"])?)?;
    Ok(())
}
