//! Settings of `octavo catalog`.

mod args;

use clap::ValueEnum;

pub(super) use self::args::{CatalogueArgs, EXAMPLES};
use super::Input;
use crate::domain::accelerators::AliasKind;

/// What `octavo catalog` is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogueCommand {
    /// `octavo catalog search`.
    Search(LookupSettings),
    /// `octavo catalog show`.
    Show(LookupSettings),
}

/// A name, and where it is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupSettings {
    text: String,
    kind: Option<AliasKind>,
    overlay: Option<Input>,
    format: CatalogueFormat,
}

/// How products are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CatalogueFormat {
    /// A table
    Table,
    /// All of it as JSON
    Json,
    /// The same as YAML
    Yaml,
}

impl LookupSettings {
    /// The name.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whose word it is, where that was said.
    pub fn kind(&self) -> Option<AliasKind> {
        self.kind
    }

    /// The administrator's own catalogue.
    pub fn overlay(&self) -> Option<&Input> {
        self.overlay.as_ref()
    }

    /// How it is printed.
    pub fn format(&self) -> CatalogueFormat {
        self.format
    }
}
