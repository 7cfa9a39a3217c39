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
use octavo_node::node::FIELD_MANAGER;
use octavo_node::node::write_backoff::WriteBackoff;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use crate::client::{REQUEST_TIMEOUT, told};

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
    wanted: watch::Sender<(u64, DesiredFeature)>,
    said: watch::Receiver<NodeFeatureStatus>,
}

/// Progress and errors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFeatureStatus {
    /// The last generation that was applied.
    pub turn: Option<u64>,
    /// The current error.
    pub trouble: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum DesiredFeature {
    /// Nothing was set yet: leave the object unchanged.
    #[default]
    Unset,
    /// The object must not exist.
    Absent,
    /// The object must have this content.
    Content(NodeFeatureContent),
}

/// Keeps the object in its desired state; run it as a task.
#[derive(Debug)]
pub struct NodeFeatureWriter {
    objects: Api<DynamicObject>,
    node: String,
    wanted: watch::Receiver<(u64, DesiredFeature)>,
    said: watch::Sender<NodeFeatureStatus>,
}

impl NodeFeatureHandle {
    /// Sets the desired content.
    pub fn say(&self, feature: NodeFeatureContent) {
        self.update_desired(DesiredFeature::Content(feature));
    }

    /// Deletes the object.
    pub fn delete(&self) {
        self.update_desired(DesiredFeature::Absent);
    }

    fn update_desired(&self, new: DesiredFeature) {
        self.wanted.send_if_modified(|(turn, wanted)| {
            let differs = *wanted != new;
            *turn = turn.saturating_add(u64::from(differs));
            *wanted = new;
            differs
        });
    }

    /// Waits until the API server has the desired state. Has no timeout.
    pub async fn wait_until_applied(&self) {
        let turn = self.wanted.borrow().0;
        let mut said = self.said.clone();
        let _gone = said.wait_for(|said| said.turn >= Some(turn)).await;
    }

    /// Returns progress and errors.
    pub fn said(&self) -> NodeFeatureStatus {
        self.said.borrow().clone()
    }
}

impl NodeFeatureWriter {
    /// Creates a writer for the node in the client's own namespace. Sends no request before it runs.
    pub fn new(client: Client, node: &NodeName) -> (NodeFeatureHandle, Self) {
        let kind = GroupVersionKind::gvk("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature");
        let kind = ApiResource::from_gvk(&kind);
        let namespace = client.default_namespace().to_owned();
        let (want, wanted) = watch::channel((0, DesiredFeature::default()));
        let (say, said) = watch::channel(NodeFeatureStatus::default());
        let publisher = Self {
            objects: Api::namespaced_with(client, &namespace, &kind),
            node: node.as_str().to_owned(),
            wanted,
            said: say,
        };
        let post = NodeFeatureHandle { wanted: want, said };
        (post, publisher)
    }

    /// Runs until the handle is dropped.
    pub async fn run(mut self) {
        let began = Instant::now();
        let mut pace = WriteBackoff::default();
        // The last known object, if it was read.
        let mut there: Option<Option<Value>> = None;
        // The last written content and the resulting object, to which others may have added fields.
        let mut accepted: Option<(DesiredObject, Option<Value>)> = None;
        loop {
            let (turn, wanted) = self.wanted.borrow_and_update().clone();
            let wish = wanted.object(&self.node);
            let now = began.elapsed();
            let known = there.is_some();
            let wait = match (&there, &wish) {
                (_, DesiredObject::Anything) => READ_INTERVAL,
                (Some(there), wish)
                    if wish.is(there.as_ref())
                        || accepted.as_ref() == Some(&(wish.clone(), there.clone())) =>
                {
                    debug!("the NodeFeature is as it shall be");
                    self.publish_status(Some(turn), None);
                    READ_INTERVAL
                }
                (_, wish) => match pace.wait(now, wish) {
                    Some(wait) => wait,
                    None => match self.step(known, wish).await {
                        Ok(object) => {
                            if known {
                                pace.record_write(began.elapsed(), wish.clone());
                                accepted = Some((wish.clone(), object.clone()));
                            }
                            there = Some(object);
                            Duration::ZERO
                        }
                        Err(trouble) => {
                            pace.record_failure(began.elapsed(), None);
                            self.publish_status(None, Some(trouble));
                            there = None;
                            pace.wait(began.elapsed(), wish).unwrap_or_default()
                        }
                    },
                },
            };
            tokio::select! {
                changed = self.wanted.changed() => if changed.is_err() {
                    return;
                },
                () = sleep(wait) => if wait == READ_INTERVAL {
                    there = None;
                },
            }
        }
    }

    /// Reads or writes the object. Returns the current object.
    async fn step(&self, known: bool, want: &DesiredObject) -> Result<Option<Value>, String> {
        let name = name(&self.node);
        let asked = async {
            match want {
                _ if !known => self.objects.get_opt(&name).await,
                DesiredObject::Nothing => {
                    let gone = self.objects.delete(&name, &DeleteParams::default()).await;
                    match gone {
                        Ok(_) => Ok(None),
                        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                        Err(error) => Err(error),
                    }
                }
                DesiredObject::Anything => Ok(None),
                DesiredObject::This(body) => {
                    let params = PatchParams::apply(FIELD_MANAGER).force();
                    let done = self
                        .objects
                        .patch(&name, &params, &Patch::Apply(body))
                        .await?;
                    info!("NodeFeature {name}: written");
                    Ok(Some(done))
                }
            }
        };
        match timeout(REQUEST_TIMEOUT, asked).await {
            Ok(Ok(object)) => Ok(object.map(compared_fields)),
            Ok(Err(error)) => Err(told(&error)),
            Err(_late) => Err("the API server does not answer".to_owned()),
        }
    }

    fn publish_status(&self, turn: Option<u64>, trouble: Option<String>) {
        self.said.send_if_modified(|said| {
            let new = NodeFeatureStatus {
                turn: turn.or(said.turn),
                trouble,
            };
            if new.trouble != said.trouble
                && let Some(trouble) = &new.trouble
            {
                warn!("the NodeFeature cannot be kept: {trouble}; it is tried again later");
            }
            let differs = *said != new;
            *said = new;
            differs
        });
    }
}

/// The desired object in the API's format.
#[derive(Debug, Clone, PartialEq)]
enum DesiredObject {
    Anything,
    Nothing,
    This(Value),
}

impl DesiredObject {
    fn is(&self, there: Option<&Value>) -> bool {
        match self {
            Self::Anything => true,
            Self::Nothing => there.is_none(),
            Self::This(body) => {
                let part = |of: &Value, at: &str| of.pointer(at).cloned();
                there.is_some_and(|there| {
                    ["/spec", "/metadata/labels"]
                        .iter()
                        .all(|at| part(there, at) == part(body, at))
                })
            }
        }
    }
}

impl DesiredFeature {
    fn object(&self, node: &str) -> DesiredObject {
        match self {
            Self::Unset => DesiredObject::Anything,
            Self::Absent => DesiredObject::Nothing,
            Self::Content(feature) => DesiredObject::This(body(node, feature)),
        }
    }
}

fn name(node: &str) -> String {
    format!("octavo-{node}")
}

fn body(node: &str, feature: &NodeFeatureContent) -> Value {
    let devices: Vec<Value> = feature
        .devices
        .iter()
        .map(|attributes| json!({"attributes": attributes}))
        .collect();
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
