//! Parts of a device and their holders.

use std::sync::Arc;

use octavo_fleet::cluster::PodOwner;
use serde::Serialize;
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// Shares are in parts per million of a device, so that they are whole numbers that add up to exactly one device.
pub const PPM: u32 = 1_000_000;

/// A part of a device: its holder and its share. The parts of a device add up to [`PPM`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// UUID of the MIG partition; `None` for a whole device, and for memory slices without a partition.
    pub partition: Option<Arc<str>>,
    /// Profile of the partition.
    pub profile: Option<Arc<str>>,
    /// Method that determined the share.
    pub method: Method,
    /// The holder.
    pub holder: Holder,
    /// Activity of the holder's processes.
    pub activity: Activity,
    /// Share of the device, in parts per million.
    pub ppm: u32,
}

/// Holder of a part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// The part is allocated to a container.
    Container(Arc<Container>),
    /// The part is not allocated.
    Unallocated,
    /// The agent did not report, or could not read the allocations.
    Unknown,
}

/// A container with an allocation, and the properties of its pod by which usage is grouped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Container {
    /// Namespace of the pod; empty if the kubelet does not report it.
    pub namespace: String,
    /// Name of the pod; empty if the kubelet does not report it.
    pub pod: String,
    /// UID of the pod; empty if it is not known.
    pub uid: String,
    /// Name of the container.
    pub container: String,
    /// Resource claim that was allocated the part.
    pub claim: Option<String>,
    /// Workload that owns the pod.
    pub owner: Option<PodOwner>,
    /// Value of the label that names the team.
    pub team: Option<String>,
}

/// Allocation method: determines the share of a part. The version is part of the name, because a report must state how its
/// numbers were calculated.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
pub enum Method {
    /// The whole device. Containers that share it through a resource claim have equal shares.
    #[strum(serialize = "whole-device/v1")]
    WholeDevice,
    /// Memory slices of the partition out of the eight of the device. Compute instances share the slices of their GPU
    /// instance by their compute slices.
    #[strum(serialize = "mig-memory-slices/v1")]
    MigMemorySlices,
    /// Allocated replicas out of all replicas of the device or partition.
    #[strum(serialize = "time-slicing-replicas/v1")]
    TimeSlicingReplicas,
}

/// Activity of a holder's processes on its part.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, EnumString, IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Activity {
    /// A process of the holder existed.
    Active,
    /// No process of the holder existed.
    Idle,
    /// The driver did not report processes, or the part is not allocated.
    Unknown,
}

/// Allocation state of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, IntoStaticStr, Serialize)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum UsageState {
    /// Allocated to a container with processes, or whose processes are not reported.
    Used,
    /// Allocated to a container without processes.
    Idle,
    /// Not allocated.
    Unallocated,
    /// Not reported.
    Unknown,
}

impl Holder {
    /// The container; `None` if the part was not allocated.
    pub fn container(&self) -> Option<&Arc<Container>> {
        match self {
            Self::Container(container) => Some(container),
            Self::Unallocated | Self::Unknown => None,
        }
    }
}

impl Part {
    /// The part of a device that has no other parts.
    pub fn whole(holder: Holder) -> Self {
        Self {
            partition: None,
            profile: None,
            method: Method::WholeDevice,
            holder,
            activity: Activity::Unknown,
            ppm: PPM,
        }
    }

    /// Its allocation state in reports.
    pub fn state(&self) -> UsageState {
        match (&self.holder, self.activity) {
            (Holder::Container(_), Activity::Idle) => UsageState::Idle,
            (Holder::Container(_), Activity::Active | Activity::Unknown) => UsageState::Used,
            (Holder::Unallocated, _) => UsageState::Unallocated,
            (Holder::Unknown, _) => UsageState::Unknown,
        }
    }

    /// Returns whether `other` is the same allocation: the same unit and the same container of the same pod.
    pub(crate) fn is_same_allocation(&self, other: &Self) -> bool {
        match (&self.holder, &other.holder) {
            (Holder::Container(one), Holder::Container(two)) => {
                self.partition == other.partition && !one.uid.is_empty() && one.is_same(two)
            }
            _ => false,
        }
    }

    /// The part with the workload and team of an earlier version of the same allocation, if they are not known any more: a pod
    /// that has ended is no longer in the cluster, but still has its devices for a moment.
    pub(crate) fn with_attribution(self, known: &Self) -> Self {
        match &self.holder {
            Holder::Container(new) if new.owner.is_none() && new.team.is_none() => {
                Self { holder: known.holder.clone(), ..self }
            }
            Holder::Container(_) | Holder::Unallocated | Holder::Unknown => self,
        }
    }
}

impl Container {
    /// Returns whether `other` is the same container of the same pod, whatever else is known about the pod. Its name must be the same too:
    /// while a pod ends and the next one starts, a scan of the node can find the name of the first with the UID of the second.
    fn is_same(&self, other: &Self) -> bool {
        (&self.namespace, &self.pod, &self.uid) == (&other.namespace, &other.pod, &other.uid)
            && self.container == other.container
            && self.claim == other.claim
    }
}
