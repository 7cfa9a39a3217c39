//! Files and messages of other programs on a node: the kubelet, control groups, a driver's library, `octavo apply`.

use std::fs;

use octavo_engine::agent_socket::{Request, line};
use octavo_hardware::library::incomplete_reason;
use octavo_kubelet::kubelet_checkpoint::{PodUids, healthy_device_counts, read};
use octavo_kubelet::pod_resources::allocations;
use octavo_kubelet::proto::pod_resources::{
    ClaimResource, ContainerDevices, ContainerResources, DynamicResource, ListPodResourcesResponse,
    PodResources,
};
use octavo_model::holder::{DeviceAllocation, Pod};
use prost::Message;

use crate::fuzz::fuzzer::{Outcome, Target};
use crate::fuzz::mutation::Syntax;
use crate::fuzz::seeds::directory;

/// The kubelet's checkpoint of allocations.
pub(super) fn kubelet_checkpoint() -> Target {
    let entry = r#"{"PodUID":"u1","ContainerName":"main","ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["a"],"0":["b"]},"AllocResp":"CgA="}"#;
    let old = r#"{"PodUID":"u2","ContainerName":"main","ResourceName":"nvidia.com/gpu","DeviceIDs":["a","c"],"AllocResp":"CgA="}"#;
    let seeds = [
        format!(
            r#"{{"Data":{{"PodDeviceEntries":[{entry},{old}],"RegisteredDevices":{{"nvidia.com/gpu":["a"],"amd.com/gpu":null}}}},"Checksum":1}}"#
        ),
        r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1}"#.to_owned(),
    ];
    let directory = directory();
    Target::text(seeds, move |text| {
        fs::write(directory.path().join("kubelet_internal_checkpoint"), text).unwrap();
        let _ = healthy_device_counts(directory.path());
        let uids = read(directory.path());
        for entry in uids.iter().flat_map(PodUids::entries) {
            let found = uids.as_ref().unwrap().name(DeviceAllocation {
                namespace: String::new(),
                pod: String::new(),
                container: entry.container.to_owned(),
                resource: entry.resource.to_owned(),
                device_id: entry.id.to_owned(),
                claim: None,
            });
            assert!(found.uid.is_none_or(|uid| uid == entry.uid), "{entry:?}");
        }
        match uids {
            Ok(_) => Outcome::Accepted,
            Err(error) => Outcome::Rejected(octavo_toolkit::error::chain(&error)),
        }
    })
}

/// The kubelet's list of the devices of pods.
pub(super) fn pod_resources() -> Target {
    let devices = ContainerDevices {
        resource_name: "nvidia.com/mig-1g.10gb".to_owned(),
        device_ids: vec!["MIG-1".to_owned(), "MIG-2".to_owned()],
    };
    let claim = |driver: &str| ClaimResource {
        driver_name: driver.to_owned(),
        pool_name: "node".to_owned(),
        device_name: "gpu-0".to_owned(),
    };
    let dynamic = DynamicResource {
        claim_name: "claim".to_owned(),
        claim_namespace: "team".to_owned(),
        claim_resources: vec![claim("gpu.octavo.dev"), claim("gpu.nvidia.com"), claim("other")],
    };
    let container = ContainerResources {
        name: "main".to_owned(),
        devices: vec![devices.clone(), devices],
        dynamic_resources: vec![dynamic],
    };
    let pod = PodResources {
        name: "pod".to_owned(),
        namespace: "team".to_owned(),
        containers: vec![container],
    };
    let seed = ListPodResourcesResponse { pod_resources: vec![pod.clone(), pod] }.encode_to_vec();
    Target::new(Syntax::Protobuf, [seed], |input| {
        let decoded = ListPodResourcesResponse::decode(input);
        if let Ok(response) = decoded.clone() {
            let all = allocations(response);
            // Every allocation has its own ID in the message, or an item of a claim.
            assert!(all.len() <= input.len() / 2, "{} of {} bytes", all.len(), input.len());
        }
        Outcome::from_result(&decoded)
    })
}

/// Paths of control groups.
pub(super) fn cgroup_paths() -> Target {
    let uid = "3f1c9a52-7d0b-4a6e-9c7f-0d3b8e5a1c24";
    let container = "9d2f0b7c6e5a48139d2f0b7c6e5a48139d2f0b7c6e5a48139d2f0b7c6e5a4813";
    let dashed = uid.replace('-', "_");
    let seeds = [
        format!("/kubepods/burstable/pod{uid}/{container}"),
        format!(
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{dashed}.slice/cri-containerd-{container}.scope/inner"
        ),
        format!("/../../pod{uid}/{container}"),
    ];
    Target::text(seeds, |text| {
        let pod = Pod::from_cgroup_path(text);
        if let Some(pod) = &pod {
            let uid = pod.uid.as_deref().unwrap_or_default();
            assert!(
                uid.len() >= 32 && uid.chars().all(|c| c == '-' || c.is_ascii_hexdigit()),
                "{pod:?}"
            );
        }
        Outcome::from_result(&pod.ok_or("no pod"))
    })
}

/// Requests to the agent's socket.
pub(super) fn control_requests() -> Target {
    let seeds = [
        r#"{"apply":{"layout":"all-1g","layouts":"version: v1\n"}}"#,
        r#"{"apply":{"layout":"x","checkpoint":"{}"}}"#,
        r#"{"forget":{}}"#,
        r#"{"watch":{}}"#,
        r#"{"usage":{}}"#,
    ];
    Target::text(seeds, |text| {
        let parsed = serde_json::from_str::<Request>(text);
        if let Ok(request) = &parsed {
            let written = line(request);
            assert_eq!(written.find('\n'), Some(written.len() - 1), "{written:?}");
            assert_eq!(&serde_json::from_str::<Request>(&written).unwrap(), request);
        }
        Outcome::from_result(&parsed)
    })
}

/// Headers of a library. An accepted file contains all of its segments: a missing page kills the agent.
pub(super) fn elf() -> Target {
    let directory = directory();
    Target::new(Syntax::Binary, [library(1), library(3)], move |input| {
        let file = directory.path().join("library");
        fs::write(&file, input).unwrap();
        let reason = incomplete_reason(&file).unwrap();
        if reason.is_none() {
            let number = |at: usize, width: usize| {
                let bytes = input[at..at + width].iter().rev();
                bytes.fold(0_u128, |number, byte| (number << 8) | u128::from(*byte))
            };
            let end = input.len() as u128;
            for segment in 0..number(0x38, 2) {
                let header = number(0x20, 8) + segment * 56;
                assert!(header + 56 <= end, "segment {segment} has no header");
                let header = usize::try_from(header).unwrap();
                assert!(number(header + 8, 8) + number(header + 32, 8) <= end, "segment {segment}");
            }
            assert!(number(0x28, 8) + number(0x3c, 2) * number(0x3a, 2) <= end, "sections");
        }
        Outcome::from_result(&reason.map_or(Ok(()), Err))
    })
}

/// A library with this number of segments of 16 bytes.
fn library(segments: u16) -> Vec<u8> {
    let headers = 64 + 56 * usize::from(segments);
    let mut bytes = vec![0; headers + 16 * usize::from(segments)];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[0x20] = 64;
    bytes[0x38..0x3a].copy_from_slice(&segments.to_le_bytes());
    for segment in 0..usize::from(segments) {
        let header = 64 + 56 * segment;
        bytes[header + 8..header + 10]
            .copy_from_slice(&u16::try_from(headers + 16 * segment).unwrap().to_le_bytes());
        bytes[header + 32] = 16;
    }
    bytes
}
