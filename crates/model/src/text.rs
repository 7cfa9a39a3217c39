//! Sanitizing of texts from drivers, kernels and agents for display.

/// Returns `text` on one line, without characters that are invisible or change the text direction. Names come from
/// firmware, drivers and other machines, and must neither control a terminal nor imitate another text. Whitespace
/// becomes a space; other such characters become U+FFFD.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' | '\n' | '\r' => ' ',
            c if c.is_control() || is_invisible(c) => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

/// Returns whether the character has no width or controls the layout of others. Source: Unicode 16,
/// `Default_Ignorable_Code_Point`, `Bidi_Control`, line and paragraph separators, interlinear annotations.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Returns at most `most` bytes of `text`, cut at a character boundary.
pub fn truncate(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_removes_control_and_bidi_characters() {
        for (text, shown) in [
            ("NVIDIA H100 80GB é 漢", "NVIDIA H100 80GB é 漢"),
            ("a\u{1b}[31mb\n", "a\u{fffd}[31mb "),
            ("a\u{202e}b\tc<d", "a\u{fffd}b c<d"),
            ("H\u{200b}100", "H\u{fffd}100"),
            ("a\u{2066}b\u{2069}\u{feff}", "a\u{fffd}b\u{fffd}\u{fffd}"),
            ("a\u{ad}b\u{2060}c\u{e0041}", "a\u{fffd}b\u{fffd}c\u{fffd}"),
            ("a\u{2028}b\u{61c}", "a\u{fffd}b\u{fffd}"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn truncation_keeps_whole_characters() {
        assert_eq!(truncate("aéb", 2), "a");
        assert_eq!(truncate("aéb", 3), "aé");
        assert_eq!(truncate("aéb", 9), "aéb");
    }
}
