//! A Neuron node in a fleet: a real agent on its files, a real aggregator, and every kind of reader.

use std::process::{Command, Stdio};

use super::neuron_host::{FileLayout, Host, INFERENTIA2, TRAINIUM2, ring, torus};
use crate::fleet_api::Api;
use crate::process::{Aggregator, Program};
use crate::time_limits::Finish;
use crate::{promtool, tree};

/// A machine with these files, and the agent that reports it.
struct NeuronFleet {
    // Fields are dropped in this order.
    agent: Program,
    aggregator: Aggregator,
    directory: tempfile::TempDir,
}

impl NeuronFleet {
    fn new(host: &Host) -> Self {
        let directory = tempfile::tempdir().unwrap();
        tree::write_tree(directory.path(), &host.tree());
        Self::of(directory)
    }

    fn of(directory: tempfile::TempDir) -> Self {
        let aggregator = Aggregator::start(&["--plaintext"]);
        let root = directory.path();
        let agent = Program::start(
            Command::new(env!("CARGO_BIN_EXE_octavo-agent"))
                .arg("--sys-root")
                .arg(root.join("sys"))
                .arg("--driver-root")
                .arg(root.join("no-driver"))
                .arg("--neuron-logical-config")
                .arg(root.join("opt/aws/neuron/logical_nc_config"))
                .args(["--interval=100ms", "--node-name=chips", "--aggregator-plaintext"])
                .arg(format!("--aggregator=http://{}", aggregator.grpc))
                .arg("--metrics-listen=127.0.0.1:0"),
        );
        Self { agent, aggregator, directory }
    }

    fn api(&self) -> Api {
        Api::at(self.aggregator.http)
    }

    /// Output of `octavo` with single spaces between words.
    fn prints(&self, arguments: &[&str]) -> Vec<String> {
        let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(arguments)
            .env("OCTAVO_SERVER", format!("http://{}", self.aggregator.http))
            .stdin(Stdio::null())
            .finish();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    }
}

fn trn2() -> Host {
    Host { driver: "2.30.2.0", chip: TRAINIUM2, file_layout: FileLayout::Known, links: torus(4, 4) }
}

#[tokio::test]
async fn sixteen_neuron_devices_are_reported_everywhere_with_their_driver() {
    let mut fleet = NeuronFleet::new(&trn2());
    let node = fleet.api().node("chips", |node| node["types"][0]["devices"]["total"] == 16).await;
    assert_eq!(node["state"], "ok", "{node}");
    assert_eq!(node["types"].as_array().unwrap().len(), 1);
    assert_eq!(node["types"][0]["type"], "aws-trainium2-96gb");
    // Their usage is unknown, so they are neither free nor lost.
    assert_eq!(node["types"][0]["devices"]["unknown"], 16);
    let nodes = fleet.prints(&["nodes", "--no-headers"]);
    assert!(
        nodes[0].starts_with("chips 16x aws-trainium2-96gb 16 ? - 1536 GiB exclusive ok "),
        "{nodes:?}"
    );
    let types = fleet.prints(&["types", "--no-headers"]);
    assert_eq!(types, ["aws-trainium2-96gb 96 GiB 16 ? ? ? - 0 0 16 1"]);
    let shown = fleet.prints(&["node", "chips"]);
    assert_eq!(shown[..2], ["Node: chips", "State: ok"]);
    assert!(!shown.iter().any(|line| line.contains("no-driver")), "{shown:?}");
    let metrics = fleet.api().get("/metrics").await.body;
    let line = "octavo_devices{type=\"aws-trainium2-96gb\",occupancy=\"unknown\"} 16";
    assert!(metrics.lines().any(|one| one == line), "{metrics}");
    let page = fleet.api().get("/nodes/chips").await.body;
    assert_eq!(page.matches("id=\"neuron-title-").count(), 16);
    assert!(!page.contains("no-driver") && !page.contains("id=\"device-"));
    assert!(!page.contains("Install the driver"), "{page}");
    let reported = fleet.agent.kill();
    assert!(
        reported.iter().any(|line| line.contains("read through the Neuron driver")),
        "{reported:?}"
    );
    assert!(!reported.iter().any(|line| line.contains("PCI bus only")), "{reported:?}");
}

#[tokio::test]
async fn neuron_device_health_reaches_node_and_lost_device_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host {
        driver: "2.30.2.0",
        chip: INFERENTIA2,
        file_layout: FileLayout::Known,
        links: ring(4),
    };
    tree::write_tree(directory.path(), &host.tree());
    let device = directory.path().join("sys/devices/virtual/neuron_device");
    let fleet = NeuronFleet::of(directory);
    fleet.api().node("chips", |node| node["state"] == "ok").await;
    let errors = device.join("neuron2/stats/hardware/mem_ecc_uncorrected");
    std::fs::write(errors, "3\n").unwrap();
    let node = fleet.api().node("chips", |node| node["state"] == "attention").await;
    assert_eq!(
        node["reason"],
        "Neuron 2: uncorrected errors of device memory since the driver was loaded: 3"
    );
    let health = device.join("neuron1/stats/hardware/health_status");
    std::fs::create_dir_all(&health).unwrap();
    std::fs::write(health.join("unhealthy_components"), "hbm\n").unwrap();
    let node = fleet.api().node("chips", |node| node["state"] == "degraded").await;
    assert_eq!(node["reason"], "Neuron 1: its driver reports it as unhealthy: hbm (and 1 more)");
    assert_eq!(node["types"][0]["devices"]["unavailable"], 1);
    let class = fleet.directory.path().join("sys/class/neuron_device");
    std::fs::remove_file(class.join("neuron3")).unwrap();
    let node =
        fleet.api().node("chips", |node| node["types"][0]["devices"]["unavailable"] == 2).await;
    assert_eq!(node["types"][0]["devices"]["total"], 4, "{node}");
}

#[tokio::test]
async fn neuron_metrics_pass_promtool() {
    let mut fleet = NeuronFleet::new(&trn2());
    let address = fleet.agent.metrics();
    fleet.agent.expect_log("labels published");
    let metrics = Api::at(address).get("/metrics").await.body;
    for line in [
        "octavo_neuron_driver_info{version=\"2.30.2.0\",layout=\"known\"} 1.0",
        "octavo_neuron_cores{device=\"15\",kind=\"logical\"} 4.0",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line}\n{metrics}");
    }
    promtool::finds_no_fault(&metrics);
}
