//! HTTP authorization: the access review for each request, and the visibility that follows from the answers.
//!
//! The cluster's own RBAC roles decide, through virtual resources such as `nodes.octavo.dev` and
//! `acceleratortypes.octavo.dev`. No such objects need to exist: a role may name any resource, and the API server
//! reports whether a user has the permission. The aggregator's gate calls this module in front of its pages and its
//! API. A path without a row in [`ROUTE_RULES`] is denied, so a route that was forgotten here fails closed.

pub mod authentication;
pub mod cross_site;
mod permissions;

use std::collections::BTreeSet;
use std::fmt;

use octavo_model::id::{NodeName, TypeName};
use strum::{Display, IntoStaticStr};

pub use self::authentication::Caller;
pub use self::permissions::{Method, ROUTE_RULES, RoutePermission, RouteRule};
use super::hardware_profile::{ProfileKey, ProfileKind};

/// API group that roles use.
pub const API_GROUP: &str = "octavo.dev";

/// Verb of an access review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display)]
#[strum(serialize_all = "lowercase")]
pub enum Verb {
    /// Read one object.
    Get,
    /// List all objects.
    List,
    /// Watch all objects.
    Watch,
    /// Create an object.
    Create,
    /// Change an object.
    Patch,
}

/// Resource of an access review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Resource {
    /// Accelerator types with their counts and availability.
    AcceleratorTypes,
    /// Nodes by name, with serial numbers and UUIDs of their devices, and plans for them.
    Nodes,
    /// Usage by namespace and pod.
    Usage,
    /// Audit entries: changes, refusals and usage of all users and namespaces.
    AuditEntries,
    /// Hardware profiles.
    HardwareProfiles,
    /// The real objects of hardware profiles, as if the requester used them directly.
    ProfileObjects,
}

/// Access review for a requester.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessReview {
    /// Access to a resource.
    Resource {
        /// Requested verb.
        verb: Verb,
        /// Requested resource.
        resource: Resource,
        /// Namespace; `None` for all namespaces.
        namespace: Option<String>,
        /// Object name; `None` for any object.
        name: Option<String>,
    },
    /// Read access to a non-resource path.
    Path(&'static str),
}

/// Accelerator types visible to a requester.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VisibleTypes {
    /// All types, and devices without a type.
    All,
    /// These types only.
    Only(BTreeSet<TypeName>),
}

/// Visibility of the data behind a path for one requester.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visibility {
    /// Visible types.
    pub types: VisibleTypes,
    /// True if nodes may be named, with device identifiers. Internal error messages are then shown too.
    pub nodes: bool,
    /// True if hardware profiles of visible types may be named.
    pub profiles: bool,
    /// True if pods may be named: all, or those in the namespace of the query.
    pub pods: bool,
}

/// Maximum number of types checked one by one per request; further types stay hidden.
pub const MAX_TYPE_REVIEWS: usize = 64;

impl Resource {
    /// API group, version and name, as RBAC rules write them. Octavo's virtual resources have no version.
    pub fn api(self) -> (&'static str, Option<&'static str>, &'static str) {
        match self {
            Self::ProfileObjects => {
                let (group, version, _, plural) = ProfileKind::Hardware.api();
                (group, Some(version), plural)
            }
            Self::AcceleratorTypes
            | Self::Nodes
            | Self::Usage
            | Self::AuditEntries
            | Self::HardwareProfiles => (API_GROUP, None, self.into()),
        }
    }
}

impl AccessReview {
    /// Review for a verb on all objects of a resource.
    pub fn all(verb: Verb, resource: Resource) -> Self {
        Self::Resource { verb, resource, namespace: None, name: None }
    }

    /// Review for reading the node `name`. An invalid name is reviewed as access to any node, which permission for a
    /// single node does not grant.
    pub fn node(name: &str) -> Self {
        Self::Resource {
            verb: Verb::Get,
            resource: Resource::Nodes,
            namespace: None,
            name: name.parse::<NodeName>().ok().map(|name| name.to_string()),
        }
    }

    /// Review for reading the type `name`.
    pub fn accelerator_type(name: &TypeName) -> Self {
        Self::Resource {
            verb: Verb::Get,
            resource: Resource::AcceleratorTypes,
            namespace: None,
            name: Some(name.as_str().to_owned()),
        }
    }

    /// Review for listing usage in a namespace, or in all. An invalid namespace is reviewed as all namespaces.
    pub fn usage(namespace: Option<&str>) -> Self {
        let fine = |name: &&str| !name.contains('.') && name.parse::<NodeName>().is_ok();
        Self::Resource {
            verb: Verb::List,
            resource: Resource::Usage,
            namespace: namespace.filter(fine).map(ToOwned::to_owned),
            name: None,
        }
    }

    /// Review for creating a hardware profile in `namespace`.
    pub fn create_profile(namespace: &str) -> Self {
        Self::profile(Verb::Create, namespace, None)
    }

    /// Review for reading this hardware profile.
    pub fn read_profile(key: &ProfileKey) -> Self {
        Self::profile(Verb::Get, &key.namespace, Some(&key.name))
    }

    /// Review for changing this hardware profile.
    pub fn change_profile(key: &ProfileKey) -> Self {
        Self::profile(Verb::Patch, &key.namespace, Some(&key.name))
    }

    fn profile(verb: Verb, namespace: &str, name: Option<&str>) -> Self {
        Self::Resource {
            verb,
            resource: Resource::ProfileObjects,
            namespace: Some(namespace.to_owned()),
            name: name.map(str::to_owned),
        }
    }

    /// `kubectl` command that performs the same review.
    pub fn command(&self) -> String {
        format!("kubectl auth can-i {}", self.action("/", " -n "))
    }

    /// The reviewed action, with these words before the object's name and before the namespace.
    fn action(&self, before_name: &str, before_namespace: &str) -> String {
        match self {
            Self::Resource { verb, resource, namespace, name } => {
                let (group, _, plural) = resource.api();
                let part = |before: &str, text: &Option<String>| {
                    text.as_ref().map_or_else(String::new, |text| format!("{before}{text}"))
                };
                let (name, namespace) =
                    (part(before_name, name), part(before_namespace, namespace));
                format!("{verb} {plural}.{group}{name}{namespace}")
            }
            Self::Path(path) => format!("get {path}"),
        }
    }
}

/// Formats the review for messages.
impl fmt::Display for AccessReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.action(" ", " in namespace "))
    }
}

impl VisibleTypes {
    /// Returns `true` if devices of this type are visible; devices without a type are visible only with access to all
    /// types.
    pub fn contains(&self, name: Option<&TypeName>) -> bool {
        match (self, name) {
            (Self::All, _) => true,
            (Self::Only(some), Some(name)) => some.contains(name),
            (Self::Only(_), None) => false,
        }
    }
}

impl Visibility {
    /// Full visibility: for requesters with all permissions, and for everyone if authentication is off.
    pub fn everything() -> Self {
        Self { types: VisibleTypes::All, nodes: true, profiles: true, pods: true }
    }

    /// Returns `true` if a row of this type is visible. `mixed` and `unknown` are not types.
    pub fn shows_type(&self, kind: &str) -> bool {
        self.types.contains(kind.parse().ok().as_ref())
    }

    /// Returns `true` if an object that applies to all of these types is visible; one that applies to none requires
    /// access to all types.
    pub fn shows_all_types(&self, kinds: &[TypeName]) -> bool {
        match self.types {
            VisibleTypes::All => true,
            VisibleTypes::Only(_) => {
                !kinds.is_empty() && kinds.iter().all(|kind| self.types.contains(Some(kind)))
            }
        }
    }

    /// Returns the error message `theirs` to requesters who may list nodes, and `ours` to all others: internal
    /// messages can contain machine names, addresses and file paths.
    pub fn disclose(&self, theirs: String, ours: &str) -> String {
        if self.nodes {
            return theirs;
        }
        let who = AccessReview::all(Verb::List, Resource::Nodes);
        format!("{ours}; the cause is visible only with the permission to {who}")
    }

    /// No visibility: for requesters without a reviewed permission.
    pub fn none() -> Self {
        Self {
            types: VisibleTypes::Only(BTreeSet::new()),
            nodes: false,
            profiles: false,
            pods: false,
        }
    }
}

#[cfg(test)]
mod tests;
