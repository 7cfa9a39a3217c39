//! Positions in files.

use std::fmt;

/// A position in a file, one-based. Zero for a generated layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SourcePosition {
    /// Line number.
    pub line: u32,
    /// Column in characters.
    pub column: u32,
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}
