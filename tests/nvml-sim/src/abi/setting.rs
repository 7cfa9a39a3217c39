//! Configuration of the library by its client.

use std::ffi::OsString;

/// An environment variable. The library has no other way to be configured by its client.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place of the library that reads the environment"
)]
pub(super) fn setting(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
