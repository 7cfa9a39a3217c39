//! Reads resource claims, with one request each. The agent decides when.

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client};
use octavo_dra::claims::config::{ConfigError, NVIDIA_DRIVER, check_config};
use octavo_dra::claims::{AllocatedClaim, AllocatedDevice};
use octavo_model::claim::{ClaimKey, ClaimUid};
use octavo_model::id::ParseError;
use thiserror::Error;

use super::client::{self, RequestError};

/// Client for the claims of a cluster.
#[derive(Clone)]
pub struct ResourceClaimClient {
    client: Client,
    driver: String,
}

/// Reason why a claim cannot be read.
#[derive(Debug, Error)]
pub enum ResourceClaimError {
    /// The API server did not return it.
    #[error("cannot read resource claim {namespace}/{name}")]
    Request {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// The cause.
        #[source]
        source: RequestError,
    },
    /// The API server returned it without a valid UID.
    #[error("the API server returned a resource claim without a valid UID")]
    Uid(#[source] ParseError),
    /// The claim has configuration for the driver that is not supported.
    #[error("the claim has configuration for the driver {driver} that Octavo does not support")]
    OpaqueConfig {
        /// The driver.
        driver: String,
        /// The part that is not supported.
        #[source]
        source: ConfigError,
    },
}

impl std::fmt::Debug for ResourceClaimClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceClaimClient").field("driver", &self.driver).finish_non_exhaustive()
    }
}

impl ResourceClaimClient {
    /// Creates a client for the claims of the cluster of `client`, which returns the devices of `driver` only.
    pub fn new(client: Client, driver: &str) -> Self {
        Self { client, driver: driver.to_owned() }
    }

    /// Reads the claim that now has the namespace and name of `key`; its UID may differ. `None` if there is none.
    pub async fn read(&self, key: &ClaimKey) -> Result<Option<AllocatedClaim>, ResourceClaimError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let claim = client::request(claims.get_opt(&key.name)).await;
        let claim = claim.map_err(|source| ResourceClaimError::Request {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            source,
        })?;
        claim.map(|claim| allocated(claim, key, &self.driver)).transpose()
    }
}

/// Returns the claim with the devices of `driver`.
fn allocated(
    claim: ResourceClaim,
    key: &ClaimKey,
    driver: &str,
) -> Result<AllocatedClaim, ResourceClaimError> {
    let uid = claim.metadata.uid.unwrap_or_default();
    let uid: ClaimUid = uid.parse().map_err(ResourceClaimError::Uid)?;
    let allocation = claim.status.and_then(|status| status.allocation);
    let allocation = allocation.and_then(|allocation| allocation.devices).unwrap_or_default();
    let results = allocation.results.unwrap_or_default();
    // Claims for NVIDIA's driver may have its configuration; it belongs to that driver if the claim has devices of it.
    let is_ours = |name: &str| {
        name == driver || (name == NVIDIA_DRIVER && results.iter().all(|one| one.driver != name))
    };
    let own: Vec<_> = results.iter().filter(|result| result.driver == driver).collect();
    // The configuration of another claim with this name must not prevent the release of the claim that ended.
    let is_checked = uid == key.uid && !own.is_empty();
    let configs = allocation.config.unwrap_or_default();
    let opaque = configs.iter().enumerate();
    let opaque = opaque.filter_map(|(index, config)| Some((index, config.opaque.as_ref()?)));
    for (index, config) in opaque.filter(|(_, one)| is_checked && is_ours(&one.driver)) {
        check_config(index, &config.parameters.0).map_err(|source| {
            ResourceClaimError::OpaqueConfig { driver: config.driver.clone(), source }
        })?;
    }
    let devices = own.into_iter().map(|result| AllocatedDevice {
        // A device for a subrequest has the name `<request>/<subrequest>`.
        request: result.request.split('/').next().unwrap_or_default().to_owned(),
        pool: result.pool.clone(),
        device: result.device.clone(),
        share: result.share_id.clone(),
        is_admin: result.admin_access == Some(true),
    });
    let key = ClaimKey { uid, ..key.clone() };
    Ok(AllocatedClaim { key, devices: devices.collect() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn devices_of_other_drivers_and_names_of_subrequests_are_dropped() {
        let claim = serde_json::from_value(json!({
            "metadata": {"name": "train", "uid": "uid-1"},
            "spec": {},
            "status": {"allocation": {"devices": {"results": [
                {"request": "gpu/large", "driver": "gpu.octavo.dev", "pool": "p", "device": "gpu-a"},
                {"request": "nic", "driver": "net.example.com", "pool": "p", "device": "nic-a"},
            ]}}},
        }));
        let key = ClaimKey {
            uid: "uid-0".parse().unwrap(),
            namespace: "team".to_owned(),
            name: "train".to_owned(),
        };
        let read = allocated(claim.unwrap(), &key, "gpu.octavo.dev").unwrap();
        assert_eq!(read.key.uid.as_str(), "uid-1");
        let device = AllocatedDevice {
            request: "gpu".to_owned(),
            pool: "p".to_owned(),
            device: "gpu-a".to_owned(),
            share: None,
            is_admin: false,
        };
        assert_eq!(read.devices, [device]);
        let read = |key: &ClaimKey, result: Value, config: Value| {
            let allocation = json!({"devices": {"results": [result], "config": [config]}});
            let claim = json!({
                "metadata": {"name": "train", "uid": "uid-1"}, "spec": {},
                "status": {"allocation": allocation},
            });
            allocated(serde_json::from_value(claim).unwrap(), key, "gpu.octavo.dev")
        };
        let current = ClaimKey { uid: "uid-1".parse().unwrap(), ..key.clone() };
        let with = |result: Value, config: Value| read(&current, result, config);
        let result = |driver: &str, admin: bool| json!({"request": "gpu", "driver": driver, "pool": "p", "device": "gpu-a", "adminAccess": admin, "shareID": "1f"});
        let config = |driver: &str| json!({"source": "FromClaim", "opaque": {"driver": driver, "parameters": {"kind": "GpuConfig"}}});
        let admin = with(result("gpu.octavo.dev", true), config("net.example.com")).unwrap();
        assert!(admin.devices[0].is_admin);
        assert_eq!(admin.devices[0].share.as_deref(), Some("1f"));
        for driver in ["gpu.octavo.dev", "gpu.nvidia.com"] {
            let refused = with(result("gpu.octavo.dev", false), config(driver)).unwrap_err();
            let ResourceClaimError::OpaqueConfig { driver: named, source } = &refused else {
                panic!("{refused}");
            };
            assert_eq!(named, driver);
            let reason = "config[0].opaque.parameters: missing field `apiVersion`";
            assert_eq!(source.to_string(), reason);
            // The claim of `key` ended, and another one has its name.
            let other = read(&key, result("gpu.octavo.dev", false), config(driver)).unwrap();
            assert_eq!(other.key, current);
        }
        let foreign = with(result("gpu.nvidia.com", false), config("gpu.nvidia.com")).unwrap();
        assert_eq!(foreign.devices, []);
        let empty = serde_json::from_value(json!({"metadata": {"uid": "uid-1"}, "spec": {}}));
        assert_eq!(allocated(empty.unwrap(), &key, "gpu.octavo.dev").unwrap().devices, []);
    }
}
