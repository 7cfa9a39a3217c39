//! Files and standard input as values of arguments.

use std::path::{Path, PathBuf};

use clap::builder::{MapValueParser, PathBufValueParser, TypedValueParser, ValueParserFactory};
use clap::{Args, ValueHint};

/// A file to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

/// The file with what is wanted: layouts, or a checkpoint. A positional argument is accepted as well.
#[derive(Debug, Clone, Args)]
#[group(id = "wanted_file", required = true, multiple = false)]
pub struct WantedFile {
    /// File to read; - for standard input
    #[arg(short = 'f', long = "file", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    by_flag: Option<Input>,

    /// The same without a flag.
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath, hide = true)]
    by_position: Option<Input>,
}

impl WantedFile {
    /// Returns the file.
    pub fn input(&self) -> &Input {
        // One of them is required.
        self.by_flag.as_ref().or(self.by_position.as_ref()).unwrap_or(&Input::Stdin)
    }
}

/// Files with what is wanted. Positional arguments are accepted as well.
#[derive(Debug, Clone, Args)]
#[group(id = "wanted_files", required = true, multiple = true)]
pub struct WantedFiles {
    /// File to read; - for standard input; repeat for several
    #[arg(short = 'f', long = "file", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    by_flag: Vec<Input>,

    /// The same without a flag.
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath, hide = true)]
    by_position: Vec<Input>,
}

impl WantedFiles {
    /// Returns the files.
    pub fn inputs(&self) -> impl Iterator<Item = &Input> {
        self.by_flag.iter().chain(&self.by_position)
    }
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
