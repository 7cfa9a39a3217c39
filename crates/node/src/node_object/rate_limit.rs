//! Limits of Kubernetes events of Nodes and pods: their rate and the length of their messages.

use crate::token_bucket::TokenBucket;

/// Budget for events: a burst, then one every 30 seconds.
pub type EventBudget = TokenBucket<BURST, 30_000>;

/// Maximum burst.
pub(crate) const BURST: u32 = 25;
/// Maximum message length in bytes. Source: Kubernetes, `events.k8s.io/v1`, `note`: 1 kB.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1000;

/// Truncates a message that exceeds the limit for events.
pub fn truncate_message(text: &mut String) {
    if text.len() <= MAX_MESSAGE_BYTES {
        return;
    }
    let end = (0..=MAX_MESSAGE_BYTES - 3).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or_default());
    text.push('…');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_message_is_truncated_at_a_character_boundary() {
        for width in ["x", "é", "…", "𝄞"] {
            for before in 1..5 {
                let mut text = "-".repeat(before) + &width.repeat(MAX_MESSAGE_BYTES);
                let whole = text.clone();
                truncate_message(&mut text);
                assert!(text.len() <= MAX_MESSAGE_BYTES, "{width} {before}: {}", text.len());
                // Truncation removes no more characters than necessary.
                assert!(
                    text.len() + width.len() > MAX_MESSAGE_BYTES,
                    "{width} {before}: {}",
                    text.len()
                );
                let prefix = text.strip_suffix('…').unwrap();
                assert!(whole.starts_with(prefix), "{width} {before}");
            }
        }
        for fits in
            [String::new(), "x".repeat(MAX_MESSAGE_BYTES), "é".repeat(MAX_MESSAGE_BYTES / 2)]
        {
            let mut text = fits.clone();
            truncate_message(&mut text);
            assert_eq!(text, fits);
        }
    }
}
