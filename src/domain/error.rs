//! An error as a person reads it in a log.

use std::error::Error;

/// An error with all its causes on one line, outermost first.
pub fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut below = error.source();
    while let Some(source) = below {
        line.push_str(": ");
        line.push_str(&source.to_string());
        below = source.source();
    }
    line
}
