//! What is read may hang, be endless or be no file at all: the finding says so, the others stand, and the program ends.

use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::{fs, thread};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use octavo_documents::diagnosis::VerdictJson::{NotApplicable, Ok as Fine, Unknown};

use super::Diagnosis;
use super::planted::{Planted, device_files, inferentia, loaded, record};
use crate::patience::PATIENCE;

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

/// Whoever listens at kubelet's socket, and what becomes of each that asks.
fn listens(node: &Planted, answer: impl Fn(std::os::unix::net::UnixStream) + Send + 'static) {
    let folder = node.at("kubelet/pod-resources");
    fs::create_dir_all(&folder).unwrap();
    let listener = UnixListener::bind(folder.join("kubelet.sock")).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap());
        }
    });
}

#[track_caller]
fn stands(said: &Diagnosis) {
    said.says("neuron-driver", Fine, "2.26.5.0");
    said.says("neuron-devices", Fine, "1 function on the bus");
}

#[test]
fn a_kubelet_that_hangs_is_waited_for_so_long_and_its_record_still_counts() {
    let node = node();
    // They are held open, and nobody says a word.
    let (held, kept) = std::sync::mpsc::channel();
    listens(&node, move |stream| held.send(stream).unwrap());
    let said = node.diagnosis();
    stands(&said);
    said.says("allocatable", Fine, "1 offered, 1 there");
    said.says("resource-owners", Unknown, "within 5 s");
    said.says("time-slicing", Unknown, "within 5 s");
    assert!(kept.recv_timeout(PATIENCE).is_ok(), "it was asked");
}

#[test]
fn a_kubelet_that_answers_garbage_is_told_to_be_none() {
    let node = node();
    listens(&node, |mut stream| {
        let mut asked = [0; 24];
        // Who has gone meanwhile needs no answer.
        let _read = stream.read(&mut asked);
        let _written = stream.write_all(&[b'\0', 0xff, b'{'].repeat(4096));
    });
    let said = node.diagnosis();
    stands(&said);
    let owners = said.only("resource-owners");
    assert_eq!(owners.verdict, Unknown, "{owners:#?}");
    assert!(owners.evidence.contains("kubelet"), "{owners:#?}");
}

#[test]
fn pipes_and_endless_files_in_the_place_of_records_are_unknown_with_the_reason() {
    let node = node();
    let record = node.at("kubelet/device-plugins/kubelet_internal_checkpoint");
    for endless in [false, true] {
        fs::remove_file(&record).unwrap();
        if endless {
            symlink("/dev/zero", &record).unwrap();
        } else {
            pipe(&record);
        }
        let said = node.diagnosis();
        stands(&said);
        said.says("device-plugin", Unknown, "it is no regular file");
        assert_eq!(said.code, Some(0), "{:#?}", said.findings);
    }
}

#[test]
fn a_history_that_is_a_pipe_is_unknown_with_the_reason_and_is_not_waited_for() {
    let at = "sys/bus/pci/devices/0000:17:00.0";
    let node = Planted::new(&format!(
        "{at}/vendor = 0x10de\\n\n{at}/device = 0x2330\\n\n{at}/class = 0x030200\\n\n{at}/driver -> ../../../../bus/pci/drivers/nvidia\n\
         sys/module/nvidia/version = 580.95.05\\n\nstate/\n"
    ));
    pipe(&node.at("state/history.jsonl"));
    let said = node.diagnosis();
    said.says("nvidia-driver", Fine, "580.95.05");
    said.says("layout", Unknown, "it is no regular file");
}

#[test]
fn what_is_no_folder_and_no_list_of_modules_harms_nothing() {
    let node = node();
    fs::create_dir_all(node.at("proc/sys/kernel")).unwrap();
    symlink("/dev/zero", node.at("proc/sys/kernel/osrelease")).unwrap();
    fs::remove_dir_all(node.at("dev")).unwrap();
    fs::write(node.at("dev"), "").unwrap();
    fs::create_dir_all(node.at("sys/fs/cgroup/cgroup.controllers/kubepods")).unwrap();
    pipe(&node.at("kubelet/plugins"));
    let said = node.diagnosis();
    stands(&said);
    said.says("neuron-device-files", Unknown, "cannot read");
    said.says("control-groups", NotApplicable, "none of a pod");
    said.says("device-plugin", Fine, "aws.amazon.com/neuron");
}
