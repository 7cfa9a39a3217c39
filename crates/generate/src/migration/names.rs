//! Names of layouts and policies: readable, and equal for equal input.

use std::collections::BTreeMap;

use octavo_model::digest::Digest;

/// Maximum length of the value of a label, and of the name of a policy.
const MAX_CHARS: usize = 63;
/// Characters of the digest that distinguishes shortened names.
const DIGEST_CHARS: usize = 8;

/// Names of things that are described by parts.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Identity of the owner of each name.
    taken: BTreeMap<String, Vec<String>>,
}

impl Names {
    /// Returns the name of a thing, of these parts. Each identity has its own name.
    pub(super) fn name(&mut self, parts: &[&str], identity: &[Option<&str>]) -> String {
        let plain = parts.join("-");
        let identity: Vec<String> =
            identity.iter().map(|part| part.unwrap_or_default().to_owned()).collect();
        let is_free = self.taken.get(&plain).is_none_or(|owner| *owner == identity);
        if plain.len() <= MAX_CHARS && is_free {
            self.taken.insert(plain.clone(), identity);
            return plain;
        }
        let digest = format!("{:016x}", Digest::from_bytes(identity.join("\0").as_bytes()));
        let head_chars = MAX_CHARS.saturating_sub(DIGEST_CHARS + 1);
        let head: String = plain.chars().take(head_chars).collect();
        let tail: String = digest.chars().take(DIGEST_CHARS).collect();
        format!("{}-{tail}", head.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()))
    }
}
