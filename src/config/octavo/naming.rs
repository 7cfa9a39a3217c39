//! Settings of what devices are called.

use clap::Args;

use super::Input;

/// Raw arguments.
#[derive(Debug, Args)]
pub(super) struct NamingArgs {
    /// What the label octavo.dev/type-override would have unknown devices called
    ///
    /// A SKU, a type or another name of one product brings what the catalogue knows of it; any other name is taken as a type.
    #[arg(long, value_name = "NAME")]
    type_override: Option<String>,
}

/// By what devices are named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamingSettings {
    catalog: Option<Input>,
    type_override: Option<String>,
}

impl NamingSettings {
    pub(super) fn new(args: NamingArgs, catalog: Option<Input>) -> Self {
        Self {
            catalog,
            type_override: args.type_override,
        }
    }

    /// The administrator's own catalogue.
    pub fn catalog(&self) -> Option<&Input> {
        self.catalog.as_ref()
    }

    /// What devices are called that nobody knows.
    pub fn type_override(&self) -> Option<&str> {
        self.type_override.as_deref()
    }
}
