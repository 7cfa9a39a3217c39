//! Names of pods received from agents, validated strictly because they become part of a request path.

use std::fmt;

use octavo_model::id::{is_label_name, is_subdomain};

/// A pod by namespace and name, both valid in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    namespace: String,
    name: String,
}

impl PodKey {
    /// `None` if no pod can have this name.
    pub fn new(namespace: &str, name: &str) -> Option<Self> {
        (is_label_name(namespace) && is_subdomain(name))
            .then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i12_pod_names_that_alter_request_path_are_rejected() {
        let place = PodKey::new("team-a", "train-0.x").unwrap();
        assert_eq!(place.to_string(), "team-a/train-0.x");
        for (namespace, name) in [
            ("team-a", "../../secrets/x"),
            ("team-a", ""),
            ("team-a", "x?limit=1"),
            ("team-a", "x/status"),
            ("team-a", "X"),
            ("team.a", "x"),
            ("..", "x"),
            ("", "x"),
        ] {
            assert_eq!(PodKey::new(namespace, name), None, "{namespace} {name}");
        }
    }
}
