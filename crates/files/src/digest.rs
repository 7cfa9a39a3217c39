//! Short digests of texts.

use aws_lc_rs::digest::{SHA256, digest};

/// Returns the first `bytes` bytes of the text's SHA-256 in hexadecimal digits, as printed by `sha256sum`.
pub(crate) fn sha256_prefix(text: &str, bytes: usize) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    let bytes = digest.as_ref().iter().take(bytes);
    bytes.fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
