//! Detection of other plugins that serve our resources.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::kubelet::Told;
use super::serving::endpoint;
use crate::domain::sharing::hold::Listed;
use crate::domain::sharing::{ResourceName, ShareId};

/// Connection timeout. A running plugin accepts a connection immediately.
const ALIVE: Duration = Duration::from_secs(1);

/// Live sockets of other plugins.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Alive {
    /// A description of NVIDIA's plugin, if it listens.
    pub(super) nvidias: Option<String>,
    /// A description of the program that replaced our socket, if it listens.
    pub(super) usurper: Option<String>,
}

/// Finds other plugins that listen for these resources. Each comes with a flag whether our socket was replaced. All
/// checks run concurrently, because the caller waits for them.
pub(super) async fn alive(
    folder: &Path,
    resources: impl IntoIterator<Item = (ResourceName, bool)>,
) -> BTreeMap<ResourceName, Alive> {
    let mut asked = JoinSet::new();
    for (resource, is_replaced) in resources {
        let folder = folder.to_owned();
        asked.spawn(async move {
            let usurper = async {
                if is_replaced {
                    usurper(&folder, &resource).await
                } else {
                    None
                }
            };
            let (nvidias, usurper) = tokio::join!(rival_socket(&folder, &resource), usurper);
            (resource, Alive { nvidias, usurper })
        });
    }
    let mut all = BTreeMap::new();
    while let Some(answer) = asked.join_next().await {
        all.extend(answer);
    }
    all
}

/// Describes NVIDIA's plugin for this resource if it listens on its socket. Source of the name: k8s-device-plugin,
/// `internal/plugin/server.go`.
async fn rival_socket(folder: &Path, resource: &ResourceName) -> Option<String> {
    let socket = folder.join(format!("nvidia-{}.sock", resource.short()));
    is_alive(&socket).await.then(|| {
        format!(
            "NVIDIA's device plugin gives {resource} out too: it listens at {}",
            socket.display()
        )
    })
}

/// Describes the program that listens at our socket's path, if any.
async fn usurper(folder: &Path, resource: &ResourceName) -> Option<String> {
    let socket = folder.join(endpoint(resource));
    let is_alive = is_alive(&socket).await;
    is_alive.then(|| replaced(resource, &socket))
}

pub(super) fn replaced(resource: &ResourceName, socket: &Path) -> String {
    format!(
        "another agent gives {resource} out too: it has put its socket in the place of ours at {}",
        socket.display()
    )
}

/// Returns whether a process listens. A timeout or a full connection queue counts as listening.
async fn is_alive(socket: &Path) -> bool {
    if !socket.exists() {
        return false;
    }
    match timeout(ALIVE, UnixStream::connect(socket)).await {
        Ok(Ok(_)) | Err(_) => true,
        Ok(Err(error)) => !matches!(
            error.kind(),
            ErrorKind::ConnectionRefused | ErrorKind::NotFound
        ),
    }
}

/// Describes an ID that the kubelet would allocate under our resource name but that is not ours.
pub(super) fn foreign(listed: &Listed, told: &Told, resource: &ResourceName) -> Option<String> {
    let known = told.allocatable.as_ref()?.get(resource.as_str())?;
    let ours: BTreeSet<&ShareId> = listed.items.iter().map(|item| &item.id).collect();
    let is_ours = |id: &str| id.parse().is_ok_and(|id: ShareId| ours.contains(&id));
    let id = known.iter().find(|id| !is_ours(id))?;
    Some(format!(
        "another plugin gives {resource} out too: kubelet would give out {id:?}, which is not ours"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use socket2::SockRef;

    use super::*;
    use crate::domain::sharing::hold::Item;
    use crate::domain::sharing::{Offer, health::Health};

    const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

    #[tokio::test]
    async fn who_has_no_room_for_another_connection_is_alive_and_a_socket_that_was_left_is_dead() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("nvidia-gpu.sock");
        let gpu = ResourceName::gpu();
        let look = || alive(folder.path(), [(gpu.clone(), true)]);
        assert_eq!(look().await[&gpu], Alive::default(), "nobody");
        let listener = UnixListener::bind(&socket).unwrap();
        SockRef::from(&listener).listen(0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = UnixStream::connect(&socket).await {
            waiting.push(stream);
        }
        assert!(!waiting.is_empty());
        let busy = look().await.remove(&gpu).unwrap();
        assert!(busy.nvidias.unwrap().contains("nvidia-gpu.sock"));
        assert_eq!(busy.usurper, None);
        drop((listener, waiting));
        assert_eq!(look().await[&gpu], Alive::default(), "left behind");
    }

    #[test]
    fn what_is_not_ours_is_found_among_very_many() {
        let count = 8192;
        let ids = || (0..count).map(|number| ShareId::replica(GPU, number));
        let listed = Listed {
            offer: Offer {
                name: ResourceName::gpu(),
                fail_requests_greater_than_one: false,
                units: Vec::new(),
            },
            items: ids()
                .map(|id| Item {
                    id,
                    health: Health::Healthy,
                    is_withheld: false,
                })
                .collect(),
        };
        let mut known: BTreeSet<String> = ids().map(|id| id.to_string()).collect();
        let told = |known: &BTreeSet<String>| Told {
            allocatable: Some([("nvidia.com/gpu".to_owned(), known.clone())].into()),
            ..Told::default()
        };
        assert_eq!(foreign(&listed, &told(&known), &ResourceName::gpu()), None);
        known.insert("GPU-strange".to_owned());
        let rival = foreign(&listed, &told(&known), &ResourceName::gpu());
        assert!(rival.unwrap().contains("GPU-strange"));
    }
}
