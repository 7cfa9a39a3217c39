//! NVIDIA's device plugin as seen by a node: a config-manager that follows the label of the Node and exits if the file
//! does not exist, a plugin that advertises devices as configured, and the kubelet's update of the Node.

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

/// Location and devices of the plugin.
#[derive(Clone)]
pub(super) struct PluginSettings {
    pub(super) kubeconfig: PathBuf,
    pub(super) node: String,
    pub(super) namespace: String,
    pub(super) devices: BTreeMap<String, u64>,
}

/// A running plugin; stopped when dropped.
pub(super) struct Plugin {
    stop: Option<oneshot::Sender<()>>,
    thread: JoinHandle<()>,
}

impl Plugin {
    pub(super) fn start(settings: &PluginSettings) -> Self {
        let (stop, stopped) = oneshot::channel();
        let settings = settings.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                tokio::select! {
                    () = follow(&settings) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { stop: Some(stop), thread }
    }

    /// True if its config-manager exited because a label named a missing file.
    pub(super) fn has_crashed(&self) -> bool {
        self.thread.is_finished()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

async fn follow(settings: &PluginSettings) {
    let client = octavo_kube::client::connect(
        Some(&settings.kubeconfig),
        octavo_kube::client::Program::Agent,
    )
    .await
    .unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(client, &settings.namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={}", settings.node));
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
        offer(&nodes, settings, &config).await;
    }
}

/// Updates allocatable as kubelet does. Source: NVIDIA k8s-device-plugin, `internal/rm`: a resource without sharing is
/// advertised unchanged.
async fn offer(nodes: &Api<Node>, settings: &PluginSettings, config: &Value) {
    let sharing = &config["sharing"]["timeSlicing"];
    let mut offered: BTreeMap<String, String> = BTreeMap::new();
    for (name, count) in &settings.devices {
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
    nodes.patch_status(&settings.node, &params, &Patch::Merge(patch)).await.unwrap();
}
