//! Generates the gRPC code of the kubelet's APIs from `proto/kubelet`. Their packages are named `v1beta1` and `v1`.

use std::error::Error;

const PROTO: &str = "../../proto";
const DEVICE_PLUGIN: &str = "kubelet/deviceplugin/v1beta1/api.proto";
const POD_RESOURCES: &str = "kubelet/podresources/v1/api.proto";
/// Each in a call of its own: the packages are unrelated.
const DRA: [&str; 3] = [
    "kubelet/dra/v1/api.proto",
    "kubelet/drahealth/v1alpha1/api.proto",
    "kubelet/pluginregistration/v1/api.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}/kubelet");
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .compile_fds(protox::compile([DEVICE_PLUGIN], [PROTO])?)?;
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        // Lets a test kubelet implement only one of the two calls, as older kubelets do.
        .generate_default_stubs(true)
        .compile_fds(protox::compile([POD_RESOURCES], [PROTO])?)?;
    for file in DRA {
        tonic_prost_build::configure()
            .emit_rerun_if_changed(false)
            .btree_map(".")
            .compile_fds(protox::compile([file], [PROTO])?)?;
    }
    Ok(())
}
