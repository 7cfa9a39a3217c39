//! Desired state: the spec of an `AcceleratorPolicy`.

use std::collections::BTreeMap;

use octavo_fleet::cluster::{Requirement, Selector, Taint};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{Display, EnumString};
use utoipa::ToSchema;

use crate::amount::{IntOrText, MaxUnavailable};
use crate::demand::PolicyDemand;
use crate::drain::PolicyDrain;
use crate::period::Period;

/// Layout, labels and taints of the selected nodes, and their roll-out.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySpec {
    /// Nodes of the policy, by label.
    pub node_selector: NodeSelector,
    /// Name of the layout, as the label octavo.dev/layout selects it.
    pub layout: Option<String>,
    /// Instances for pending pods, in place of a layout.
    pub demand: Option<PolicyDemand>,
    /// Labels of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Eviction of pods that block the layout. Without it, the settings of the agents apply.
    pub drain: Option<PolicyDrain>,
    /// Pace and limits of the roll-out.
    #[serde(default)]
    pub rollout: Rollout,
    /// Number of retained revisions, for rollbacks.
    #[serde(default = "default_history_limit")]
    pub revision_history_limit: u32,
}

/// Label selector of nodes. All conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelector {
    /// Labels with exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: Selector,
    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

/// Pace and limits of a roll-out.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Rollout {
    /// Largest number of selected nodes that are unavailable at the same time: a count, or a percentage such as 10%.
    #[schema(value_type = IntOrText)]
    pub max_unavailable: MaxUnavailable,
    /// Pause between two waves.
    pub pause: Option<Period>,
    /// Times in which nodes are changed. Without windows, nodes are changed at any time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// Number of failed nodes that do not stop the roll-out.
    pub max_failures: u32,
    /// Reaction to more failed nodes.
    pub on_failure: OnFailure,
    /// Time after which a node whose layout is not applied has failed.
    pub node_deadline: Period,
    /// True if no further nodes are changed.
    pub paused: bool,
}

/// Reaction to more failed nodes than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Display, ToSchema)]
pub enum OnFailure {
    /// Change no further nodes.
    #[default]
    Pause,
    /// Return the changed nodes to the previous revision.
    RollBack,
}

/// Recurring time in which nodes are changed.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Days on which the window opens. Without days, it opens every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<Day>,
    /// Local time at which it opens, such as 22:00.
    pub start: String,
    /// Time for which it stays open, at most 24h.
    pub duration: Period,
    /// IANA time zone, such as Europe/Berlin. The default is UTC.
    pub time_zone: Option<String>,
}

/// Day of the week.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    ToSchema,
)]
#[expect(missing_docs, reason = "the names are those of the days")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            max_unavailable: MaxUnavailable::Count(1),
            pause: None,
            windows: Vec::new(),
            max_failures: 0,
            on_failure: OnFailure::Pause,
            node_deadline: Period::from_mins(30),
            paused: false,
        }
    }
}

impl NodeSelector {
    /// Returns whether a node with these labels is selected. Source: Kubernetes, `LabelSelector`.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self
                .match_expressions
                .iter()
                .all(|one| one.is_met(labels.get(&one.key).map(String::as_str)))
    }

    /// Returns whether the selector refers to this label.
    pub(crate) fn uses(&self, key: &str) -> bool {
        self.match_labels.contains_key(key)
            || self.match_expressions.iter().any(|one| one.key == key)
    }

    /// Returns whether the selector has no condition.
    pub(crate) fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }
}

/// Default of [`PolicySpec::revision_history_limit`].
pub(crate) fn default_history_limit() -> u32 {
    10
}
