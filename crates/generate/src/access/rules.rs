//! Rules of access, as written by users.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::{TypeName, is_label_name};
use serde::Deserialize;
use thiserror::Error;

/// Types that namespaces may use.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AccessRules {
    #[expect(dead_code, reason = "parsing checks it")]
    api_version: ApiVersion,
    #[expect(dead_code, reason = "parsing checks it")]
    kind: Kind,
    /// Allowed types by namespace.
    pub namespaces: BTreeMap<String, BTreeSet<TypeName>>,
    /// Allowed types of other namespaces; `None` if these may use every type.
    pub others: Option<BTreeSet<TypeName>>,
}

#[derive(Debug, Clone, Deserialize)]
enum ApiVersion {
    #[serde(rename = "octavo.dev/v1")]
    V1,
}

#[derive(Debug, Clone, Deserialize)]
enum Kind {
    AccessRules,
}

/// A namespace whose name is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("namespaces: {0:?} is not the name of a namespace")]
pub struct InvalidNamespace(String);

impl AccessRules {
    /// Checks the names of the namespaces.
    ///
    /// # Errors
    ///
    /// Returns the first invalid name.
    pub fn checked(self) -> Result<Self, InvalidNamespace> {
        let invalid = self.namespaces.keys().find(|name| !is_label_name(name));
        match invalid {
            Some(name) => Err(InvalidNamespace(name.clone())),
            None => Ok(self),
        }
    }

    /// Types that a rule names.
    pub(crate) fn types(&self) -> impl Iterator<Item = &TypeName> {
        self.namespaces.values().chain(&self.others).flatten()
    }
}
