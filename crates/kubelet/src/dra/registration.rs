//! Registration of the driver with the kubelet.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use tracing::{info, warn};

use super::claims::ClaimHandler;
use crate::proto::plugin_registration::registration_server::Registration;
use crate::proto::plugin_registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

/// Type of DRA drivers. Source: k8s.io/kubelet, `pluginregistration/v1/constants.go`.
const PLUGIN_TYPE: &str = "DRAPlugin";
/// The services at the endpoint. Source: k8s.io/kubelet, `dra/v1/types.go` and `dra-health/v1alpha1/types.go`.
const SUPPORTED_SERVICES: [&str; 2] = ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"];

/// The gRPC service of registration. The kubelet waits one second for a response, so it is constant.
#[derive(Debug, Clone)]
pub(super) struct RegistrationService {
    pub(super) driver: String,
    /// Path of the socket of claims.
    pub(super) endpoint: String,
    pub(super) handler: Arc<dyn ClaimHandler>,
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: PLUGIN_TYPE.to_owned(),
            name: self.driver.clone(),
            endpoint: self.endpoint.clone(),
            supported_versions: SUPPORTED_SERVICES.map(ToOwned::to_owned).to_vec(),
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = status.into_inner();
        if status.plugin_registered {
            info!(driver = %self.driver, "the kubelet registered the DRA driver");
            self.handler.registered(Ok(()));
        } else {
            warn!(driver = %self.driver, error = %status.error, "the kubelet rejected the DRA driver");
            self.handler.registered(Err(status.error));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
