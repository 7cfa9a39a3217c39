//! Diagnostics at a position of a file, in the format that editors and pipelines understand:
//! `FILE:LINE:COLUMN: error: ...`, followed by the line itself with a marker below the position.

use octavo_files::layouts::render;
use octavo_model::source_position::SourcePosition;

use super::text::printable;

/// A text and its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourceText<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Error,
    Warning,
}

impl SourceText<'_> {
    /// Formats errors, each at its position.
    pub(super) fn errors(
        &self,
        errors: impl IntoIterator<Item = (SourcePosition, String)>,
    ) -> String {
        let errors = errors.into_iter();
        errors.map(|(position, message)| self.at(Severity::Error, position, &message)).collect()
    }

    /// Formats `message` for a position. A position of zero belongs to a generated layout without a file.
    pub(super) fn at(&self, severity: Severity, position: SourcePosition, message: &str) -> String {
        let word = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let message = printable(message);
        if position == SourcePosition::default() {
            return format!("{}: {word}: {message}\n", printable(self.name));
        }
        render((self.name, self.text), position, (word, &message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostic_quotes_its_line() {
        let page = SourceText { name: "layouts.yaml", text: "layouts:\n  a:\n  - devices: al\n" };
        let message =
            |line, column| page.at(Severity::Error, SourcePosition { line, column }, "no\nsuch");
        let text = message(3, 14);
        assert!(text.starts_with("layouts.yaml:3:14: error: no such\n"), "{text}");
        assert!(text.contains("- devices: al\n"), "{text}");
        assert_eq!(message(0, 0), "layouts.yaml: error: no such\n");
    }
}
