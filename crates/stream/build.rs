//! Generates the gRPC code of the status stream from `proto/octavo`.

use std::error::Error;

const PROTO: &str = "../../proto";
const FILES: [&str; 2] = ["octavo/v1/fleet.proto", "octavo/v1/status.proto"];
/// Codec with small buffers, see `SmallBuffers` in `src/proto.rs`.
const CODEC: &str = "crate::proto::SmallBuffers";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}/octavo");
    tonic_prost_build::configure()
        .codec_path(CODEC)
        .bytes(".octavo.v1")
        // Sorted maps make the encoding deterministic: equal labels produce equal bytes.
        .btree_map(".octavo.v1")
        .emit_rerun_if_changed(false)
        .compile_fds(protox::compile(FILES, [PROTO])?)?;
    Ok(())
}
