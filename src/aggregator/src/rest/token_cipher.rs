//! Encrypted continuation tokens: the position of a page contains a node name, which some readers are not allowed to
//! see.
//!
//! A digest in place of the encryption does not suffice: a reader could decode the name, and could write tokens with
//! other names to find out which nodes come before and after them. The rows cannot be continued after data that the
//! reader sees, because they are ordered by node.
//!
//! The key belongs to this process. After a restart, a reader has to start again, as with any outdated token.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Encrypts and decrypts texts.
#[derive(Debug)]
pub(super) struct TokenCipher(Option<RandomizedNonceKey>);

impl TokenCipher {
    /// Generates a random key. Without a source of randomness, nothing can be encrypted, and pages have no continuation
    /// token.
    pub(super) fn new() -> Self {
        let mut key = [0; 32];
        let filled = aws_lc_rs::rand::fill(&mut key).ok();
        Self(filled.and_then(|()| RandomizedNonceKey::new(&AES_256_GCM, &key).ok()))
    }

    /// Encrypts the text; the result is base64url of the nonce and the ciphertext.
    pub(super) fn encrypt(&self, text: &str) -> Option<String> {
        let key = self.0.as_ref()?;
        let mut bytes = text.as_bytes().to_vec();
        let nonce = key.seal_in_place_append_tag(Aad::empty(), &mut bytes).ok()?;
        Some(URL_SAFE_NO_PAD.encode([nonce.as_ref().as_slice(), &bytes].concat()))
    }

    /// Decrypts the text; `None` if it was not encrypted with this key.
    pub(super) fn decrypt(&self, encrypted: &str) -> Option<String> {
        let key = self.0.as_ref()?;
        let mut bytes = URL_SAFE_NO_PAD.decode(encrypted).ok()?;
        let (nonce, rest) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let text = key.open_in_place(nonce, Aad::empty(), rest).ok()?;
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
        assert!(!sealed.contains("gpu"));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        assert!(sealed.chars().all(is_plain), "{sealed}");
        assert_eq!(ours.decrypt(&sealed).as_deref(), Some("0~node~gpu-07~"));
        assert_ne!(ours.encrypt("0~node~gpu-07~").unwrap(), sealed);
        assert_eq!(other.decrypt(&sealed), None);
        let changed =
            sealed.replace(&sealed[30..31], if &sealed[30..31] == "A" { "B" } else { "A" });
        for text in ["", "0", "zz", "ü", &sealed[4..], &changed, &"A".repeat(16 * 1024)] {
            assert_eq!(ours.decrypt(text), None, "{text}");
        }
    }
}
