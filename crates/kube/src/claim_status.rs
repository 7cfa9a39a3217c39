//! Status of the devices of this node's claims: `status.devices` of each `ResourceClaim`.
//!
//! Only the entries of this driver are written, with server-side apply, so that those of other drivers remain. The API
//! server removes the entries of a claim that is deallocated. Source: Kubernetes `pkg/registry/resource/resourceclaim`.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use octavo_dra::DRIVER;
use octavo_dra::claims::{ClaimStatuses, DeviceProblem, DeviceStatus};
use octavo_model::claim::ClaimKey;
use octavo_node::node_object::FIELD_MANAGER;
use octavo_toolkit::error::chain;
use serde_json::json;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::backoff::{MAX_DELAY, ReconnectBackoff};
use crate::client::{self, RequestError};

/// Type of the condition of a device. Source: Kubernetes `api/resource/v1`, `AllocatedDeviceStatus`.
const READY: &str = "Ready";

/// Keeps the status of claims in its desired state; run it as a task.
pub struct ClaimStatusWriter {
    client: Client,
    desired: watch::Receiver<Arc<ClaimStatuses>>,
    /// Status that was written, or found, since this process started.
    written: ClaimStatuses,
}

/// Reason why the status of a claim is not written.
#[derive(Debug, Error)]
#[error("cannot write the status of resource claim {}", key.reference())]
struct WriteError {
    key: ClaimKey,
    #[source]
    source: RequestError,
}

impl fmt::Debug for ClaimStatusWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimStatusWriter").field("written", &self.written).finish_non_exhaustive()
    }
}

impl ClaimStatusWriter {
    /// Creates a writer of the status in `desired`. Sends no request before it runs.
    pub fn new(client: Client, desired: watch::Receiver<Arc<ClaimStatuses>>) -> Self {
        Self { client, desired, written: ClaimStatuses::new() }
    }

    /// Runs until the sender of the desired status is dropped. The status remains.
    pub async fn run(mut self) {
        let mut backoff = ReconnectBackoff::default();
        let mut logged = None;
        loop {
            let desired = Arc::clone(&self.desired.borrow_and_update());
            let error = self.write_all(&desired).await.err();
            let text = error.as_ref().map(|error| chain(error));
            if let Some(error) = text.as_ref().filter(|_| text != logged) {
                warn!(%error, "cannot write the status of resource claims; retrying");
            }
            logged = text;
            let delay = error.map(|error| {
                let requested = error.source.retry_after().unwrap_or_default();
                backoff.next_delay(MAX_DELAY).max(requested)
            });
            tokio::select! {
                changed = self.desired.changed() => if changed.is_err() {
                    return;
                },
                () = sleep(delay.unwrap_or_default()), if delay.is_some() => {}
            }
        }
    }

    /// Writes what differs from the desired status. A claim whose status cannot be written does not delay others, unless the
    /// API server does not respond.
    async fn write_all(&mut self, desired: &ClaimStatuses) -> Result<(), WriteError> {
        let ended = self.written.keys().filter(|key| !desired.contains_key(key));
        let ended: Vec<(ClaimKey, &[DeviceStatus])> =
            ended.map(|key| (key.clone(), &[][..])).collect();
        let current =
            desired.iter().filter(|(key, devices)| self.written.get(key) != Some(devices));
        let current = current.map(|(key, devices)| (key.clone(), devices.as_slice()));
        let pending: Vec<(ClaimKey, &[DeviceStatus])> = ended.into_iter().chain(current).collect();
        let mut first = Ok(());
        for (key, devices) in pending {
            if let Err(source) = self.write(&key, devices).await {
                let is_silent = source.code().is_none();
                first = first.and(Err(WriteError { key, source }));
                if is_silent {
                    break;
                }
            } else if devices.is_empty() {
                self.written.remove(&key);
            } else {
                self.written.insert(key, devices.to_vec());
            }
        }
        first
    }

    /// Writes the status of one claim if it differs. A claim that was deleted has none.
    async fn write(&self, key: &ClaimKey, devices: &[DeviceStatus]) -> Result<(), RequestError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let claim = client::request(claims.get_opt(&key.name)).await?;
        let is_same =
            |claim: &ResourceClaim| claim.metadata.uid.as_deref() == Some(key.uid.as_str());
        let Some(claim) = claim.filter(is_same) else {
            return Ok(());
        };
        let present = own_entries(&claim);
        let wanted = entries(devices, &claim, &present, Timestamp::now());
        if present == wanted {
            return Ok(());
        }
        let body = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            // With the UID, a claim that was created again since is refused.
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": key.uid},
            "status": {"devices": wanted},
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&body);
        match client::request(claims.patch_status(&key.name, &params, &patch)).await {
            Ok(_) => {
                debug!(namespace = %key.namespace, claim = %key.name, "status of a resource claim updated");
                Ok(())
            }
            Err(source) if source.code() == Some(404) => Ok(()),
            Err(source) => Err(source),
        }
    }
}

/// Returns the entries of this driver in the status of a claim.
fn own_entries(claim: &ResourceClaim) -> Vec<AllocatedDeviceStatus> {
    let status = claim.status.iter();
    let devices = status.flat_map(|status| status.devices.iter().flatten());
    let mut own: Vec<_> = devices.filter(|device| device.driver == DRIVER).cloned().collect();
    own.sort_by(|one, other| place(one).cmp(&place(other)));
    own
}

/// Returns what identifies an entry among those of this driver. Source: Kubernetes `api/resource/v1`, keys of the list.
fn place(entry: &AllocatedDeviceStatus) -> (&str, &str, Option<&str>) {
    (&entry.pool, &entry.device, entry.share_id.as_deref())
}

/// Returns the entries to write for the devices that the claim is allocated. The time of a condition changes only with it.
fn entries(
    devices: &[DeviceStatus],
    claim: &ResourceClaim,
    present: &[AllocatedDeviceStatus],
    now: Timestamp,
) -> Vec<AllocatedDeviceStatus> {
    let status = claim.status.as_ref();
    let allocation = status.and_then(|status| status.allocation.as_ref()?.devices.as_ref());
    let results = allocation.and_then(|devices| devices.results.as_deref()).unwrap_or_default();
    let allocated = devices.iter().filter(|device| {
        results.iter().any(|result| {
            let place = (result.driver.as_str(), &result.pool, result.device.as_str());
            place == (DRIVER, &device.pool, device.device.as_str())
                && result.share_id == device.share
        })
    });
    let mut entries: Vec<_> = allocated
        .map(|device| {
            let before = present
                .iter()
                .find(|one| one.device == device.device.as_str() && one.share_id == device.share);
            entry(device, before, now)
        })
        .collect();
    entries.sort_by(|one, other| place(one).cmp(&place(other)));
    // A claim can have one device twice: with and without administrative access.
    entries.dedup_by(|one, other| place(one) == place(other));
    entries
}

fn entry(
    device: &DeviceStatus,
    before: Option<&AllocatedDeviceStatus>,
    now: Timestamp,
) -> AllocatedDeviceStatus {
    let (status, reason, message) = match &device.problem {
        None => ("True", "Prepared", String::new()),
        Some(DeviceProblem::Missing) => {
            ("False", "Missing", "the device does not exist".to_owned())
        }
        Some(DeviceProblem::Unhealthy(problem)) => ("False", "Unhealthy", problem.clone()),
    };
    let conditions = before.into_iter().flat_map(|before| before.conditions.iter().flatten());
    let mut same = conditions.filter(|one| one.type_ == READY && one.status == status);
    // The API server stores seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let since = same.next().map_or(Time(now), |one| one.last_transition_time.clone());
    AllocatedDeviceStatus {
        driver: DRIVER.to_owned(),
        pool: device.pool.clone(),
        device: device.device.to_string(),
        conditions: Some(vec![Condition {
            type_: READY.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: since,
            observed_generation: None,
        }]),
        data: device.data.as_ref().map(|data| RawExtension(json!(data))),
        network_data: None,
        share_id: device.share.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn claim(entries: &[AllocatedDeviceStatus]) -> ResourceClaim {
        let result = |driver: &str, device: &str| json!({"request": "gpu", "driver": driver, "pool": "p", "device": device});
        serde_json::from_value(json!({
            "metadata": {"name": "train", "uid": "uid-1"}, "spec": {},
            "status": {
                "allocation": {"devices": {"results": [
                    result(DRIVER, "gpu-b"), result(DRIVER, "gpu-a"), result("net.example.com", "nic-a"),
                ]}},
                "devices": entries,
            },
        }))
        .unwrap()
    }

    fn device(name: &str, problem: Option<DeviceProblem>) -> DeviceStatus {
        let (pool, device) = ("p".to_owned(), name.parse().unwrap());
        DeviceStatus { pool, device, share: None, problem, data: None }
    }

    #[test]
    fn each_share_of_a_device_has_one_entry() {
        let result = |share: &str| json!({"request": "gpu", "driver": DRIVER, "pool": "p", "device": "gpu-a", "shareID": share});
        let claim: ResourceClaim = serde_json::from_value(json!({
            "metadata": {"name": "train", "uid": "uid-1"}, "spec": {},
            "status": {"allocation": {"devices": {"results": [result("2"), result("1")]}}},
        }))
        .unwrap();
        let share =
            |name: &str| DeviceStatus { share: Some(name.to_owned()), ..device("gpu-a", None) };
        let devices = [share("2"), share("1"), share("1"), share("3"), device("gpu-a", None)];
        let entries = entries(&devices, &claim, &[], at(1_000));
        let shares: Vec<_> = entries.iter().map(|one| one.share_id.as_deref()).collect();
        assert_eq!(shares, [Some("1"), Some("2")]);
    }

    #[test]
    fn entries_are_of_allocated_devices_and_their_time_is_that_of_the_last_transition() {
        let devices = ["gpu-b", "gpu-a", "gpu-c"].map(|name| device(name, None));
        let first = entries(&devices, &claim(&[]), &[], at(1_000));
        let names: Vec<&str> = first.iter().map(|one| one.device.as_str()).collect();
        assert_eq!(names, ["gpu-a", "gpu-b"]);
        let mut foreign = first[0].clone();
        foreign.driver = "net.example.com".to_owned();
        let stored = claim(&[first[1].clone(), foreign, first[0].clone()]);
        let present = own_entries(&stored);
        assert_eq!(present, first, "the other driver's entry is not ours");
        // Nothing differs, so nothing is written.
        assert_eq!(entries(&devices, &stored, &present, at(2_000)), present);
        let unhealthy = DeviceProblem::Unhealthy("failing".to_owned());
        let devices = [device("gpu-a", Some(unhealthy)), device("gpu-b", None)];
        let next = entries(&devices, &stored, &present, at(3_000));
        let condition = &next[0].conditions.as_ref().unwrap()[0];
        let words = [&condition.status, &condition.reason, &condition.message];
        assert_eq!(words, ["False", "Unhealthy", "failing"]);
        assert_eq!(condition.last_transition_time, Time(at(3_000)));
        assert_eq!(next[1], present[1]);
    }
}
