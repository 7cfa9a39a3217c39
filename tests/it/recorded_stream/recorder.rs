//! The shipped agent on a machine with everything that a status can contain, and a server that records what it sends.

use std::fs;

use octavo_node::sharing::usage::Tenant;
use octavo_stream::messages::{encode_to_agent, parse_from_agent};
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::fleet_server::{Fleet, FleetServer};
use octavo_stream::protocol::{AggregatorMessage, FromAgent, ReceiveOutcome, Receiver};
use octavo_stream::status::{self, NodeStatus};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::process::Program;
use crate::time_limits::TIME_LIMIT;
use crate::usage::rig::{CgroupLayout, Rig};

/// A layout that is applied to GPU 0, shares GPU 1, and is blocked on GPU 2 by a process; devices of three vendors.
const GPUS: &str = "
- {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 3g.40gb, start: 4}]}
- {board: H100_80GB_SXM}
- {board: A100_80GB, mig: enabled, instances: [{profile: 3g.40gb, start: 4}]}
- {board: T4}
amd:
- {chip: mi300x, used_mib: 283}
neuron:
  chip: inferentia2
  count: 2
";
const LAYOUTS: &str = "
apiVersion: octavo.dev/v1
kind: Layouts
layouts:
  shared:
  - {devices: 0, mig: {3g.40gb: 1, 1g.10gb: 2}}
  - {devices: 1, timeSlicing: {replicas: 3}}
  - {devices: 2, mig: {1g.10gb: 2}}
";
/// Starts after the agent has reported everything else, so that there is a delta with it.
pub(super) const LAST_PROCESS: &str = "105";

/// Records the messages of one stream.
struct Recorder(mpsc::UnboundedSender<(v1::FromAgent, Option<NodeStatus>)>);

#[tonic::async_trait]
impl Fleet for Recorder {
    type ReportStream = ReceiverStream<Result<v1::ToAgent, Status>>;
    type WatchStream = ReceiverStream<Result<v1::WatchEvent, Status>>;

    async fn report(
        &self,
        request: Request<Streaming<v1::FromAgent>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let (to, answers) = mpsc::channel(8);
        let mut from = request.into_inner();
        let record = self.0.clone();
        tokio::spawn(async move {
            let mut receiver = None;
            while let Ok(Some(message)) = from.message().await {
                let answer = receive(&mut receiver, message.clone());
                let parts = receiver.as_ref().map(Receiver::parts);
                let status = parts.and_then(|parts| status::decode(parts).ok());
                let closed = record.send((message, status)).is_err();
                if closed || to.send(Ok(encode_to_agent(&answer))).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn watch(
        &self,
        _: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("there are no watchers"))
    }
}

fn receive(receiver: &mut Option<Receiver>, message: v1::FromAgent) -> AggregatorMessage {
    let message = parse_from_agent(message).unwrap();
    let Some(known) = receiver else {
        let FromAgent::Hello(hello) = message else {
            panic!("{message:?} is not a greeting");
        };
        let (new, answer) = Receiver::new(&hello);
        *receiver = Some(new);
        return answer;
    };
    let offer = match message {
        FromAgent::Hello(_) => panic!("a second greeting"),
        FromAgent::Snapshot { seq, parts } => known.snapshot(seq, parts),
        FromAgent::Delta { seq, change, hash } => known.delta(seq, &change, hash),
        FromAgent::Heartbeat { seq, hash } => known.heartbeat(seq, hash),
    };
    match offer {
        ReceiveOutcome::Status(status) => known.take(status),
        ReceiveOutcome::Confirmed(answer) | ReceiveOutcome::Nothing(answer) => answer,
    }
}

/// The stream of an agent: greeting, snapshot, deltas and a heartbeat.
pub(super) async fn record() -> Vec<v1::FromAgent> {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (record, mut recorded) = mpsc::unbounded_channel();
    let server = Server::builder().add_service(FleetServer::new(Recorder(record)));
    let server = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(socket)));

    let rig = Rig::new(GPUS);
    let instance = rig.machine.world().gpus[2]
        .mig_devices()
        .next()
        .map(|one| (one.gi.id, one.ci.id, one.ci.uuid.clone()))
        .unwrap();
    let shared = rig.gpu(1);
    let replicas = |numbers: &[u32]| -> Vec<String> {
        { numbers.iter() }.map(|number| format!("{shared}::{number}")).collect()
    };
    rig.kubelet.give("a", "nvidia.com/gpu", &replicas(&[0]));
    rig.kubelet.give("b", "nvidia.com/gpu", &replicas(&[1, 2]));
    rig.kubelet.give("c", "nvidia.com/mig-3g.40gb", &[instance.2]);
    rig.assign_to_pod(101, "a", CgroupLayout::V2Systemd);
    rig.add_process(101, 1, None, 40 * 1024);
    rig.assign_to_pod(102, "b", CgroupLayout::V1Cgroupfs);
    rig.add_process(102, 1, None, 5000);
    rig.assign_to_pod(103, "c", CgroupLayout::V2Systemd);
    rig.add_process(103, 2, Some((instance.0, instance.1)), 2048);
    rig.assign_to_no_pod(104);
    rig.add_process(104, 3, None, 700);
    let url = format!("--aggregator=http://{address}");
    let more = [
        "--aggregator-plaintext",
        "--node-name=recorded",
        "--heartbeat=1s",
        "--sharing=embedded",
        "--sharing-deadline=2s",
        &url,
    ];
    let mut command = rig.agent("{replicas: 3}", &more);
    fs::write(rig.machine.path().join("layouts.yaml"), LAYOUTS).unwrap();
    let agent = Program::start(&mut command);

    let mut messages = Vec::new();
    let mut until = async |what: &str, wanted: fn(&v1::FromAgent, &NodeStatus) -> bool| {
        let mut last = None;
        let reading = async {
            loop {
                let (message, status) = recorded.recv().await.unwrap();
                messages.push(message.clone());
                if status.as_ref().is_some_and(|status| wanted(&message, status)) {
                    return;
                }
                last = status;
            }
        };
        let found = timeout(TIME_LIMIT, reading).await;
        found.unwrap_or_else(|_late| panic!("{what}: {last:#?}"));
    };
    until("everything but the last process", |_, status| is_complete(status)).await;
    rig.assign_to_no_pod(105);
    rig.add_process(105, 3, None, 900);
    until("the last process", |_, status| {
        is_complete(status) && format!("{status:?}").contains("pid: 105")
    })
    .await;
    until("a heartbeat", |message, _| {
        matches!(message.message, Some(v1::from_agent::Message::Heartbeat(_)))
    })
    .await;
    drop(agent);
    server.abort();
    messages
}

fn is_complete(status: &NodeStatus) -> bool {
    let layout = status.layout.iter().flat_map(|layout| &layout.devices);
    let words: Vec<&str> = layout.map(|device| device.state.as_str()).collect();
    let usage = status.usage.iter().flat_map(|usage| &usage.devices);
    let units = usage.flat_map(|device| &device.units);
    let tenants: Vec<&Tenant> = units.flat_map(|unit| &unit.tenants).collect();
    ["applied", "blocked"].iter().all(|word| words.contains(word))
        && tenants.len() >= 4
        && tenants.iter().any(|tenant| tenant.is_over_share)
        && status.sharing.is_some()
}
