//! Shipped agents and aggregator over sockets.
//!
//! Nothing sleeps. A test waits for a line in a log, or queries the API again after each event of its stream.

mod changes;
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

/// Two GPUs without MIG and a partitioned one.
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

/// One GPU without MIG.
const SINGLE: &str = "
machine: single
driver: 570.133.20
gpus:
  - {board: H100_80GB_SXM}
";

impl Machine {
    /// Starts an agent that reports this machine as `node`, in plaintext.
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

    /// Output of `octavo inspect -o json` on the machine.
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

    /// Labels of a oneshot agent on the machine, in the form of the API.
    fn labeled(&self) -> Value {
        let output = self.agent_once(&[]);
        let text = String::from_utf8(output.stdout).unwrap();
        // An empty line ends the label set.
        let labels = text.lines().filter(|line| !line.is_empty());
        let labels = labels.map(|line| {
            let (key, value) = line.split_once('=').unwrap();
            (key.to_owned(), Value::from(value))
        });
        Value::Object(labels.collect())
    }
}

/// Waits until the API shows a node as the programs do on its machine, and returns the node.
async fn agreed(api: &Api, node: &str, machine: &Machine) -> Value {
    let (inventory, labels) = (machine.inspected(), machine.labeled());
    api.node(node, |shown| {
        as_read_by_new_program(&shown["inventory"], &inventory) == inventory
            && shown["labels"] == labels
            && shown["connected"] == true
    })
    .await
}

/// Removes what a newly started program cannot know: facts of a failing device that were read before it failed, and the
/// call that detected the failure.
fn as_read_by_new_program(shown: &Value, new_inventory: &Value) -> Value {
    let mut shown = shown.clone();
    let devices = shown["devices"].as_array_mut().unwrap();
    let known = new_inventory["devices"].as_array().unwrap();
    for (device, known) in devices.iter_mut().zip(known) {
        if device["condition"]["state"] == "failing" {
            let fields = device.as_object_mut().unwrap();
            fields.retain(|field, _| known.get(field).is_some());
            device["condition"]["reason"] = known["condition"]["reason"].clone();
        }
    }
    shown
}
