//! The pieces together: agents and the aggregator as they ship, over sockets, through all that happens to a fleet.
//!
//! Nothing waits by sleeping. A test waits for a line in a log, or queries the API again
//! whenever its event stream says that something changed.

mod hostile;
pub(crate) mod layout;
mod many;
mod one;
mod restart;
mod silent;

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::fleet_api::Api;
use crate::machine::Machine;
use crate::process::{Aggregator, Program};
use crate::time_limits::Finish;

/// Two whole GPUs and one in partitions.
const MIXED: &str = "
machine: mixed
driver: 570.133.20
gpus:
  - {board: H100_80GB_SXM, count: 2}
  - board: A100_80GB
    mig: enabled
    instances:
      - {profile: 3g.40gb, start: 4}
processes:
  - {pid: 900, gpu: 0, name: torchrun, memory_mib: 71000}
";

/// One whole GPU.
const SINGLE: &str = "
machine: single
driver: 570.133.20
gpus:
  - {board: H100_80GB_SXM}
";

impl Machine {
    /// Starts an agent that reports this machine under `node`, in plaintext.
    pub(crate) fn report(&self, to: &Aggregator, node: &str, arguments: &[&str]) -> Program {
        let url = format!("http://{}", to.grpc);
        let reporting = [
            "--aggregator-plaintext",
            "--interval=200ms",
            "--node-name",
            node,
            "--aggregator",
            &url,
        ];
        self.agent(&[&reporting[..], arguments].concat())
    }

    /// What `octavo inspect -o json` prints on it.
    fn inspected(&self) -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(["inspect", "-o", "json", "--nvml-library"])
            .arg(self.library())
            .arg("--sys-root")
            .arg(self.path().join("sys"))
            .stdin(Stdio::null())
            .finish();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What an agent that runs once prints on it, as the API shows labels.
    fn labelled(&self) -> Value {
        let output = self.agent_once(&[]);
        let text = String::from_utf8(output.stdout).unwrap();
        // An empty line ends the set.
        let labels = text.lines().filter(|line| !line.is_empty());
        let labels = labels.map(|line| {
            let (key, value) = line.split_once('=').unwrap();
            (key.to_owned(), Value::from(value))
        });
        Value::Object(labels.collect())
    }
}

/// Waits until the API shows of a node what the programs print on its machine; gives the node.
async fn agreed(api: &Api, node: &str, machine: &Machine) -> Value {
    let (inventory, labels) = (machine.inspected(), machine.labelled());
    api.node(node, |shown| {
        to_newcomers(&shown["inventory"], &inventory) == inventory
            && shown["labels"] == labels
            && shown["connected"] == true
    })
    .await
}

/// What is shown, less what a program that starts now cannot know: of a device that fails, the lasting facts that were read
/// before it did, and the call that found it out.
fn to_newcomers(shown: &Value, newcomer: &Value) -> Value {
    let mut shown = shown.clone();
    let devices = shown["devices"].as_array_mut().unwrap();
    let known = newcomer["devices"].as_array().unwrap();
    for (device, known) in devices.iter_mut().zip(known) {
        if device["condition"]["state"] == "failing" {
            let fields = device.as_object_mut().unwrap();
            fields.retain(|field, _| known.get(field).is_some());
            device["condition"]["reason"] = known["condition"]["reason"].clone();
        }
    }
    shown
}
