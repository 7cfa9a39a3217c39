//! Settings of `octavo profiles`.

mod args;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

pub(super) use self::args::{EXAMPLES, ProfilesArgs};
use super::fleet::Printed;
use super::server::ServerSettings;
use crate::domain::hardware_profile::Counts;

/// What `octavo profiles` is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfilesCommand {
    /// `octavo profiles list`.
    List(ListSettings),
    /// `octavo profiles list --watch`.
    Watch(ListSettings),
    /// `octavo profiles show`.
    Show(ShowSettings),
    /// `octavo profiles check`.
    Check(ListSettings),
    /// `octavo profiles create`.
    Create(CreateSettings),
}

/// Which profiles, and how they are printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSettings {
    server: ServerSettings,
    printed: Printed,
    type_name: Option<String>,
    namespace: Option<String>,
    names: Vec<String>,
}

/// Which profile, and how it is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShowSettings {
    server: ServerSettings,
    printed: Printed,
    name: String,
    namespace: Option<String>,
}

/// What a new profile is made of, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSettings {
    server: ServerSettings,
    kubeconfig: Option<PathBuf>,
    wish: ProfileWish,
    reason: Option<String>,
    replaces: bool,
    attempt: Attempt,
}

/// What a new profile is for, as far as it was said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileWish {
    /// Names of the nodes it is made of.
    pub nodes: Vec<String>,
    /// The type that it is for.
    pub type_name: Option<String>,
    /// The resource it asks for.
    pub resource: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
    /// What people are shown.
    pub display_name: Option<String>,
    /// How many of resources.
    pub counts: Vec<Counts>,
    /// Taints that it tolerates; empty where nothing was said.
    pub tolerate: Vec<String>,
}

/// How far making a profile goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Attempt {
    /// Make it
    None,
    /// Print it, and ask no cluster
    Client,
    /// Let the API server check it, and make nothing
    Server,
}

impl ListSettings {
    /// The aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// How the answer is printed.
    pub fn printed(&self) -> Printed {
        self.printed
    }

    /// Names and values of the aggregator's parameters.
    pub fn parameters(&self) -> Vec<(&'static str, &str)> {
        let all = [("type", &self.type_name), ("namespace", &self.namespace)];
        let given = all.into_iter();
        given
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
            .collect()
    }

    /// Names of profiles; empty for all.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl ShowSettings {
    /// The aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// How the answer is printed.
    pub fn printed(&self) -> Printed {
        self.printed
    }

    /// The profile's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its namespace, where it was said.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

impl CreateSettings {
    /// The aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// What it is for.
    pub fn wish(&self) -> &ProfileWish {
        &self.wish
    }

    /// The cluster in which it is made, and as whom; that of kubectl where nobody says.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// Why it is made.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Whether it takes the place of one of its name that was made so, too.
    pub fn replaces(&self) -> bool {
        self.replaces
    }

    /// How far it goes.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }
}
