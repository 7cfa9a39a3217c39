//! Causes that block a change, and the holders of the affected devices.

use octavo_model::catalog::Placement;
use octavo_model::claim::ClaimRef;
use octavo_model::holder::{Holder, Pod};
use octavo_model::inventory::ProcessKind;
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::plan::messages::{PlanFormatter, remedy};
use crate::plan::{Cause, Disruption};

/// A cause that blocks a change.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockCause {
    /// Kind of the cause.
    pub cause: BlockCauseKind,
    /// The cause as a sentence.
    pub message: String,
    /// The remedy as a sentence.
    pub remedy: String,
    /// The GPU instance that must be destroyed.
    pub gpu_instance: Option<u32>,
    /// Name of its profile.
    pub profile: Option<String>,
    /// The driver's id of its profile.
    pub profile_id: Option<u32>,
    /// Its placement.
    pub placement: Option<Placement>,
    /// Its compute instances that must be destroyed; absent if the whole GPU instance must be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compute_instances: Vec<u32>,
    /// The disruption that is not allowed.
    pub disruption: Option<Disruption>,
    /// The holders; absent if the driver does not report them, which counts as in use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<BlockingHolder>,
}

/// Kind of a cause that blocks a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum BlockCauseKind {
    /// An instance that must be destroyed is in use.
    InstanceInUse,
    /// The MIG mode must change but the device is in use.
    DeviceInUse,
    /// The change exceeds the allowed disruption.
    NotAllowed,
    /// The device does not respond, or does not report its state.
    #[serde(rename = "untold")]
    StateUnknown,
    /// The hardware refused every arrangement that its profile tables allow.
    Refused,
}

/// A process or pod that uses a device.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Holder)]
pub struct BlockingHolder {
    /// The GPU instance; absent for the whole device.
    pub gpu_instance: Option<u32>,
    /// The compute instance within it.
    pub compute_instance: Option<u32>,
    /// Process id on the node.
    pub pid: Option<u32>,
    /// Kind of use: `compute`, `graphics`.
    #[serde(rename = "use")]
    #[schema(value_type = Option<String>)]
    pub kind: Option<ProcessKind>,
    /// Command with its arguments.
    pub command: Option<String>,
    /// Start time of the process, in RFC 3339 (UTC).
    pub since: Option<String>,
    /// The pod of the process.
    pub pod: Option<Pod>,
    /// The resource claim that was allocated the device.
    pub claim: Option<ClaimRef>,
}

impl BlockCause {
    /// Converts a cause, including its message and remedy.
    pub(super) fn new(cause: &Cause, formatter: &PlanFormatter<'_>) -> Self {
        let mut document = Self {
            cause: BlockCauseKind::Refused,
            message: formatter.cause(cause),
            remedy: remedy(cause),
            gpu_instance: None,
            profile: None,
            profile_id: None,
            placement: None,
            compute_instances: Vec::new(),
            disruption: None,
            holders: cause.holders().iter().map(BlockingHolder::from).collect(),
        };
        match cause {
            Cause::InstanceInUse {
                gpu_instance,
                profile_id,
                placement,
                compute_instances,
                holders: _,
            } => {
                document.cause = BlockCauseKind::InstanceInUse;
                document.gpu_instance = Some(*gpu_instance);
                document.profile = formatter.offered(*profile_id);
                document.profile_id = Some(*profile_id);
                document.placement = Some(*placement);
                document.compute_instances.clone_from(compute_instances);
            }
            Cause::DeviceInUse { .. } => document.cause = BlockCauseKind::DeviceInUse,
            Cause::NotAllowed { disruption } => {
                document.cause = BlockCauseKind::NotAllowed;
                document.disruption = Some(*disruption);
            }
            Cause::StateUnknown { .. } => document.cause = BlockCauseKind::StateUnknown,
            Cause::HardwareRefused => {}
        }
        document
    }
}

impl From<&Holder> for BlockingHolder {
    fn from(holder: &Holder) -> Self {
        let details = holder.details.clone();
        Self {
            gpu_instance: holder.gpu_instance,
            compute_instance: holder.compute_instance,
            pid: details.pid,
            kind: details.kind,
            command: details.command,
            since: details.since,
            pod: details.pod,
            claim: details.claim,
        }
    }
}
