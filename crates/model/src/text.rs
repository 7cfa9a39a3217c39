//! Formatting of texts, counts, ages and memory for display, on terminals and pages.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use crate::quantity::Mebibytes;

/// Maximum length of a name, id or word that a node reports, in bytes.
pub const MAX_WORD_BYTES: usize = 256;
/// Maximum length of a description for users that a node reports, in bytes.
pub const MAX_TEXT_BYTES: usize = 4096;

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

/// Returns at most `most` bytes of `text`, as [`truncate`]; a truncated text ends with an ellipsis.
pub fn truncate_visibly(text: &str, most: usize) -> String {
    const MARK: &str = "\u{2026}";
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}{MARK}", truncate(text, most.saturating_sub(MARK.len())))
}

/// Shortens a text to at most `most` characters: `...` replaces its middle, because names and reasons often differ only
/// at their end.
pub fn shorten(text: &str, most: usize) -> String {
    const MARK: &str = "...";
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let rest = most.saturating_sub(MARK.len());
    let tail = rest / 3;
    let (start, end) = (rest.saturating_sub(tail), length.saturating_sub(tail));
    let head: String = text.chars().take(start).collect();
    let tail = text.chars().skip(end);
    [head.as_str(), MARK].concat().chars().chain(tail).take(most).collect()
}

/// Returns at most [`MAX_WORD_BYTES`] of the text.
pub fn truncated_word(text: &str) -> String {
    truncate(text, MAX_WORD_BYTES)
}

/// Formats a count with its noun: `1 node`, `2 nodes`.
pub fn count_noun(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Joins the texts of `items`.
pub fn join(items: impl IntoIterator<Item: Display>, separator: &str) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    texts.join(separator)
}

/// Quotes the text as one word of a shell, if necessary.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._/,=".contains(c);
    if text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Joins the first few names of a list: `a, b and 3 more`.
pub fn first_names(names: &[impl AsRef<str>], shown: usize) -> String {
    let first = join(names.iter().take(shown).map(AsRef::as_ref), ", ");
    match names.len().saturating_sub(shown) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Formats an age: `12 s`, `3 min`, `5 h`, `2 d`. The script of the pages updates it in the same format: `words` in
/// `octavo.js`.
pub fn format_age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Formats an age for a column: `7s`, `12m`, `3h`, `9d`, in the largest unit with a value of at least two, as kubectl
/// does.
pub fn format_age_short(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats memory, rounded down to a tenth: `79.6 GiB`, `12.5 TiB`. TiB starts at ten, because below that a tenth of a
/// TiB would hide a whole GPU.
pub fn format_memory(memory: Mebibytes) -> String {
    let mebibytes = memory.get();
    let (unit, name) = match mebibytes {
        0..1024 => return format!("{mebibytes} MiB"),
        1024..10_485_760 => (1024, "GiB"),
        10_485_760..1_073_741_824 => (1_048_576, "TiB"),
        _ => (1_073_741_824, "PiB"),
    };
    let tenths = (mebibytes % unit).saturating_mul(10) / unit;
    match tenths {
        0 => format!("{} {name}", mebibytes / unit),
        _ => format!("{}.{tenths} {name}", mebibytes / unit),
    }
}

/// Inserts commas between the thousands of a decimal number: `1234567.8` becomes `1,234,567.8`.
pub fn group_thousands(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let digits: Vec<char> = whole.chars().collect();
    let groups = digits.rchunks(3).rev().map(|group| group.iter().collect::<String>());
    format!("{}{rest}", join(groups, ","))
}

/// Text of a cell in a spreadsheet, which executes a cell that begins like a formula: an apostrophe makes it a text.
/// Full-width characters count as well. Source: OWASP, "CSV Injection".
pub fn spreadsheet_text(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with([
        '=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}', '\t', '\r', '\n',
    ]);
    if is_formula { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_amounts_are_short() {
        let ages = [0, 59, 60, 3599, 3600, 172_799, 172_800].map(Duration::from_secs);
        assert_eq!(ages.map(format_age), ["0 s", "59 s", "1 min", "59 min", "1 h", "47 h", "2 d"]);
        let ages = [0, 119, 120, 7_199, 7_200, 172_799, 172_800].map(Duration::from_secs);
        assert_eq!(ages.map(format_age_short), ["0s", "119s", "2m", "119m", "2h", "47h", "2d"]);
        let amounts = [512, 15_360, 81_559, 652_472, 1_150_168, 13_107_200].map(Mebibytes::new);
        assert_eq!(
            amounts.map(format_memory),
            ["512 MiB", "15 GiB", "79.6 GiB", "637.1 GiB", "1123.2 GiB", "12.5 TiB"]
        );
    }

    #[test]
    fn lists_name_the_first_few() {
        assert_eq!(first_names(&["a", "b"], 2), "a, b");
        assert_eq!(first_names(&["a", "b", "c", "d"], 2), "a, b and 2 more");
        assert_eq!(first_names(&[""; 0], 2), "");
    }

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
    fn shortened_text_keeps_both_ends() {
        assert_eq!(shorten("gpu-node-1234", 13), "gpu-node-1234");
        assert_eq!(shorten("gpu-node-é-1234", 12), "gpu-no...234");
        assert_eq!(shorten("abcdef", 4), "a...");
        assert_eq!(shorten("abcdef", 2), "..");
        assert_eq!(shorten("abcdef", 0), "");
    }

    #[test]
    fn truncation_keeps_whole_characters() {
        assert_eq!(truncate("aéb", 2), "a");
        assert_eq!(truncate("aéb", 3), "aé");
        assert_eq!(truncate("aéb", 9), "aéb");
    }
}
