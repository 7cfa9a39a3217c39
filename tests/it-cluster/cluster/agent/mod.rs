//! The shipped agent on a simulated machine, with a Node of a real API server.

mod drain;
mod exact_instances;
pub(crate) mod faults;
mod naming;
pub(crate) mod operands;
mod places;
pub(crate) mod proxy;
mod reported;
mod selection;

use std::process::Command;

use serde_json::Value;

use super::Api;
use super::objects::TestNode;
use crate::node::Node as Machine;
use crate::process::Program;

/// Logged after the agent has compared its Node with the machine and written it.
pub(crate) const NODE_WRITTEN: &str = "Node updated";

/// A machine and its Node.
pub(crate) struct Rig<'a> {
    pub(crate) api: &'a Api,
    node: TestNode,
    pub(crate) machine: Machine,
}

impl<'a> Rig<'a> {
    pub(crate) fn new(api: &'a Api, gpus: &str) -> Self {
        Self { api, node: api.node("agent"), machine: Machine::new(gpus) }
    }

    pub(crate) fn name(&self) -> &str {
        self.node.name()
    }

    /// The agent with these arguments and administrator credentials.
    pub(crate) fn agent(&self, arguments: &[&str]) -> Command {
        let mut command = self.machine.agent(&["--interval=200ms"]);
        command
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.api.kubeconfig())
            .arg("--node-name")
            .arg(self.name());
        command
    }

    /// An agent that writes its Node.
    pub(crate) fn start(&self, arguments: &[&str]) -> Program {
        let arguments = [&["--label-sink=node"], arguments].concat();
        Program::start(&mut self.agent(&arguments))
    }

    /// Changes labels: `a=b` or `a-`.
    #[track_caller]
    pub(crate) fn label(&self, labels: &[&str]) {
        let arguments = [&["label", "--overwrite", "node", self.name()], labels].concat();
        self.api.kubectl(&arguments);
    }

    /// Sets the label by which mig-manager reports that it is partitioning the node.
    #[track_caller]
    pub(crate) fn is_claimed_by_mig_manager(&self) {
        let pending = "nvidia.com/mig.config.state=pending";
        let manager = "--field-manager=nvidia-mig-manager";
        self.api.kubectl(&["label", "node", self.name(), pending, manager]);
    }

    #[track_caller]
    pub(crate) fn annotate(&self, annotation: &str) {
        self.api.kubectl(&["annotate", "--overwrite", "node", self.name(), annotation]);
    }

    /// Waits until the label has this value.
    #[track_caller]
    pub(crate) fn await_label(&self, key: &str, value: &str) {
        let path = format!("{{.metadata.labels.{}}}={value}", key.replace('.', "\\."));
        self.await_path(&path);
    }

    /// Waits until a JSON path of the Node has this value.
    #[track_caller]
    pub(crate) fn await_path(&self, path: &str) {
        let name = format!("node/{}", self.name());
        let wanted = format!("--for=jsonpath={path}");
        self.api.kubectl(&["wait", &name, &wanted, "--timeout=300s"]);
    }

    #[track_caller]
    pub(crate) fn get(&self) -> Value {
        let text =
            self.api.kubectl(&["get", "node", self.name(), "-o", "json", "--show-managed-fields"]);
        serde_json::from_str(&text).unwrap()
    }

    /// The Node's labels below a prefix.
    pub(crate) fn labels(&self, prefix: &str) -> Vec<(String, String)> {
        let node = self.get();
        let labels = node["metadata"]["labels"].as_object().unwrap().clone();
        labels
            .into_iter()
            .filter(|(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key, value.as_str().unwrap().to_owned()))
            .collect()
    }

    /// The status annotation.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        let node = self.get();
        let text = node["metadata"]["annotations"]["octavo.dev/status"].as_str();
        serde_json::from_str(text.unwrap()).unwrap()
    }

    /// Reasons and messages of the Node's events, oldest first.
    pub(crate) fn events(&self) -> Vec<(String, String)> {
        let selector =
            format!("--field-selector=involvedObject.name={},source=octavo-agent", self.name());
        let text = self.api.kubectl(&["get", "events", "-n", "default", &selector, "-o", "json"]);
        let list: Value = serde_json::from_str(&text).unwrap();
        let mut events: Vec<&Value> = list["items"].as_array().unwrap().iter().collect();
        events.sort_by_key(|event| {
            event["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap()
        });
        let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
        events.iter().map(|event| (text(event, "reason"), text(event, "message"))).collect()
    }

    /// Waits for an event with this reason and returns its message.
    #[track_caller]
    pub(crate) fn await_event(&self, reason: &str) -> String {
        for _ in 0..100 {
            let known = self.events();
            if let Some((_, message)) = known.into_iter().find(|(known, _)| known == reason) {
                return message;
            }
            // The watch ends with the next event of any kind, or soon.
            let selector =
                format!("--field-selector=involvedObject.name={},reason={reason}", self.name());
            let _nothing_came = self.api.try_kubectl(&[
                "wait",
                "-n",
                "default",
                "events",
                &selector,
                "--for=create",
                "--timeout=1s",
            ]);
        }
        panic!("no event {reason}: {:?}", self.events());
    }

    /// Requests of agents that modify this Node.
    pub(crate) fn writes(&self) -> Vec<String> {
        let of_ours = |event: &Value| {
            let uri = event["requestURI"].as_str().unwrap_or_default();
            let about = uri.contains(&format!("/nodes/{}?", self.name()));
            about && uri.contains("fieldManager=octavo-agent")
        };
        let events = self.api.audit();
        let writes = events.iter().filter(|event| of_ours(event));
        writes
            .map(|event| format!("{} {}", event["requestURI"], event["responseStatus"]["code"]))
            .collect()
    }
}
