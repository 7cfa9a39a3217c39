//! Holders: processes and pods that use a device or one of its partitions and can block a change.

mod pods;

use std::collections::BTreeSet;

use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

pub use self::pods::{DeviceAllocation, PodHolders, holders_from_allocations};
use crate::claim::ClaimRef;
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
    /// Resource claim that was allocated the device.
    pub claim: Option<ClaimRef>,
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

    /// Returns `true` if it is a pod to which the kubelet allocated the device, or a resource claim, rather than one of
    /// their processes: only the kubelet reports pod names.
    pub fn is_kubelet_allocation(&self) -> bool {
        let pod = self.details.pod.as_ref();
        let is_pod = pod.is_some_and(|pod| pod.name.is_some());
        self.details.pid.is_none() && (is_pod || self.details.claim.is_some())
    }

    /// Returns `true` if `other` holds the same part of the device for the same resource claim.
    pub fn has_same_claim(&self, other: &Self) -> bool {
        self.details.claim.is_some()
            && self.details.claim == other.details.claim
            && (self.device, self.gpu_instance) == (other.device, other.gpu_instance)
    }

    /// Returns `true` if it is a pod without a process, and `process` is a process of the same pod on the same device.
    fn is_repeated_by(&self, process: &Self) -> bool {
        let pods = self.details.pod.as_ref().zip(process.details.pod.as_ref());
        self.details.pid.is_none()
            && process.details.pid.is_some()
            && self.device == process.device
            && pods.is_some_and(|(own, other)| own.is_same(other))
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

/// Holders for texts: without allocations to a pod if a process of the pod on the same device is listed. The process gets
/// the name of the container, and the resource claim, if all these allocations have the same. Decisions need all holders:
/// another container of the pod may have no process yet.
pub fn without_repeated_pods(holders: &[Holder]) -> Vec<Holder> {
    let repeated = |one: &Holder| holders.iter().any(|process| one.is_repeated_by(process));
    let mut shown: Vec<Holder> = holders.iter().filter(|one| !repeated(one)).cloned().collect();
    for process in &mut shown {
        let allocations = holders.iter().filter(|one| one.is_repeated_by(process));
        let claims: BTreeSet<Option<&ClaimRef>> =
            allocations.clone().map(|one| one.details.claim.as_ref()).collect();
        let containers: BTreeSet<Option<&String>> = allocations
            .filter_map(|one| Some(one.details.pod.as_ref()?.container.as_ref()))
            .collect();
        if claims.len() == 1 {
            process.details.claim = claims.first().copied().flatten().cloned();
        }
        if containers.len() == 1
            && let (Some(Some(container)), Some(pod)) =
                (containers.first(), &mut process.details.pod)
        {
            pod.container = Some((*container).clone());
        }
    }
    shown
}

impl Pod {
    /// Returns `true` if both are known to be the same pod: by UID if both have one, otherwise by name.
    fn is_same(&self, other: &Self) -> bool {
        match (&self.uid, &other.uid) {
            (Some(own), Some(other)) => own == other,
            (None, _) | (_, None) => {
                self.name.is_some()
                    && (&self.namespace, &self.name) == (&other.namespace, &other.name)
            }
        }
    }

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
    fn text_lists_pod_once_that_is_known_by_name_and_by_its_process() {
        let holder = |bus, pid, uid: Option<&str>, name: Option<&str>, container: &str| {
            let pod = Pod {
                uid: uid.map(str::to_owned),
                namespace: name.map(|_| "serving".to_owned()),
                name: name.map(str::to_owned),
                container: Some(container.to_owned()),
            };
            Holder {
                device: PciAddress::new(0, bus, 0, 0).unwrap(),
                gpu_instance: None,
                compute_instance: None,
                details: HolderDetails { pid, pod: Some(pod), ..HolderDetails::default() },
            }
        };
        let (chat, other) = (Some("chat-70b-0"), Some("other-0"));
        let all = [
            holder(1, Some(7), Some(UID), chat, CONTAINER),
            holder(1, None, None, chat, "main"),
            // Another pod, another device, and a process without a name are holders of their own.
            holder(1, None, None, other, "main"),
            holder(2, None, None, chat, "main"),
            holder(2, Some(8), Some(UID), None, CONTAINER),
            // Either of two containers may be that of the process.
            holder(3, Some(9), Some(UID), chat, CONTAINER),
            holder(3, None, None, chat, "main"),
            holder(3, None, None, chat, "side"),
            // The same UID, as of a resource claim.
            holder(4, None, Some(UID), chat, "main"),
            holder(4, Some(10), Some(UID), None, CONTAINER),
        ];
        let expected = [
            holder(1, Some(7), Some(UID), chat, "main"),
            holder(1, None, None, other, "main"),
            holder(2, None, None, chat, "main"),
            holder(2, Some(8), Some(UID), None, CONTAINER),
            holder(3, Some(9), Some(UID), chat, CONTAINER),
            holder(4, Some(10), Some(UID), None, "main"),
        ];
        assert_eq!(without_repeated_pods(&all), expected);
        // A process with a name is not an allocation.
        assert_eq!(all.iter().filter(|one| one.is_kubelet_allocation()).count(), 6);
    }

    #[test]
    fn process_of_a_claim_has_its_claim() {
        let claim = ClaimRef { namespace: "serving".to_owned(), name: "train".to_owned() };
        let holder = |pid: Option<u32>, gpu_instance, claim: Option<&ClaimRef>| Holder {
            device: PciAddress::new(0, 7, 0, 0).unwrap(),
            gpu_instance,
            compute_instance: None,
            details: HolderDetails {
                pid,
                pod: Some(Pod {
                    namespace: Some("serving".to_owned()),
                    name: Some("chat-70b-0".to_owned()),
                    ..Pod::default()
                }),
                claim: claim.cloned(),
                ..HolderDetails::default()
            },
        };
        let (allocated, process) =
            (holder(None, Some(1), Some(&claim)), holder(Some(7), Some(1), None));
        let shown = without_repeated_pods(&[allocated.clone(), process]);
        assert_eq!(shown, [holder(Some(7), Some(1), Some(&claim))]);
        // A claim without a pod is an allocation, and is that of its pod at the same place.
        let mut alone = allocated.clone();
        alone.details.pod = None;
        assert!(alone.is_kubelet_allocation() && allocated.has_same_claim(&alone));
        assert!(!holder(None, Some(2), Some(&claim)).has_same_claim(&alone));
        assert!(!holder(None, Some(1), None).has_same_claim(&holder(None, Some(1), None)));
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
