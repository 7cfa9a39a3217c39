//! Hardware profiles of `OpenDataHub` as data: what people pick a workload's devices by, which nodes that really reaches, what is
//! wrong with it, and a new one made of nodes.
//!
//! Profiles are somebody else's objects: they are read and judged here, and never changed. What is known of a profile's devices
//! beyond its own fields is kept in annotations, because the schema has no place for it. `wire` reads and writes the objects, the
//! aggregator and the command line ask. Source of the schema: opendatahub-operator, `api/infrastructure/v1`.

mod chosen;
mod draft;
mod edit;
mod finding;
mod held;
mod judge;
mod notes;
mod reach;
mod specs;
mod way;

use std::fmt;

pub use self::draft::{Draft, Note, Refusal, Wish, draft};
pub use self::edit::{CountError, CountProblem, Counts, CountsError, NO_TAINT, Part};
pub use self::finding::{Finding, Gravity};
pub use self::held::{Held, Labeled, counts_parts, labeled, of_labels, selecting_label};
pub use self::judge::{Queues, Surroundings, judge};
pub use self::reach::{Reach, TypeReach, reach};
pub use self::specs::Specs;
pub use self::way::{Cluster, Destination, Place, Way, ways};
use crate::domain::cluster::{Amounts, Quantity, Selector, Toleration, Wants};
use crate::domain::id::TypeName;

/// The annotation that says which types a profile is for, separated by commas.
pub const TYPE: &str = "octavo.dev/type";
/// The annotation that says the memory of one device, in MiB.
pub const MEMORY: &str = "octavo.dev/memory-mib";
/// The annotation that says the chip family.
pub const ARCHITECTURE: &str = "octavo.dev/architecture";
/// The annotation that says who made the profile.
pub const CREATED_BY: &str = "octavo.dev/created-by";
/// The annotation that says why it was made.
pub const REASON: &str = "octavo.dev/reason";
/// The node label of ours that generated profiles select by; its value is the same however devices are shared.
pub const TYPE_LABEL: &str = "octavo.dev/type";

/// A profile, as far as it decides where work goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HardwareProfile {
    /// Which one.
    pub key: ProfileKey,
    /// Of which kind the object is.
    pub kind: ProfileKind,
    /// What people are shown.
    pub display_name: Option<String>,
    /// What else people are told.
    pub description: Option<String>,
    /// Whether nobody can pick it.
    pub is_disabled: bool,
    /// What a workload asks for.
    pub identifiers: Vec<Identifier>,
    /// Where it goes.
    pub scheduling: Scheduling,
    /// What its annotations of ours say.
    pub said: Said,
    /// Parts that cannot be read, each after its place.
    pub unreadable: Vec<String>,
}

/// Which profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ProfileKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Kinds of profiles. The old ones are read, and the cluster itself refuses new ones of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ProfileKind {
    /// `HardwareProfile` of `infrastructure.opendatahub.io`.
    #[default]
    Hardware,
    /// `HardwareProfile` of `dashboard.opendatahub.io`, which is old.
    Dashboard,
    /// `AcceleratorProfile` of `dashboard.opendatahub.io`, which is older.
    Accelerator,
}

/// One resource that a workload asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identifier {
    /// What people are shown.
    pub display_name: String,
    /// The resource, such as `nvidia.com/gpu`.
    pub resource: String,
    /// The least that a person can ask for.
    pub min: Count,
    /// The most; `None` for no bound.
    pub max: Option<Count>,
    /// What is asked for where nobody says.
    pub default: Count,
    /// What the resource is, where it says.
    pub resource_type: Option<String>,
}

/// How many, as it is written and as it counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Count {
    /// As it is written.
    pub text: String,
    /// What that is.
    pub quantity: Quantity,
}

/// Where the work of a profile goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scheduling {
    /// Wherever there is room.
    #[default]
    Anywhere,
    /// To some nodes.
    Node {
        /// Labels that they have.
        selector: Selector,
        /// Taints that do not matter.
        tolerations: Vec<Toleration>,
    },
    /// Into a queue of Kueue, whose flavors decide.
    Queue {
        /// The `LocalQueue`, which each namespace has its own of.
        local_queue: String,
        /// Kueue's class of priority.
        priority_class: Option<String>,
    },
}

/// What annotations of ours say of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    /// The types that it is for; none where it says nothing.
    pub types: Vec<TypeName>,
    /// Memory of one device in MiB.
    pub memory_mib: Option<u64>,
    /// Chip family.
    pub architecture: Option<String>,
    /// Who made it.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

impl HardwareProfile {
    /// What people know it by.
    pub fn shown(&self) -> &str {
        let shown = self.display_name.as_deref();
        shown
            .filter(|name| !name.is_empty())
            .unwrap_or(&self.key.name)
    }

    /// What a workload of this profile asks of a node when nobody changes a number: requests are the default counts. Source:
    /// the webhooks of workbenches-operator and odh-model-controller.
    pub fn wants(&self) -> Wants {
        let of = |one: &Identifier| (one.resource.clone(), one.default.quantity);
        let all: Vec<(String, Quantity)> = self.identifiers.iter().map(of).collect();
        let amounts = Amounts::of(all.iter().map(|(name, count)| (name.as_str(), *count)));
        let (selector, tolerations) = match &self.scheduling {
            Scheduling::Node {
                selector,
                tolerations,
            } => (selector.clone(), tolerations.clone()),
            Scheduling::Anywhere | Scheduling::Queue { .. } => Default::default(),
        };
        Wants {
            amounts,
            selector,
            affinity: None,
            tolerations,
        }
    }

    /// The resources it asks for that are devices, or parts of them.
    pub fn devices(&self) -> Vec<String> {
        let of = |one: &Identifier| Amounts::default().with(&one.resource, 1);
        let amounts = self.identifiers.iter().map(of);
        amounts
            .flat_map(|one| {
                let named: Vec<String> = one.devices().map(|(name, _)| name.to_owned()).collect();
                named
            })
            .collect()
    }

    /// The labels that it selects by, where it goes to nodes.
    pub fn selector(&self) -> Option<&Selector> {
        match &self.scheduling {
            Scheduling::Node { selector, .. } => Some(selector),
            Scheduling::Anywhere | Scheduling::Queue { .. } => None,
        }
    }

    /// The types that it is for: what it says, what its selector names by our label, or what it reaches. None for work without
    /// devices.
    pub fn types(&self, reach: Option<&Reach>) -> Vec<TypeName> {
        if !self.said.types.is_empty() {
            return self.said.types.clone();
        }
        if let Some(selected) = self.selected_type() {
            return vec![selected];
        }
        let reached = reach.filter(|_| !self.devices().is_empty());
        let reached = reached.map(Reach::names).unwrap_or_default();
        reached.into_iter().cloned().collect()
    }

    /// The type that its selector names by our label.
    pub fn selected_type(&self) -> Option<TypeName> {
        let value = self.selector()?.get(TYPE_LABEL)?;
        value
            .parse()
            .ok()
            .filter(|_| value != "mixed" && value != "unknown")
    }
}

impl ProfileKind {
    /// All of them, the one that is made today first.
    pub const ALL: [Self; 3] = [Self::Hardware, Self::Dashboard, Self::Accelerator];

    /// Its group, version and kind in the API, and the plural that paths have.
    pub fn api(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Hardware => (
                "infrastructure.opendatahub.io",
                "v1",
                "HardwareProfile",
                "hardwareprofiles",
            ),
            Self::Dashboard => (
                "dashboard.opendatahub.io",
                "v1alpha1",
                "HardwareProfile",
                "hardwareprofiles",
            ),
            Self::Accelerator => (
                "dashboard.opendatahub.io",
                "v1",
                "AcceleratorProfile",
                "acceleratorprofiles",
            ),
        }
    }

    /// The versions in which clusters serve it, the one of [`Self::api`] first; what is read of them is the same. Source: odh-dashboard,
    /// `manifests/common/crd` and before that `manifests/crd`, until 2025-10.
    pub fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Hardware => &["v1"],
            Self::Dashboard => &["v1alpha1", "v1"],
            Self::Accelerator => &["v1", "v1alpha"],
        }
    }

    /// What it is called in answers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hardware => "hardware-profile",
            Self::Dashboard => "dashboard-profile",
            Self::Accelerator => "accelerator-profile",
        }
    }

    /// Whether new ones of it are made.
    pub fn is_current(self) -> bool {
        self == Self::Hardware
    }
}

impl Count {
    /// So many whole ones.
    pub fn whole(count: u64) -> Self {
        Self {
            text: count.to_string(),
            quantity: Quantity::whole(count),
        }
    }
}

impl fmt::Display for ProfileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests;
