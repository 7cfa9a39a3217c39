//! The `NodeFeature` object of this node, from which node-feature-discovery creates labels and which its rules can
//! match by device.
//!
//! The object belongs to Octavo and is applied as a whole. It is read at the start and periodically, and written only
//! if it differs. Source: node-feature-discovery, `api/nfd/v1alpha1/types.go`.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use octavo_model::id::NodeName;
use octavo_node::node_object::FIELD_MANAGER;
use octavo_node::node_object::write_backoff::WriteBackoff;
use octavo_toolkit::desired::{self, Desired, TaskHandle, TaskState};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use crate::client;
use crate::write_status::WriteStatus;

/// Interval of reading the object.
const READ_INTERVAL: Duration = Duration::from_mins(10);
const NODE_NAME: &str = "nfd.node.kubernetes.io/node-name";

/// Desired content of a node's object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFeatureContent {
    /// Labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// Attributes of each device.
    pub devices: Vec<BTreeMap<String, String>>,
}

/// Handle that sets the desired content.
#[derive(Debug)]
pub struct NodeFeatureHandle {
    node: String,
    task: TaskHandle<DesiredObject, WriteStatus>,
}

#[derive(Debug, Clone, PartialEq, Default)]
enum DesiredObject {
    /// Nothing was set yet: leave the object unchanged.
    #[default]
    Unset,
    /// The object must not exist.
    Absent,
    /// The object must be this one, in the API's format.
    Present(Value),
}

/// Keeps the object in its desired state; run it as a task.
#[derive(Debug)]
pub struct NodeFeatureWriter {
    objects: Api<DynamicObject>,
    name: String,
    state: TaskState<DesiredObject, WriteStatus>,
}

impl NodeFeatureHandle {
    /// Sets the desired content.
    pub fn set(&self, content: &NodeFeatureContent) {
        self.task.set(DesiredObject::Present(body(&self.node, content)));
    }

    /// Deletes the object.
    pub fn delete(&self) {
        self.task.set(DesiredObject::Absent);
    }

    /// Waits until the API server has the desired state. Has no timeout.
    pub async fn wait_until_applied(&self) {
        self.task.wait_until(|status, generation| status.generation >= Some(generation)).await;
    }

    /// Returns the current error.
    pub fn error(&self) -> Option<String> {
        self.task.observed.borrow().error.clone()
    }
}

impl NodeFeatureWriter {
    /// Creates a writer for the node in the client's own namespace. Sends no request before it runs.
    pub fn new(client: Client, node: &NodeName) -> (NodeFeatureHandle, Self) {
        let kind = GroupVersionKind::gvk("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature");
        let kind = ApiResource::from_gvk(&kind);
        let namespace = client.default_namespace().to_owned();
        let (task, state) = desired::channel();
        let node = node.as_str().to_owned();
        let objects = Api::namespaced_with(client, &namespace, &kind);
        let writer = Self { objects, name: name(&node), state };
        (NodeFeatureHandle { node, task }, writer)
    }

    /// Runs until the handle is dropped.
    pub async fn run(mut self) {
        let began = Instant::now();
        let mut backoff = WriteBackoff::default();
        // The last known object, if it was read.
        let mut known_object: Option<Option<Value>> = None;
        // The last written content and the resulting object, to which others may have added fields.
        let mut accepted: Option<(DesiredObject, Option<Value>)> = None;
        loop {
            let Desired { generation, state: desired } =
                self.state.desired.borrow_and_update().clone();
            let now = began.elapsed();
            let known = known_object.is_some();
            let wait = match (&known_object, &desired) {
                (_, DesiredObject::Unset) => READ_INTERVAL,
                (Some(known_object), desired)
                    if desired.matches(known_object.as_ref())
                        || accepted.as_ref() == Some(&(desired.clone(), known_object.clone())) =>
                {
                    debug!("the NodeFeature is up to date");
                    self.publish_status(Some(generation), None);
                    READ_INTERVAL
                }
                (_, desired) => match backoff.wait(now, desired) {
                    Some(wait) => wait,
                    None => match self.step(known, desired).await {
                        Ok(object) => {
                            if known {
                                backoff.record_write(began.elapsed(), desired.clone());
                                accepted = Some((desired.clone(), object.clone()));
                            }
                            known_object = Some(object);
                            Duration::ZERO
                        }
                        Err(error) => {
                            backoff.record_failure(began.elapsed(), None);
                            self.publish_status(None, Some(error));
                            known_object = None;
                            backoff.wait(began.elapsed(), desired).unwrap_or_default()
                        }
                    },
                },
            };
            tokio::select! {
                changed = self.state.desired.changed() => if changed.is_err() {
                    return;
                },
                () = sleep(wait) => if wait == READ_INTERVAL {
                    known_object = None;
                },
            }
        }
    }

    /// Reads or writes the object. Returns the current object.
    async fn step(&self, known: bool, want: &DesiredObject) -> Result<Option<Value>, String> {
        let name = &self.name;
        let response = async {
            match want {
                _ if !known => self.objects.get_opt(name).await,
                DesiredObject::Absent => {
                    let gone = self.objects.delete(name, &DeleteParams::default()).await;
                    match gone {
                        Ok(_) => Ok(None),
                        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                        Err(error) => Err(error),
                    }
                }
                DesiredObject::Unset => Ok(None),
                DesiredObject::Present(body) => {
                    let params = PatchParams::apply(FIELD_MANAGER).force();
                    let done = self.objects.patch(name, &params, &Patch::Apply(body)).await?;
                    info!(%name, "NodeFeature updated");
                    Ok(Some(done))
                }
            }
        };
        let object = client::request(response).await.map_err(|error| error.describe())?;
        Ok(object.map(compared_fields))
    }

    fn publish_status(&self, generation: Option<u64>, error: Option<String>) {
        WriteStatus::publish(
            &self.state.observed,
            generation,
            error,
            "cannot update the NodeFeature; retrying",
        );
    }
}

impl DesiredObject {
    /// Returns whether the object that is there is as desired.
    fn matches(&self, known_object: Option<&Value>) -> bool {
        match self {
            Self::Unset => true,
            Self::Absent => known_object.is_none(),
            Self::Present(body) => known_object.is_some_and(|known_object| {
                ["/spec", "/metadata/labels"]
                    .iter()
                    .all(|at| known_object.pointer(at) == body.pointer(at))
            }),
        }
    }
}

fn name(node: &str) -> String {
    format!("octavo-{node}")
}

fn body(node: &str, feature: &NodeFeatureContent) -> Value {
    let devices: Vec<Value> =
        feature.devices.iter().map(|attributes| json!({"attributes": attributes})).collect();
    json!({
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {"name": name(node), "labels": {NODE_NAME: node}},
        "spec": {
            "labels": feature.labels,
            "features": {
                "flags": {},
                "attributes": {},
                "instances": {"octavo.device": {"elements": devices}},
            },
        },
    })
}

/// Returns the compared parts of an object.
fn compared_fields(object: DynamicObject) -> Value {
    let labels = object.metadata.labels.unwrap_or_default();
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    json!({"metadata": {"labels": labels}, "spec": spec})
}
