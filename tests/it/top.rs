//! `octavo top` against a real aggregator's API, a real agent's socket, and on a real terminal.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use nix::pty::openpty;
use nix::sys::termios::{LocalFlags, tcgetattr};
use octavo_agent::control_socket;
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::{ResourceName, ShareId};
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
use tokio::sync::{oneshot, watch};

use crate::rest::fleet::{Aggregator, Machines};
use crate::rest::usage::give;
use crate::time_limits::{Finish, exit_status, within};

const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

fn octavo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// This process serves the command while it runs.
async fn run(arguments: &[&str]) -> Output {
    let mut command = octavo(arguments);
    let done = tokio::task::spawn_blocking(move || command.finish());
    done.await.unwrap()
}

fn reported(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[track_caller]
fn printed(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(0), "{}", reported(&output.stderr));
    reported(&output.stdout)
}

/// The API of a fleet in which two nodes share a device.
async fn serve() -> String {
    let aggregator = Aggregator::of(&Machines::read().await);
    give(&aggregator, "gpu-1");
    give(&aggregator, "mixed-1");
    aggregator.silence("mixed-1");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let router = aggregator.router.clone();
        // Dropped together with the server.
        let _retained = aggregator;
        axum::serve(listener, router).await.unwrap();
    });
    url
}

#[tokio::test]
async fn top_lists_largest_consumers_first_and_marks_excess() {
    let url = serve().await;
    let output = run(&["top", "--server", &url]).await;
    assert_eq!(
        printed(&output),
        "\
NODE             DEVICE  PARTITION  POD            CONTAINER  REPLICA  MEMORY  SHARE                 UTIL
gpu-1            GPU 0   -          team-a/greedy  main       0        16 GiB  133% of 12 GiB, over  35%
mixed-1 (stale)  GPU 0   -          team-a/greedy  main       0        16 GiB  133% of 12 GiB, over  35%
gpu-1            GPU 0   -          team-a/modest  main       1        2 GiB   16% of 12 GiB         35%
mixed-1 (stale)  GPU 0   -          team-a/modest  main       1        2 GiB   16% of 12 GiB         35%
"
    );
    let notes = reported(&output.stderr);
    assert!(notes.contains("note: 1 node is stale, for example mixed-1"), "{notes}");
    let over = ["top", "--server", &url, "--over", "--node", "gpu-1", "--no-headers", "-o", "wide"];
    let output = run(&over).await;
    let row = printed(&output);
    assert_eq!(row.lines().count(), 1, "{row}");
    assert!(row.ends_with(&format!("nvidia.com/gpu  -  2  24 GiB  4711  {GPU}\n")), "{row}");

    let some = ["top", "--server", &url, "--limit=3", "--sort-by=node", "-o", "json"];
    let output = run(&some).await;
    let list: serde_json::Value = serde_json::from_str(printed(&output)).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
    assert!(reported(&output.stderr).contains("showing only the first 3 rows"));

    let output = run(&["top", "--server", &url, "-n", "nobody"]).await;
    assert_eq!(printed(&output), "");
    assert!(reported(&output.stderr).contains("--usage-interval"));
}

/// Two tenants of one device, one of them without an allocation.
fn usage() -> Usage {
    let tenants = vec![
        Tenant {
            namespace: Some("team-a".to_owned()),
            pod: Some("notebook-0".to_owned()),
            container: Some("main".to_owned()),
            ids: vec![ShareId::replica(GPU, 0)],
            memory: Some(Mebibytes::new(12_000)),
            ..Tenant::default()
        },
        Tenant { processes: vec![4711], memory: Some(Mebibytes::new(500)), ..Tenant::default() },
    ];
    let unit = UnitUsage {
        uuid: GPU.to_owned(),
        resource: Some(ResourceName::gpu()),
        replicas: Some(2),
        fair_share: Some(Mebibytes::new(40_960)),
        tenants,
        ..UnitUsage::default()
    };
    Usage {
        devices: vec![DeviceUsage {
            pci: "0000:07:00.0".parse().unwrap(),
            name: "GPU 0".to_owned(),
            memory: None,
            utilization: None,
            power_watts: None,
            temperature_celsius: None,
            units: vec![unit],
        }],
        missing: vec!["utilization is not reported".to_owned()],
        ..Usage::default()
    }
}

fn here<'a>(directory: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let directory = directory.to_str().unwrap();
    let mut all = vec!["top", "--here", "--state-dir", directory, "--no-headers"];
    all.extend(more);
    all
}

#[tokio::test]
async fn node_usage_is_read_through_agent_socket() {
    let directory = tempfile::tempdir().unwrap();
    let output = run(&here(directory.path(), &[])).await;
    assert_eq!(output.status.code(), Some(1));
    let error = reported(&output.stderr);
    assert!(error.contains("no agent runs on this node"), "{error}");
    assert!(error.contains("kubectl exec -n octavo-system"), "{error}");

    let (_known, known) = watch::channel(Arc::new(usage()));
    let socket = control_socket::listen(directory.path(), Some(known)).unwrap();
    let output = run(&here(directory.path(), &[])).await;
    let node = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let rows: Vec<Vec<&str>> = printed(&output)
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(
        rows,
        [
            [
                &node,
                "GPU 0",
                "-",
                "team-a/notebook-0",
                "main",
                "0",
                "11.7 GiB",
                "29% of 40 GiB",
                "-"
            ],
            [&node, "GPU 0", "-", "(no pod: pid 4711)", "-", "-", "500 MiB", "1% of 40 GiB", "-"],
        ]
    );
    assert_eq!(reported(&output.stderr), "note: utilization is not reported\n");
    let output = run(&here(directory.path(), &["--pod", "notebook-0", "-o", "json"])).await;
    let list: serde_json::Value = serde_json::from_str(printed(&output)).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    drop(socket);

    let other = tempfile::tempdir().unwrap();
    let _store = control_socket::listen(other.path(), None).unwrap();
    let output = run(&here(other.path(), &[])).await;
    assert_eq!(output.status.code(), Some(1));
    let error = reported(&output.stderr);
    assert!(error.contains("start the agent with --usage-interval"), "{error}");
}

#[tokio::test]
async fn without_an_aggregator_alternatives_are_listed() {
    // Nothing listens any more at an address that only this test uses.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let output = run(&["top", "--server", &url]).await;
    assert_eq!(output.status.code(), Some(1));
    let error = reported(&output.stderr);
    assert!(error.contains("connection refused"), "{error}");
    assert!(error.contains("`octavo top --here` uses the agent"), "{error}");
}

/// Reads the terminal until it shows `wanted`.
fn shows(terminal: &mut std::fs::File, wanted: &str) {
    let (mut seen, mut piece) = (String::new(), [0; 4096]);
    while !seen.contains(wanted) {
        let count = terminal.read(&mut piece).unwrap();
        assert!(count > 0, "the terminal was closed: {seen}");
        seen.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
}

#[tokio::test]
async fn top_on_terminal_runs_until_q_and_restores_the_terminal() {
    let line_by_line = |slave: &OwnedFd| {
        let now = tcgetattr(slave.as_fd()).unwrap().local_flags;
        now.contains(LocalFlags::ICANON | LocalFlags::ECHO)
    };
    let url = serve().await;
    let pair = openpty(None, None).unwrap();
    assert!(line_by_line(&pair.slave));
    let slave = || Stdio::from(pair.slave.try_clone().unwrap());
    let mut child = octavo(&["top", "--server", &url, "--interval=100ms"])
        .stdin(slave())
        .stdout(slave())
        .env("TERM", "xterm")
        .spawn()
        .unwrap();
    // Not a blocking task, because the runtime would wait for it.
    let (sender, seen) = oneshot::channel();
    std::thread::spawn(move || {
        let mut terminal = std::fs::File::from(pair.master);
        shows(&mut terminal, "team-a/greedy");
        // It is recomputed.
        shows(&mut terminal, "q exits.");
        let meanwhile = line_by_line(&pair.slave);
        terminal.write_all(b"xq").unwrap();
        let ended = exit_status(&mut child);
        let shown = (meanwhile, line_by_line(&pair.slave), ended.code());
        sender.send(shown).unwrap();
    });
    let seen = within("the terminal", seen).await;
    assert_eq!(seen.unwrap(), (false, true, Some(0)));
}
