//! Findings about a profile, with explanations and remedies.

use std::fmt;

use octavo_model::id::TypeName;

use super::ProfileKind;
use crate::cluster::Taint;

/// Finding about a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        said: Vec<TypeName>,
        /// Other types that it reaches.
        reached: Vec<TypeName>,
    },
    /// No selected node offers the requested resource.
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
        asked: u64,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
            Self::TooMany {
                count: "maximum", ..
            } => FindingSeverity::Warning,
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
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::NothingSelected { .. } => "nothing-selected",
            Self::ChangingLabel { .. } => "changing-label",
            Self::SeveralTypes { .. } => "several-types",
            Self::OtherType { .. } => "other-type",
            Self::NotAdvertised { .. } => "nobody-advertises",
            Self::TooMany { .. } => "too-many",
            Self::Counts { .. } => "counts",
            Self::Untolerated { .. } => "untolerated-taint",
            Self::NoQueue { .. } => "no-queue",
            Self::LegacyKind(_) => "legacy-kind",
            Self::Disabled => "disabled",
        }
    }

    /// Recommended action.
    pub fn remedy(&self) -> String {
        match self {
            Self::Unreadable(_) => "correct the object; `kubectl explain hardwareprofile.spec` says what belongs there".to_owned(),
            Self::NothingSelected { .. } => "select by octavo.dev/type, with a type that `octavo types` lists; or add nodes with this label".to_owned(),
            Self::ChangingLabel { instead: Some(name), .. } => format!("select by octavo.dev/type={name} instead"),
            Self::ChangingLabel { instead: None, .. } => "select by octavo.dev/type instead, which says what the device is".to_owned(),
            Self::SeveralTypes { .. } => "select by octavo.dev/type for one of them; or, if any will do, say so with the annotation octavo.dev/type and all their names, separated by commas".to_owned(),
            Self::OtherType { .. } => "select by octavo.dev/type, or name the other types in the annotation octavo.dev/type too".to_owned(),
            Self::NotAdvertised { elsewhere: 0, .. } => "look for the device plugin on the nodes, with `octavo doctor`; or ask for a resource that nodes have".to_owned(),
            Self::NotAdvertised { .. } => "select the nodes that give it out; or ask for a resource that the selected nodes have".to_owned(),
            Self::TooMany { most, .. } => format!("ask for {most} at most"),
            Self::Counts { .. } => "give counts that go up: minimum, default, maximum".to_owned(),
            Self::Untolerated { taint, .. } => format!("add a toleration with key {} and effect {}", taint.key, taint.effect.as_str()),
            Self::NoQueue { is_kueue_here: true, .. } => "make a LocalQueue of this name in each namespace that shall use the profile".to_owned(),
            Self::NoQueue { is_kueue_here: false, .. } => "install Kueue, or let the profile select nodes".to_owned(),
            Self::LegacyKind(_) => "make a new one with `octavo profiles create`; nothing is changed in the old one".to_owned(),
            Self::Disabled => "remove the annotation opendatahub.io/disabled when people shall pick it".to_owned(),
        }
    }
}

impl FindingSeverity {
    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Formats the finding for users.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(what) => f.write_str(what),
            Self::NothingSelected { label: Some(label) } => write!(
                f,
                "no node has the label {label} that it selects by, so its work waits for ever"
            ),
            Self::NothingSelected { label: None } => f.write_str(
                "no node has all the labels that it selects by, so its work waits for ever",
            ),
            Self::ChangingLabel { key, .. } => write!(
                f,
                "it selects by {key}, whose value changes when devices are shared or partitioned: it may match nothing tomorrow"
            ),
            Self::SeveralTypes { types, mixed } => format_several_types(f, types, *mixed),
            Self::OtherType { said, reached } => write!(
                f,
                "it says that it is for {}, and reaches {} too",
                format_types(said),
                format_types(reached)
            ),
            Self::NotAdvertised {
                resource,
                elsewhere: 0,
            } => write!(f, "no node of the cluster gives out {resource}"),
            Self::NotAdvertised {
                resource,
                elsewhere,
            } => write!(
                f,
                "no node that it selects gives out {resource}; elsewhere {elsewhere} do"
            ),
            Self::TooMany {
                resource,
                count,
                asked,
                most,
            } => write!(
                f,
                "its {count} is {asked} of {resource}, and no node that it reaches has more than {most}"
            ),
            Self::Counts { resource, why } => write!(f, "of {resource}, {why}"),
            Self::Untolerated { taint, nodes, of } => write!(
                f,
                "{nodes} of the {of} nodes that have what it asks for have the taint {taint}, which it does not tolerate"
            ),
            Self::NoQueue {
                queue,
                is_kueue_here: true,
            } => write!(
                f,
                "no namespace has the LocalQueue {queue:?} that its work goes to"
            ),
            Self::NoQueue {
                queue,
                is_kueue_here: false,
            } => write!(
                f,
                "its work goes to the LocalQueue {queue:?}, and there is no Kueue in this cluster"
            ),
            Self::LegacyKind(kind) => {
                let (group, _, name, _) = kind.api();
                write!(
                    f,
                    "its kind is {name} of {group}, which is not made any more"
                )
            }
            Self::Disabled => f.write_str("it is disabled: nobody can pick it"),
        }
    }
}

fn format_several_types(f: &mut fmt::Formatter<'_>, types: &[TypeName], mixed: u32) -> fmt::Result {
    let all = format_types(types);
    write!(
        f,
        "it reaches {} types, {all}: which one a workload gets is chance",
        types.len()
    )?;
    match mixed {
        0 => Ok(()),
        1 => f.write_str("; one node has several at once"),
        _ => write!(f, "; {mixed} nodes have several at once"),
    }
}

fn format_types(names: &[TypeName]) -> String {
    let names: Vec<&str> = names.iter().map(TypeName::as_str).collect();
    names.join(", ")
}
