//! Formatting of errors, for the log and for users.

use std::error::Error;

/// An error with all its causes on one line, outermost first. A cause that the outer error already contains in full
/// is not repeated, because some libraries include it.
pub fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut below = error.source();
    while let Some(source) = below {
        let cause = source.to_string();
        if !line.ends_with(&cause) {
            line.push_str(": ");
            line.push_str(&cause);
        }
        below = source.source();
    }
    line
}

/// Formats an error for standard error: the message, each cause on a line of its own, and advice.
pub fn explain(error: &dyn Error, advice: Option<&str>) -> String {
    let mut text = format!("error: {error}\n");
    let mut cause = error.source();
    while let Some(error) = cause {
        // A cause of several lines (YAML errors quote the position) keeps its shape below the first.
        let message = error.to_string().replace('\n', "\n    ");
        text.push_str("  because: ");
        text.push_str(message.trim_end());
        text.push('\n');
        cause = error.source();
    }
    if let Some(advice) = advice {
        text.push_str("  try: ");
        text.push_str(advice);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    #[error("{0}")]
    struct TestError(&'static str, #[source] Option<Box<TestError>>);

    #[test]
    fn every_cause_appears_once() {
        let error_with = |text, cause| TestError(text, Some(Box::new(cause)));
        let disk = || TestError("no space left", None);
        let line = chain(&error_with("cannot write", error_with("disk", disk())));
        assert_eq!(line, "cannot write: disk: no space left");
        let line = chain(&error_with("cannot write: no space left", disk()));
        assert_eq!(line, "cannot write: no space left");
    }
}
