//! Digests of texts.

use aws_lc_rs::digest::{Context, SHA256};

/// SHA-256 of texts that follow one another, in lower-case hexadecimal digits, as printed by `sha256sum`.
pub fn sha256(texts: &[&str]) -> String {
    let mut context = Context::new(&SHA256);
    for text in texts {
        context.update(text.as_bytes());
    }
    let digest = context.finish();
    digest.as_ref().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The first `bytes` bytes of the SHA-256 of a text, in lower-case hexadecimal digits.
pub fn sha256_prefix(text: &str, bytes: usize) -> String {
    sha256(&[text]).chars().take(bytes.saturating_mul(2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_that_of_the_texts_one_after_the_other() {
        // Printed by sha256sum for three letters.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&["a", "bc"]), abc);
        assert_eq!(sha256_prefix("abc", 2), "ba78");
    }
}
