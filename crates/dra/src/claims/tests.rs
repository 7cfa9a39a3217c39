//! Decisions about claims on GPUs with two profiles.

use octavo_model::catalog::{GpuInstanceProfile, InstanceResources, ProfileCatalog};
use octavo_model::inventory::{
    Completeness, ComputeInstance, Driver, Mig, PciIds, Process, ProcessKind,
};
use octavo_model::quantity::Mebibytes;
use octavo_planner::plan::{PlanInput, PlanOutcome, Policy, plan};

use super::*;

mod exclusion;
mod shares;
mod status;

const POOL: &str = "node-1/gpu.octavo.dev";
/// Profile ids of an A100.
const SEVENTH: u32 = 19;
const HALF: u32 = 9;
/// A seventh with the media engines, which exist once.
const MEDIA: u32 = 20;

/// A GPU with MIG mode on, whose profiles are `1g.5gb`, `3g.20gb` and `7g.40gb`.
fn gpu(bus: u8, instances: &[(u32, u32)]) -> Device {
    let ids = PciIds {
        vendor: 0x10de,
        device: 0x20b0,
        subsystem_vendor: 0x10de,
        subsystem_device: 0,
        class: None,
    };
    let profile = |id: u32, name: &str, slices: u32, starts: &[u32], size: u32| {
        let placement = |start: &u32| Placement { start: *start, size };
        GpuInstanceProfile {
            id,
            index: id,
            name: name.parse().unwrap(),
            max_count: if id == MEDIA { 1 } else { 7 / slices },
            memory: Mebibytes::new(u64::from(size) * 5_000),
            resources: InstanceResources {
                gpu_slices: slices,
                compute_slices: slices,
                ..InstanceResources::default()
            },
            placements: starts.iter().map(placement).collect(),
            compute_profiles: Vec::new(),
        }
    };
    let catalog = ProfileCatalog::new(vec![
        profile(SEVENTH, "1g.5gb", 1, &[0, 1, 2, 3, 4, 5, 6], 1),
        profile(MEDIA, "1g.5gb+me", 1, &[0, 1, 2, 3, 4, 5, 6], 1),
        profile(HALF, "3g.20gb", 3, &[0, 4], 4),
        profile(0, "7g.40gb", 7, &[0], 8),
    ]);
    let instance = |(id, (profile_id, start)): (u32, &(u32, u32))| {
        let slices = if *profile_id == HALF { 3 } else { 1 };
        GpuInstance {
            id,
            profile_id: *profile_id,
            placement: Placement { start: *start, size: if *profile_id == HALF { 4 } else { 1 } },
            compute_instances: vec![ComputeInstance {
                id: 0,
                profile_id: 0,
                uuid: None,
                placement: None,
                memory: None,
                resources: Some(InstanceResources {
                    compute_slices: slices,
                    ..InstanceResources::default()
                }),
            }],
        }
    };
    let mut device = Device::new(PciAddress::new(0, bus, 0, 0).unwrap(), ids);
    device.condition = Condition::Working;
    device.mig = Mig::Capable(MigState {
        current: MigMode::Enabled,
        pending: MigMode::Enabled,
        gpu_instances: (1..).zip(instances).map(instance).collect(),
        geometry: Completeness::Complete,
        catalog,
    });
    device
}

/// A GPU with MIG mode off.
fn whole_gpu(bus: u8) -> Device {
    let mut device = gpu(bus, &[]);
    if let Mig::Capable(state) = &mut device.mig {
        state.current = MigMode::Disabled;
        state.pending = MigMode::Disabled;
    }
    device
}

fn node(devices: impl IntoIterator<Item = Device>) -> Inventory {
    Inventory {
        nvml: NvmlState::Ready(Driver {
            version: "580.95.05".parse().unwrap(),
            cuda: Some("13.0".parse().unwrap()),
        }),
        devices: devices.into_iter().collect(),
        ..Inventory::default()
    }
}

fn uid(text: &str) -> ClaimUid {
    text.parse().unwrap()
}

fn part(bus: u8, profile_id: u32, start: u32) -> DraDevice {
    let (profile, size) = match profile_id {
        HALF => ("3g.20gb", 4),
        MEDIA => ("1g.5gb+me", 1),
        _ => ("1g.5gb", 1),
    };
    DraDevice {
        pci: PciAddress::new(0, bus, 0, 0).unwrap(),
        what: DraDeviceKind::Partition {
            profile_id,
            profile: profile.parse().unwrap(),
            placement: Placement { start, size },
        },
    }
}

fn claim(id: &str, devices: &[DraDevice]) -> AllocatedClaim {
    let allocated = devices.iter().map(|device| AllocatedDevice {
        request: "gpu".to_owned(),
        pool: POOL.to_owned(),
        device: device.name().to_string(),
        share: None,
        is_admin: false,
    });
    let key = ClaimKey { uid: uid(id), namespace: "team".to_owned(), name: format!("claim-{id}") };
    AllocatedClaim { key, devices: allocated.collect() }
}

/// Parts of the node that tests vary.
#[derive(Default)]
struct Given<'a> {
    holders: &'a [Holder],
    unknown: Option<&'a str>,
    covered: BTreeSet<PciAddress>,
}

impl Given<'_> {
    fn prepare(
        &self,
        record: &PreparedClaims,
        claim: &AllocatedClaim,
        inventory: &Inventory,
    ) -> Result<Preparation, PrepareError> {
        let node = NodeState {
            inventory,
            holders: self.holders,
            holders_unknown: self.unknown,
            covered: &self.covered,
            pool: POOL,
        };
        record.prepare(claim, node)
    }
}

#[track_caller]
fn prepare(
    record: &PreparedClaims,
    claim: &AllocatedClaim,
    inventory: &Inventory,
) -> Result<Preparation, PrepareError> {
    Given::default().prepare(record, claim, inventory)
}

/// Prepares a claim as the agent does, and marks it as prepared.
#[track_caller]
fn prepared(
    record: &mut PreparedClaims,
    claim: &AllocatedClaim,
    inventory: &Inventory,
) -> Preparation {
    let preparation = prepare(record, claim, inventory).unwrap();
    record.record(&claim.key.uid, preparation.claim.clone());
    record.mark_prepared(&claim.key.uid);
    preparation
}

/// The placements of the target of the only GPU; `None` without a target.
fn target(targets: &Targets) -> Option<Vec<(u32, u32)>> {
    let [device] = targets.devices.as_slice() else {
        assert!(targets.devices.is_empty(), "{targets:?}");
        return None;
    };
    let Some(MigTarget::Enabled(instances)) = &device.mig else { panic!("{device:?}") };
    Some(instances.iter().map(|one| (one.profile_id, one.placement.unwrap().start)).collect())
}

fn process(gpu_instance: Option<u32>) -> Process {
    Process {
        pid: 4711,
        kind: ProcessKind::Compute,
        gpu_instance,
        compute_instance: gpu_instance.map(|_| 0),
        memory: None,
    }
}

#[test]
fn missing_instance_is_created_beside_what_exists() {
    let inventory = node([gpu(7, &[(SEVENTH, 6)])]);
    let device = part(7, HALF, 0);
    let claim = claim("a", std::slice::from_ref(&device));
    let mut record = PreparedClaims::default();
    let preparation = prepared(&mut record, &claim, &inventory);
    assert_eq!(preparation.claim.state, ClaimState::Preparing);
    assert!(preparation.claim.devices[0].created);
    assert_eq!(preparation.create, BTreeSet::from([device]));
    let targets =
        record.targets(&inventory, &preparation.create, &BTreeSet::new(), ReleasePolicy::Destroy);
    assert_eq!(target(&targets).unwrap(), [(HALF, 0), (SEVENTH, 6)]);
    // The planner accepts it, and destroys nothing.
    let policy = Policy { max_disruption: octavo_planner::plan::Disruption::None };
    let input = PlanInput {
        inventory: &inventory,
        targets: &targets,
        holders: &[],
        policy: &policy,
        refused: &BTreeSet::new(),
    };
    let plan = plan(&input);
    assert_eq!(plan.devices[0].verdict.outcome(), PlanOutcome::Changes, "{plan:?}");
    // Nothing is changed once it exists.
    let after = node([gpu(7, &[(SEVENTH, 6), (HALF, 0)])]);
    let create = preparation.create;
    let targets = record.targets(&after, &create, &BTreeSet::new(), ReleasePolicy::Destroy);
    assert_eq!(target(&targets), None);
}

#[test]
fn repeated_prepare_has_the_same_result_and_creates_again_after_a_reboot() {
    let device = part(7, HALF, 4);
    let claim = claim("a", std::slice::from_ref(&device));
    let mut record = PreparedClaims::default();
    prepared(&mut record, &claim, &node([gpu(7, &[])]));
    let exists = node([gpu(7, &[(HALF, 4)])]);
    for _ in 0..2 {
        let again = prepared(&mut record, &claim, &exists);
        assert_eq!((again.create.len(), again.claim.state), (0, ClaimState::Prepared));
        assert!(again.claim.devices[0].created, "it stays the claim's own");
    }
    // Its own pod uses it.
    let mut used = gpu(7, &[(HALF, 4)]);
    used.processes = vec![process(Some(1))];
    assert_eq!(prepare(&record, &claim, &node([used])).unwrap().create, BTreeSet::new());
    let rebooted = prepare(&record, &claim, &node([gpu(7, &[])])).unwrap();
    assert_eq!(rebooted.create, BTreeSet::from([device]));
    assert_eq!(rebooted.claim.state, ClaimState::Preparing);
}

#[test]
fn idle_instance_from_outside_is_adopted_and_never_destroyed() {
    let inventory = node([gpu(7, &[(HALF, 0)])]);
    let claim = claim("a", &[part(7, HALF, 0)]);
    let mut record = PreparedClaims::default();
    let preparation = prepared(&mut record, &claim, &inventory);
    assert_eq!(preparation.create, BTreeSet::new());
    assert!(!preparation.claim.devices[0].created);
    record.release(&claim.key.uid).unwrap();
    assert_eq!(record, PreparedClaims::default());
}

#[test]
fn i1_instance_in_use_outside_of_claims_is_refused() {
    let claim = claim("a", &[part(7, HALF, 0)]);
    let mut used = gpu(7, &[(HALF, 0)]);
    used.processes = vec![process(Some(1))];
    let record = PreparedClaims::default();
    let error = prepare(&record, &claim, &node([used])).unwrap_err().to_string();
    assert!(error.ends_with("is used outside of claims by pid 4711, compute"), "{error}");
    let idle = node([gpu(7, &[(HALF, 0)])]);
    let given = Given { unknown: Some("the kubelet does not respond"), ..Given::default() };
    let error = given.prepare(&record, &claim, &idle).unwrap_err();
    assert!(matches!(error, PrepareError::UsageUnknown { .. }), "{error}");
    // The users do not matter for an instance that does not exist yet.
    let empty = node([gpu(7, &[])]);
    assert_eq!(given.prepare(&record, &claim, &empty).unwrap().create.len(), 1);
}

#[test]
fn device_of_another_claim_is_refused_with_its_name() {
    let inventory = node([gpu(7, &[(HALF, 0)]), whole_gpu(8)]);
    let mut record = PreparedClaims::default();
    prepared(&mut record, &claim("a", &[part(7, HALF, 0)]), &inventory);
    for device in [part(7, HALF, 0), part(7, SEVENTH, 3)] {
        let error = prepare(&record, &claim("b", &[device]), &inventory).unwrap_err();
        assert!(
            matches!(&error, PrepareError::Claimed { name, .. } if name == "claim-a"),
            "{error}"
        );
    }
    // The slices beside it are free.
    assert!(prepare(&record, &claim("b", &[part(7, HALF, 4)]), &inventory).is_ok());
    let whole = DraDevice { pci: whole_gpu(8).pci, what: DraDeviceKind::Gpu };
    prepared(&mut record, &claim("c", std::slice::from_ref(&whole)), &inventory);
    let error = prepare(&record, &claim("d", &[whole]), &inventory).unwrap_err();
    assert!(matches!(error, PrepareError::Claimed { .. }), "{error}");
}

#[test]
fn claim_of_another_node_or_driver_is_refused() {
    let inventory = node([gpu(7, &[])]);
    let record = PreparedClaims::default();
    let mut other = claim("a", &[part(7, HALF, 0)]);
    other.devices[0].pool = "node-2/gpu.octavo.dev".to_owned();
    let error = prepare(&record, &other, &inventory).unwrap_err().to_string();
    assert!(
        error.contains("is in pool node-2/gpu.octavo.dev; this node's pool is node-1/"),
        "{error}"
    );
    assert_eq!(prepare(&record, &claim("a", &[]), &inventory), Err(PrepareError::NotAllocated));
}

#[test]
fn i12_device_that_the_node_does_not_have_is_refused() {
    let inventory = node([gpu(7, &[(SEVENTH, 1)])]);
    let record = PreparedClaims::default();
    let refusal = |claim: &AllocatedClaim| prepare(&record, claim, &inventory).unwrap_err();
    let absent = refusal(&claim("a", &[part(9, HALF, 0)]));
    assert!(matches!(absent, PrepareError::UnknownDevice { .. }), "{absent}");
    let mut hostile = claim("a", &[part(7, HALF, 0)]);
    hostile.devices[0].device = "../etc".to_owned();
    assert!(matches!(refusal(&hostile), PrepareError::UnknownDevice { .. }));
    // A foreign instance takes one of the slices.
    let error = refusal(&claim("a", &[part(7, HALF, 0)])).to_string();
    assert!(error.contains("cannot exist beside 1g.5gb at slice 1"), "{error}");
    let given = Given { covered: [inventory.devices[0].pci].into(), ..Given::default() };
    let covered = given.prepare(&record, &claim("a", &[part(7, HALF, 4)]), &inventory);
    assert!(matches!(covered, Err(PrepareError::Covered { .. })), "{covered:?}");
    let stalled = Inventory { nvml: NvmlState::Loading, ..inventory.clone() };
    let error = prepare(&record, &claim("a", &[part(7, HALF, 4)]), &stalled).unwrap_err();
    assert!(matches!(error, PrepareError::DriverNotReady { .. }), "{error}");
}

#[test]
fn released_instance_is_destroyed_when_idle_or_when_its_slices_are_needed() {
    let exists = node([gpu(7, &[(HALF, 0), (SEVENTH, 6)])]);
    let mut record = PreparedClaims::default();
    let claim_a = claim("a", &[part(7, HALF, 0)]);
    prepared(&mut record, &claim_a, &node([gpu(7, &[(SEVENTH, 6)])]));
    let none = BTreeSet::new();
    assert_eq!(
        target(&record.targets(&exists, &none, &none_covered(), ReleasePolicy::Destroy)),
        None
    );
    record.release(&claim_a.key.uid).unwrap();
    let targets = |record: &PreparedClaims, inventory: &Inventory, policy| {
        target(&record.targets(inventory, &none, &none_covered(), policy))
    };
    // The foreign instance stays.
    assert_eq!(targets(&record, &exists, ReleasePolicy::Destroy), Some(vec![(SEVENTH, 6)]));
    assert_eq!(targets(&record, &exists, ReleasePolicy::Keep), None);
    let mut used = gpu(7, &[(HALF, 0), (SEVENTH, 6)]);
    used.processes = vec![process(Some(1))];
    assert_eq!(targets(&record, &node([used]), ReleasePolicy::Destroy), None);
    // Another claim needs its slices, under both policies.
    let device = part(7, SEVENTH, 2);
    let next = prepare(&record, &claim("b", std::slice::from_ref(&device)), &exists).unwrap();
    assert_eq!(next.create, BTreeSet::from([device]));
    for policy in [ReleasePolicy::Destroy, ReleasePolicy::Keep] {
        let targets = record.targets(&exists, &next.create, &none_covered(), policy);
        assert_eq!(target(&targets).unwrap(), [(SEVENTH, 2), (SEVENTH, 6)]);
    }
    // A creation beside it does not wait for it.
    let beside = BTreeSet::from([part(7, SEVENTH, 4)]);
    let targets = record.targets(&exists, &beside, &none_covered(), ReleasePolicy::Destroy);
    assert_eq!(target(&targets).unwrap(), [(HALF, 0), (SEVENTH, 4), (SEVENTH, 6)]);
    // A GPU that the layout covers is the layout's.
    let covered = BTreeSet::from([exists.devices[0].pci]);
    assert_eq!(target(&record.targets(&exists, &none, &covered, ReleasePolicy::Destroy)), None);
    // Once destroyed, it is forgotten; not while the driver does not respond.
    let silent = Inventory { nvml: NvmlState::Loading, ..node([gpu(7, &[])]) };
    assert!(!record.forget_absent(&silent, &BTreeSet::new()));
    let gone = node([gpu(7, &[(SEVENTH, 6)])]);
    let unsettled = gone.devices.iter().map(|device| device.pci).collect();
    assert!(!record.forget_absent(&gone, &unsettled));
    assert!(record.forget_absent(&gone, &BTreeSet::new()));
    assert_eq!(record, PreparedClaims::default());
}

fn none_covered() -> BTreeSet<PciAddress> {
    BTreeSet::new()
}

#[test]
fn next_claim_takes_over_a_released_instance() {
    let mut record = PreparedClaims::default();
    let claim_a = claim("a", &[part(7, HALF, 0)]);
    prepared(&mut record, &claim_a, &node([gpu(7, &[])]));
    record.release(&claim_a.key.uid).unwrap();
    let exists = node([gpu(7, &[(HALF, 0)])]);
    let next = prepared(&mut record, &claim("b", &[part(7, HALF, 0)]), &exists);
    assert!(next.claim.devices[0].created, "it is Octavo's, and destroyed after this claim");
    assert_eq!(record.released, BTreeSet::new());
}

#[test]
fn released_instance_yields_to_a_claim_that_needs_its_engines() {
    let mut record = PreparedClaims::default();
    let claim_a = claim("a", &[part(7, MEDIA, 6)]);
    prepared(&mut record, &claim_a, &node([gpu(7, &[])]));
    record.release(&claim_a.key.uid).unwrap();
    let exists = node([gpu(7, &[(SEVENTH, 0), (MEDIA, 6)])]);
    let targets = |device: DraDevice| {
        let create = BTreeSet::from([device]);
        let keep = ReleasePolicy::Keep;
        target(&record.targets(&exists, &create, &none_covered(), keep)).unwrap()
    };
    assert_eq!(targets(part(7, MEDIA, 2)), [(SEVENTH, 0), (MEDIA, 2)]);
    assert_eq!(targets(part(7, SEVENTH, 2)), [(SEVENTH, 0), (SEVENTH, 2), (MEDIA, 6)]);
}

#[test]
fn i1_prepared_claim_holds_its_instance_and_claim_in_preparation_does_not() {
    let empty = node([gpu(7, &[])]);
    let exists = node([gpu(7, &[(HALF, 0)])]);
    let claim = claim("a", &[part(7, HALF, 0)]);
    let mut record = PreparedClaims::default();
    let preparation = prepare(&record, &claim, &empty).unwrap();
    record.record(&claim.key.uid, preparation.claim);
    // A failed creation must be rolled back.
    assert_eq!(record.holders(&exists.devices), []);
    assert!(record.mark_prepared(&claim.key.uid));
    assert!(!record.mark_prepared(&claim.key.uid));
    let holders = record.holders(&exists.devices);
    assert_eq!(holders[0].gpu_instance, Some(1));
    let state = exists.devices[0].mig.state().unwrap();
    assert!(is_in_use(&exists.devices[0], &holders, &state.gpu_instances[0]));
}

#[test]
fn claim_is_listed_without_a_pod_until_the_kubelet_lists_one() {
    let mut record = PreparedClaims::default();
    let device = part(7, HALF, 0);
    prepared(&mut record, &claim("a", std::slice::from_ref(&device)), &node([gpu(7, &[])]));
    let unlisted = record.unlisted_allocations(&[], POOL);
    let [one] = unlisted.as_slice() else { panic!("{unlisted:?}") };
    let id = format!("{POOL}/{}", device.name());
    assert_eq!((one.pod.as_str(), one.device_id.as_str()), ("", id.as_str()));
    let listed = DeviceAllocation { pod: "train-0".to_owned(), ..one.clone() };
    assert_eq!(record.unlisted_allocations(&[listed], POOL), []);
}

#[test]
fn pods_of_a_claim_whose_record_was_lost_are_no_foreign_users() {
    let exists = node([gpu(7, &[(HALF, 0)])]);
    let claim = claim("a", &[part(7, HALF, 0)]);
    let pod = |claim: Option<ClaimRef>| Holder {
        device: exists.devices[0].pci,
        gpu_instance: Some(1),
        compute_instance: Some(0),
        details: HolderDetails {
            pod: Some(octavo_model::holder::Pod {
                namespace: Some("team".to_owned()),
                name: Some("train-0".to_owned()),
                ..octavo_model::holder::Pod::default()
            }),
            claim,
            ..HolderDetails::default()
        },
    };
    let record = PreparedClaims::default();
    let own = [pod(Some(claim.key.reference()))];
    let given = Given { holders: &own, ..Given::default() };
    assert_eq!(given.prepare(&record, &claim, &exists).unwrap().create, BTreeSet::new());
    let other = [pod(None)];
    let given = Given { holders: &other, ..Given::default() };
    let error = given.prepare(&record, &claim, &exists).unwrap_err();
    assert!(matches!(error, PrepareError::InUse { .. }), "{error}");
}

#[test]
fn record_survives_and_a_newer_one_can_be_read() {
    let mut record = PreparedClaims::default();
    let inventory = node([gpu(7, &[]), whole_gpu(8)]);
    let whole = DraDevice { pci: whole_gpu(8).pci, what: DraDeviceKind::Gpu };
    prepared(&mut record, &claim("a", &[part(7, HALF, 0), whole]), &inventory);
    prepared(&mut record, &claim("b", &[part(7, SEVENTH, 5)]), &inventory);
    record.release(&uid("b")).unwrap();
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<PreparedClaims>(&text).unwrap(), record);
    let newer = text.replacen("{\"claims\"", "{\"shares\":{},\"claims\"", 1);
    assert_eq!(serde_json::from_str::<PreparedClaims>(&newer).unwrap(), record);
}
