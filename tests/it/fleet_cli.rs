//! `octavo nodes`, `types`, `node` and `watch` against a real aggregator that real agents report to.

mod completion;
mod diagnostics;
mod profiles;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nvml_sim::model::Slot;

use crate::machine::Machine;
use crate::process::{Aggregator, Program};
use crate::time_limits::{Finish, Lines, exit_status};

const H100: &str = "
machine: h100
driver: 570.133.20
gpus:
  - {board: H100_80GB_SXM, count: 2}
processes:
  - {pid: 900, gpu: 0, name: torchrun, memory_mib: 71000}
";

const A100: &str = "
machine: a100
driver: 570.133.20
gpus:
  - board: A100_80GB
    mig: enabled
    instances:
      - {profile: 3g.40gb, start: 4}
      - {profile: 2g.20gb, start: 0}
";

/// An aggregator with the nodes `a100` and `h100`, which it has received.
struct Fleet {
    // Fields are dropped in this order: agents before their machines.
    _agents: Vec<Program>,
    url: String,
    h100: Machine,
    _a100: Machine,
    _aggregator: Aggregator,
}

impl Fleet {
    fn new() -> Self {
        let aggregator = Aggregator::start(&["--plaintext"]);
        let grpc = format!("http://{}", aggregator.grpc);
        let url = format!("http://{}", aggregator.http);
        let (h100, a100) = (Machine::new(H100), Machine::new(A100));
        let agents = [("h100", &h100), ("a100", &a100)].map(|(name, machine)| {
            machine.agent(&[
                "--aggregator",
                &grpc,
                "--aggregator-plaintext",
                "--node-name",
                name,
                "--interval=200ms",
            ])
        });
        let fleet =
            Self { _aggregator: aggregator, url, h100, _agents: Vec::from(agents), _a100: a100 };
        // Two lines of a watch mean that both nodes are known.
        let mut watch = fleet.watch(&["--no-headers"]);
        for _ in 0..2 {
            watch.line();
        }
        fleet
    }

    fn octavo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
        command.args(arguments).env("OCTAVO_SERVER", &self.url).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.octavo(arguments).finish()
    }

    #[track_caller]
    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", reported(&output.stderr));
        reported(&output.stdout)
    }

    fn watch(&self, arguments: &[&str]) -> Watch {
        let mut child =
            self.octavo(&["watch"]).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        Watch { child, lines }
    }
}

/// A running watch.
struct Watch {
    child: Child,
    lines: Lines,
}

impl Watch {
    #[track_caller]
    fn line(&mut self) -> String {
        self.lines.line()
    }

    #[track_caller]
    fn expect_line(&mut self, text: &str) -> String {
        self.lines.find_line(text)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _gone_already = self.child.wait();
    }
}

fn reported(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Removes the ages, which depend on the clock.
fn without_last(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .map(|line| {
            let mut words: Vec<&str> = line.split_whitespace().collect();
            words.pop();
            words
        })
        .collect()
}

#[test]
fn fleet_is_listed_counted_shown_and_filtered() {
    let fleet = Fleet::new();
    assert_eq!(
        without_last(&fleet.prints(&["nodes"])),
        [
            "NAME TYPES DEVICES FREE PARTS MEMORY SHARING STATE",
            "a100 1x nvidia-a100-80gb 1 0 2/2 80 GiB mig ok",
            "h100 2x nvidia-h100-80gb 2 1 - 159.2 GiB exclusive ok",
        ]
        .map(|line| line.split(' ').collect::<Vec<_>>())
    );
    for (arguments, names) in [
        (&["--type", "nvidia-h100-80gb"][..], "h100\n"),
        (&["--state=degraded,stale"], ""),
        (&["--sharing=mig"], "a100\n"),
        (&["-l", "octavo.dev/sharing in (mig,exclusive),octavo.dev/count!=2"], "a100\n"),
        (&["--search=100"], "a100\nh100\n"),
        (&["--sort-by=free"], "h100\na100\n"),
        (&["--sort-by=free", "--limit=1"], "h100\n"),
    ] {
        let all = [&["nodes", "-o", "name"], arguments].concat();
        assert_eq!(fleet.prints(&all), names, "{arguments:?}");
    }
    let types = fleet.prints(&["types"]);
    assert!(
        types.contains("nvidia-h100-80gb  79.6 GiB  2      1     1       0            -           0            0            0        1\n"),
        "{types}"
    );
    let only = fleet.prints(&["types", "--type=nvidia-a100-80gb", "--no-headers"]);
    assert_eq!(only, "nvidia-a100-80gb  80 GiB  1  0  0  1  2/2  0  0  0  1\n");
    for (name, note) in [
        (
            "nvidia-h1000-80gb",
            "no devices of type nvidia-h1000-80gb; did you mean nvidia-h100-80gb?",
        ),
        ("nvidia-h2000-141gb", "did you mean nvidia-h200-141gb?"),
        ("nvidia-l4-24gb", "the fleet has no devices of type nvidia-l4-24gb\n"),
        ("abacus", "no devices of type abacus; `octavo types` lists the types"),
    ] {
        let output = fleet.run(&["types", "--type", name, "--type=nvidia-a100-80gb", "-o", "name"]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert_eq!(output.stdout, b"nvidia-a100-80gb\n", "{name}");
        assert!(reported(&output.stderr).contains(note), "{}", reported(&output.stderr));
    }
    for command in ["nodes", "availability", "usage"] {
        let output = fleet.run(&[command, "--type=nvidia-h2000-141gb"]);
        let text = reported(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {text}");
        assert!(text.contains("did you mean nvidia-h200-141gb?"), "{command}: {text}");
        // A product of the catalog is a valid question.
        let output = fleet.run(&[command, "--type=nvidia-h200-141gb,unknown"]);
        assert_eq!(output.status.code(), Some(0), "{}", reported(&output.stderr));
    }
    let node = fleet.prints(&["node", "a100"]);
    assert!(node.starts_with("Node: a100\nState: ok\nAgent: "), "{node}");
    assert!(node.contains("3g.40gb") && node.contains("gi "), "{node}");
    for format in ["json", "yaml"] {
        let node = fleet.prints(&["node", "h100", "-o", format]);
        assert!(node.contains("octavo.dev/type") && node.contains("bootId"), "{node}");
    }
}

#[test]
fn notes_are_printed_below_their_table() {
    let fleet = Fleet::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("screen");
    let screen = fs::File::create(&path).unwrap();
    let mut child = fleet
        .octavo(&["availability"])
        .stderr(screen.try_clone().unwrap())
        .stdout(screen)
        .spawn()
        .unwrap();
    assert!(exit_status(&mut child).success());
    let lines = fs::read_to_string(&path).unwrap();
    let mut lines = lines.lines();
    assert!(lines.next().unwrap().starts_with("NVIDIA A100 80GB - "));
    assert!(lines.next_back().unwrap().starts_with("note: based on agents only"));
}

#[test]
fn watch_prints_each_change_and_exits_cleanly_when_interrupted() {
    let fleet = Fleet::new();
    let mut lines = fleet.watch(&["--no-headers", "--type=nvidia-h100-80gb"]);
    assert_eq!(lines.line(), "h100: ok, 2x nvidia-h100-80gb, 1 of 2 free");
    let mut objects = fleet.watch(&["-o", "json"]);
    objects.expect_line("\"kind\":\"synced\"");
    fleet.h100.change(|world| world.lose_gpu(Slot(1)));
    let line = lines.expect_line("degraded");
    // The GPU may be lost between any two calls of a reading.
    let call = line.split(": ").find(|part| part.starts_with("nvmlDevice")).unwrap();
    assert_eq!(
        line,
        format!(
            "h100: ok -> degraded (GPU 1: failing: {call}: GPU is lost (15)), free 1 -> 0, unavailable 0 -> 1"
        )
    );
    let object = objects.expect_line("degraded");
    let event: serde_json::Value = serde_json::from_str(&object).unwrap();
    assert_eq!(event["node"]["name"], "h100");
    for watch in [&mut lines, &mut objects] {
        let pid = Pid::from_raw(i32::try_from(watch.child.id()).unwrap());
        kill(pid, Signal::SIGINT).unwrap();
        assert_eq!(exit_status(&mut watch.child).code(), Some(0));
    }
}

#[test]
fn watch_of_an_absent_type_prints_a_note_and_continues() {
    let fleet = Fleet::new();
    let mut command = fleet.octavo(&["watch", "--type=nvidia-h2000-141gb,nvidia-h100-80gb"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut notes = Lines::of(child.stderr.take().unwrap());
    let lines = Lines::of(child.stdout.take().unwrap());
    let mut watch = Watch { child, lines };
    notes.find_line("did you mean nvidia-h200-141gb?");
    watch.expect_line("h100: ok");
}

#[test]
fn invalid_request_is_reported_in_the_words_of_the_aggregator() {
    let fleet = Fleet::new();
    for (arguments, because) in [
        (&["node", "nobody"][..], "nobody"),
        (&["node", "../types"], "node"),
        (&["nodes", "-l", "a in (b"], "selector"),
        (&["nodes", "--type", "NOT A TYPE"], "type"),
        (&["watch", "-l", "a in (b"], "selector"),
    ] {
        let output = fleet.run(arguments);
        let text = reported(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains("\n  because: ") && text.contains(because), "{arguments:?}: {text}");
    }
}

#[test]
fn unknown_authority_error_names_the_ca_flag() {
    let directory = tempfile::tempdir().unwrap();
    let server = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("tls.crt"), server.cert.pem()).unwrap();
    fs::write(path("tls.key"), server.signing_key.serialize_pem()).unwrap();
    fs::write(path("other.crt"), other.cert.pem()).unwrap();
    let mut aggregator = Command::new(env!("CARGO_BIN_EXE_octavo-aggregator"))
        .args(["--grpc-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"])
        .arg("--tls-cert")
        .arg(path("tls.crt"))
        .arg("--tls-key")
        .arg(path("tls.key"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let listens = "listening for HTTP clients on ";
    let line = Lines::of(aggregator.stderr.take().unwrap()).find_line(listens);
    let (_, address) = line.split_once(listens).unwrap();
    let address: SocketAddr = address.split(' ').next().unwrap().parse().unwrap();
    let url = format!("https://localhost:{}", address.port());
    let ask = |ca: &str| {
        Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(["nodes", "--server", &url, "--ca"])
            .arg(path(ca))
            .finish()
    };
    let (wrong, missing, right) = (ask("other.crt"), ask("none.crt"), ask("tls.crt"));
    let _gone_already = aggregator.kill();
    let _gone_already = aggregator.wait();
    let text = reported(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(1), "{text}");
    assert!(
        text.contains("the server certificate cannot be verified") && text.contains("try: "),
        "{text}"
    );
    assert!(reported(&missing.stderr).starts_with("error: cannot read CA certificates from "));
    assert_eq!(right.status.code(), Some(0), "{}", reported(&right.stderr));
}

#[test]
fn link_named_kubectl_octavo_is_a_kubectl_plugin() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-octavo");
    symlink(env!("CARGO_BIN_EXE_octavo"), &plugin).unwrap();
    let output = Command::new(&plugin).args(["nodes", "--help"]).finish();
    let help = reported(&output.stdout);
    assert!(help.contains("Usage: kubectl octavo nodes [OPTIONS]"), "{help}");
    assert!(help.contains("\n  kubectl octavo nodes --sort-by free\n"), "{help}");
    let output = Command::new(&plugin).arg("nods").finish();
    assert_eq!(output.status.code(), Some(2));
    assert!(reported(&output.stderr).contains("Usage: kubectl octavo"));
}

#[test]
fn availability_has_one_line_per_type() {
    let fleet = Fleet::new();
    let shown = fleet.prints(&["availability"]);
    let rows: Vec<String> =
        shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        rows,
        [
            "NVIDIA A100 80GB - 1 x 2g.20gb, 1 x 3g.40gb available",
            "NVIDIA H100 80GB - 1 available",
            "",
            "TYPE RESOURCE UNIT FREE USED UNAVAILABLE CAPACITY PENDING NODES",
            "nvidia-a100-80gb nvidia.com/mig-2g.20gb 2g.20gb 1 0 0 1 - 1",
            "nvidia-a100-80gb nvidia.com/mig-3g.40gb 3g.40gb 1 0 0 1 - 1",
            "nvidia-h100-80gb nvidia.com/gpu device 1 1 0 2 - 1",
        ]
    );
    let whole = ["availability", "--resource=nvidia.com/gpu", "--min-free=1"];
    let names = fleet.prints(&[&whole[..], &["-o", "name"]].concat());
    assert_eq!(names, "nvidia-h100-80gb\n");
    let json = fleet.prints(&["availability", "--type", "nvidia-h100-80gb", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&list["kind"], &list["basis"]), (&"AvailabilityList".into(), &"agents".into()));
    let output = fleet.run(&["availability", "--type", "nvidia-l4-24gb"]);
    let notes = reported(&output.stderr);
    assert!(
        notes.contains("no matching devices in the fleet")
            && notes.contains("based on agents only"),
        "{notes}"
    );
}
