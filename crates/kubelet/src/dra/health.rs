//! Health of the devices of this driver.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::interval;
use tokio_stream::wrappers::{IntervalStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::proto::dra_health::dra_resource_health_server::DraResourceHealth;
use crate::proto::dra_health::{
    DeviceHealth as DeviceHealthMessage, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest,
    NodeWatchResourcesResponse,
};

/// After this time without an update, the kubelet reports the health of a device as unknown.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of updates without a change; two of them may be lost.
const RESEND_INTERVAL: Duration = Duration::from_secs(10);

/// Health of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceHealth {
    /// Name of the device in the pool.
    pub device: String,
    /// The problem of the device; `None` for a healthy one.
    pub problem: Option<String>,
}

/// All devices of this driver on the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeDevices {
    /// The pool.
    pub pool: String,
    /// Each device once.
    pub devices: Vec<DeviceHealth>,
    /// False if the hardware does not respond; the health of all devices is unknown then.
    pub is_known: bool,
    /// Time of the scan of the hardware, in seconds since the epoch.
    pub scanned_at: i64,
}

/// The gRPC service of health.
#[derive(Debug, Clone)]
pub(super) struct HealthService(pub(super) watch::Receiver<Arc<NodeDevices>>);

#[tonic::async_trait]
impl DraResourceHealth for HealthService {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let changes = WatchStream::from_changes(self.0.clone()).map(|_| ());
        let ticks = IntervalStream::new(interval(RESEND_INTERVAL)).map(|_| ());
        let devices = self.0.clone();
        let updates = changes.merge(ticks).map(move |()| {
            let devices = Arc::clone(&devices.borrow());
            Ok(response(&devices))
        });
        Ok(Response::new(Box::pin(updates)))
    }
}

/// The complete list.
fn response(node: &NodeDevices) -> NodeWatchResourcesResponse {
    let devices = node.devices.iter().map(|one| {
        let health = match &one.problem {
            _ if !node.is_known => HealthStatus::Unknown,
            Some(_) => HealthStatus::Unhealthy,
            None => HealthStatus::Healthy,
        };
        DeviceHealthMessage {
            device: Some(DeviceIdentifier {
                pool_name: node.pool.clone(),
                device_name: one.device.clone(),
            }),
            health: health.into(),
            last_updated_time: node.scanned_at,
            health_check_timeout_seconds: i64::try_from(HEALTH_TIMEOUT.as_secs()).unwrap_or(0),
            message: one.problem.clone().unwrap_or_default(),
        }
    });
    NodeWatchResourcesResponse { devices: devices.collect() }
}
