//! Annotations of pods according to the reports of their nodes.

use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_model::resource::ShareId;
use proptest::prelude::*;

use super::*;
use crate::sharing::usage::DeviceUsage;

const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

fn pci(bus: u8) -> PciAddress {
    PciAddress::new(0, bus, 0, 0).unwrap()
}

fn tenant(pod: &str, uid: Option<&str>, ids: Vec<ShareId>) -> Tenant {
    Tenant {
        namespace: Some("team".to_owned()),
        pod: Some(pod.to_owned()),
        uid: uid.map(str::to_owned),
        ids,
        ..Tenant::default()
    }
}

fn whole(pod: &str) -> Tenant {
    tenant(pod, None, vec![ShareId::whole(GPU)])
}

fn unit(profile: Option<&str>, tenants: Vec<Tenant>) -> UnitUsage {
    UnitUsage {
        uuid: GPU.to_owned(),
        gpu_instance: profile.map(|_| 1),
        compute_instance: profile.map(|_| 0),
        profile: profile.map(str::to_owned),
        tenants,
        ..UnitUsage::default()
    }
}

fn device(bus: u8, units: Vec<UnitUsage>) -> DeviceUsage {
    DeviceUsage {
        pci: pci(bus),
        name: format!("GPU {bus}"),
        memory: None,
        utilization: None,
        power_watts: None,
        temperature_celsius: None,
        units,
    }
}

/// A machine with an A100 at 1, an H100 at 2 and an unknown device at 3.
fn claims_of(devices: Vec<DeviceUsage>) -> Claims {
    let types = [(1, "nvidia-a100-80gb"), (2, "nvidia-h100-80gb")];
    let types = types.map(|(bus, name)| (pci(bus), name.parse().unwrap()));
    let missing = Vec::new();
    claims(&Usage { devices, missing, ..Usage::default() }, &types.into())
}

/// The desired annotations of `pod`: type, profile, sharing.
fn marks(claims: &Claims, pod: &str) -> [Option<String>; 3] {
    let place = PodKey::new("team", pod).unwrap();
    let marks = &claims[&place].annotations.0;
    KEYS.map(|key| marks.get(key).cloned())
}

fn words(words: [&str; 3]) -> [Option<String>; 3] {
    words.map(|word| (word != "-").then(|| word.to_owned()))
}

#[test]
fn annotations_contain_type_profile_and_sharing() {
    let mut shared = unit(None, vec![whole("shared")]);
    shared.replicas = Some(4);
    let mut shared_part = unit(Some("1g.10gb"), vec![whole("shared-part")]);
    shared_part.replicas = Some(2);
    let replica = tenant("replica", None, vec![ShareId::replica(GPU, 3)]);
    let parts = vec![
        unit(Some("1g.10gb"), vec![whole("part")]),
        unit(Some("3g.40gb"), vec![whole("parts")]),
        unit(Some("1g.10gb"), vec![whole("parts")]),
        unit(Some("not a profile"), vec![whole("odd")]),
        shared_part,
    ];
    let found = claims_of(vec![
        device(1, parts),
        device(2, vec![unit(None, vec![whole("alone"), whole("both"), replica])]),
        device(3, vec![unit(None, vec![whole("nobody-knows")])]),
        device(2, vec![shared]),
        device(1, vec![unit(None, vec![whole("both")])]),
    ]);
    for (pod, expected) in [
        ("alone", ["nvidia-h100-80gb", "-", "exclusive"]),
        ("both", ["mixed", "-", "exclusive"]),
        ("part", ["nvidia-a100-80gb", "1g.10gb", "mig"]),
        ("parts", ["nvidia-a100-80gb", "mixed", "mig"]),
        ("odd", ["nvidia-a100-80gb", "unknown", "mig"]),
        ("shared", ["nvidia-h100-80gb", "-", "time-slicing"]),
        ("replica", ["nvidia-h100-80gb", "-", "time-slicing"]),
        ("shared-part", ["nvidia-a100-80gb", "1g.10gb", "time-slicing"]),
        ("nobody-knows", ["unknown", "-", "exclusive"]),
    ] {
        assert_eq!(marks(&found, pod), words(expected), "{pod}");
    }
    assert_eq!(found.len(), 9);
}

#[test]
fn tenant_without_allocation_or_name_is_not_claimed() {
    let mut nameless = whole("x");
    nameless.pod = None;
    let mut outside = whole("x");
    outside.namespace = None;
    let tenants = vec![
        tenant("uses-it-all-the-same", None, Vec::new()),
        nameless,
        outside,
        whole("../../secrets/x"),
    ];
    assert!(claims_of(vec![device(1, vec![unit(None, tenants)])]).is_empty());
}

#[test]
fn idle_pod_is_claimed_with_uid_prefix() {
    let uid = "7d1c5a3e-1111-2222-3333-444455556666";
    let tenants = vec![tenant("idle", Some(uid), vec![ShareId::whole(GPU)])];
    let found = claims_of(vec![device(1, vec![unit(None, tenants)])]);
    let claim = found.values().next().unwrap();
    assert_eq!(claim.uids, ["7d1c5a3e".to_owned()].into());
}

#[test]
fn claims_per_node_are_limited() {
    let tenants = (0..3000).map(|number| whole(&format!("p{number}")));
    let found = claims_of(vec![device(1, vec![unit(None, tenants.collect())])]);
    assert_eq!(found.len(), MAX_PODS_PER_NODE);
}

#[test]
fn holdings_count_each_pod_once_per_type() {
    let mut shared = unit(None, vec![tenant("a", None, Vec::new())]);
    shared.replicas = Some(4);
    shared.tenants = vec![
        tenant("a", None, vec![ShareId::replica(GPU, 0), ShareId::replica(GPU, 1)]),
        tenant("b", None, vec![ShareId::replica(GPU, 2)]),
        tenant("uses-it-all-the-same", None, Vec::new()),
    ];
    let mut other = whole("c");
    other.namespace = Some("other".to_owned());
    let parts = vec![
        unit(Some("1g.10gb"), vec![whole("b")]),
        unit(Some("1g.10gb"), vec![whole("d")]),
        unit(Some("1g.10gb"), vec![other]),
    ];
    let devices = vec![
        device(1, parts),
        device(2, vec![shared]),
        device(2, vec![unit(None, vec![whole("b")])]),
        device(3, vec![unit(None, vec![whole("b")])]),
    ];
    let types = [(1, "nvidia-a100-80gb"), (2, "nvidia-h100-80gb")];
    let types = types.map(|(bus, name)| (pci(bus), name.parse().unwrap()));
    let missing = Vec::new();
    let usage = Usage { devices, missing, ..Usage::default() };
    let (found, idle) = team_usage(&usage, &types.into());
    assert_eq!(idle, [], "the use of memory is unknown");
    let found: Vec<(String, [u64; 4])> = found
        .iter()
        .map(|((namespace, kind), usage)| {
            let held = usage.held;
            assert_eq!(usage.unknown, held.units());
            let kind = kind.as_ref().map_or("-", TypeName::as_str);
            let counts = [held.pods, held.devices, held.partitions, held.replicas];
            (format!("{namespace} {kind}"), counts)
        })
        .collect();
    let expected = [
        ("other nvidia-a100-80gb", [1, 0, 1, 0]),
        ("team -", [1, 1, 0, 0]),
        ("team nvidia-a100-80gb", [2, 0, 2, 0]),
        ("team nvidia-h100-80gb", [2, 1, 0, 3]),
    ];
    assert_eq!(found, expected.map(|(group, counts)| (group.to_owned(), counts)));
}

#[test]
fn used_and_idle_memory_is_summed_by_namespace() {
    let mib = |amount| Some(Mebibytes::new(amount));
    let uses = |name: &str, memory, utilization: Option<u8>, processes: &[u32]| Tenant {
        memory,
        utilization: utilization.map(Percent),
        processes: processes.to_vec(),
        ..tenant(name, None, vec![ShareId::whole(GPU)])
    };
    let memory = |total| Some(MemoryUse { total: Mebibytes::new(total), ..MemoryUse::default() });
    let mut busy = unit(None, vec![uses("busy", mib(600), Some(80), &[7])]);
    busy.memory = memory(1000);
    let mut idle = unit(Some("1g.10gb"), vec![uses("idle", mib(0), None, &[])]);
    idle.memory = memory(100);
    let mut shared = unit(None, Vec::new());
    shared.replicas = Some(4);
    shared.fair_share = mib(25);
    shared.tenants = vec![
        Tenant {
            is_over_share: true,
            ids: vec![ShareId::replica(GPU, 0), ShareId::replica(GPU, 1)],
            ..uses("greedy", mib(70), Some(20), &[8])
        },
        uses("hidden", None, None, &[]),
    ];
    let devices = vec![device(1, vec![busy]), device(2, vec![idle]), device(3, vec![shared])];
    let usage = Usage { devices, ..Usage::default() };
    let (teams, idle) = team_usage(&usage, &BTreeMap::new());
    let team = teams[&("team".to_owned(), None)];
    assert_eq!((team.held.pods, team.held.units()), (4, 5));
    assert_eq!((team.idle.pods, team.idle.partitions, team.idle.units()), (1, 1, 1));
    assert_eq!((team.used_mib, team.memory_mib, team.unknown), (670, 1150, 1));
    assert_eq!((team.mean_utilization(), team.over_share), (Some(50), 1));
    let idle: Vec<(&str, &str, u64)> = { idle.iter() }
        .map(|one| (one.pod.as_str(), one.device.as_str(), one.memory_mib))
        .collect();
    assert_eq!(idle, [("idle", "GPU 2", 100)]);
    assert_eq!(TeamUsage::default().mean_utilization(), None);
}

fn annotations() -> impl Strategy<Value = Annotations> {
    let key = prop::sample::select(vec![
        TYPE_ANNOTATION,
        MIG_PROFILE_ANNOTATION,
        SHARING_ANNOTATION,
        "mine",
        "octavo.dev/other",
    ]);
    let value = prop::sample::select(vec!["nvidia-a100-80gb", "exclusive", "mixed", ""]);
    prop::collection::btree_map(key.prop_map(str::to_owned), value.prop_map(str::to_owned), 0..5)
}

proptest! {
    #[test]
    fn changes_are_idempotent_and_limited_to_own_keys(has in annotations()) {
        let found = claims_of(vec![device(1, vec![unit(None, vec![whole("p")])])]);
        let marks = &found.values().next().unwrap().annotations;
        let changes = marks.changes(&has);
        prop_assert!(changes.keys().all(|key| KEYS.contains(key)));
        let mut after = has.clone();
        for (key, value) in &changes {
            prop_assert!(has.get(*key) != value.as_ref());
            match value {
                Some(value) => after.insert((*key).to_owned(), value.clone()),
                None => after.remove(*key),
            };
        }
        prop_assert!(marks.changes(&after).is_empty());
        for key in has.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            prop_assert_eq!(after.get(key), has.get(key));
        }
        let ours = |key: &&str| after.get(*key).cloned();
        let all: Vec<Option<String>> = KEYS.iter().map(ours).collect();
        prop_assert_eq!(all, words(["nvidia-a100-80gb", "-", "exclusive"]).to_vec());
    }
}

#[test]
fn i12_pod_names_that_alter_request_path_are_rejected() {
    let place = PodKey::new("team-a", "train-0.x").unwrap();
    assert_eq!(place.to_string(), "team-a/train-0.x");
    for (namespace, name) in [
        ("team-a", "../../secrets/x"),
        ("team-a", ""),
        ("team-a", "x?limit=1"),
        ("team-a", "x/status"),
        ("team-a", "X"),
        ("team.a", "x"),
        ("..", "x"),
        ("", "x"),
    ] {
        assert_eq!(PodKey::new(namespace, name), None, "{namespace} {name}");
    }
}
