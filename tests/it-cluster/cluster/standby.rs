//! Replicas of the aggregator on a real API server: a leader that serves, and a standby that takes over. The agents are real, and
//! reach only the pod with the label of the leader.

mod service;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::json;
use tokio::net::TcpStream;

use self::service::{Addresses, Service};
use super::Api;
use crate::fleet_api;
use crate::machine::Machine;
use crate::process::Program;
use crate::time_limits::until_async;

const NAMESPACE: &str = "octavo-system";
const MACHINE: &str = "{machine: single, driver: 570.133.20, gpus: [{board: H100_80GB_SXM}]}";
/// Logged by a replica when it becomes the leader.
const LEADS: &str = "pod labeled as the leader";
/// Logged by a standby.
const STANDS_BY: &str = "listening for probes on";

/// An API server with the pods of two replicas, and agents that report through the Service.
struct Site {
    api: Api,
    pods: Vec<(String, Addresses)>,
    service: Service,
    agents: Vec<(Machine, Program)>,
}

impl Site {
    fn new(agents: usize) -> Self {
        let api = Api::fresh();
        api.kubectl(&["create", "namespace", NAMESPACE]);
        api.kubectl(&["create", "serviceaccount", "default", "-n", NAMESPACE]);
        let pods: Vec<_> =
            ["replica-a", "replica-b"].map(|pod| (pod.to_owned(), addresses())).into();
        for (pod, _) in &pods {
            api.create(&json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": NAMESPACE},
                "spec": {"nodeName": "n", "containers": [{"name": "aggregator", "image": "test.invalid/octavo:1"}]},
            }));
        }
        let service = Service::start(api.kubeconfig(), pods.clone());
        let url = format!("--aggregator=http://{}", service.addresses.grpc);
        let agents = (0..agents).map(|number| {
            let machine = Machine::new(MACHINE);
            let name = format!("--node-name=gpu-{number}");
            let agent = machine.agent(&["--aggregator-plaintext", "--interval=1s", &url, &name]);
            (machine, agent)
        });
        let agents = agents.collect();
        Self { api, pods, service, agents }
    }

    /// Starts the process of this replica.
    fn start(&self, replica: usize) -> Program {
        let (pod, addresses) = &self.pods[replica];
        Program::start(
            Command::new(env!("CARGO_BIN_EXE_octavo-aggregator"))
                .args(["--plaintext", &format!("--leader-election={pod}")])
                .arg(format!("--kubeconfig={}", self.api.kubeconfig().display()))
                .arg(format!("--grpc-listen={}", addresses.grpc))
                .arg(format!("--http-listen={}", addresses.http)),
        )
    }

    /// Starts both replicas; the first becomes the leader.
    fn start_both(&self) -> (Program, Program) {
        let mut leader = self.start(0);
        leader.expect_log(LEADS);
        let mut standby = self.start(1);
        standby.expect_log(STANDS_BY);
        (leader, standby)
    }

    /// API of a replica, without the Service.
    fn direct(&self, replica: usize) -> fleet_api::Api {
        fleet_api::Api::at(self.pods[replica].1.http)
    }

    /// Waits until all agents have reported to this replica. It is the leader, and the only one with the label.
    async fn await_agents(&self, replica: usize) {
        let api = self.direct(replica);
        let count = async || api.nodes().await.len();
        until_async("agents", count, |count| *count == self.agents.len()).await;
        let path = "-o=jsonpath={.items[*].metadata.name}";
        let get = ["get", "pods", "-n", NAMESPACE, "-l", "octavo.dev/role=leader", path];
        assert_eq!(self.api.kubectl(&get), self.pods[replica].0);
        let through = fleet_api::Api::at(self.service.addresses.http);
        assert_eq!(through.nodes().await.len(), self.agents.len());
        assert_eq!(self.service.most(), 1);
    }

    fn lease(&self, field: &str) -> String {
        let path = format!("-o=jsonpath={{.spec.{field}}}");
        self.api.kubectl(&["get", "lease", "octavo-serving", "-n", NAMESPACE, &path])
    }
}

/// Free addresses for one replica after another.
fn addresses() -> Addresses {
    static NUMBER: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let host = 251 + NUMBER.fetch_add(1, Ordering::Relaxed) % 4;
    let host = IpAddr::from([127, host, high, low.max(1)]);
    // Both at the same time, or they might be equal.
    let listeners = [(); 2].map(|()| TcpListener::bind(SocketAddr::new(host, 0)).unwrap());
    let [grpc, http] = listeners.map(|listener| listener.local_addr().unwrap());
    Addresses { grpc, http }
}

#[tokio::test]
async fn standby_takes_over_from_a_leader_that_is_killed_or_stopped() {
    let site = Site::new(3);
    let (mut first, mut second) = site.start_both();
    site.await_agents(0).await;

    let standby = site.direct(1);
    assert_eq!(standby.get("/readyz").await.body, "standby\n");
    assert_eq!(standby.get("/healthz").await.status, 200);
    let refused = standby.get("/api/v1/nodes").await;
    assert_eq!(refused.status, 503);
    assert!(refused.body.contains("this replica is a standby"), "{}", refused.body);
    assert!(TcpStream::connect(site.pods[1].1.grpc).await.is_err());

    first.kill();
    second.expect_log(LEADS);
    site.await_agents(1).await;
    assert_eq!(site.lease("leaseTransitions"), "1");

    // The restarted container of the old leader stands by, and takes over from a leader that stops.
    let mut first = site.start(0);
    first.expect_log(STANDS_BY);
    second.terminate();
    second.expect_log("Lease released");
    assert!(second.wait_for_exit().success());
    first.expect_log(LEADS);
    site.await_agents(0).await;
    assert_eq!(site.lease("leaseTransitions"), "2");
    assert!(first.stop().success());
}

#[tokio::test]
async fn restarted_leader_continues_and_a_leader_without_the_lease_exits() {
    let mut site = Site::new(1);
    let (mut leader, mut second) = site.start_both();
    site.await_agents(0).await;

    // The restarted container of the leader continues, because its predecessor has ended.
    leader.kill();
    let mut first = site.start(0);
    first.expect_log("listening for HTTP clients on");
    site.await_agents(0).await;

    // Another process takes the Lease, and does not renew it.
    let patch = json!({"spec": {"holderIdentity": "another"}}).to_string();
    let merge = ["patch", "lease", "octavo-serving", "-n", NAMESPACE, "--type=merge", "-p", &patch];
    site.api.kubectl(&merge);
    first.expect_log("this replica is no longer the leader");
    assert_eq!(first.wait_for_exit().code(), Some(1));
    second.expect_log(LEADS);
    site.await_agents(1).await;

    let mut first = site.start(0);
    first.expect_log(STANDS_BY);
    site.api.stop();
    second.expect_log("this replica is no longer the leader");
    assert_eq!(second.wait_for_exit().code(), Some(1));
    assert!(!first.has_ended());
    site.api.start();
    first.expect_log(LEADS);
    site.await_agents(0).await;
}
