//! Detection of other plugins that serve our resources.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use octavo_model::resource::{ResourceName, ShareId};
use octavo_node::sharing::listing::ListedResource;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::kubelet_poller::KubeletReport;
use super::service::endpoint;

/// Connection timeout. A running plugin accepts a connection immediately.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Live sockets of other plugins.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LivePlugins {
    /// A description of NVIDIA's plugin, if it listens.
    pub(super) nvidia_plugin: Option<String>,
    /// A description of the program that replaced our socket, if it listens.
    pub(super) socket_replacement: Option<String>,
}

/// Finds other plugins that listen for these resources. Each comes with a flag whether our socket was replaced. All
/// checks run concurrently, because the caller waits for them.
pub(super) async fn find_live_plugins(
    dir: &Path,
    resources: impl IntoIterator<Item = (ResourceName, bool)>,
) -> BTreeMap<ResourceName, LivePlugins> {
    let mut queries = JoinSet::new();
    for (resource, is_replaced) in resources {
        let dir = dir.to_owned();
        queries.spawn(async move {
            let replacement = async {
                if is_replaced { find_socket_replacement(&dir, &resource).await } else { None }
            };
            let (nvidia_plugin, replacement) =
                tokio::join!(find_nvidia_plugin(&dir, &resource), replacement);
            (resource, LivePlugins { nvidia_plugin, socket_replacement: replacement })
        });
    }
    let mut all = BTreeMap::new();
    while let Some(found) = queries.join_next().await {
        all.extend(found);
    }
    all
}

/// Describes NVIDIA's plugin for this resource if it listens on its socket. Source of the name: k8s-device-plugin,
/// `internal/plugin/server.go`.
async fn find_nvidia_plugin(dir: &Path, resource: &ResourceName) -> Option<String> {
    let socket = dir.join(format!("nvidia-{}.sock", resource.short()));
    is_alive(&socket).await.then(|| {
        format!("NVIDIA's device plugin also serves {resource}: it listens at {}", socket.display())
    })
}

/// Describes the program that listens at our socket's path, if any.
async fn find_socket_replacement(dir: &Path, resource: &ResourceName) -> Option<String> {
    let socket = dir.join(endpoint(resource));
    let is_alive = is_alive(&socket).await;
    is_alive.then(|| describe_replacement(resource, &socket))
}

pub(super) fn describe_replacement(resource: &ResourceName, socket: &Path) -> String {
    format!(
        "another agent also serves {resource}: it replaced the socket of this agent at {}",
        socket.display()
    )
}

/// Returns whether a process listens. A timeout or a full connection queue counts as listening.
async fn is_alive(socket: &Path) -> bool {
    if !socket.exists() {
        return false;
    }
    match timeout(CONNECT_TIMEOUT, UnixStream::connect(socket)).await {
        Ok(Ok(_)) | Err(_) => true,
        Ok(Err(error)) => {
            !matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
        }
    }
}

/// Describes an ID that the kubelet would allocate under our resource name but that is not ours.
pub(super) fn find_foreign_id(
    listed: &ListedResource,
    report: &KubeletReport,
    resource: &ResourceName,
) -> Option<String> {
    let known = report.allocatable.as_ref()?.get(resource.as_str())?;
    let ours: BTreeSet<&ShareId> = listed.items.iter().map(|item| &item.id).collect();
    let is_ours = |id: &str| id.parse().is_ok_and(|id: ShareId| ours.contains(&id));
    let id = known.iter().find(|id| !is_ours(id))?;
    Some(format!(
        "another plugin also serves {resource}: the kubelet would allocate {id:?}, which this agent does not list"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use octavo_model::sharing_status::Health;
    use octavo_node::sharing::Offer;
    use octavo_node::sharing::listing::ListedId;
    use socket2::SockRef;

    use super::*;

    const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

    #[tokio::test]
    async fn full_listener_is_alive_and_stale_socket_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nvidia-gpu.sock");
        let gpu = ResourceName::gpu();
        let look = || find_live_plugins(directory.path(), [(gpu.clone(), true)]);
        assert_eq!(look().await[&gpu], LivePlugins::default(), "no plugin");
        let listener = UnixListener::bind(&socket).unwrap();
        SockRef::from(&listener).listen(0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = UnixStream::connect(&socket).await {
            waiting.push(stream);
        }
        assert!(!waiting.is_empty());
        let busy = look().await.remove(&gpu).unwrap();
        assert!(busy.nvidia_plugin.unwrap().contains("nvidia-gpu.sock"));
        assert_eq!(busy.socket_replacement, None);
        drop((listener, waiting));
        assert_eq!(look().await[&gpu], LivePlugins::default(), "left behind");
    }

    #[test]
    fn foreign_id_is_found_among_many() {
        let count = 8192;
        let ids = || (0..count).map(|number| ShareId::replica(GPU, number));
        let listed = ListedResource {
            offer: Offer {
                name: ResourceName::gpu(),
                fail_requests_greater_than_one: false,
                units: Vec::new(),
            },
            items: ids()
                .map(|id| ListedId { id, health: Health::Healthy, is_withheld: false })
                .collect(),
        };
        let mut known: BTreeSet<String> = ids().map(|id| id.to_string()).collect();
        let report = |known: &BTreeSet<String>| KubeletReport {
            allocatable: Some([("nvidia.com/gpu".to_owned(), known.clone())].into()),
            ..KubeletReport::default()
        };
        assert_eq!(find_foreign_id(&listed, &report(&known), &ResourceName::gpu()), None);
        known.insert("GPU-strange".to_owned());
        let rival = find_foreign_id(&listed, &report(&known), &ResourceName::gpu());
        assert!(rival.unwrap().contains("GPU-strange"));
    }
}
