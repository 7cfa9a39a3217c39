//! Settings of device names.

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

/// Settings of device names.
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

    /// Returns the administrator's catalog.
    pub fn catalog(&self) -> Option<&Input> {
        self.catalog.as_ref()
    }

    /// Returns the name of unrecognized devices.
    pub fn type_override(&self) -> Option<&str> {
        self.type_override.as_deref()
    }
}
