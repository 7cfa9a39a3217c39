//! Filter of hardware profiles by type and namespace.

use octavo_fleet::hardware_profile::document::ProfileRow;

/// Filter of profiles.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProfileFilter {
    /// Type; `None` matches any.
    pub(super) type_name: Option<String>,
    /// Namespace; `None` matches any.
    pub(super) namespace: Option<String>,
}

impl ProfileFilter {
    /// Returns whether the profile matches.
    pub(super) fn matches(&self, row: &ProfileRow) -> bool {
        let mut names = self.type_name.iter();
        let mut namespaces = self.namespace.iter();
        names.all(|name| row.types.iter().any(|one| one.as_str() == name))
            && namespaces.all(|of| row.namespace == *of)
    }
}
