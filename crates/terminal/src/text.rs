//! Plain-text layout: columns as kubectl prints them, and folded lines.

use std::fmt::Display;

pub use octavo_model::text::{count_noun, first_names, printable, shorten};

use crate::style::{Colors, Style};

/// Width of folded text, and of a terminal whose width is unknown.
pub const WIDTH: usize = 80;

/// Placeholder for a missing value.
pub const NONE: &str = "-";

/// Parts of a table besides its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headers {
    /// A row of headers, and the text above and below the table.
    Shown,
    /// Only the rows.
    Hidden,
}

/// A text in a column.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Returns the cell of a value, with control characters replaced.
    pub fn new(value: &(impl Display + ?Sized), style: Style) -> Self {
        Self { text: printable(&value.to_string()), style }
    }

    /// Returns the cell of a value without a style.
    pub fn plain(value: &(impl Display + ?Sized)) -> Self {
        Self::new(value, Style::Plain)
    }

    /// Returns the cell of a value, or a placeholder.
    pub fn optional(value: Option<impl Display>) -> Self {
        value.map_or_else(|| Self::plain(NONE), |value| Self::plain(&value))
    }
}

/// Formats rows as columns below their names, which are in one or more lists. Cells beyond the last name are not shown.
pub fn table(
    names: &[&[&str]],
    rows: impl IntoIterator<Item = Vec<Cell>>,
    headers: Headers,
    colors: Colors,
) -> String {
    let names = names.concat();
    let header = names.iter().map(|name| Cell::new(name, Style::Strong)).collect();
    let header = (headers == Headers::Shown).then_some(header);
    let mut all: Vec<Vec<Cell>> = header.into_iter().chain(rows).collect();
    for row in &mut all {
        row.truncate(names.len());
    }
    columns(&all, colors)
}

/// Formats rows as columns without borders. The last column is not padded, so that no line ends in blanks.
pub fn columns(rows: &[Vec<Cell>], colors: Colors) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(length(&cell.text));
        }
    }
    let mut text = String::new();
    for row in rows {
        for (number, (cell, width)) in row.iter().zip(&widths).enumerate() {
            text.push_str(&cell.style.paint(&cell.text, colors));
            if number.saturating_add(1) < row.len() {
                let gap = width.saturating_sub(length(&cell.text)).saturating_add(2);
                text.push_str(&" ".repeat(gap));
            }
        }
        text.push('\n');
    }
    text
}

/// Folds `text` between words to the width. The first line keeps its leading blanks; every other line starts with
/// `indent` blanks.
pub fn wrap(text: &str, indent: usize) -> String {
    let text = printable(text);
    let words = text.trim_start_matches(' ');
    let mut column = length(&text).saturating_sub(length(words));
    let mut result = " ".repeat(column);
    let mut first = true;
    for word in words.split(' ') {
        let width = length(word);
        if !first && column.saturating_add(width).saturating_add(1) > WIDTH {
            result.push('\n');
            result.push_str(&" ".repeat(indent));
            column = indent;
        } else if !first {
            result.push(' ');
            column = column.saturating_add(1);
        }
        first = false;
        result.push_str(word);
        column = column.saturating_add(width);
    }
    result
}

/// Cuts `text` into pieces of at most `width`, preferably before a character that starts a new part of a name.
pub fn pieces(text: &str, width: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest: Vec<char> = printable(text).chars().collect();
    let width = width.max(1);
    while rest.len() > width {
        let at_break = |at: &usize| rest.get(*at).is_some_and(|c| "+-,. ".contains(*c));
        let cut = (1..=width).rev().find(at_break).unwrap_or(width);
        let tail = rest.split_off(cut);
        pieces.push(rest.iter().collect());
        rest = tail.into_iter().skip_while(|c| *c == ' ').collect();
    }
    pieces.push(rest.iter().collect());
    pieces
}

/// Returns the number of characters, which equals the columns for all hardware names.
pub fn length(text: &str) -> usize {
    text.chars().count()
}

/// Groups values by their key, in the order of the first value of each group.
pub fn group_by_key<K: PartialEq, V>(values: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in values {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// Formats each text as a line.
pub fn lines(texts: impl IntoIterator<Item = String>) -> String {
    let mut all = String::new();
    for text in texts {
        all.push_str(&text);
        all.push('\n');
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_widest_cell_and_lines_have_no_trailing_blanks() {
        let row = |texts: [&str; 2]| texts.map(Cell::plain).to_vec();
        assert_eq!(
            columns(&[row(["A", "B"]), row(["long", "b"])], Colors::Off),
            "A     B\nlong  b\n"
        );
    }

    #[test]
    fn colors_do_not_count_as_width() {
        let row = |text| vec![Cell::new(text, Style::Bad), Cell::plain("x")];
        let text = columns(&[row("a"), row("bb")], Colors::On);
        assert_eq!(text, "\u{1b}[31ma\u{1b}[0m   x\n\u{1b}[31mbb\u{1b}[0m  x\n");
    }

    #[test]
    fn names_are_truncated_at_part_boundaries() {
        assert_eq!(pieces("1g.10gb+me", 7), ["1g.10gb", "+me"]);
        assert_eq!(pieces("gi 12/0", 7), ["gi 12/0"]);
        assert_eq!(pieces("abcdefgh", 3), ["abc", "def", "gh"]);
    }

    #[test]
    fn folding_breaks_between_words_only() {
        let long = "x".repeat(78);
        assert_eq!(wrap(&format!("a {long} b"), 2), format!("a {long}\n  b"));
        assert_eq!(wrap(&format!("  {long} b"), 4), format!("  {long}\n    b"));
    }
}
