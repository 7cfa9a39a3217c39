//! Settings of `octavo profiles`.

mod args;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use octavo_fleet::hardware_profile::CountOverride;

pub(super) use self::args::{EXAMPLES, ProfilesArgs};
use super::fleet::OutputOptions;
use super::server::ServerSettings;

/// Settings of `octavo profiles`'s subcommands.
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

/// Selected profiles, and the output format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSettings {
    server: ServerSettings,
    printed: OutputOptions,
    type_name: Option<String>,
    namespace: Option<String>,
    names: Vec<String>,
}

/// Selected profile, and the output format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShowSettings {
    server: ServerSettings,
    printed: OutputOptions,
    name: String,
    namespace: Option<String>,
}

/// Settings of a new profile, and the credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSettings {
    server: ServerSettings,
    kubeconfig: Option<PathBuf>,
    wish: ProfileRequest,
    reason: Option<String>,
    replaces: bool,
    attempt: DryRunMode,
}

/// Requested properties of a new profile; all are optional.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileRequest {
    /// Names of the nodes it is derived from.
    pub nodes: Vec<String>,
    /// The type it is for.
    pub type_name: Option<String>,
    /// The resource it requests.
    pub resource: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its display name.
    pub display_name: Option<String>,
    /// Counts of resources.
    pub counts: Vec<CountOverride>,
    /// Taints that it tolerates; empty if not specified.
    pub tolerate: Vec<String>,
}

/// How far making a profile goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DryRunMode {
    /// Make it
    None,
    /// Print it, and ask no cluster
    Client,
    /// Let the API server check it, and make nothing
    Server,
}

impl ListSettings {
    /// Returns the aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// Returns the output format.
    pub fn printed(&self) -> OutputOptions {
        self.printed
    }

    /// Returns the names and values of the aggregator's parameters.
    pub fn parameters(&self) -> Vec<(&'static str, &str)> {
        let all = [("type", &self.type_name), ("namespace", &self.namespace)];
        let given = all.into_iter();
        given
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
            .collect()
    }

    /// Returns the names of profiles; empty for all.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl ShowSettings {
    /// Returns the aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// Returns the output format.
    pub fn printed(&self) -> OutputOptions {
        self.printed
    }

    /// Returns the profile's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its namespace, if it was specified.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

impl CreateSettings {
    /// Returns the aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// Returns the requested properties.
    pub fn request(&self) -> &ProfileRequest {
        &self.wish
    }

    /// Returns the kubeconfig of the cluster and the credentials; `None` for kubectl's default.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// Returns the reason for the creation.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns whether it replaces a profile of the same name that was created the same way.
    pub fn replaces(&self) -> bool {
        self.replaces
    }

    /// Returns whether the profile is created, or only validated or printed.
    pub fn dry_run(&self) -> DryRunMode {
        self.attempt
    }
}
