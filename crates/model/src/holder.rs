//! Holders: processes and pods that use a device or one of its partitions and can block a change.

mod pods;

use std::collections::BTreeSet;

use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

pub use self::pods::{DeviceAllocation, PodHolders, holders_from_allocations};
use crate::id::PciAddress;
use crate::inventory::{Device, Inventory, Process, ProcessKind};

/// Process or pod that uses a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// PCI address of the device.
    pub device: PciAddress,
    /// GPU instance it runs in, by the driver's id; `None` for the whole device.
    pub gpu_instance: Option<u32>,
    /// Compute instance, by the driver's id within the GPU instance.
    pub compute_instance: Option<u32>,
    /// Process and pod details.
    pub details: HolderDetails,
}

/// Known details of a process or pod that uses a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct HolderDetails {
    /// Process id in the PID namespace of the driver's host.
    pub pid: Option<u32>,
    /// Kind of use.
    pub kind: Option<ProcessKind>,
    /// Command with its arguments, on one line.
    pub command: Option<String>,
    /// Start time of the process, in RFC 3339 (UTC).
    pub since: Option<String>,
    /// Pod of the process.
    pub pod: Option<Pod>,
}

/// Pod of a process. Fields that only Kubernetes knows are absent if it was not queried.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, ToSchema)]
#[schema(as = HolderPod)]
pub struct Pod {
    /// UID. Source: the name of the control group that the kubelet creates.
    pub uid: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Name of the container, or its id if the name is unknown.
    pub container: Option<String>,
}

impl Holder {
    /// Describes a process that the driver reports for `device`.
    pub fn from_process(device: &Device, process: &Process) -> Self {
        Self {
            device: device.pci,
            gpu_instance: process.gpu_instance,
            compute_instance: process.compute_instance,
            details: HolderDetails {
                pid: Some(process.pid),
                kind: Some(process.kind),
                ..HolderDetails::default()
            },
        }
    }

    /// Returns `true` if it is a pod to which the kubelet allocated the device, rather than one of its processes: only
    /// the kubelet reports pod names.
    pub fn is_kubelet_allocation(&self) -> bool {
        let pod = self.details.pod.as_ref();
        self.details.pid.is_none() && pod.is_some_and(|pod| pod.name.is_some())
    }

    /// Returns `true` if `process` is a process of the same pod, known by name, at the same place.
    fn is_pod_of(&self, process: &Self) -> bool {
        let place = |of: &Self| (of.device, of.gpu_instance, of.compute_instance);
        process.details.pid.is_some()
            && place(self) == place(process)
            && self.pod_name().is_some_and(|name| process.pod_name() == Some(name))
    }

    /// Namespace and name of the pod, if the name is known.
    fn pod_name(&self) -> Option<(Option<&str>, &str)> {
        let pod = self.details.pod.as_ref()?;
        Some((pod.namespace.as_deref(), pod.name.as_deref()?))
    }
}

/// All processes that the driver reports for the devices of a node.
pub fn of(inventory: &Inventory) -> Vec<Holder> {
    let all = inventory.devices.iter().flat_map(|device| {
        let processes = device.processes.iter();
        processes.map(|process| Holder::from_process(device, process))
    });
    all.collect()
}

/// Merges two lists of holders: `open` have a device file open, `named` are known in more detail. A process in `open`
/// is dropped if `named` has it at the same place.
pub fn merge_holders(mut named: Vec<Holder>, open: Vec<Holder>) -> Vec<Holder> {
    let place = |of: &Holder| (of.device, of.gpu_instance, of.compute_instance, of.details.pid);
    let known: BTreeSet<_> = named.iter().map(place).collect();
    let new = |holder: &Holder| holder.details.pid.is_none() || !known.contains(&place(holder));
    named.extend(open.into_iter().filter(new));
    named.sort();
    named
}

/// Removes the allocations of pods that a named process of the same pod repeats at the same place. The process gets the
/// name of the container if only one of the pod has the allocation.
pub fn merge_pods(holders: Vec<Holder>) -> Vec<Holder> {
    let (allocations, mut others): (Vec<Holder>, Vec<Holder>) =
        holders.into_iter().partition(Holder::is_kubelet_allocation);
    for process in &mut others {
        let mut same = allocations.iter().filter(|one| one.is_pod_of(process));
        let first = same.next().and_then(|one| one.details.pod.as_ref()?.container.clone());
        if same.next().is_none()
            && let (Some(container), Some(pod)) = (first, &mut process.details.pod)
        {
            pod.container = Some(container);
        }
    }
    let is_new = |one: &Holder| !others.iter().any(|process| one.is_pod_of(process));
    let new: Vec<Holder> = allocations.into_iter().filter(is_new).collect();
    others.extend(new);
    others.sort();
    others
}

impl Pod {
    /// Parses the path of a control group into a pod's UID and a container id.
    ///
    /// Source: the kubelet's `pkg/kubelet/cm`, for both of its cgroup drivers:
    /// - cgroupfs: `/kubepods/burstable/pod<uid>/<container>`
    /// - systemd, with underscores for the dashes of the UID:
    ///   `/kubepods.slice/.../kubepods-burstable-pod<uid>.slice/cri-containerd-<container>.scope`
    ///
    /// A process in its own cgroup namespace sees the paths of others relative to it, as
    /// `/../../pod<uid>/<container>`.
    pub fn from_cgroup_path(path: &str) -> Option<Self> {
        let is_from_within = path.starts_with("/../");
        let mut parts =
            path.split('/').skip_while(|part| !is_from_within && !part.starts_with("kubepods"));
        let (uid, mut below) = loop {
            let part = parts.next()?;
            if let Some(uid) = pod_uid(part) {
                break (uid, parts);
            }
        };
        Some(Self {
            uid: Some(uid),
            container: below.next().and_then(container_id),
            ..Self::default()
        })
    }
}

/// UID in the path component of a pod.
fn pod_uid(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let (_, uid) = name.rsplit_once("-pod").or_else(|| name.split_once("pod"))?;
    let uid = uid.replace('_', "-");
    let well_formed = uid.len() >= 32 && uid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    well_formed.then_some(uid)
}

/// Container id in the path component below the pod, without the prefix and suffix of its runtime.
fn container_id(part: &str) -> Option<String> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let id = name.rsplit_once('-').map_or(name, |(_, id)| id);
    let well_formed = id.len() == 64 && id.chars().all(|c| c.is_ascii_hexdigit());
    well_formed.then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "3f1c9a52-7d0b-4a6e-9c7f-0d3b8e5a1c24";
    const CONTAINER: &str = "9d2f0b7c6e5a48139d2f0b7c6e5a48139d2f0b7c6e5a48139d2f0b7c6e5a4813";

    #[track_caller]
    fn check_cgroup(path: &str, container: Option<&str>) {
        let pod = Pod::from_cgroup_path(path).unwrap();
        assert_eq!((pod.uid.as_deref(), pod.container.as_deref()), (Some(UID), container));
    }

    #[test]
    fn cgroup_names_its_pod_under_both_drivers_and_every_qos_class() {
        let dashed = UID.replace('-', "_");
        check_cgroup(&format!("/kubepods/burstable/pod{UID}/{CONTAINER}"), Some(CONTAINER));
        check_cgroup(&format!("/kubepods/pod{UID}/{CONTAINER}"), Some(CONTAINER));
        for scope in ["cri-containerd-", "crio-", "docker-"] {
            check_cgroup(
                &format!("/kubepods.slice/kubepods-pod{dashed}.slice/{scope}{CONTAINER}.scope"),
                Some(CONTAINER),
            );
            check_cgroup(
                &format!(
                    "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{dashed}.slice/{scope}{CONTAINER}.scope/inner"
                ),
                Some(CONTAINER),
            );
        }
        // The kubelet itself runs in a control group, as in kind clusters.
        check_cgroup(&format!("/system.slice/kind/kubepods/pod{UID}/{CONTAINER}"), Some(CONTAINER));
        check_cgroup(&format!("/kubepods/pod{UID}"), None);
    }

    #[test]
    fn cgroup_names_its_pod_from_a_private_namespace() {
        let dashed = UID.replace('-', "_");
        for path in [
            format!("/../../pod{UID}/{CONTAINER}"),
            format!("/../../../burstable/pod{UID}/{CONTAINER}"),
            format!("/../../kubepods-pod{dashed}.slice/cri-containerd-{CONTAINER}.scope"),
            format!(
                "/../../../kubepods-burstable.slice/kubepods-burstable-pod{dashed}.slice/crio-{CONTAINER}.scope"
            ),
        ] {
            check_cgroup(&path, Some(CONTAINER));
        }
        let other = format!("/../../../system.slice/docker-{CONTAINER}.scope");
        assert_eq!(Pod::from_cgroup_path(&other), None);
    }

    #[test]
    fn merge_keeps_detailed_holders() {
        let holder = |pid: Option<u32>, gpu_instance: Option<u32>, kind| Holder {
            device: PciAddress::new(0, 7, 0, 0).unwrap(),
            gpu_instance,
            compute_instance: None,
            details: HolderDetails { pid, kind, ..HolderDetails::default() },
        };
        let compute = Some(ProcessKind::Compute);
        let named = vec![holder(Some(5), None, compute), holder(None, None, None)];
        let open = vec![
            holder(Some(5), None, None),
            holder(Some(5), Some(1), None),
            holder(Some(6), None, None),
            holder(None, None, None),
        ];
        let all = merge_holders(named, open);
        let expected = [
            holder(None, None, None),
            holder(None, None, None),
            holder(Some(5), None, compute),
            holder(Some(6), None, None),
            holder(Some(5), Some(1), None),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn pod_known_by_name_and_by_its_process_is_one_holder() {
        let holder = |gpu_instance, pid, uid: Option<&str>, name: Option<&str>, container: &str| {
            let pod = Pod {
                uid: uid.map(str::to_owned),
                namespace: name.map(|_| "serving".to_owned()),
                name: name.map(str::to_owned),
                container: Some(container.to_owned()),
            };
            Holder {
                device: PciAddress::new(0, 7, 0, 0).unwrap(),
                gpu_instance: Some(gpu_instance),
                compute_instance: Some(0),
                details: HolderDetails { pid, pod: Some(pod), ..HolderDetails::default() },
            }
        };
        let (chat, other) = (Some("chat-70b-0"), Some("other-0"));
        let all = merge_pods(vec![
            holder(1, Some(7), Some(UID), chat, CONTAINER),
            holder(1, None, None, chat, "main"),
            // Another pod, another instance, and a process without a name are holders of their own.
            holder(1, None, None, other, "main"),
            holder(2, None, None, chat, "main"),
            holder(2, Some(8), Some(UID), None, CONTAINER),
            // Either of two containers may be that of the process.
            holder(3, Some(9), Some(UID), chat, CONTAINER),
            holder(3, None, None, chat, "main"),
            holder(3, None, None, chat, "side"),
        ]);
        let mut expected = vec![
            holder(1, Some(7), Some(UID), chat, "main"),
            holder(1, None, None, other, "main"),
            holder(2, None, None, chat, "main"),
            holder(2, Some(8), Some(UID), None, CONTAINER),
            holder(3, Some(9), Some(UID), chat, CONTAINER),
        ];
        expected.sort();
        assert_eq!(all, expected);
        assert_eq!(all.iter().filter(|one| one.is_kubelet_allocation()).count(), 2);
    }

    #[test]
    fn other_cgroups_are_not_pods() {
        for path in [
            "/",
            "",
            "/user.slice/user-1000.slice/session-3.scope",
            "/system.slice/podman.service",
            "/kubepods",
            "/kubepods/burstable",
            "/kubepods/podhello/x",
            "/machine.slice/libpod-3f1c9a52.scope",
        ] {
            assert_eq!(Pod::from_cgroup_path(path), None, "{path}");
        }
    }
}
