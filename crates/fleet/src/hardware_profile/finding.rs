//! Findings about a profile, with explanations and remedies.

use std::fmt;

use octavo_model::id::TypeName;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, IntoStaticStr};

use super::ProfileKind;
use crate::cluster::Taint;

/// Finding about a profile.
#[derive(Debug, Clone, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Finding {
    /// A part of the object is unreadable.
    Unreadable(String),
    /// No node matches the selector.
    NothingSelected {
        /// First label, as `key=value`, that no node has; `None` if each is on some node but no node has all.
        label: Option<String>,
    },
    /// It selects by a label that can change while the devices stay the same.
    ChangingLabel {
        /// Key of the label.
        key: String,
        /// Type to select by instead.
        instead: Option<TypeName>,
    },
    /// It reaches nodes of several types.
    SeveralTypes {
        /// Names of the types.
        types: Vec<TypeName>,
        /// Number of nodes that have several types.
        mixed: u32,
    },
    /// It reaches a type that it does not declare.
    OtherType {
        /// Declared types.
        declared: Vec<TypeName>,
        /// Other types that it reaches.
        reached: Vec<TypeName>,
    },
    /// No selected node offers the requested resource.
    #[strum(serialize = "nobody-advertises")]
    NotAdvertised {
        /// Resource name.
        resource: String,
        /// Number of other nodes that offer it.
        elsewhere: u32,
    },
    /// It requests more than any node has.
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
    Counts {
        /// Resource name.
        resource: String,
        /// Description of the contradiction.
        why: &'static str,
    },
    /// A taint keeps it off nodes that it selects.
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
    NoQueue {
        /// Name of the queue.
        queue: String,
        /// True if Kueue is installed.
        is_kueue_here: bool,
    },
    /// Its kind is a legacy one.
    LegacyKind(ProfileKind),
    /// It is disabled: users cannot select it.
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
        match self {
            Self::Unreadable(_) => {
                "correct the object; `kubectl explain hardwareprofile.spec` describes its fields"
                    .to_owned()
            }
            Self::NothingSelected { .. } => {
                "select by octavo.dev/type, with a type that `octavo types` lists, or \
             add nodes with this label"
                    .to_owned()
            }
            Self::ChangingLabel { instead: Some(name), .. } => {
                format!("select by octavo.dev/type={name} instead")
            }
            Self::ChangingLabel { instead: None, .. } => {
                "select by octavo.dev/type instead, which identifies the \
             device"
                    .to_owned()
            }
            Self::SeveralTypes { .. } => {
                "select one of them by octavo.dev/type, or, if any of them is acceptable, \
             list all of them, separated by commas, in the annotation octavo.dev/type"
                    .to_owned()
            }
            Self::OtherType { .. } => {
                "select by octavo.dev/type, or add the other types to the annotation \
             octavo.dev/type"
                    .to_owned()
            }
            Self::NotAdvertised { elsewhere: 0, .. } => {
                "check the device plugin on the nodes with `octavo \
             doctor`, or request a resource that nodes have"
                    .to_owned()
            }
            Self::NotAdvertised { .. } => {
                "select nodes that advertise it, or request a resource that the selected \
             nodes have"
                    .to_owned()
            }
            Self::TooMany { most, .. } => format!("request at most {most}"),
            Self::Counts { .. } => {
                "use counts in ascending order: minimum, default, maximum".to_owned()
            }
            Self::Untolerated { taint, .. } => format!(
                "add a toleration with key {} and effect {}",
                taint.key,
                taint.effect.as_str()
            ),
            Self::NoQueue { is_kueue_here: true, .. } => {
                "create a LocalQueue of this name in each namespace that \
             uses the profile"
                    .to_owned()
            }
            Self::NoQueue { is_kueue_here: false, .. } => {
                "install Kueue, or use a node selector in the profile".to_owned()
            }
            Self::LegacyKind(_) => {
                "create a new profile with `octavo profiles create`; the old one stays unchanged"
                    .to_owned()
            }
            Self::Disabled => {
                "remove the annotation opendatahub.io/disabled to make it selectable".to_owned()
            }
        }
    }
}

impl FindingSeverity {
    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Formats the finding for users.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(what) => f.write_str(what),
            Self::NothingSelected { label: Some(label) } => write!(
                f,
                "no node has the label {label} that it selects by, so its workloads stay pending"
            ),
            Self::NothingSelected { label: None } => f.write_str(
                "no node has all the labels that it selects by, so its workloads stay pending",
            ),
            Self::ChangingLabel { key, .. } => write!(
                f,
                "it selects by {key}, whose value changes when devices are shared or partitioned: it may then \
                 match no node"
            ),
            Self::SeveralTypes { types, mixed } => format_several_types(f, types, *mixed),
            Self::OtherType { declared, reached } => write!(
                f,
                "it is declared for {}, but it also matches nodes of {}",
                format_types(declared),
                format_types(reached)
            ),
            Self::NotAdvertised { resource, elsewhere: 0 } => {
                write!(f, "no node of the cluster advertises {resource}")
            }
            Self::NotAdvertised { resource, elsewhere } => {
                write!(
                    f,
                    "no node that it selects advertises {resource}; nodes elsewhere that do: {elsewhere}"
                )
            }
            Self::TooMany { resource, count, requested, most } => write!(
                f,
                "its {count} is {requested} of {resource}, but no matching node has more than {most}"
            ),
            Self::Counts { resource, why } => write!(f, "{resource}: {why}"),
            Self::Untolerated { taint, nodes, of } => write!(
                f,
                "{nodes} of the {of} nodes with the requested resources have the taint {taint}, which it does not \
                 tolerate"
            ),
            Self::NoQueue { queue, is_kueue_here: true } => {
                write!(
                    f,
                    "no namespace has the LocalQueue {queue:?} that its workloads are submitted to"
                )
            }
            Self::NoQueue { queue, is_kueue_here: false } => write!(
                f,
                "its workloads are submitted to the LocalQueue {queue:?}, but Kueue is not installed in this cluster"
            ),
            Self::LegacyKind(kind) => {
                let (group, _, name, _) = kind.api();
                write!(f, "its kind is {name} of {group}, which is obsolete")
            }
            Self::Disabled => f.write_str("it is disabled: users cannot select it"),
        }
    }
}

fn format_several_types(f: &mut fmt::Formatter<'_>, types: &[TypeName], mixed: u32) -> fmt::Result {
    let all = format_types(types);
    write!(
        f,
        "it matches nodes of {} types ({all}); a workload can be scheduled to any of them",
        types.len()
    )?;
    match mixed {
        0 => Ok(()),
        1 => f.write_str("; one node has several of them"),
        _ => write!(f, "; {mixed} nodes have several of them"),
    }
}

fn format_types(names: &[TypeName]) -> String {
    let names: Vec<&str> = names.iter().map(TypeName::as_str).collect();
    names.join(", ")
}
