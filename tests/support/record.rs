//! Kubelet's checkpoint of allocations, and the minimal process of a pod.

use std::fs;
use std::path::Path;

use serde_json::json;

/// File name of the checkpoint.
pub(crate) const FILE: &str = "kubelet_internal_checkpoint";

/// The UID of a pod of this name.
pub(crate) fn uid(pod: &str) -> String {
    let sum =
        pod.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(1_099_511_628_211) ^ u64::from(byte));
    format!("{:08x}-0000-4000-8000-{:012x}", sum >> 32, sum & 0xffff_ffff_ffff)
}

/// Writes a checkpoint with these allocations: pod, resource and ids.
pub(crate) fn write<'a>(
    directory: &Path,
    pods: impl IntoIterator<Item = (&'a str, &'a str, &'a [String])>,
) {
    let entries = pods.into_iter().map(|(name, resource, ids)| {
        json!({"PodUID": uid(name), "ContainerName": "main", "ResourceName": resource,
            "DeviceIDs": {"0": ids}, "AllocResp": "CgA="})
    });
    let entries: Vec<_> = entries.collect();
    let text =
        json!({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1});
    let draft = directory.join("draft");
    fs::write(&draft, text.to_string()).unwrap();
    fs::rename(draft, directory.join(FILE)).unwrap();
}

/// A process file system that shows all processes.
pub(crate) fn show_all(proc: &Path) {
    fs::create_dir_all(proc.join("2")).unwrap();
    // A kernel thread, which only the host's PID namespace has.
    let fields =
        "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 20 0 0 18446744073709551615";
    let rest = " 0".repeat(27);
    fs::write(proc.join("2/stat"), format!("{fields}{rest}\n")).unwrap();
}

/// Adds a process of the pod's sandbox.
pub(crate) fn add_process(proc: &Path, pid: u32, pod: &str) {
    let directory = proc.join(pid.to_string());
    let group = format!("0::/kubepods/besteffort/pod{}/{pid:064x}\n", uid(pod));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("cgroup"), group).unwrap();
}
