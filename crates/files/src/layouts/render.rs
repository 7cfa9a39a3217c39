//! Display of an error or warning in a terminal: file, position, message, source line, and a marker below it.

use std::fmt;

use octavo_model::source_position::SourcePosition;

/// Maximum number of columns shown of a line.
const MAX_COLUMNS: usize = 100;

/// Columns shown before the position if the line is too long.
const MAX_COLUMNS_BEFORE: usize = 40;

/// Renders one finding. `grade` is `error` or `warning`. Only visible characters of the file reach the terminal, and at
/// most one screen width of a line.
pub fn render(
    (file, text): (&str, &str),
    position: SourcePosition,
    (grade, message): (&str, &dyn fmt::Display),
) -> String {
    let head = format!("{}:{position}: {grade}: {message}\n", sanitize(file));
    let Some(line) = line_of(text, position.line) else {
        return head;
    };
    let number = position.line.to_string();
    let margin = " ".repeat(number.len());
    let (shown, before) = visible_window(line, position.column);
    format!("{head}{margin} |\n{number} | {shown}\n{margin} | {}^\n", " ".repeat(before))
}

/// Returns a line by number, without its line break. CR LF, LF and CR are line breaks, as for the parser.
fn line_of(text: &str, number: u32) -> Option<&str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rest = text;
    for _ in 1..number {
        let at = rest.find(['\r', '\n'])?;
        let (_, behind) = rest.split_at(at);
        rest = behind.strip_prefix("\r\n").or_else(|| behind.get(1..)).unwrap_or_default();
    }
    rest.split(['\r', '\n']).next()
}

/// Returns the shown part of a line, and the number of columns before the position.
fn visible_window(line: &str, column: u32) -> (String, usize) {
    let at = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
    let start = at.saturating_sub(MAX_COLUMNS_BEFORE);
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
        if width + more > MAX_COLUMNS {
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

fn sanitize(text: &str) -> String {
    let shown = |c: char| if is_visible(c) { c } else { '\u{fffd}' };
    text.chars().map(shown).collect()
}

/// Reports whether the character neither moves the cursor nor joins or reorders its neighbors.
fn is_visible(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}' | '\u{feff}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Number of terminal columns of a character. Source: Unicode Standard Annex 11, blocks that are entirely wide.
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
