//! Sets the soname of the real library, so that programs that link or load it by soname find it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
}
