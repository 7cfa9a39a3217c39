//! NVIDIA's device plugin as a node sees it: a config-manager that follows the Node's label and ends where it names a file that is
//! not there, a plugin that offers devices as its configuration says, and kubelet that tells of them in the Node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_stream::StreamExt;

const LABEL: &str = "nvidia.com/device-plugin.config";

/// Where it runs, and what it has to give out.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) kubeconfig: PathBuf,
    pub(super) node: String,
    pub(super) namespace: String,
    pub(super) devices: BTreeMap<String, u64>,
}

/// One that runs; ended when dropped.
pub(super) struct Plugin {
    stop: Option<oneshot::Sender<()>>,
    thread: JoinHandle<()>,
}

impl Plugin {
    pub(super) fn start(place: &Place) -> Self {
        let (stop, stopped) = oneshot::channel();
        let place = place.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                tokio::select! {
                    () = follow(&place) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { stop: Some(stop), thread }
    }

    /// Whether its config-manager has ended because a label named what was not there.
    pub(super) fn has_crashed(&self) -> bool {
        self.thread.is_finished()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

async fn follow(place: &Place) {
    let client =
        octavo_kube::client::connect(Some(&place.kubeconfig), octavo_kube::client::Program::Agent)
            .await
            .unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(client, &place.namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={}", place.node));
    let mut seen = Box::pin(watcher(nodes.clone(), only));
    let mut known: Option<Option<String>> = None;
    while let Some(event) = seen.next().await {
        let Ok(Event::Apply(node) | Event::InitApply(node)) = event else {
            continue;
        };
        let label = node.metadata.labels.and_then(|labels| labels.get(LABEL).cloned());
        if known.as_ref() == Some(&label) {
            continue;
        }
        let config = match &label {
            None => json!({}),
            Some(key) => {
                let map = maps.get(super::MAP).await.unwrap();
                let Some(text) = map.data.and_then(|data| data.get(key).cloned()) else {
                    return;
                };
                serde_saphyr::from_str(&text).unwrap()
            }
        };
        known = Some(label);
        offer(&nodes, place, &config).await;
    }
}

/// What kubelet tells of it. Source: NVIDIA k8s-device-plugin, `internal/rm`: a resource that is not shared is offered as it is.
async fn offer(nodes: &Api<Node>, place: &Place, config: &Value) {
    let sharing = &config["sharing"]["timeSlicing"];
    let mut offered: BTreeMap<String, String> = BTreeMap::new();
    for (name, count) in &place.devices {
        let resources = sharing["resources"].as_array().into_iter().flatten();
        let shared = resources.into_iter().find(|one| one["name"] == *name);
        let renamed = format!("{name}.shared");
        let replicas = shared.map(|one| one["replicas"].as_u64().unwrap());
        let is_renamed = replicas.is_some() && sharing["renameByDefault"] == true;
        let all = (count * replicas.unwrap_or(1)).to_string();
        let (has, has_not) =
            if is_renamed { (renamed, name.clone()) } else { (name.clone(), renamed) };
        offered.insert(has, all);
        offered.insert(has_not, "0".to_owned());
    }
    let patch = json!({"status": {"allocatable": offered, "capacity": offered}});
    let params = PatchParams::default();
    nodes.patch_status(&place.node, &params, &Patch::Merge(patch)).await.unwrap();
}
