//! What is read may hang, be endless or be no file at all: the finding says so, the others stand, and the program ends.

use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::{fs, thread};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use octavo_node::doctor::CheckResult::{NotApplicable, Ok as Fine, Unknown};

use super::Diagnosis;
use super::planted::{Planted, device_files, inferentia, loaded, record};
use crate::time_limits::TIME_LIMIT;

/// A Neuron node that is well, as far as it says.
fn node() -> Planted {
    let node = Planted::new(&(inferentia(1, "neuron") + &loaded(0..1)));
    node.plant(&record("{\"aws.amazon.com/neuron\":[\"0\"]}"));
    device_files(&node, ["neuron0".to_owned()]);
    node
}

fn pipe(path: &Path) {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
}

/// A server at the kubelet's socket, and its behavior towards each client.
fn listens(node: &Planted, answer: impl Fn(std::os::unix::net::UnixStream) + Send + 'static) {
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
fn stands(reported: &Diagnosis) {
    reported.says("neuron-driver", Fine, "2.26.5.0");
    reported.says("neuron-devices", Fine, "1 function on the bus");
}

#[test]
fn hanging_kubelet_times_out_and_its_checkpoint_still_counts() {
    let node = node();
    // They are held open without an answer.
    let (held, retained) = std::sync::mpsc::channel();
    listens(&node, move |stream| held.send(stream).unwrap());
    let reported = node.diagnosis();
    stands(&reported);
    reported.says("allocatable", Fine, "1 offered, 1 present");
    reported.says("resource-owners", Unknown, "within 5 s");
    reported.says("time-slicing", Unknown, "within 5 s");
    assert!(retained.recv_timeout(TIME_LIMIT).is_ok(), "it was asked");
}

#[test]
fn garbage_from_kubelet_is_reported_as_invalid() {
    let node = node();
    listens(&node, |mut stream| {
        let mut requested = [0; 24];
        // Who has gone meanwhile needs no answer.
        let _read = stream.read(&mut requested);
        let _written = stream.write_all(&[b'\0', 0xff, b'{'].repeat(4096));
    });
    let reported = node.diagnosis();
    stands(&reported);
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
        stands(&reported);
        reported.says("device-plugin", Unknown, "it is not a regular file");
        assert_eq!(reported.code, Some(0), "{:#?}", reported.findings);
    }
}

#[test]
fn history_that_is_a_pipe_is_unknown_and_does_not_block() {
    let at = "sys/bus/pci/devices/0000:17:00.0";
    let node = Planted::new(&format!(
        "{at}/vendor = 0x10de\\n\n{at}/device = 0x2330\\n\n{at}/class = 0x030200\\n\n{at}/driver -> ../../../../bus/pci/drivers/nvidia\n\
         sys/module/nvidia/version = 580.95.05\\n\nstate/\n"
    ));
    pipe(&node.at("state/history.jsonl"));
    let reported = node.diagnosis();
    reported.says("nvidia-driver", Fine, "580.95.05");
    reported.says("layout", Unknown, "it is not a regular file");
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
    stands(&reported);
    reported.says("neuron-device-files", Unknown, "cannot read");
    reported.says("control-groups", NotApplicable, "without a cgroup of a pod");
    reported.says("device-plugin", Fine, "aws.amazon.com/neuron");
}
