//! Settings of `octavo catalog`.

mod args;

use clap::ValueEnum;
use octavo_model::accelerators::AliasKind;

pub(super) use self::args::{CatalogArgs, EXAMPLES};
use super::Input;

/// Settings of `octavo catalog`'s subcommands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogCommand {
    /// `octavo catalog search`.
    Search(LookupSettings),
    /// `octavo catalog show`.
    Show(LookupSettings),
}

/// A name to look up, and the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupSettings {
    text: String,
    kind: Option<AliasKind>,
    overlay: Option<Input>,
    format: CatalogFormat,
}

/// How products are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CatalogFormat {
    /// A table
    Table,
    /// All of it as JSON
    Json,
    /// The same as YAML
    Yaml,
}

impl LookupSettings {
    /// Returns the name.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the kind of name, if it was specified.
    pub fn kind(&self) -> Option<AliasKind> {
        self.kind
    }

    /// Returns the administrator's catalog.
    pub fn overlay(&self) -> Option<&Input> {
        self.overlay.as_ref()
    }

    /// Returns the output format.
    pub fn format(&self) -> CatalogFormat {
        self.format
    }
}
