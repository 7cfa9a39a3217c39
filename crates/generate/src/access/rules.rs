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

/// Namespaces of Kubernetes and, by default, of Octavo.
const SYSTEM_NAMESPACES: [&str; 2] = ["kube-system", "octavo-system"];

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

    /// Returns whether a namespace may use a device of this type; `None` is a device that was not identified. Namespaces of the
    /// system are not limited by `others`.
    pub fn allow(&self, namespace: &str, type_name: Option<&TypeName>) -> bool {
        let others = self.others.as_ref().filter(|_| !SYSTEM_NAMESPACES.contains(&namespace));
        let allowed = self.namespaces.get(namespace).or(others);
        allowed.is_none_or(|allowed| type_name.is_some_and(|name| allowed.contains(name)))
    }

    /// Types that a rule names.
    pub(crate) fn types(&self) -> impl Iterator<Item = &TypeName> {
        self.namespaces.values().chain(&self.others).flatten()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(others: &Value) -> AccessRules {
        let rules = json!({
            "apiVersion": "octavo.dev/v1", "kind": "AccessRules",
            "namespaces": {"research": ["nvidia-h100-80gb"], "web": []}, "others": others,
        });
        serde_json::from_value(rules).unwrap()
    }

    #[test]
    fn f7_namespaces_may_use_their_types_and_others_every_type_or_those_of_the_rule() {
        let [h100, t4]: [TypeName; 2] =
            ["nvidia-h100-80gb", "nvidia-t4-16gb"].map(|name| name.parse().unwrap());
        let (open, limited) = (rules(&Value::Null), rules(&json!(["nvidia-t4-16gb"])));
        for rules in [&open, &limited] {
            assert!(rules.allow("research", Some(&h100)));
            assert!(!rules.allow("research", Some(&t4)));
            assert!(!rules.allow("research", None));
            assert!(!rules.allow("web", Some(&t4)));
            assert!(rules.allow("kube-system", Some(&h100)));
        }
        assert!(open.allow("team", Some(&h100)) && open.allow("team", None));
        assert!(limited.allow("team", Some(&t4)));
        assert!(!limited.allow("team", Some(&h100)));
    }
}
