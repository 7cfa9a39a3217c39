//! Source of the type of devices.

/// Source of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TypeSource {
    /// The node's agent, from the devices.
    Agent,
    /// This Node label.
    Label(&'static str),
    /// No source.
    Unknown,
}

impl TypeSource {
    /// `agent`, the key of the label, or `nothing`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Label(key) => key,
            Self::Unknown => "nothing",
        }
    }
}
