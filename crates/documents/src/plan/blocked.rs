//! Causes that block a change, and the holders of the affected devices, as JSON.

use jiff::Timestamp;
use octavo_model::holder::{Holder, Pod};
use octavo_model::inventory::ProcessKind;
use octavo_planner::plan::Cause;
use octavo_planner::plan::messages::{PlanFormatter, remedy};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DisruptionJson, PlacementJson};

/// One thing that is in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BlockCause)]
pub struct CauseJson {
    /// What kind of thing.
    pub cause: CauseKind,
    /// What is in the way, in words.
    pub message: String,
    /// What would help, in words.
    pub remedy: String,
    /// The GPU instance that would have to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// The name of its profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The driver's id of its profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<u32>,
    /// Where it lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementJson>,
    /// Those of its compute instances that would have to go; left out where it is the whole instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compute_instances: Vec<u32>,
    /// What is not allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<DisruptionJson>,
    /// Who uses it; left out where the driver would not say, which counts as in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<HolderJson>,
}

/// Kinds of things that are in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BlockCauseKind)]
pub enum CauseKind {
    /// An instance that would have to go is in use.
    InstanceInUse,
    /// MIG mode would have to change, and the device is in use.
    DeviceInUse,
    /// It costs more than is allowed.
    NotAllowed,
    /// The device does not answer, or does not tell what it has.
    Untold,
    /// The hardware refused every arrangement that its tables allow.
    Refused,
}

/// Somebody who uses a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Holder)]
pub struct HolderJson {
    /// The GPU instance; left out for the device as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// The compute instance within it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
    /// Process id on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What it uses the device for: `compute`, `graphics`.
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    pub used_for: Option<String>,
    /// The command with its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// When the process began, RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The pod it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodJson>,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HolderPod)]
pub struct PodJson {
    /// Its UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The container's name, or its id where the name is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

/// Converts a cause, including its message and remedy.
pub(super) fn cause(cause: &Cause, words: &PlanFormatter<'_>) -> CauseJson {
    let mut json = CauseJson {
        cause: CauseKind::Refused,
        message: words.cause(cause),
        remedy: remedy(cause),
        gpu_instance: None,
        profile: None,
        profile_id: None,
        placement: None,
        compute_instances: Vec::new(),
        disruption: None,
        holders: Vec::new(),
    };
    match cause {
        Cause::InstanceInUse {
            gpu_instance,
            profile_id,
            placement,
            compute_instances,
            holders,
        } => {
            json.cause = CauseKind::InstanceInUse;
            json.gpu_instance = Some(*gpu_instance);
            json.profile = words.offered(*profile_id);
            json.profile_id = Some(*profile_id);
            json.placement = Some((*placement).into());
            json.compute_instances.clone_from(compute_instances);
            json.holders = holders.iter().map(HolderJson::from).collect();
        }
        Cause::DeviceInUse { holders } => {
            json.cause = CauseKind::DeviceInUse;
            json.holders = holders.iter().map(HolderJson::from).collect();
        }
        Cause::NotAllowed { disruption } => {
            json.cause = CauseKind::NotAllowed;
            json.disruption = Some((*disruption).into());
        }
        Cause::StateUnknown { .. } => json.cause = CauseKind::Untold,
        Cause::HardwareRefused => json.cause = CauseKind::Refused,
    }
    json
}

impl From<&Holder> for HolderJson {
    fn from(holder: &Holder) -> Self {
        let who = &holder.details;
        let kind = who.kind.map(|kind| match kind {
            ProcessKind::Compute => "compute",
            ProcessKind::Graphics => "graphics",
        });
        Self {
            gpu_instance: holder.gpu_instance,
            compute_instance: holder.compute_instance,
            pid: who.pid,
            used_for: kind.map(str::to_owned),
            command: who.command.clone(),
            since: who.since.and_then(rfc3339),
            pod: who.pod.as_ref().map(PodJson::from),
        }
    }
}

impl From<&Pod> for PodJson {
    fn from(pod: &Pod) -> Self {
        Self {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            container: pod.container.clone(),
        }
    }
}

/// Formats seconds since 1970. Returns `None` if the time is out of range.
fn rfc3339(seconds: u64) -> Option<String> {
    let time = Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
    Some(time.to_string())
}
