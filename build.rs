//! Build script: generates the constant accelerator tables from `data/accelerators.json` and the gRPC code from
//! `proto/`. The compiled program therefore reads no data file at run time.

#[path = "build/catalogue.rs"]
mod catalogue;
#[path = "build/product_facts.rs"]
mod product_facts;

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

const CATALOGUE: &str = "data/accelerators.json";
const PROTOS: [&str; 2] = ["octavo/v1/fleet.proto", "octavo/v1/status.proto"];
/// The kubelet's definitions. Their packages are named `v1beta1` and `v1`.
const DEVICE_PLUGIN: &str = "kubelet/deviceplugin/v1beta1/api.proto";
const POD_RESOURCES: &str = "kubelet/podresources/v1/api.proto";
/// Codec with small buffers, see `SmallBuffers` in `src/proto.rs`.
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
    fs::write(
        out.join("accelerators.rs"),
        catalogue::generate_table(&json)?,
    )?;
    fs::write(out.join("product_tables.rs"), product_facts::tables(&json)?)?;
    tonic_prost_build::configure()
        .codec_path(CODEC)
        .bytes(".octavo.v1")
        // Sorted maps make the encoding deterministic: equal labels produce equal bytes.
        .btree_map(".octavo.v1")
        .emit_rerun_if_changed(false)
        .compile_fds(protox::compile(PROTOS, ["proto"])?)?;
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .compile_fds(protox::compile([DEVICE_PLUGIN], ["proto"])?)?;
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        // Lets a test kubelet implement only one of the two calls, as older kubelets do.
        .generate_default_stubs(true)
        .compile_fds(protox::compile([POD_RESOURCES], ["proto"])?)?;
    Ok(())
}
