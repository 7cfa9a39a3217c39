//! Errors before a tree exists, with their positions: forbidden characters and syntax errors of the YAML parser.

use granit_parser::{ErrorKind, ScanError};
use octavo_model::source_position::SourcePosition;

use super::error::LayoutProblem;

/// Maximum nesting depth. A layout needs seven levels.
pub(super) const MAX_DEPTH: usize = 32;

/// A problem and its position.
pub(super) type PlacedProblem = (SourcePosition, LayoutProblem);

/// Rejects characters that YAML forbids. The parser treats U+0000 as the end of the text and would ignore everything
/// after it. Source: YAML 1.2.2, 5.1 "Character Set".
pub(super) fn check_characters(text: &str) -> Result<(), PlacedProblem> {
    let allowed = |c: char| match c {
        '\t' | '\n' | '\r' | '\u{85}' => true,
        '\u{feff}' | '\u{fffe}' | '\u{ffff}' => false,
        _ => !c.is_control(),
    };
    let Some((at, wrong)) = text.char_indices().find(|(_, c)| !allowed(*c)) else {
        return Ok(());
    };
    let before = text.get(..at).unwrap_or_default();
    let breaks = before.matches(['\r', '\n']).count() - before.matches("\r\n").count();
    let column = before.chars().rev().take_while(|c| !matches!(c, '\r' | '\n'));
    Err((place(breaks + 1, column.count()), LayoutProblem::Character(wrong)))
}

pub(super) fn syntax_error(error: &ScanError) -> PlacedProblem {
    let mark = error.marker();
    let place = place(mark.line(), mark.col());
    let problem = if *error.kind() == ErrorKind::RecursionLimitExceeded {
        LayoutProblem::TooDeep { most: MAX_DEPTH }
    } else {
        LayoutProblem::Syntax(error.info())
    };
    (place, problem)
}

/// Converts the parser's position: its lines start at one, its columns at zero.
pub(super) fn place(line: usize, column: usize) -> SourcePosition {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    SourcePosition { line: count(line).max(1), column: count(column).saturating_add(1) }
}
