//! Continuation tokens that their holder cannot read: where a page of rows ended names a node, which not every reader may know.
//!
//! The key is this process's own and nobody else's: after a restart a reader begins again, as with any token that is too old.

use std::fmt::Write;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};

/// Seals and opens texts.
#[derive(Debug)]
pub(super) struct Seal(Option<RandomizedNonceKey>);

/// A sealed token longer than this is none of ours.
const LONGEST: usize = 16 * 1024;

impl Seal {
    /// With a key made of chance. Where there is no chance to be had nothing can be sealed, and a page has no next one.
    pub(super) fn new() -> Self {
        let mut key = [0; 32];
        let filled = aws_lc_rs::rand::fill(&mut key).ok();
        Self(filled.and_then(|()| RandomizedNonceKey::new(&AES_256_GCM, &key).ok()))
    }

    /// The text for nobody to read.
    pub(super) fn seal(&self, text: &str) -> Option<String> {
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

    /// The text again; `None` for what was not sealed by us.
    pub(super) fn open(&self, sealed: &str) -> Option<String> {
        let key = self.0.as_ref()?;
        if sealed.len() > LONGEST || !sealed.is_ascii() || !sealed.len().is_multiple_of(2) {
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
    fn what_is_sealed_is_opened_by_who_sealed_it_and_shows_nothing() {
        let (ours, other) = (Seal::new(), Seal::new());
        let sealed = ours.seal("0~node~gpu-07~").unwrap();
        assert!(!sealed.contains("gpu") && sealed.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(ours.open(&sealed).as_deref(), Some("0~node~gpu-07~"));
        assert_ne!(ours.seal("0~node~gpu-07~").unwrap(), sealed);
        assert_eq!(other.open(&sealed), None);
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
            &"0".repeat(LONGEST + 2),
        ] {
            assert_eq!(ours.open(text), None, "{text}");
        }
    }
}
