//! Inputs that hang, are endless or are not files: the finding reports it, other findings are unaffected, and the
//! program ends.

use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::{fs, thread};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use octavo_node::doctor::CheckResult::{NotApplicable, Ok as Fine, Unknown};

use super::Diagnosis;
use super::seeded_faults::{MachineFiles, device_files, inferentia, loaded, record};
use crate::time_limits::TIME_LIMIT;

/// A healthy Neuron node.
fn node() -> MachineFiles {
    let node = MachineFiles::new(&(inferentia(1, "neuron") + &loaded(0..1)));
    node.write_tree(&record("{\"aws.amazon.com/neuron\":[\"0\"]}"));
    device_files(&node, ["neuron0".to_owned()]);
    node
}

fn pipe(path: &Path) {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
}

/// A server at the socket of the kubelet, and its behavior towards each client.
fn listens(node: &MachineFiles, answer: impl Fn(std::os::unix::net::UnixStream) + Send + 'static) {
    let directory = node.at("kubelet/pod-resources");
    fs::create_dir_all(&directory).unwrap();
    let listener = UnixListener::bind(directory.join("kubelet.sock")).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap());
        }
    });
}

#[track_caller]
fn check_unaffected(reported: &Diagnosis) {
    reported.expect_finding("neuron-driver", Fine, "2.26.5.0");
    reported.expect_finding("neuron-devices", Fine, "1 function on the bus");
}

#[test]
fn hanging_kubelet_times_out_and_its_checkpoint_still_counts() {
    let node = node();
    // Connections are held open without a response.
    let (held, retained) = std::sync::mpsc::channel();
    listens(&node, move |stream| held.send(stream).unwrap());
    let reported = node.diagnosis();
    check_unaffected(&reported);
    reported.expect_finding("allocatable", Fine, "1 offered, 1 present");
    reported.expect_finding("resource-owners", Unknown, "within 5 s");
    reported.expect_finding("time-slicing", Unknown, "within 5 s");
    assert!(retained.recv_timeout(TIME_LIMIT).is_ok(), "the hanging server received no request");
}

#[test]
fn garbage_from_kubelet_is_reported_as_invalid() {
    let node = node();
    listens(&node, |mut stream| {
        let mut requested = [0; 24];
        // The client may be gone already.
        let _read = stream.read(&mut requested);
        let _written = stream.write_all(&[b'\0', 0xff, b'{'].repeat(4096));
    });
    let reported = node.diagnosis();
    check_unaffected(&reported);
    let owners = reported.only("resource-owners");
    assert_eq!(owners.verdict, Unknown, "{owners:#?}");
    assert!(owners.evidence.contains("kubelet"), "{owners:#?}");
}

#[test]
fn pipes_and_endless_files_in_place_of_checkpoint_are_unknown() {
    let node = node();
    let record = node.at("kubelet/device-plugins/kubelet_internal_checkpoint");
    for endless in [false, true] {
        fs::remove_file(&record).unwrap();
        if endless {
            symlink("/dev/zero", &record).unwrap();
        } else {
            pipe(&record);
        }
        let reported = node.diagnosis();
        check_unaffected(&reported);
        reported.expect_finding("device-plugin", Unknown, "it is not a regular file");
        assert_eq!(reported.code, Some(0), "{:#?}", reported.findings);
    }
}

#[test]
fn history_that_is_a_pipe_is_unknown_and_does_not_block() {
    let at = "sys/bus/pci/devices/0000:17:00.0";
    let node = MachineFiles::new(&format!(
        "{at}/vendor = 0x10de\\n\n{at}/device = 0x2330\\n\n{at}/class = 0x030200\\n\n{at}/driver -> ../../../../bus/pci/drivers/nvidia\n\
         sys/module/nvidia/version = 580.95.05\\n\nstate/\n"
    ));
    pipe(&node.at("state/history.jsonl"));
    let reported = node.diagnosis();
    reported.expect_finding("nvidia-driver", Fine, "580.95.05");
    reported.expect_finding("layout", Unknown, "it is not a regular file");
}

#[test]
fn invalid_module_directory_or_list_is_harmless() {
    let node = node();
    fs::create_dir_all(node.at("proc/sys/kernel")).unwrap();
    symlink("/dev/zero", node.at("proc/sys/kernel/osrelease")).unwrap();
    fs::remove_dir_all(node.at("dev")).unwrap();
    fs::write(node.at("dev"), "").unwrap();
    fs::create_dir_all(node.at("sys/fs/cgroup/cgroup.controllers/kubepods")).unwrap();
    pipe(&node.at("kubelet/plugins"));
    let reported = node.diagnosis();
    check_unaffected(&reported);
    reported.expect_finding("neuron-device-files", Unknown, "cannot read");
    reported.expect_finding("control-groups", NotApplicable, "without a cgroup of a pod");
    reported.expect_finding("device-plugin", Fine, "aws.amazon.com/neuron");
}
