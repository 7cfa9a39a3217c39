//! Origin of processes on a node.

/// Origin of a process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessOrigin {
    /// A pod, according to its control group.
    Pod {
        /// The pod's UID.
        uid: String,
        /// The container's id.
        container: Option<String>,
    },
    /// A process of the host.
    NoPod,
    /// The process ended before it was inspected.
    Gone,
    /// The process was not inspected, or could not be.
    Unknown,
}
