//! Shortening of texts to the 63 characters that Kubernetes permits for a name or label value.

/// Maximum length of the name part of a label key, and of a label value. Source: Kubernetes, "Labels and Selectors",
/// syntax.
pub(crate) const MAX_LABEL_LENGTH: usize = 63;

/// Joins `head` and `tail` in at most [`MAX_LABEL_LENGTH`] characters. The head is truncated and followed by a short hash of
/// `original`, so that heads which differ only in the truncated part remain distinct; the tail (a size, a profile) is
/// complete. Only `original` may contain non-ASCII characters.
pub(crate) fn shorten(head: &str, original: &str, tail: &str) -> String {
    let hash = hash(original);
    let room = MAX_LABEL_LENGTH.saturating_sub(tail.len() + hash.len() + 1);
    let cut: String = head.chars().take(room).collect();
    let cut = cut.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if cut.is_empty() { format!("{hash}{tail}") } else { format!("{cut}-{hash}{tail}") }
}

/// FNV-1a hash (32 bits) as eight hexadecimal digits: identical in every build and on every machine.
fn hash(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_fnv_1a() {
        // Test vectors of the FNV reference code.
        assert_eq!(
            (hash(""), hash("a"), hash("foobar")),
            ("811c9dc5".to_owned(), "e40c292c".to_owned(), "bf9cf968".to_owned())
        );
    }

    #[test]
    fn head_is_truncated_and_tail_is_retained() {
        let head = "x".repeat(70);
        let text = shorten(&head, &head, "-24gb");
        assert_eq!(text.len(), MAX_LABEL_LENGTH);
        assert!(text.starts_with(&"x".repeat(49)) && text.ends_with("-24gb"));
        assert_ne!(text, shorten(&head, &"x".repeat(71), "-24gb"));
    }

    #[test]
    fn unusable_head_becomes_its_hash() {
        assert_eq!(shorten("---", "---", "-24gb"), format!("{}-24gb", hash("---")));
    }
}
