//! Formatting of errors for the log.

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

#[cfg(test)]
mod tests {
    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    #[error("{0}")]
    struct TestError(&'static str, #[source] Option<Box<TestError>>);

    #[test]
    fn every_cause_appears_once() {
        let told = |text, cause| TestError(text, Some(Box::new(cause)));
        let disk = || TestError("no space left", None);
        let line = chain(&told("cannot write", told("disk", disk())));
        assert_eq!(line, "cannot write: disk: no space left");
        let line = chain(&told("cannot write: no space left", disk()));
        assert_eq!(line, "cannot write: no space left");
    }
}
