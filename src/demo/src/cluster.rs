//! A simulated Kubernetes API server, at the same protocol: the released aggregator and agents use it through a
//! kubeconfig file, with their normal flags.
//!
//! It serves the kinds that they read and write, with list, watch, get, create, server-side apply, merge patch, delete
//! and eviction. It has no authentication, admission, garbage collection or scheduler: bound pods name their node, and
//! pending pods stay pending. It listens on 127.0.0.1 only.
//!
//! ```text
//! kinds.rs      the served kinds, the keys of objects, and their paths
//! objects.rs    stored objects with resource versions, and their changes
//! selector.rs   field and label selectors
//! patch.rs      server-side apply and merge patch, with field managers
//! profile.rs    validation of hardware profiles
//! status.rs     error responses
//! server.rs     requests
//! watch.rs      watches
//! ```

mod kinds;
mod objects;
mod patch;
mod profile;
mod selector;
mod server;
mod status;
mod watch;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch::Receiver;

pub use self::kinds::{Kind, ObjectKey};
pub use self::objects::Objects;
pub(crate) use self::objects::now as timestamp;
pub use self::status::Refusal;
use crate::servers::Servers;

/// Name of the cluster, the user and the context in the kubeconfig.
const CONTEXT: &str = "octavo-demo";

/// The running API server.
#[derive(Debug)]
pub struct SimulatedCluster {
    objects: Arc<Objects>,
    address: SocketAddr,
}

impl SimulatedCluster {
    /// Starts the API server on a free port of 127.0.0.1, without objects.
    pub async fn start(servers: &mut Servers) -> io::Result<Self> {
        let objects = Arc::new(Objects::default());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        servers.start(listener, server::router(Arc::clone(&objects)));
        Ok(Self { objects, address })
    }

    /// Returns the stored objects.
    pub fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    /// Subscribes to changes: the value is the latest resource version.
    pub fn changes(&self) -> Receiver<u64> {
        self.objects.changes()
    }

    /// Returns the URL of the API server.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Writes a kubeconfig that selects this API server.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        let text = format!(
            "# The simulated Kubernetes API server of `octavo demo`\n\
             apiVersion: v1\nkind: Config\ncurrent-context: {CONTEXT}\n\
             clusters:\n- {{name: {CONTEXT}, cluster: {{server: '{url}'}}}}\n\
             users:\n- {{name: {CONTEXT}, user: {{}}}}\n\
             contexts:\n- {{name: {CONTEXT}, context: {{cluster: {CONTEXT}, user: {CONTEXT}, namespace: platform}}}}\n",
            url = self.url()
        );
        fs::write(path, text)
    }
}
