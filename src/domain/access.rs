//! Who may see what over HTTP: which question the cluster is asked about a request, and what follows from the answers.
//!
//! The cluster's own roles decide, by names that exist for that alone: `nodes.octavo.dev`, `acceleratortypes.octavo.dev`. No such
//! objects are there, and none need be: a role may name what it likes, and the API server says whether somebody has it. Called by
//! the aggregator's gate in front of its pages and its API. What no row of [`TABLE`] is about is refused, so a route that was
//! forgotten here is closed and not open.

pub mod caller;
pub mod crossing;
mod table;

use std::collections::BTreeSet;
use std::fmt;

pub use self::caller::{Caller, Proof};
pub use self::table::{Method, Need, Row, TABLE};
use super::hardware_profile::{ProfileKey, ProfileKind};
use super::id::{NodeName, TypeName};

/// The group that roles name.
pub const GROUP: &str = "octavo.dev";

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// See one.
    Get,
    /// See all.
    List,
    /// Follow all.
    Watch,
    /// Make one.
    Create,
    /// Change one.
    Patch,
}

/// With what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Types, their numbers, what is free of them.
    AcceleratorTypes,
    /// Nodes by name, with their devices' serial numbers and UUIDs, and plans for them.
    Nodes,
    /// Who uses what, by namespace.
    Usage,
    /// Hardware profiles.
    HardwareProfiles,
}

/// What the cluster is asked of somebody.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// Whether they may do this with that.
    Resource {
        /// What they want to do.
        verb: Verb,
        /// With what.
        resource: Resource,
        /// In one namespace; everywhere where there is none.
        namespace: Option<String>,
        /// With the one of this name; with any where there is none.
        name: Option<String>,
    },
    /// Whether they may do this with a real hardware profile, as if they did it themselves.
    Profile {
        /// What they want to do.
        verb: Verb,
        /// Where it is.
        namespace: String,
        /// Which; any where there is none.
        name: Option<String>,
    },
    /// Whether they may read a path that is no resource.
    Path(&'static str),
}

/// Types that somebody may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Types {
    /// All, those without a name too.
    All,
    /// These and no others.
    Only(BTreeSet<TypeName>),
}

/// What somebody may see of what a path has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// Types, wherever types are told.
    pub types: Types,
    /// Whether nodes may be named, with what tells their devices apart; and so, in whose words something failed.
    pub nodes: bool,
    /// Whether hardware profiles may be named, of the types that may be seen.
    pub profiles: bool,
}

/// Types that one request asks about one by one: of more, the rest stays unseen.
pub const MOST_TYPES: usize = 64;

impl Verb {
    /// As roles write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Patch => "patch",
        }
    }
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::AcceleratorTypes,
        Self::Nodes,
        Self::Usage,
        Self::HardwareProfiles,
    ];

    /// As roles write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AcceleratorTypes => "acceleratortypes",
            Self::Nodes => "nodes",
            Self::Usage => "usage",
            Self::HardwareProfiles => "hardwareprofiles",
        }
    }
}

impl Question {
    /// Whether somebody may do this with all of these.
    pub fn all(verb: Verb, resource: Resource) -> Self {
        Self::Resource {
            verb,
            resource,
            namespace: None,
            name: None,
        }
    }

    /// Whether somebody may see the node of this name. A name that is none is asked about as any: who may see one node alone may not
    /// see that.
    pub fn node(name: &str) -> Self {
        Self::Resource {
            verb: Verb::Get,
            resource: Resource::Nodes,
            namespace: None,
            name: name.parse::<NodeName>().ok().map(|name| name.to_string()),
        }
    }

    /// Whether somebody may see the type of this name.
    pub fn of_type(name: &TypeName) -> Self {
        Self::Resource {
            verb: Verb::Get,
            resource: Resource::AcceleratorTypes,
            namespace: None,
            name: Some(name.as_str().to_owned()),
        }
    }

    /// Whether somebody may see who uses what in a namespace, or in all. With a name that is none it is all that is asked about.
    pub fn usage(namespace: Option<&str>) -> Self {
        let fine = |name: &&str| !name.contains('.') && name.parse::<NodeName>().is_ok();
        Self::Resource {
            verb: Verb::List,
            resource: Resource::Usage,
            namespace: namespace.filter(fine).map(ToOwned::to_owned),
            name: None,
        }
    }

    /// Whether somebody may make a hardware profile there.
    pub fn new_profile(namespace: &str) -> Self {
        Self::Profile {
            verb: Verb::Create,
            namespace: namespace.to_owned(),
            name: None,
        }
    }

    /// Whether somebody may see what this one says.
    pub fn profile_read(key: &ProfileKey) -> Self {
        Self::Profile {
            verb: Verb::Get,
            namespace: key.namespace.clone(),
            name: Some(key.name.clone()),
        }
    }

    /// Whether somebody may change this one.
    pub fn profile_changed(key: &ProfileKey) -> Self {
        Self::Profile {
            verb: Verb::Patch,
            namespace: key.namespace.clone(),
            name: Some(key.name.clone()),
        }
    }

    /// The command that asks the same.
    pub fn command(&self) -> String {
        match self {
            Self::Profile {
                verb,
                namespace,
                name,
            } => {
                let name = name.as_ref().map(|name| format!("/{name}"));
                format!(
                    "kubectl auth can-i {} {}{} -n {namespace}",
                    verb.as_str(),
                    profiles(),
                    name.unwrap_or_default()
                )
            }
            Self::Resource {
                verb,
                resource,
                namespace,
                name,
            } => {
                let name = name.as_ref().map(|name| format!("/{name}"));
                let within = namespace
                    .as_ref()
                    .map(|namespace| format!(" -n {namespace}"));
                format!(
                    "kubectl auth can-i {} {}.{GROUP}{}{}",
                    verb.as_str(),
                    resource.as_str(),
                    name.unwrap_or_default(),
                    within.unwrap_or_default()
                )
            }
            Self::Path(path) => format!("kubectl auth can-i get {path}"),
        }
    }
}

/// The real kind, as roles and commands name it.
fn profiles() -> String {
    let (group, _, _, plural) = ProfileKind::Hardware.api();
    format!("{plural}.{group}")
}

/// As a person says it.
impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource {
                verb,
                resource,
                namespace,
                name,
            } => {
                write!(f, "{} {}.{GROUP}", verb.as_str(), resource.as_str())?;
                if let Some(name) = name {
                    write!(f, " {name}")?;
                }
                match namespace {
                    Some(namespace) => write!(f, " in namespace {namespace}"),
                    None => Ok(()),
                }
            }
            Self::Profile {
                verb,
                namespace,
                name,
            } => {
                write!(f, "{} {}", verb.as_str(), profiles())?;
                if let Some(name) = name {
                    write!(f, " {name}")?;
                }
                write!(f, " in namespace {namespace}")
            }
            Self::Path(path) => write!(f, "get {path}"),
        }
    }
}

impl Types {
    /// Whether devices of this type may be told of; those without one are for who may see all.
    pub fn has(&self, name: Option<&TypeName>) -> bool {
        match (self, name) {
            (Self::All, _) => true,
            (Self::Only(some), Some(name)) => some.contains(name),
            (Self::Only(_), None) => false,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::All => false,
            Self::Only(some) => some.is_empty(),
        }
    }
}

impl Sight {
    /// Of somebody who may see everything, and of everybody where nobody is asked who they are.
    pub fn everything() -> Self {
        Self {
            types: Types::All,
            nodes: true,
            profiles: true,
        }
    }

    /// Whether a row of this type may be told of, be it of none or of several.
    pub fn shows(&self, kind: &str) -> bool {
        self.types.has(kind.parse().ok().as_ref())
    }

    /// Whether something that is for all of these types may be told of; what is for none is for who may see all.
    pub fn shows_all(&self, kinds: &[String]) -> bool {
        match self.types {
            Types::All => true,
            Types::Only(_) => !kinds.is_empty() && kinds.iter().all(|kind| self.shows(kind)),
        }
    }

    /// What failed, in the words of whoever said so, for who may list nodes. Such words can name machines, addresses and files, so
    /// others are told no more than `ours`.
    pub fn told(&self, theirs: String, ours: &str) -> String {
        if self.nodes {
            return theirs;
        }
        let who = Question::all(Verb::List, Resource::Nodes);
        format!("{ours}; why is for who may {who}")
    }

    /// Of somebody of whom nothing was asked.
    pub fn nothing() -> Self {
        Self {
            types: Types::Only(BTreeSet::new()),
            nodes: false,
            profiles: false,
        }
    }
}

#[cfg(test)]
mod tests;
