//! Preparation and release of claims.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use octavo_model::claim::{ClaimKey, ClaimUid};
use octavo_model::id::ParseError;
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use crate::proto::dra::dra_plugin_server::DraPlugin;
use crate::proto::dra::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest,
    NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};

/// A prepared device, as the kubelet passes it to the container runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedDevice {
    /// Requests of the claim that the device satisfies, without the names of subrequests.
    pub requests: Vec<String>,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device in its pool.
    pub device: String,
    /// Qualified CDI names.
    pub cdi_ids: Vec<String>,
    /// ID of the share, of a device that several claims can share.
    pub share: Option<String>,
}

/// Prepares and releases claims.
///
/// The kubelet drops a call after 45 s and repeats it, so a call can be dropped at any await.
#[tonic::async_trait]
pub trait ClaimHandler: fmt::Debug + Send + Sync + 'static {
    /// Prepares the devices of a claim that this driver allocated. Repeated calls, also after a reboot, have the same
    /// result. The error is the text of an event of the pod.
    async fn prepare(&self, claim: &ClaimKey) -> Result<Vec<InjectedDevice>, String>;

    /// Releases the devices of a claim. An unknown claim is released already.
    async fn unprepare(&self, claim: &ClaimKey) -> Result<(), String>;

    /// Receives the result of a registration with the kubelet.
    fn registered(&self, result: Result<(), String>);
}

/// The gRPC service of claims.
#[derive(Debug, Clone)]
pub(super) struct ClaimService(pub(super) Arc<dyn ClaimHandler>);

/// Parses a claim of the kubelet.
fn key(claim: &Claim) -> Result<ClaimKey, ParseError> {
    let uid: ClaimUid = claim.uid.parse()?;
    Ok(ClaimKey { uid, namespace: claim.namespace.clone(), name: claim.name.clone() })
}

#[tonic::async_trait]
impl DraPlugin for ClaimService {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let mut claims = BTreeMap::new();
        for claim in request.into_inner().claims {
            let prepared = match key(&claim) {
                Ok(key) => self.0.prepare(&key).await,
                Err(error) => Err(error.to_string()),
            };
            let place = format!("{}/{}", claim.namespace, claim.name);
            let response = match prepared {
                Ok(devices) => {
                    info!(claim = %place, devices = devices.len(), "claim prepared");
                    let devices = devices.into_iter().map(device).collect();
                    NodePrepareResourceResponse { devices, error: String::new() }
                }
                Err(error) => {
                    warn!(claim = %place, %error, "claim not prepared");
                    NodePrepareResourceResponse { devices: Vec::new(), error }
                }
            };
            claims.insert(claim.uid, response);
        }
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let mut claims = BTreeMap::new();
        for claim in request.into_inner().claims {
            let released = match key(&claim) {
                Ok(key) => self.0.unprepare(&key).await,
                // A claim with such a UID was never prepared.
                Err(_) => Ok(()),
            };
            let place = format!("{}/{}", claim.namespace, claim.name);
            let error = match released {
                Ok(()) => {
                    info!(claim = %place, "claim released");
                    String::new()
                }
                Err(error) => {
                    warn!(claim = %place, %error, "claim not released");
                    error
                }
            };
            claims.insert(claim.uid, NodeUnprepareResourceResponse { error });
        }
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

fn device(device: InjectedDevice) -> Device {
    Device {
        request_names: device.requests,
        pool_name: device.pool,
        device_name: device.device,
        cdi_device_ids: device.cdi_ids,
        share_id: device.share,
    }
}
