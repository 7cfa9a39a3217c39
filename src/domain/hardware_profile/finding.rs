//! What is wrong with a profile, and what to do about it, in words.

use std::fmt;

use super::ProfileKind;
use crate::domain::cluster::Taint;
use crate::domain::id::TypeName;

/// Something about a profile that somebody should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A part of the object cannot be read.
    Unreadable(String),
    /// No node has the labels that it selects by.
    NothingSelected {
        /// The label, `key=value`, that no node has; `None` where each is on some node and all of them on none.
        label: Option<String>,
    },
    /// It selects by something that changes without the devices changing.
    ChangingLabel {
        /// The key.
        key: String,
        /// What could be selected by instead.
        instead: Option<TypeName>,
    },
    /// The nodes it reaches have several types.
    SeveralTypes {
        /// Their names.
        types: Vec<TypeName>,
        /// How many nodes have several at once.
        mixed: u32,
    },
    /// It reaches a type that it does not say it is for.
    OtherType {
        /// What it says.
        said: Vec<TypeName>,
        /// What it reaches beside that.
        reached: Vec<TypeName>,
    },
    /// Nobody gives out what it asks for where it goes.
    NobodyAdvertises {
        /// The resource.
        resource: String,
        /// Nodes elsewhere that do.
        elsewhere: u32,
    },
    /// It asks for more than any node has.
    TooMany {
        /// The resource.
        resource: String,
        /// Which of its counts: `default` or `maximum`.
        count: &'static str,
        /// How many that is.
        asked: u64,
        /// The most that one node has.
        most: u64,
    },
    /// Its counts contradict each other.
    Counts {
        /// The resource.
        resource: String,
        /// How.
        why: &'static str,
    },
    /// A taint keeps it from nodes that it selects.
    Untolerated {
        /// Which.
        taint: Taint,
        /// From how many nodes.
        nodes: u32,
        /// Of how many.
        of: u32,
    },
    /// No namespace has its queue.
    NoQueue {
        /// The queue's name.
        queue: String,
        /// Whether there is Kueue at all.
        is_kueue_here: bool,
    },
    /// It is of a kind that is not made any more.
    Legacy(ProfileKind),
    /// Nobody can pick it.
    Disabled,
}

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gravity {
    /// Good to know.
    Note,
    /// Work may go where it should not, or not everywhere where it could.
    Warning,
    /// Work waits for ever.
    Error,
}

impl Finding {
    /// How grave it is.
    pub fn gravity(&self) -> Gravity {
        match self {
            Self::Legacy(_) | Self::Disabled => Gravity::Note,
            Self::ChangingLabel { .. } | Self::SeveralTypes { .. } | Self::OtherType { .. } => {
                Gravity::Warning
            }
            Self::Untolerated { nodes, of, .. } if nodes < of => Gravity::Warning,
            Self::TooMany {
                count: "maximum", ..
            } => Gravity::Warning,
            Self::Unreadable(_)
            | Self::NothingSelected { .. }
            | Self::NobodyAdvertises { .. }
            | Self::TooMany { .. }
            | Self::Counts { .. }
            | Self::Untolerated { .. }
            | Self::NoQueue { .. } => Gravity::Error,
        }
    }

    /// What programs know it by.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::NothingSelected { .. } => "nothing-selected",
            Self::ChangingLabel { .. } => "changing-label",
            Self::SeveralTypes { .. } => "several-types",
            Self::OtherType { .. } => "other-type",
            Self::NobodyAdvertises { .. } => "nobody-advertises",
            Self::TooMany { .. } => "too-many",
            Self::Counts { .. } => "counts",
            Self::Untolerated { .. } => "untolerated-taint",
            Self::NoQueue { .. } => "no-queue",
            Self::Legacy(_) => "legacy-kind",
            Self::Disabled => "disabled",
        }
    }

    /// What to do.
    pub fn remedy(&self) -> String {
        match self {
            Self::Unreadable(_) => "correct the object; `kubectl explain hardwareprofile.spec` says what belongs there".to_owned(),
            Self::NothingSelected { .. } => "select by octavo.dev/type, with a type that `octavo types` lists; or add nodes with this label".to_owned(),
            Self::ChangingLabel { instead: Some(name), .. } => format!("select by octavo.dev/type={name} instead"),
            Self::ChangingLabel { instead: None, .. } => "select by octavo.dev/type instead, which says what the device is".to_owned(),
            Self::SeveralTypes { .. } => "select by octavo.dev/type for one of them; or, if any will do, say so with the annotation octavo.dev/type and all their names, separated by commas".to_owned(),
            Self::OtherType { .. } => "select by octavo.dev/type, or name the other types in the annotation octavo.dev/type too".to_owned(),
            Self::NobodyAdvertises { elsewhere: 0, .. } => "look for the device plugin on the nodes, with `octavo doctor`; or ask for a resource that nodes have".to_owned(),
            Self::NobodyAdvertises { .. } => "select the nodes that give it out; or ask for a resource that the selected nodes have".to_owned(),
            Self::TooMany { most, .. } => format!("ask for {most} at most"),
            Self::Counts { .. } => "give counts that go up: minimum, default, maximum".to_owned(),
            Self::Untolerated { taint, .. } => format!("add a toleration with key {} and effect {}", taint.key, taint.effect.as_str()),
            Self::NoQueue { is_kueue_here: true, .. } => "make a LocalQueue of this name in each namespace that shall use the profile".to_owned(),
            Self::NoQueue { is_kueue_here: false, .. } => "install Kueue, or let the profile select nodes".to_owned(),
            Self::Legacy(_) => "make a new one with `octavo profiles create`; nothing is changed in the old one".to_owned(),
            Self::Disabled => "remove the annotation opendatahub.io/disabled when people shall pick it".to_owned(),
        }
    }
}

impl Gravity {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What is so, in words for a person.
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
            Self::SeveralTypes { types, mixed } => several(f, types, *mixed),
            Self::OtherType { said, reached } => write!(
                f,
                "it says that it is for {}, and reaches {} too",
                joined(said),
                joined(reached)
            ),
            Self::NobodyAdvertises {
                resource,
                elsewhere: 0,
            } => write!(f, "no node of the cluster gives out {resource}"),
            Self::NobodyAdvertises {
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
            Self::Legacy(kind) => {
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

fn several(f: &mut fmt::Formatter<'_>, types: &[TypeName], mixed: u32) -> fmt::Result {
    let all = joined(types);
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

fn joined(names: &[TypeName]) -> String {
    let names: Vec<&str> = names.iter().map(TypeName::as_str).collect();
    names.join(", ")
}
