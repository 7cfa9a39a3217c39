//! Devices of resource claims in the usage by pod.

use std::collections::BTreeSet;

use octavo_dra::devices;
use octavo_node::sharing::usage::Tenant;

use super::rig::{CgroupLayout, Rig};

#[tokio::test]
async fn devices_of_claims_are_allocated_to_the_pods_that_reserve_them() {
    let rig = Rig::new(
        "- {board: H100_80GB_SXM}\n- {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 3g.40gb, start: 4}]}\n",
    );
    let inventory = rig.machine.observe().await;
    let names: Vec<String> = devices(&inventory, &BTreeSet::new())
        .iter()
        .map(|device| format!("node/gpu.octavo.dev/{}", device.name()))
        .collect();
    let with = |end: &str| names.iter().find(|name| name.ends_with(end)).unwrap().clone();
    let (whole, half, absent) =
        (names[0].clone(), with("-mig-3g40gb-9-4"), with("-mig-1g10gb-19-0"));
    rig.kubelet.give_unrecorded("whole", "gpu.octavo.dev", &[whole]);
    rig.kubelet.give_unrecorded("half", "gpu.octavo.dev", &[half]);
    rig.assign_to_pod(101, "half", CgroupLayout::V2Systemd);
    let instance =
        rig.machine.world().gpus[1].mig_devices().next().map(|one| (one.gi.id, one.ci.id));
    rig.add_process(101, 1, instance, 2048);
    let mut observer = rig.watch(None).await;
    let seen = observer.until(|seen| {
        let mut units = seen.usage.devices.iter().flat_map(|device| &device.units);
        units.any(|unit| unit.tenants.iter().any(|tenant| !tenant.processes.is_empty()))
    });
    let seen = seen.await;
    let tenants: Vec<&Tenant> =
        seen.usage.devices.iter().flat_map(|one| &one.units).flat_map(|one| &one.tenants).collect();
    let known: Vec<_> = tenants
        .iter()
        .map(|one| (one.to_string(), one.container.as_deref(), one.claim.as_deref(), one.ids.len()))
        .collect();
    let (main, train) = (Some("main"), Some("train"));
    let expected = [("team/whole", main, train, 1), ("team/half", main, train, 1)];
    assert_eq!(known, expected.map(|(pod, of, claim, ids)| (pod.to_owned(), of, claim, ids)));
    // The process is that of the claim's pod, although the checkpoint has no claims.
    assert_eq!(tenants[1].processes, [101]);
    assert_eq!(seen.usage.incompleteness(), None);
    let allocations: Vec<_> = seen.usage.allocations().collect();
    let pods = |pod: &str| BTreeSet::from([format!("team/{pod} (resource claim train)")]);
    assert_eq!(allocations[0], ("GPU 0".to_owned(), pods("whole")));
    assert_eq!(allocations[1].1, pods("half"));

    // The device of a claim that does not exist could be any device for readers of the usage.
    rig.kubelet.give_unrecorded("absent", "gpu.octavo.dev", std::slice::from_ref(&absent));
    let seen = observer.until(|seen| seen.usage.incompleteness().is_some()).await;
    let why = seen.usage.incompleteness().unwrap();
    assert!(
        why.contains(&format!("pod team/absent was allocated gpu.octavo.dev {absent}")),
        "{why}"
    );
}
