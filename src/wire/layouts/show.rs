//! An error or warning as a person reads it in a terminal: file, place, message, the line, a mark below it.

use std::fmt;

use crate::domain::layout::Place;

/// Columns of a line that are shown.
const WIDTH: usize = 100;

/// Columns shown before the place, where the line is too long.
const BEFORE: usize = 40;

/// Renders one finding; `grade` is `error` or `warning`. Nothing of the file reaches the terminal but what is plainly
/// visible, and never more than a screen's width of a line.
pub fn show(
    (file, text): (&str, &str),
    place: Place,
    (grade, message): (&str, &dyn fmt::Display),
) -> String {
    let head = format!("{}:{place}: {grade}: {message}\n", visible(file));
    let Some(line) = line_of(text, place.line) else {
        return head;
    };
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    let (shown, before) = window(line, place.column);
    format!(
        "{head}{margin} |\n{number} | {shown}\n{margin} | {}^\n",
        " ".repeat(before)
    )
}

/// A line by its number, without its break. CR LF, LF and CR are breaks, as they are to the parser.
fn line_of(text: &str, number: u32) -> Option<&str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rest = text;
    for _ in 1..number {
        let at = rest.find(['\r', '\n'])?;
        let (_, behind) = rest.split_at(at);
        rest = behind
            .strip_prefix("\r\n")
            .or_else(|| behind.get(1..))
            .unwrap_or_default();
    }
    rest.split(['\r', '\n']).next()
}

/// What is shown of a line, and the width of what stands before the place.
fn window(line: &str, column: u32) -> (String, usize) {
    let at = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
    let start = at.saturating_sub(BEFORE);
    let mut shown = String::new();
    let mut width = 0;
    let mut before = 0;
    if start > 0 && line.chars().nth(start).is_some() {
        shown.push('…');
        width = 1;
    }
    before = before.max(width);
    for (index, c) in line.chars().enumerate().skip(start) {
        let more = columns(c);
        if width + more > WIDTH {
            shown.push('…');
            break;
        }
        if c == '\t' {
            shown.push_str("    ");
        } else {
            shown.push(if is_visible(c) { c } else { '\u{fffd}' });
        }
        width += more;
        if index < at {
            before = width;
        }
    }
    (shown, before)
}

fn visible(text: &str) -> String {
    let shown = |c: char| if is_visible(c) { c } else { '\u{fffd}' };
    text.chars().map(shown).collect()
}

/// Neither moves the cursor, nor joins or reorders what stands around it.
fn is_visible(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}' | '\u{feff}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Columns of a terminal that a character takes. Source: Unicode Standard Annex 11, the blocks that are wide throughout.
fn columns(c: char) -> usize {
    match c {
        '\t' => 4,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{303e}'
        | '\u{3041}'..='\u{a4cf}'
        | '\u{a960}'..='\u{a97f}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1f64f}'
        | '\u{1f680}'..='\u{1f6ff}'
        | '\u{1f900}'..='\u{1f9ff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}
