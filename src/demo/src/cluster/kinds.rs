//! The served kinds, the keys of objects, and their paths.

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A Node.
    Node,
    /// A Namespace.
    Namespace,
    /// A Pod.
    Pod,
    /// An Event.
    Event,
    /// A disruption budget of pods.
    PodDisruptionBudget,
    /// A hardware profile of Open Data Hub.
    HardwareProfile,
    /// An accelerator policy.
    AcceleratorPolicy,
    /// A Lease for leader election.
    Lease,
}

/// Kind, namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for kinds without.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// What a path addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// All objects of a kind, in one namespace or, if it is empty, in all.
    All(Kind, String),
    /// One object.
    One(ObjectKey),
    /// A subresource of an object.
    Subresource(ObjectKey, String),
}

impl ObjectKey {
    /// Creates a key.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl Kind {
    /// Every served kind.
    pub(super) const ALL: [Self; 8] = [
        Self::Node,
        Self::Namespace,
        Self::Pod,
        Self::Event,
        Self::PodDisruptionBudget,
        Self::HardwareProfile,
        Self::AcceleratorPolicy,
        Self::Lease,
    ];

    /// Returns the API version and the plural name.
    pub(super) fn api(self) -> (&'static str, &'static str) {
        match self {
            Self::Node => ("v1", "nodes"),
            Self::Namespace => ("v1", "namespaces"),
            Self::Pod => ("v1", "pods"),
            Self::Event => ("v1", "events"),
            Self::PodDisruptionBudget => ("policy/v1", "poddisruptionbudgets"),
            Self::HardwareProfile => ("infrastructure.opendatahub.io/v1", "hardwareprofiles"),
            Self::AcceleratorPolicy => ("octavo.dev/v1alpha1", "acceleratorpolicies"),
            Self::Lease => ("coordination.k8s.io/v1", "leases"),
        }
    }

    /// Returns the name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Namespace => "Namespace",
            Self::Pod => "Pod",
            Self::Event => "Event",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::HardwareProfile => "HardwareProfile",
            Self::AcceleratorPolicy => "AcceleratorPolicy",
            Self::Lease => "Lease",
        }
    }

    /// Returns the short names that kubectl accepts.
    pub(super) fn short_names(self) -> &'static [&'static str] {
        match self {
            Self::Node => &["no"],
            Self::Namespace => &["ns"],
            Self::Pod => &["po"],
            Self::Event => &["ev"],
            Self::PodDisruptionBudget => &["pdb"],
            Self::AcceleratorPolicy => &["apol"],
            Self::HardwareProfile | Self::Lease => &[],
        }
    }

    /// Returns whether its objects are in a namespace.
    pub(super) fn is_namespaced(self) -> bool {
        !matches!(self, Self::Node | Self::Namespace | Self::AcceleratorPolicy)
    }

    /// Parses a path without query. `None` if no such API is served.
    pub(super) fn parse_path(path: &str) -> Option<Target> {
        let (version, rest) = if let Some(rest) = path.strip_prefix("/api/v1/") {
            ("v1", rest)
        } else {
            let path = path.strip_prefix("/apis/")?;
            let group = path.find('/')?;
            let end = path.get(group + 1..)?.find('/')?.saturating_add(group + 1);
            (path.get(..end)?, path.get(end + 1..)?)
        };
        let segments: Vec<&str> = rest.trim_end_matches('/').split('/').collect();
        let kind =
            |plural: &str| Self::ALL.into_iter().find(|kind| kind.api() == (version, plural));
        let key = |kind: Self, namespace: &str, name: &str| {
            (kind.is_namespaced() != namespace.is_empty())
                .then(|| ObjectKey::new(kind, namespace, name))
        };
        Some(match *segments {
            ["namespaces", namespace, plural] => {
                Target::All(kind(plural).filter(|kind| kind.is_namespaced())?, namespace.to_owned())
            }
            ["namespaces", namespace, plural, name] => {
                Target::One(key(kind(plural)?, namespace, name)?)
            }
            ["namespaces", namespace, plural, name, part] => {
                Target::Subresource(key(kind(plural)?, namespace, name)?, part.to_owned())
            }
            [plural] => Target::All(kind(plural)?, String::new()),
            [plural, name] => Target::One(key(kind(plural)?, "", name)?),
            [plural, name, part] => {
                Target::Subresource(key(kind(plural)?, "", name)?, part.to_owned())
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_address_kinds_objects_and_subresources() {
        let pods = |namespace: &str| Target::All(Kind::Pod, namespace.to_owned());
        let profile = ObjectKey::new(Kind::HardwareProfile, "a", "large");
        for (path, expected) in [
            ("/api/v1/pods", Some(pods(""))),
            ("/api/v1/namespaces/a/pods", Some(pods("a"))),
            ("/api/v1/nodes/n", Some(Target::One(ObjectKey::new(Kind::Node, "", "n")))),
            (
                "/api/v1/namespaces/a/pods/p/eviction",
                Some(Target::Subresource(
                    ObjectKey::new(Kind::Pod, "a", "p"),
                    "eviction".to_owned(),
                )),
            ),
            (
                "/apis/infrastructure.opendatahub.io/v1/namespaces/a/hardwareprofiles/large",
                Some(Target::One(profile)),
            ),
            (
                "/apis/infrastructure.opendatahub.io/v1/hardwareprofiles",
                Some(Target::All(Kind::HardwareProfile, String::new())),
            ),
            (
                "/apis/octavo.dev/v1alpha1/acceleratorpolicies/a/status",
                Some(Target::Subresource(
                    ObjectKey::new(Kind::AcceleratorPolicy, "", "a"),
                    "status".to_owned(),
                )),
            ),
            ("/apis/kueue.x-k8s.io/v1beta1/localqueues", None),
            ("/api/v1/namespaces/a/nodes", None),
            ("/api/v1/pods/p", None),
        ] {
            assert_eq!(Kind::parse_path(path), expected, "{path}");
        }
    }
}
