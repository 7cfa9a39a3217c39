//! Findings about a profile, with explanations and remedies.

use octavo_model::id::TypeName;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, IntoStaticStr};
use thiserror::Error;

use super::ProfileKind;
use crate::cluster::Taint;

/// Finding about a profile.
#[derive(Debug, Clone, PartialEq, Eq, IntoStaticStr, Error)]
#[strum(serialize_all = "kebab-case")]
pub enum Finding {
    /// A part of the object is unreadable.
    #[error("{0}")]
    Unreadable(String),
    /// No node matches the selector.
    #[error("no node has {} that it selects by, so its workloads stay pending", format_label(.label.as_ref()))]
    NothingSelected {
        /// First label, as `key=value`, that no node has; `None` if each is on some node but no node has all.
        label: Option<String>,
    },
    /// It selects by a label that can change while the devices stay the same.
    #[error(
        "it selects by {key}, whose value changes when devices are shared or partitioned: it may then match no node"
    )]
    ChangingLabel {
        /// Key of the label.
        key: String,
        /// Type to select by instead.
        instead: Option<TypeName>,
    },
    /// It reaches nodes of several types.
    #[error(
        "it matches nodes of {} types ({}); a workload can be scheduled to any of them{}",
        types.len(), format_types(types), format_mixed(*mixed)
    )]
    SeveralTypes {
        /// Names of the types.
        types: Vec<TypeName>,
        /// Number of nodes that have several types.
        mixed: u32,
    },
    /// It reaches a type that it does not declare.
    #[error(
        "it is declared for {}, but it also matches nodes of {}",
        format_types(declared),
        format_types(reached)
    )]
    OtherType {
        /// Declared types.
        declared: Vec<TypeName>,
        /// Other types that it reaches.
        reached: Vec<TypeName>,
    },
    /// No selected node offers the requested resource.
    #[error("{}", format_not_advertised(resource, *elsewhere))]
    #[strum(serialize = "nobody-advertises")]
    NotAdvertised {
        /// Resource name.
        resource: String,
        /// Number of other nodes that offer it.
        elsewhere: u32,
    },
    /// It requests more than any node has.
    #[error("its {count} is {requested} of {resource}, but no matching node has more than {most}")]
    TooMany {
        /// Resource name.
        resource: String,
        /// Exceeding count: `default` or `maximum`.
        count: &'static str,
        /// Value of the count.
        requested: u64,
        /// Largest amount that one node has.
        most: u64,
    },
    /// Its counts contradict each other.
    #[error("{resource}: {why}")]
    Counts {
        /// Resource name.
        resource: String,
        /// Description of the contradiction.
        why: &'static str,
    },
    /// A taint keeps it off nodes that it selects.
    #[error(
        "{nodes} of the {of} nodes with the requested resources have the taint {taint}, which it does not tolerate"
    )]
    #[strum(serialize = "untolerated-taint")]
    Untolerated {
        /// The taint.
        taint: Taint,
        /// Number of nodes with the taint.
        nodes: u32,
        /// Number of selected nodes with the resource.
        of: u32,
    },
    /// No namespace has its queue.
    #[error("{}", format_no_queue(queue, *is_kueue_here))]
    NoQueue {
        /// Name of the queue.
        queue: String,
        /// True if Kueue is installed.
        is_kueue_here: bool,
    },
    /// Its kind is a legacy one.
    #[error("its kind is {} of {}, which is obsolete", .0.api().2, .0.api().0)]
    LegacyKind(ProfileKind),
    /// It is disabled: users cannot select it.
    #[error("it is disabled: users cannot select it")]
    Disabled,
}

/// Severity of a finding.
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
    AsRefStr,
    IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    /// For information.
    Note,
    /// Workloads may run on unintended nodes, or not on all possible ones.
    Warning,
    /// Workloads stay pending indefinitely.
    Error,
}

impl Finding {
    /// Severity of the finding.
    pub fn severity(&self) -> FindingSeverity {
        match self {
            Self::LegacyKind(_) | Self::Disabled => FindingSeverity::Note,
            Self::ChangingLabel { .. } | Self::SeveralTypes { .. } | Self::OtherType { .. } => {
                FindingSeverity::Warning
            }
            Self::Untolerated { nodes, of, .. } if nodes < of => FindingSeverity::Warning,
            Self::TooMany { count: "maximum", .. } => FindingSeverity::Warning,
            Self::Unreadable(_)
            | Self::NothingSelected { .. }
            | Self::NotAdvertised { .. }
            | Self::TooMany { .. }
            | Self::Counts { .. }
            | Self::Untolerated { .. }
            | Self::NoQueue { .. } => FindingSeverity::Error,
        }
    }

    /// Machine-readable name.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Recommended action.
    pub fn remedy(&self) -> String {
        let remedy = match self {
            Self::ChangingLabel { instead: Some(name), .. } => {
                return format!("select by octavo.dev/type={name} instead");
            }
            Self::TooMany { most, .. } => return format!("request at most {most}"),
            Self::Untolerated { taint, .. } => {
                let Taint { key, effect, .. } = taint;
                return format!("add a toleration with key {key} and effect {effect}");
            }
            Self::Unreadable(_) => {
                "correct the object; `kubectl explain hardwareprofile.spec` describes its fields"
            }
            Self::NothingSelected { .. } => {
                "select by octavo.dev/type, with a type that `octavo types` lists, or add nodes with this label"
            }
            Self::ChangingLabel { instead: None, .. } => {
                "select by octavo.dev/type instead, which identifies the device"
            }
            Self::SeveralTypes { .. } => {
                "select one of them by octavo.dev/type, or, if any of them is acceptable, list all of them, \
                 separated by commas, in the annotation octavo.dev/type"
            }
            Self::OtherType { .. } => {
                "select by octavo.dev/type, or add the other types to the annotation octavo.dev/type"
            }
            Self::NotAdvertised { elsewhere: 0, .. } => {
                "check the device plugin on the nodes with `octavo doctor`, or request a resource that nodes have"
            }
            Self::NotAdvertised { .. } => {
                "select nodes that advertise it, or request a resource that the selected nodes have"
            }
            Self::Counts { .. } => "use counts in ascending order: minimum, default, maximum",
            Self::NoQueue { is_kueue_here: true, .. } => {
                "create a LocalQueue of this name in each namespace that uses the profile"
            }
            Self::NoQueue { is_kueue_here: false, .. } => {
                "install Kueue, or use a node selector in the profile"
            }
            Self::LegacyKind(_) => {
                "create a new profile with `octavo profiles create`; the old one stays unchanged"
            }
            Self::Disabled => "remove the annotation opendatahub.io/disabled to make it selectable",
        };
        remedy.to_owned()
    }
}

impl FindingSeverity {
    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

fn format_label(label: Option<&String>) -> String {
    label.map_or_else(|| "all the labels".to_owned(), |label| format!("the label {label}"))
}

fn format_mixed(nodes: u32) -> String {
    match nodes {
        0 => String::new(),
        1 => "; one node has several of them".to_owned(),
        _ => format!("; {nodes} nodes have several of them"),
    }
}

fn format_not_advertised(resource: &str, elsewhere: u32) -> String {
    match elsewhere {
        0 => format!("no node of the cluster advertises {resource}"),
        _ => format!(
            "no node that it selects advertises {resource}; nodes elsewhere that do: {elsewhere}"
        ),
    }
}

fn format_no_queue(queue: &str, is_kueue_here: bool) -> String {
    if is_kueue_here {
        format!("no namespace has the LocalQueue {queue:?} that its workloads are submitted to")
    } else {
        format!(
            "its workloads are submitted to the LocalQueue {queue:?}, but Kueue is not installed in this cluster"
        )
    }
}

/// Names of the types, separated by commas.
pub(super) fn format_types(names: &[TypeName]) -> String {
    let names: Vec<&str> = names.iter().map(TypeName::as_str).collect();
    names.join(", ")
}
