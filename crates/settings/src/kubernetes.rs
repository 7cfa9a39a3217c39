//! Settings of the Kubernetes cluster that a program uses, and names of objects in it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use thiserror::Error;

/// The cluster.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Kubernetes")]
pub struct KubernetesSettings {
    /// Kubeconfig for use outside a pod [default in a pod: its service account]
    #[arg(long, value_name = "FILE", env = "OCTAVO_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
}

/// A `ConfigMap` by its namespace and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMapName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A text is not the name of a `ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected a namespace and a name, such as gpu-operator/plugin-config")]
pub struct ConfigMapNameError;

impl FromStr for ConfigMapName {
    type Err = ConfigMapNameError;

    fn from_str(text: &str) -> Result<Self, ConfigMapNameError> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            Some(_) | None => Err(ConfigMapNameError),
        }
    }
}

impl fmt::Display for ConfigMapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
