//! Processes that start, end and move between pods, and pods that share.

use super::rig::{CgroupLayout, Rig, adds_up, named, unit};
use crate::record::uid;

const ONE: &str = "- {board: H100_80GB_SXM}\n";

fn replicas(uuid: &str, numbers: &[u32]) -> Vec<String> {
    let all = numbers.iter();
    all.map(|number| format!("{uuid}::{number}")).collect()
}

#[tokio::test]
async fn usage_follows_processes_between_pods_and_always_adds_up() {
    let rig = Rig::new(ONE);
    let gpu = rig.gpu(0);
    rig.kubelet.give("a", "nvidia.com/gpu", &replicas(&gpu, &[0]));
    rig.kubelet.give("b", "nvidia.com/gpu", &replicas(&gpu, &[1, 2]));
    rig.assign_to_pod(101, "a", CgroupLayout::V2Systemd);
    rig.add_process(101, 0, None, 3000);
    rig.assign_to_pod(102, "b", CgroupLayout::V1Cgroupfs);
    rig.add_process(102, 0, None, 5000);
    rig.assign_to_no_pod(103);
    rig.add_process(103, 0, None, 700);
    let mut observer = rig.watch(Some(3)).await;
    let of = |name: &str, memory| (name.to_owned(), Some(memory));
    let wanted = |expected: Vec<(String, Option<u64>)>| {
        move |seen: &octavo_agent::usage::UsageObservation| {
            !seen.usage.devices.is_empty() && named(unit(seen, 0)) == expected
        }
    };
    let seen = observer.until(wanted(vec![of("b", 5000), of("a", 3000), of("", 700)])).await;
    adds_up(&seen);
    let tenant = &unit(&seen, 0).tenants[0];
    assert_eq!(tenant.uid, Some(uid("b")));
    assert_eq!(tenant.ids.len(), 2);
    assert_eq!(seen.usage.missing, [""; 0]);
    // The id of an ended process is reused in another pod.
    rig.remove_process(102);
    rig.assign_to_pod(102, "a", CgroupLayout::V2Cgroupfs);
    rig.add_process(102, 0, None, 1000);
    let seen = observer.until(wanted(vec![of("a", 4000), of("", 700), of("b", 0)])).await;
    adds_up(&seen);
    // A pod that kubelet no longer lists still has a process.
    rig.kubelet.end_pod("a");
    let seen = observer
        .until(wanted(vec![of(&uid("a"), 3000), of(&uid("a"), 1000), of("", 700), of("b", 0)]))
        .await;
    adds_up(&seen);
    // A process that the driver still reports is gone from the kernel: it belongs to no pod.
    std::fs::remove_dir_all(rig.proc().join("101")).unwrap();
    let seen = observer.until(wanted(vec![of(&uid("a"), 1000), of("", 700), of("b", 0)])).await;
    adds_up(&seen);
    assert_eq!(unit(&seen, 0).unattributed.unwrap().get(), 3000);
}

#[tokio::test]
async fn partitions_are_reported_by_their_instances() {
    let rig = Rig::new(
        "- {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 3g.40gb, start: 0, compute: [1c.3g.40gb, 1c.3g.40gb]}, {profile: 1g.10gb, start: 6}]}\n",
    );
    let world = rig.machine.world();
    let parts: Vec<(u32, u32, String)> = world.gpus[0]
        .mig_devices()
        .map(|one| (one.gi.id, one.ci.id, one.ci.uuid.clone()))
        .collect();
    for (at, (gi, ci, uuid)) in parts.iter().enumerate() {
        let pod = format!("p{at}");
        let pid = 200 + u32::try_from(at).unwrap();
        rig.kubelet.give(&pod, "nvidia.com/mig-1g.10gb", std::slice::from_ref(uuid));
        rig.assign_to_pod(pid, &pod, CgroupLayout::V2Systemd);
        rig.add_process(pid, 0, Some((*gi, *ci)), 1000 * u64::from(pid - 199));
    }
    let mut observer = rig.watch(None).await;
    let seen = observer.until(|seen| seen.usage.devices.len() == 1).await;
    adds_up(&seen);
    let device = &seen.usage.devices[0];
    assert_eq!(device.utilization, None);
    assert_eq!(device.units.len(), 3);
    for unit in &device.units {
        let part = parts.iter().position(|(.., uuid)| *uuid == unit.uuid).unwrap();
        assert_eq!(unit.partition(), Some((parts[part].0, parts[part].1)));
        let used = 1000 * (u64::try_from(part).unwrap() + 1);
        assert_eq!(named(unit), [(format!("p{part}"), Some(used))]);
        // Compute instances of one GPU instance share its memory.
        let same = device.units.iter().filter(|other| other.gpu_instance == unit.gpu_instance);
        let sum: u64 = same.flat_map(named).filter_map(|(_, memory)| memory).sum();
        assert_eq!(unit.memory.unwrap().used.get(), sum);
        assert_eq!(unit.unattributed.unwrap().get(), 0);
    }
}

#[tokio::test]
async fn without_checkpoint_only_unambiguous_pod_is_attributed() {
    let rig = Rig::new("- {board: H100_80GB_SXM, count: 2}\n");
    for (pod, gpu, number) in [("a", 0, 0), ("b", 1, 0), ("c", 1, 1)] {
        let ids = replicas(&rig.gpu(gpu), &[number]);
        rig.kubelet.give_unrecorded(pod, "nvidia.com/gpu", &ids);
    }
    for (pid, pod, gpu) in [(1, "a", 0), (4, "b", 1), (3, "c", 1)] {
        rig.assign_to_pod(100 + pid, pod, CgroupLayout::V2Systemd);
        rig.add_process(100 + pid, gpu, None, u64::from(pid) * 100);
    }
    let mut observer = rig.watch(Some(2)).await;
    let seen = observer.until(|seen| seen.usage.devices.len() == 2).await;
    adds_up(&seen);
    assert_eq!(named(unit(&seen, 0)), [("a".to_owned(), Some(100))]);
    let uids: Vec<String> = named(unit(&seen, 1)).into_iter().map(|(name, _)| name).collect();
    assert_eq!(uids, [uid("b"), uid("c"), "b".to_owned(), "c".to_owned()]);
    let memory = named(unit(&seen, 1)).into_iter().map(|(_, memory)| memory);
    let memory: Vec<_> = memory.collect();
    assert_eq!(memory, [Some(400), Some(300), None, None]);
    assert_eq!(seen.usage.missing.len(), 2, "{:?}", seen.usage.missing);
}

#[tokio::test]
async fn container_over_its_share_is_marked_until_it_is_not() {
    let rig = Rig::new(ONE);
    let gpu = rig.gpu(0);
    rig.kubelet.give("a", "nvidia.com/gpu", &replicas(&gpu, &[0]));
    rig.assign_to_pod(101, "a", CgroupLayout::V2Systemd);
    rig.add_process(101, 0, None, 31 * 1024);
    let mut observer = rig.watch(Some(3)).await;
    let is_over = |over: bool| {
        move |seen: &octavo_agent::usage::UsageObservation| {
            seen.usage
                .devices
                .iter()
                .any(|device| device.units[0].tenants.iter().any(|one| one.memory.is_some()))
                && unit(seen, 0).tenants.iter().any(|one| one.is_over_share) == over
        }
    };
    observer.until(is_over(true)).await;
    rig.remove_process(101);
    observer.until(is_over(false)).await;
}
