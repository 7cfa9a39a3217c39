//! The kubelet's checkpoint of allocations, which identifies pods by UID. The pod-resources API identifies them by
//! namespace and name.
//!
//! Source: Kubernetes, `pkg/kubelet/cm/devicemanager/checkpoint`. The file is internal to the kubelet, so unexpected
//! content means that it is ignored. It can make a device count as allocated, but never as free.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use octavo_model::holder::DeviceAllocation;
use octavo_node::sharing::join::Allocation;
use octavo_toolkit::files;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// File name in the device plugin directory.
const FILE: &str = "kubelet_internal_checkpoint";
/// Size limit in bytes. A thousand pods take about a megabyte.
const MAX_BYTES: u64 = 16 << 20;

/// Error that makes the checkpoint unusable.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file does not have the kubelet's current format.
    #[error("{} does not have the format of a kubelet checkpoint", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
}

/// UIDs of pods by resource, ID and container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodUids(BTreeMap<(String, String, String), BTreeSet<String>>);

/// An allocation of an ID to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubeletAllocation<'a> {
    /// The UID of its pod.
    pub uid: &'a str,
    /// The container's name.
    pub container: &'a str,
    /// The resource.
    pub resource: &'a str,
    /// The allocated ID.
    pub id: &'a str,
}

#[derive(Deserialize)]
struct Checkpoint {
    #[serde(rename = "Data")]
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    /// `null` before the first allocation.
    #[serde(rename = "PodDeviceEntries", default)]
    entries: Option<Vec<CheckpointEntry>>,
}

/// The other part of the same file. It is parsed separately, so that an error in one part does not affect the other.
#[derive(Deserialize)]
struct Registrations {
    #[serde(rename = "Data")]
    data: Registered,
}

#[derive(Deserialize)]
struct Registered {
    /// Healthy devices by resource. `null` if no resource was ever registered, and for a resource with only unhealthy
    /// devices.
    #[serde(rename = "RegisteredDevices", default)]
    registered: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(Deserialize)]
struct CheckpointEntry {
    #[serde(rename = "PodUID")]
    uid: String,
    #[serde(rename = "ContainerName")]
    container: String,
    #[serde(rename = "ResourceName")]
    resource: String,
    #[serde(rename = "DeviceIDs")]
    ids: Ids,
}

/// IDs by NUMA node since Kubernetes 1.20, a plain list before.
#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    ByNode(BTreeMap<String, Vec<String>>),
    Plain(Vec<String>),
}

/// Reads the checkpoint in `dir`. Blocks.
pub fn read(dir: &Path) -> Result<PodUids, CheckpointError> {
    load(dir).map(index_entries)
}

/// Returns the number of healthy devices of each registered resource, from the checkpoint in `dir`. Blocks.
pub fn healthy_device_counts(dir: &Path) -> Result<BTreeMap<String, usize>, CheckpointError> {
    let all: Registrations = load(dir)?;
    let counts = all.data.registered.unwrap_or_default().into_iter();
    let counts = counts.map(|(name, ids)| (name, ids.map_or(0, |ids| ids.len())));
    Ok(counts.collect())
}

fn load<T: DeserializeOwned>(dir: &Path) -> Result<T, CheckpointError> {
    let path = dir.join(FILE);
    let text = match files::text(&path, MAX_BYTES) {
        Ok(text) => text,
        Err(error) => {
            let source = error.into();
            return Err(CheckpointError::Unreadable { path, source });
        }
    };
    serde_json::from_str(&text).map_err(|source| CheckpointError::Unknown { path, source })
}

fn index_entries(checkpoint: Checkpoint) -> PodUids {
    let mut uids = PodUids::default();
    for entry in checkpoint.data.entries.into_iter().flatten() {
        let ids: Vec<String> = match entry.ids {
            Ids::ByNode(by_node) => by_node.into_values().flatten().collect(),
            Ids::Plain(ids) => ids,
        };
        for id in ids {
            let key = (entry.resource.clone(), id, entry.container.clone());
            uids.0.entry(key).or_default().insert(entry.uid.clone());
        }
    }
    uids
}

impl PodUids {
    /// Adds the UID of the pod, if the checkpoint has it.
    pub fn name(&self, device: DeviceAllocation) -> Allocation {
        let key = (device.resource.clone(), device.device_id.clone(), device.container.clone());
        let mut uids = self.0.get(&key).into_iter().flatten();
        // A terminated pod stays in the checkpoint for a while, which makes the UID ambiguous.
        let uid = uids.next().filter(|_| uids.next().is_none()).cloned();
        Allocation { device, uid }
    }

    /// Returns all allocations.
    pub fn entries(&self) -> impl Iterator<Item = KubeletAllocation<'_>> {
        self.0.iter().flat_map(|((resource, id, container), uids)| {
            uids.iter().map(move |uid| KubeletAllocation { uid, container, resource, id })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PodUids, serde_json::Error> {
        serde_json::from_str(text).map(index_entries)
    }

    #[test]
    fn registered_resources_without_healthy_devices_count_zero() {
        let directory = tempfile::tempdir().unwrap();
        let counts = |registered: &str| {
            let text = format!(
                r#"{{"Data":{{"PodDeviceEntries":null,"RegisteredDevices":{registered}}},"Checksum":1}}"#
            );
            std::fs::write(directory.path().join(FILE), text).unwrap();
            super::healthy_device_counts(directory.path()).unwrap()
        };
        let all =
            counts(r#"{"aws.amazon.com/neuron":["0","1"],"nvidia.com/gpu":null,"amd.com/gpu":[]}"#);
        let expected = [("amd.com/gpu", 0), ("aws.amazon.com/neuron", 2), ("nvidia.com/gpu", 0)];
        assert_eq!(all, expected.map(|(name, count)| (name.to_owned(), count)).into());
        assert!(counts("null").is_empty());
    }

    fn device(id: &str) -> DeviceAllocation {
        DeviceAllocation {
            namespace: "n".to_owned(),
            pod: "p".to_owned(),
            container: "main".to_owned(),
            resource: "nvidia.com/gpu".to_owned(),
            device_id: id.to_owned(),
            claim: None,
        }
    }

    fn entry(uid: &str, ids: &str) -> String {
        format!(
            r#"{{"PodUID":"{uid}","ContainerName":"main","ResourceName":"nvidia.com/gpu","DeviceIDs":{ids},"AllocResp":"CgA="}}"#
        )
    }

    fn uids(entries: &[String]) -> PodUids {
        let all = entries.join(",");
        parse(&format!(
            r#"{{"Data":{{"PodDeviceEntries":[{all}],"RegisteredDevices":{{"nvidia.com/gpu":["a"]}}}},"Checksum":1}}"#
        ))
        .unwrap()
    }

    #[test]
    fn pod_uid_is_found_in_both_checkpoint_formats() {
        let uids = uids(&[entry("u1", r#"{"-1":["a"],"0":["b"]}"#), entry("u2", r#"["c"]"#)]);
        let uid = |id: &str| uids.name(device(id)).uid;
        assert_eq!(uid("a").as_deref(), Some("u1"));
        assert_eq!(uid("b").as_deref(), Some("u1"));
        assert_eq!(uid("c").as_deref(), Some("u2"));
        assert_eq!(uid("d"), None);
    }

    #[test]
    fn ambiguous_allocation_has_no_uid() {
        let uids =
            uids(&[entry("u1", r#"["a"]"#), entry("u2", r#"["a"]"#), entry("u1", r#"["a"]"#)]);
        assert_eq!(uids.name(device("a")).uid, None);
    }

    #[test]
    fn i12_invalid_checkpoint_is_an_error_and_empty_one_has_no_entries() {
        assert!(parse("").is_err());
        assert!(parse("{}").is_err());
        assert_eq!(
            parse(r#"{"Data":{"PodDeviceEntries":null},"Checksum":1}"#).unwrap(),
            PodUids::default()
        );
        assert!(read(Path::new("/nowhere")).is_err());
    }
}
