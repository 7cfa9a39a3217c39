//! Parts of statements.

use std::fmt::Write as _;

/// Rows of one statement.
pub(crate) const ROWS_PER_STATEMENT: usize = 200;

/// Text without NUL, which PostgreSQL does not store. Agents choose the texts, and one must not prevent the write of others.
pub(crate) fn text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Statement that inserts `rows` rows. `table` is the name of the table and its columns.
pub(crate) fn insert(table: &str, rows: usize, conflict: &str) -> String {
    let columns = table.split(',').count();
    let mut statement = format!("INSERT INTO {table} VALUES ");
    let mut number = 0_usize;
    for row in 0..rows {
        statement.push_str(if row == 0 { "(" } else { ", (" });
        for column in 0..columns {
            number = number.saturating_add(1);
            let separator = if column == 0 { "" } else { ", " };
            // A write to a String cannot fail.
            let _ignored = write!(statement, "{separator}${number}");
        }
        statement.push(')');
    }
    format!("{statement} {conflict}")
}
