//! The aggregator binary.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::proto::v1::to_agent::Message as Answer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Endpoint;

use super::{AgentStream, hello};
use crate::promtool;
use crate::time_limits::{Finish, Lines, exit_status, until_async, within};

const AGGREGATOR: &str = env!("CARGO_BIN_EXE_octavo-aggregator");

/// Killed when dropped.
pub(super) struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _gone_already = self.0.wait();
    }
}

/// Starts the program with these arguments and any free ports. Returns its log as well.
pub(super) fn program(arguments: &[&str]) -> (Program, Lines) {
    let mut child = Command::new(AGGREGATOR)
        .args(["--grpc-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"])
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = Lines::of(child.stderr.take().unwrap());
    (Program(child), lines)
}

/// The address in a log line about a listener.
pub(super) fn address(line: &str) -> SocketAddr {
    let (_, rest) = line.split_once(" on ").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// The response to a GET request with this host and these headers.
pub(super) async fn get(people: SocketAddr, path: &str, headers: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
    let answer = async {
        let mut page = TcpStream::connect(people).await.unwrap();
        page.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        page.read_to_string(&mut answer).await.unwrap();
        answer
    };
    within(path, answer).await
}

/// The metrics in the default format.
async fn metrics(people: SocketAddr) -> String {
    let answer = get(people, "/metrics", "Host: localhost\r\nAccept: */*\r\n").await;
    let (_head, body) = answer.split_once("\r\n\r\n").unwrap();
    body.to_owned()
}

#[tokio::test]
async fn program_logs_its_addresses_serves_both_and_ends_on_sigterm() {
    let (mut program, mut lines) = program(&["--plaintext"]);
    let mut line = |text: &str| lines.find_line(text);
    let agents = line("listening for agents on ");
    assert!(agents.ends_with(" (plaintext)"), "{agents}");
    let people = address(&line("listening for HTTP clients on "));

    let endpoint = format!("http://{}", address(&agents));
    let channel = Endpoint::from_shared(endpoint).unwrap().connect().await;
    let mut client = FleetClient::new(channel.unwrap());
    let mut stream = AgentStream::open(&mut client, hello("n", 1)).await.unwrap();
    assert!(matches!(stream.receive().await, Ok(Some(Answer::Resync(_)))));
    let answer = get(people, "/healthz", "Host: localhost\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");

    let text = metrics(people).await;
    for sample in [
        "octavo_aggregator_messages_total{kind=\"hello\"} 1",
        "# TYPE octavo_aggregator_messages_total counter",
    ] {
        assert!(text.lines().any(|line| line == sample), "{sample}\n{text}");
    }
    promtool::finds_no_fault(&text);

    // DNS rebinding: a page whose host name resolves to this machine must not read the fleet.
    let answer = get(people, "/api/v1/nodes", "Host: evil.example\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    assert!(answer.contains("/problems/unknown-host"), "{answer}");

    let pid = Pid::from_raw(i32::try_from(program.0.id()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    line("stopping");
    assert!(stream.receive().await.is_err(), "the stream is still open");
    assert!(exit_status(&mut program.0).success());
}

#[tokio::test]
async fn silent_posts_that_take_every_connection_leave_probes_reachable() {
    let (_program, mut lines) = program(&["--plaintext", "--max-connections=5"]);
    let mut line = |text: &str| lines.find_line(text);
    let people = address(&line("listening for HTTP clients on "));
    let mut silent = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(people).await.unwrap();
        let head = b"POST /api/v1/match HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n";
        stream.write_all(head).await.unwrap();
        silent.push(stream);
    }
    let ask = async |path: &str| get(people, path, "Host: localhost\r\n").await;
    let healthz = ask("/healthz").await;
    assert!(healthz.starts_with("HTTP/1.1 200 OK"), "{healthz}");
    let refused = ask("/api/v1/types").await;
    assert!(refused.contains("/problems/too-many-connections"), "{refused}");
    line("connection limit reached");
    line("request body too slow");
    // Closed connections make room for new ones.
    let types = async || ask("/api/v1/types").await;
    until_async("a connection", types, |answer| !answer.contains("/problems/too-many-connections"))
        .await;
}

#[test]
fn program_requires_explicit_encryption_and_valid_settings() {
    let run = |arguments: &[&str]| Command::new(AGGREGATOR).args(arguments).finish();
    let reported = run(&[]);
    assert_eq!(reported.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&reported.stderr).contains("--plaintext"));
    let tls = ["--tls-cert=/nonexistent/c", "--tls-key=/nonexistent/k"];
    let reported = run(&tls);
    assert_eq!(reported.status.code(), Some(2), "HTTP authentication is not configured");
    assert!(String::from_utf8_lossy(&reported.stderr).contains("--http-auth is required"));
    let reported = run(&[&tls[..], &["--http-auth=none"]].concat());
    assert_eq!(reported.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&reported.stderr).contains("cannot read /nonexistent/c"));
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--grpc-listen={}", holder.local_addr().unwrap());
    let reported = run(&["--plaintext", "--http-listen=127.0.0.1:0", &taken]);
    assert_eq!(reported.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&reported.stderr).contains("cannot listen for agents on"));
    let reported = run(&[
        "--plaintext",
        "--grpc-listen=127.0.0.1:0",
        "--http-listen=127.0.0.1:0",
        "--agent-auth=token-review",
        "--kubeconfig=/nonexistent/k",
    ]);
    assert_eq!(reported.status.code(), Some(1));
    let reported = String::from_utf8_lossy(&reported.stderr);
    assert!(
        reported.contains(
            "cannot connect to the API server for agent token reviews: cannot use the kubeconfig /nonexistent/k"
        ),
        "{reported}"
    );
}
