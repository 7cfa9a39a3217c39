//! A frame of memory slices, in characters that every terminal and log supports, used by all pictures.
//!
//! A cell is a memory slice: 72 columns can be divided by 4 (A30), 8 and 12 (RTX PRO) alike, so the frame has one
//! width.

use std::collections::BTreeSet;

use octavo_model::inventory::{DeviceProcesses, InstanceUse};
use octavo_model::slices::words as say;

use crate::style::{Colors, Style};
use crate::text::{length, lines, pieces};

/// Part of a cell that has its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coloring {
    /// Colored words: a free slice, or a change.
    Text,
    /// Colored background: an instance that exists and stays.
    Background,
}

/// Columns between the left edge and the right one, the right one included.
const FRAME_WIDTH: usize = 72;

/// A range of slices with one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Number of slices.
    pub slices: u32,
    /// Character before the first line: a blank, or a marker.
    pub mark: char,
    /// Texts below each other; each is folded.
    pub paragraphs: Vec<String>,
    /// Meaning of the texts.
    pub style: Style,
    /// Colored part.
    pub coloring: Coloring,
}

impl Cell {
    /// A GPU that is not partitioned.
    pub fn whole(slices: u32, usage: DeviceProcesses<'_>) -> Self {
        let style = match usage {
            DeviceProcesses::Known([]) => Style::Good,
            DeviceProcesses::Unknown | DeviceProcesses::Known(_) => Style::Warning,
        };
        Self {
            slices,
            mark: ' ',
            paragraphs: vec![format!("one whole GPU, {}", say::whole_gpu_usage(usage))],
            style,
            coloring: Coloring::Background,
        }
    }

    /// A slice without an instance.
    pub fn free() -> Self {
        Self {
            slices: 1,
            mark: ' ',
            paragraphs: vec!["free".to_owned()],
            style: Style::Good,
            coloring: Coloring::Text,
        }
    }
}

/// Returns the style of an instance with this use.
pub fn use_style(how: &InstanceUse) -> Style {
    match how {
        InstanceUse::Idle => Style::Good,
        InstanceUse::Unknown
        | InstanceUse::NoComputeInstance
        | InstanceUse::InUse
        | InstanceUse::InUseBy(_) => Style::Warning,
    }
}

/// Cells side by side, with their label.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Text in the edge above them; may be empty.
    pub label: &'a str,
    /// The cells.
    pub cells: &'a [Cell],
}

/// Draws the numbers of the slices, and the cells below them.
pub fn frame(cells: &[Cell], slices: u32, colors: Colors) -> String {
    frames(&[Row { label: "", cells }], slices, colors)
}

/// Draws several rows of cells below one row of numbers.
pub fn frames(rows: &[Row<'_>], slices: u32, colors: Colors) -> String {
    let width = width(slices);
    let numbers: Vec<String> = (0..slices).map(|slice| format!("{slice:<width$}")).collect();
    let numbering = Style::Faint.paint(numbers.concat().trim_end(), colors);
    let mut drawn = vec![format!("   {numbering}")];
    let mut above: &[Cell] = &[];
    for row in rows {
        drawn.push(rule(above, row.cells, row.label, width));
        drawn.extend(words(row.cells, width, colors));
        above = row.cells;
    }
    drawn.push(rule(above, &[], "", width));
    lines(drawn)
}

/// Returns the width of a slice with its right edge; at least the width of the number above it.
fn width(slices: u32) -> usize {
    let slices = usize::try_from(slices).unwrap_or(1).max(1);
    FRAME_WIDTH.checked_div(slices).unwrap_or(FRAME_WIDTH).max(3)
}

fn inner(cell: &Cell, width: usize) -> usize {
    let slices = usize::try_from(cell.slices).unwrap_or(1);
    width.saturating_mul(slices).saturating_sub(1)
}

/// Draws the edge between two rows, with a corner at every edge of either row.
fn rule(above: &[Cell], below: &[Cell], label: &str, width: usize) -> String {
    let corners: BTreeSet<usize> = edges(above, width).chain(edges(below, width)).collect();
    let end = corners.last().copied().unwrap_or(0);
    let mut edge = String::from("  +-");
    // A label that does not fit into the first slice would hide a corner.
    if label.len().saturating_add(2) <= width {
        edge.push_str(label);
    }
    let from = edge.len().saturating_sub(2);
    edge.extend((from..=end).map(|column| if corners.contains(&column) { '+' } else { '-' }));
    edge
}

/// Returns the columns of the right edges of cells, counted from the left edge of the first.
fn edges(cells: &[Cell], width: usize) -> impl Iterator<Item = usize> {
    cells.iter().scan(0_usize, move |column, cell| {
        *column = column.saturating_add(inner(cell, width)).saturating_add(1);
        Some(*column)
    })
}

fn words(cells: &[Cell], width: usize, colors: Colors) -> Vec<String> {
    let texts: Vec<Vec<String>> = cells
        .iter()
        .map(|cell| {
            let width = inner(cell, width).saturating_sub(1);
            let paragraphs = cell.paragraphs.iter();
            paragraphs.flat_map(|text| pieces(text, width)).collect()
        })
        .collect();
    let height = texts.iter().map(Vec::len).max().unwrap_or(0);
    let line = |number: usize| {
        let drawn: Vec<String> = cells
            .iter()
            .zip(&texts)
            .map(|(cell, lines)| {
                let words = lines.get(number).map_or("", String::as_str);
                let pad = inner(cell, width).saturating_sub(length(words)).saturating_sub(1);
                let (blank, words) = match cell.mark {
                    ' ' => (" ", words.to_owned()),
                    mark if number == 0 => ("", format!("{mark}{words}")),
                    _ => (" ", words.to_owned()),
                };
                let pad = " ".repeat(pad);
                match cell.coloring {
                    Coloring::Text => format!("{blank}{}{pad}", cell.style.paint(&words, colors)),
                    Coloring::Background => {
                        cell.style.fill(&format!("{blank}{words}{pad}"), colors)
                    }
                }
            })
            .collect();
        format!("  |{}|", drawn.join("|"))
    };
    (0..height).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(style: Style, coloring: Coloring, mark: char) -> Cell {
        Cell { slices: 1, mark, paragraphs: vec!["a".to_owned()], style, coloring }
    }

    #[test]
    fn instances_are_filled_and_free_slices_and_changes_have_colored_words() {
        let cells = [
            cell(Style::Warning, Coloring::Background, ' '),
            cell(Style::Bad, Coloring::Background, '!'),
            cell(Style::Bad, Coloring::Text, '-'),
            Cell::free(),
        ];
        let plain = frame(&cells, 4, Colors::Off);
        let blank = " ".repeat(15);
        let row = format!("  | a{blank}|!a{blank}|-a{blank}| free{}|", " ".repeat(12));
        assert_eq!(plain.lines().nth(2), Some(row.as_str()));
        let colored = frame(&cells, 4, Colors::On);
        let row = format!(
            "  |\u{1b}[30;43m a{blank}\u{1b}[0m|\u{1b}[97;41m!a{blank}\u{1b}[0m|\u{1b}[31m-a\u{1b}[0m{blank}| \u{1b}[32mfree\u{1b}[0m{}|",
            " ".repeat(12)
        );
        assert_eq!(colored.lines().nth(2), Some(row.as_str()));
    }
}
