//! Files and standard input as values of arguments.

use std::path::{Path, PathBuf};

use clap::builder::{MapValueParser, PathBufValueParser, TypedValueParser, ValueParserFactory};

/// A file to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

impl Input {
    /// Returns an error if more than one of the inputs is standard input.
    pub fn read_once<'a>(
        inputs: impl IntoIterator<Item = &'a Self>,
        error: &'static str,
    ) -> Result<(), &'static str> {
        let stdin = inputs.into_iter().filter(|input| **input == Self::Stdin);
        if stdin.count() > 1 { Err(error) } else { Ok(()) }
    }

    /// Returns the path as specified by the user.
    pub fn path(&self) -> &Path {
        match self {
            Self::Stdin => Path::new("-"),
            Self::File(path) => path,
        }
    }
}

impl From<PathBuf> for Input {
    fn from(path: PathBuf) -> Self {
        if path == Path::new("-") { Self::Stdin } else { Self::File(path) }
    }
}

impl ValueParserFactory for Input {
    type Parser = MapValueParser<PathBufValueParser, fn(PathBuf) -> Self>;

    fn value_parser() -> Self::Parser {
        PathBufValueParser::new().map(Self::from)
    }
}
