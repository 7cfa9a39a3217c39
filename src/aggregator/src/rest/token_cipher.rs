//! Encrypted continuation tokens: the position of a page contains a node name, which some readers are not allowed to
//! see.
//!
//! The key belongs to this process. After a restart, a reader has to start again, as with any outdated token.

use std::fmt::Write;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};

/// Encrypts and decrypts texts.
#[derive(Debug)]
pub(super) struct TokenCipher(Option<RandomizedNonceKey>);

/// Maximum length of an encrypted token.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

impl TokenCipher {
    /// Generates a random key. Without a source of randomness, nothing can be encrypted, and pages have no continuation
    /// token.
    pub(super) fn new() -> Self {
        let mut key = [0; 32];
        let filled = aws_lc_rs::rand::fill(&mut key).ok();
        Self(filled.and_then(|()| RandomizedNonceKey::new(&AES_256_GCM, &key).ok()))
    }

    /// Encrypts the text.
    pub(super) fn encrypt(&self, text: &str) -> Option<String> {
        let key = self.0.as_ref()?;
        let mut bytes = text.as_bytes().to_vec();
        let nonce = key
            .seal_in_place_append_tag(Aad::empty(), &mut bytes)
            .ok()?;
        let mut text = String::new();
        for byte in nonce.as_ref().iter().chain(&bytes) {
            write!(text, "{byte:02x}").ok()?;
        }
        Some(text)
    }

    /// Decrypts the text; `None` if it was not encrypted with this key.
    pub(super) fn decrypt(&self, sealed: &str) -> Option<String> {
        let key = self.0.as_ref()?;
        if sealed.len() > MAX_TOKEN_BYTES || !sealed.is_ascii() || !sealed.len().is_multiple_of(2) {
            return None;
        }
        let bytes = sealed.as_bytes().chunks(2);
        let bytes = bytes.map(|two| u8::from_str_radix(str::from_utf8(two).ok()?, 16).ok());
        let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
        let (nonce, rest) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut rest = rest.to_vec();
        let text = key.open_in_place(nonce, Aad::empty(), &mut rest).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_opaque_and_decrypted_only_with_its_key() {
        let (ours, other) = (TokenCipher::new(), TokenCipher::new());
        let sealed = ours.encrypt("0~node~gpu-07~").unwrap();
        assert!(!sealed.contains("gpu") && sealed.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(ours.decrypt(&sealed).as_deref(), Some("0~node~gpu-07~"));
        assert_ne!(ours.encrypt("0~node~gpu-07~").unwrap(), sealed);
        assert_eq!(other.decrypt(&sealed), None);
        let changed = sealed.replace(
            &sealed[30..31],
            if &sealed[30..31] == "0" { "1" } else { "0" },
        );
        for text in [
            "",
            "0",
            "zz",
            "ü",
            &sealed[2..],
            &changed,
            &"0".repeat(MAX_TOKEN_BYTES + 2),
        ] {
            assert_eq!(ours.decrypt(text), None, "{text}");
        }
    }
}
