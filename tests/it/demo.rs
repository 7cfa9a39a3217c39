//! `octavo demo` and its machines: real programs on simulated hardware, which leave no files or processes.

mod cluster;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::golden::golden;
use crate::machine::{Machine, built_library, simulator};
use crate::time_limits::{Finish, Lines, exit_status, until};

const MACHINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/machines");
const POOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/pools");

#[test]
fn each_demo_machine_has_exactly_its_labels() {
    let mut seen = 0;
    for entry in fs::read_dir(MACHINES).unwrap().chain(fs::read_dir(POOLS).unwrap()) {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let machine = Machine::new(&fs::read_to_string(&path).unwrap());
        let file = machine.path().join("octavo");
        let output = machine.agent_once(&[
            "--mig-strategy=mixed",
            "--label-sink=file",
            "--feature-file-expiry=0",
            "--feature-file",
            file.to_str().unwrap(),
        ]);
        let reported = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {reported}");
        let labels = fs::read_to_string(&file).unwrap();
        golden(&format!("../../demo/expected/{name}.labels"), &labels);
        seen += 1;
    }
    assert_eq!(seen, 20);
}

#[test]
fn demo_discovers_its_fleet_and_leaves_no_files() {
    let demo_dir = DemoDirectory::new();
    let output = demo_dir.demo(&["--seconds=20"]).finish();
    let reported = text(&output);
    assert_eq!(output.status.code(), Some(0), "{reported}");
    for expected in [
        "Kubernetes, kubelets, drivers and hardware are simulated",
        "all 28 machines were discovered, and 157 devices of 13 types were counted correctly",
        "7 hardware profiles, ",
    ] {
        assert!(reported.contains(expected), "{reported}");
    }
    demo_dir.is_left_clean();
}

#[test]
fn demo_shows_container_over_its_share_of_a_gpu() {
    let demo_dir = DemoDirectory::new();
    let machines = demo_dir.machines(&["t4"]);
    let mut demo = demo_dir.start(&["--machines", &machines]);
    let try_this = demo.expect_line(" top");
    let server = try_this.trim().split(' ').next().unwrap();
    let server = server.strip_prefix("OCTAVO_SERVER=").unwrap();
    // The agent reads its hardware before its node is reported, or soon after: each event triggers another check.
    let top = || {
        demo.expect_line("Z");
        let top = Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(["top", "--node=t4", "--server", server])
            .finish();
        text(&top)
    };
    let rows = until("a share that is exceeded", top, |rows| rows.contains("180% of 5 GiB, over"));
    assert!(rows.contains("research/notebook-7"), "{rows}");
    assert!(rows.contains("serving/triton-0"), "{rows}");
    kill(demo.pid(), Signal::SIGINT).unwrap();
    assert_eq!(exit_status(&mut demo.child).code(), Some(0));
    demo_dir.is_left_clean();
}

#[test]
fn shared_demo_gpu_is_shown_as_time_sliced_everywhere() {
    let demo_dir = DemoDirectory::new();
    let machines = demo_dir.machines(&["t4"]);
    let mut demo = demo_dir.start(&["--seconds=120", "--machines", &machines]);
    let try_this = demo.expect_line(" top");
    let server = try_this.trim().split(' ').next().unwrap();
    let server = server.strip_prefix("OCTAVO_SERVER=").unwrap();
    let octavo = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(arguments)
            .args(["--server", server])
            .finish();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // The device plugin registers with the kubelet first.
    let shared = || {
        demo.is_running();
        octavo(&["nodes", "--sharing=time-slicing", "-o", "name"])
    };
    until("the shared node", shared, |names| names.trim() == "t4");
    // The kubelet reports replicas before the labels are compiled again.
    let labels = [
        r#""nvidia.com/gpu.replicas": "3""#,
        r#""nvidia.com/gpu.sharing-strategy": "time-slicing""#,
        r#""octavo.dev/sharing": "time-slicing""#,
    ];
    let node = || {
        demo.is_running();
        octavo(&["node", "t4", "-o", "json"])
    };
    until("labels of the shared node", node, |node| labels.iter().all(|one| node.contains(one)));
    // Allocations of time slices have their own poll interval.
    let figures = || {
        demo.is_running();
        octavo(&["availability", "--no-headers"])
    };
    until("two of three time slices", figures, |seen| is_counted(seen));
    kill(demo.pid(), Signal::SIGINT).unwrap();
    assert_eq!(exit_status(&mut demo.child).code(), Some(0));
    demo_dir.is_left_clean();
}

#[test]
fn proposal_of_the_demo_is_carried_out_after_its_approval() {
    let demo_dir = DemoDirectory::new();
    let machines = demo_dir.machines(&["shared-a100"]);
    // The pods of this node use an instance of each GPU.
    let named = |name: &str| format!("{machines}/{name}.yaml");
    fs::rename(named("shared-a100"), named("shared-a100-03")).unwrap();
    let mut demo = demo_dir.start(&["--seconds=600", "--machines", &machines]);
    let line = demo.expect_line("KUBECONFIG=");
    let value = |name: &str| {
        let found = line.split_whitespace().find_map(|word| word.strip_prefix(name));
        found.unwrap().to_owned()
    };
    let (kubeconfig, server) = (value("KUBECONFIG="), value("OCTAVO_SERVER="));
    let octavo = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(arguments)
            .env("KUBECONFIG", &kubeconfig)
            .env("OCTAVO_SERVER", &server)
            .finish();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let policy = || {
        demo.is_running();
        octavo(&["policy", "status", "shared"])
    };
    let is_proposed = |text: &String| text.contains("Proposed") && text.contains("serving/chat-6");
    until("a proposal for the pending pod", policy, is_proposed);
    let approved = octavo(&["policy", "approve", "shared", "--yes"]);
    assert!(approved.starts_with("shared-a100-03: "), "{approved}");
    let demand = || {
        demo.is_running();
        // Another proposal can replace the approved one meanwhile.
        octavo(&["policy", "approve", "shared", "--yes"]);
        octavo(&["demand", "serving/chat-6"])
    };
    until("the instances of the pod", demand, |text| text.contains("available"));
    kill(demo.pid(), Signal::SIGINT).unwrap();
    assert_eq!(exit_status(&mut demo.child).code(), Some(0));
    demo_dir.is_left_clean();
}

/// Three time slices, of which pods hold two.
fn is_counted(figures: &str) -> bool {
    let expected = ["nvidia-t4-16gb", "nvidia.com/gpu", "time-slice", "1", "2", "0", "3"];
    figures.lines().any(|line| line.split_whitespace().take(expected.len()).eq(expected))
}

#[test]
fn amd_devices_of_demo_are_repartitioned_while_it_runs() {
    let demo_dir = DemoDirectory::new();
    let machines = demo_dir.machines(&["mi300x"]);
    let mut demo = demo_dir.start(&["--seconds=600", "--machines", &machines]);
    let try_this = demo.expect_line(" top");
    let server = try_this.trim().split(' ').next().unwrap();
    let server = server.strip_prefix("OCTAVO_SERVER=").unwrap();
    // Each new event confirms that earlier ones were processed.
    let mut unseen = vec!["CPX/NPS4, 8 x 47.9 GiB", "SPX/NPS1"];
    let node = || {
        demo.expect_line("all devices are ");
        let node = Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(["node", "mi300x", "--server", server])
            .finish();
        let reported = text(&node);
        let all = |mode: &str| reported.matches(mode).count() == 8;
        unseen.retain(|mode| !all(mode));
        unseen.clone()
    };
    until("both partition modes", node, Vec::is_empty);
    kill(demo.pid(), Signal::SIGINT).unwrap();
    assert_eq!(exit_status(&mut demo.child).code(), Some(0));
    demo_dir.is_left_clean();
}

#[test]
fn interrupted_demo_exits_cleanly_and_leaves_no_files() {
    let demo_dir = DemoDirectory::new();
    let machines = demo_dir.machines(&["dgx-h100", "h200", "t4"]);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut demo = demo_dir.start(&["--machines", &machines]);
        // The first line appears during startup, the other when everything runs.
        let until =
            if signal == Signal::SIGTERM { "starting the agent of h200" } else { "events follow" };
        demo.expect_line(until);
        kill(demo.pid(), signal).unwrap();
        assert_eq!(exit_status(&mut demo.child).code(), Some(0));
        demo_dir.is_left_clean();
    }
}

/// An agent that connects to the API server and to the aggregator when it is asked to exit.
const LAST_REQUESTS: &str = r#"
while [ $# -gt 0 ] && all+=("$1"); do
    case $1 in
        --kubeconfig) api=$(sed -n "s|.*server: 'http://127.0.0.1:\([0-9]*\)'.*|\1|p" "$2") ;;
        --aggregator) aggregator=${2##*:} ;;
    esac
    shift
done
"$original" "${all[@]}" 2>>"$0.log" &
leave() {
    for server in "API server:$api" "aggregator:$aggregator"; do
        if : 2>/dev/null </dev/tcp/127.0.0.1/"${server#*:}"; then echo "${server%:*} serves"; else echo "${server%:*} has stopped"; fi
    done >>"$0.last"
    kill "$!"
}
trap leave TERM
wait "$!"
wait "$!"
"#;

#[test]
fn agents_exit_before_aggregator_and_api_server_stop() {
    let demo_dir = DemoDirectory::new();
    demo_dir.replace("octavo-agent", LAST_REQUESTS);
    let machines = demo_dir.machines(&["dgx-h100", "t4"]);
    let mut demo = demo_dir.start(&["--machines", &machines]);
    demo.expect_line("events follow");
    kill(demo.pid(), Signal::SIGINT).unwrap();
    assert_eq!(exit_status(&mut demo.child).code(), Some(0));
    let file = |name: &str| fs::read_to_string(demo_dir.programs.join(name)).unwrap();
    let last = file("octavo-agent.last");
    let mut last: Vec<&str> = last.lines().collect();
    last.sort_unstable();
    let [api, aggregator] = ["API server serves", "aggregator serves"];
    assert_eq!(last, [api, api, aggregator, aggregator]);
    let log = file("octavo-agent.log");
    assert!(!log.contains("refused"), "{log}");
    demo_dir.is_left_clean();
}

#[test]
fn process_that_simulator_refuses_is_added_later() {
    let demo_dir = DemoDirectory::new();
    // Refuses the first addition of each process.
    let refuse = r#"case "$*" in
        *"process add"*) number=${*##*--pid }; mkdir "$0.${number%% *}" 2>/dev/null && { echo "no memory" >&2; exit 1; } ;;
    esac
    exec "$original" "$@""#;
    demo_dir.replace("nvml-simctl", refuse);
    let machines = demo_dir.machines(&["dgx-h100"]);
    let mut demo = demo_dir.start(&["--machines", &machines]);
    let line = demo.expect_line(" top");
    let server = line.trim().split(' ').next().unwrap().strip_prefix("OCTAVO_SERVER=").unwrap();
    demo.expect_line("a training job starts on GPU 2");
    let node = || {
        demo.is_running();
        let node = ["node", "dgx-h100", "-o", "json", "--server", server];
        text(&Command::new(env!("CARGO_BIN_EXE_octavo")).args(node).finish())
    };
    // The kubelet numbers processes from 20001.
    until("the process of the job", node, |node| node.contains("\"pid\": 2000"));
    kill(demo.pid(), Signal::SIGINT).unwrap();
    assert_eq!(exit_status(&mut demo.child).code(), Some(0));
    demo_dir.is_left_clean();
}

#[test]
fn unexpected_demo_fleet_is_named_and_fails() {
    let demo_dir = DemoDirectory::new();
    let machines = demo_dir.machines(&["t4"]);
    fs::write(format!("{machines}/t4.labels"), "type.octavo.dev/nvidia-t4-16gb=2\n").unwrap();
    let output = demo_dir.demo(&["--seconds=2", "--machines", &machines]).finish();
    let reported = text(&output);
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(
        reported.contains("1 devices of type nvidia-t4-16gb were counted instead of 2"),
        "{reported}"
    );
    demo_dir.is_left_clean();
}

#[test]
fn agent_that_exits_is_reported_with_end_of_its_log() {
    let demo_dir = DemoDirectory::new();
    demo_dir.replace("octavo-agent", "echo no luck today >&2\nexit 7");
    let output = demo_dir.demo(&["--seconds=5"]).finish();
    let reported = text(&output);
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(
        reported.contains("exited early (exit status: 7)") && reported.contains("no luck today"),
        "{reported}"
    );
    demo_dir.is_left_clean();
}

#[test]
fn missing_program_is_named_with_how_to_get_it() {
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["demo", "--programs"])
        .arg(empty.path())
        .finish();
    assert_eq!(output.status.code(), Some(1));
    let reported = text(&output).replace(empty.path().to_str().unwrap(), "FOLDER");
    assert!(
        reported.starts_with(
            "error: the demo failed\n  because: no octavo-agent in FOLDER\n  try: run `make demo` in a source checkout"
        ),
        "{reported}"
    );
}

/// Directory with the programs and files of a demo.
struct DemoDirectory {
    directory: tempfile::TempDir,
    programs: PathBuf,
}

/// A running demo.
struct Demo {
    child: Child,
    lines: Lines,
}

impl DemoDirectory {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let programs = directory.path().join("programs");
        fs::create_dir(&programs).unwrap();
        fs::create_dir(directory.path().join("tmp")).unwrap();
        for (name, path) in [
            ("octavo-agent", PathBuf::from(env!("CARGO_BIN_EXE_octavo-agent"))),
            ("octavo-aggregator", PathBuf::from(env!("CARGO_BIN_EXE_octavo-aggregator"))),
            ("nvml-simctl", simulator().to_owned()),
            ("libnvml_sim.so", built_library()),
        ] {
            symlink(path, programs.join(name)).unwrap();
        }
        Self { directory, programs }
    }

    /// Creates a directory with some of the demo's machines, or one machine of a pool. One machine is enough for most tests.
    fn machines(&self, names: &[&str]) -> String {
        let directory = self.directory.path().join("machines");
        fs::create_dir(&directory).unwrap();
        for name in names {
            let file = format!("{name}.yaml");
            let mut paths = [MACHINES, POOLS].into_iter().map(|of| format!("{of}/{file}"));
            let text = paths.find_map(|path| fs::read_to_string(path).ok()).unwrap();
            fs::write(directory.join(file), text.replace("pool-machine", name)).unwrap();
        }
        directory.to_str().unwrap().to_owned()
    }

    /// Replaces a program with a shell script, which can run the original as `$original`.
    fn replace(&self, name: &str, script: &str) {
        let path = self.programs.join(name);
        let original = fs::read_link(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let original = original.display();
        fs::write(&path, format!("#!/bin/bash\noriginal='{original}'\n{script}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).unwrap();
    }

    fn demo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
        command
            .args(["demo", "--programs"])
            .arg(&self.programs)
            .args(arguments)
            .env("TMPDIR", self.tmp())
            .stdin(Stdio::null());
        command
    }

    fn start(&self, arguments: &[&str]) -> Demo {
        let mut child =
            self.demo(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        Demo { child, lines }
    }

    fn tmp(&self) -> PathBuf {
        self.directory.path().join("tmp")
    }

    /// Asserts that no file or process of the demo is left.
    #[track_caller]
    fn is_left_clean(&self) {
        let files: Vec<_> = fs::read_dir(self.tmp()).unwrap().collect();
        assert!(files.is_empty(), "{files:?}");
        let ours = self.directory.path().to_str().unwrap();
        let left: Vec<String> = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("cmdline")).ok())
            .filter(|line| line.contains(ours))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Demo {
    #[track_caller]
    fn expect_line(&mut self, text: &str) -> String {
        self.lines.find_line(text)
    }

    #[track_caller]
    fn is_running(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "the demo has ended: {ended:?}");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _gone_already = self.child.wait();
    }
}

fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}
