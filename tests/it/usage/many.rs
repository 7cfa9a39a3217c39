//! A thousand pods on one node.

use std::time::Duration;

use super::rig::{CgroupLayout, Rig, adds_up};

#[tokio::test]
async fn thousand_pods_are_attributed_within_one_poll_interval() {
    let rig = Rig::new("- {board: H100_80GB_SXM, count: 8}\n");
    let uuids: Vec<String> = (0..8).map(|at| rig.gpu(at)).collect();
    for number in 0..1000_u32 {
        let gpu = usize::try_from(number % 8).unwrap();
        let pod = format!("p{number}");
        let id = format!("{}::{}", uuids[gpu], number / 8);
        rig.kubelet.give_unrecorded(&pod, "nvidia.com/gpu", &[id]);
        rig.assign_to_pod(1000 + number, &pod, CgroupLayout::V2Systemd);
    }
    rig.kubelet.give("last", "nvidia.com/gpu", &[format!("{}::125", uuids[0])]);
    rig.machine.change(|world| {
        for number in 0..1000_u32 {
            let gpu_uuid = uuids[usize::try_from(number % 8).unwrap()].clone();
            world.add_process(nvml_sim::model::Process {
                pid: 1000 + number,
                name: "x".to_owned(),
                gpu_uuid,
                gi: None,
                ci: None,
                memory_mib: 10,
                kind: nvml_sim::model::ProcessKind::Compute,
            })?;
        }
        Ok(())
    });
    let mut observer = rig.watch(Some(126)).await;
    let seen = observer.until(|seen| seen.answered.kubelet && seen.usage.devices.len() == 8).await;
    adds_up(&seen);
    let tenants = seen.usage.devices.iter().flat_map(|device| &device.units[0].tenants);
    let used = tenants.clone().filter(|one| one.memory.is_some_and(|memory| memory.get() == 10));
    assert_eq!(used.count(), 1000);
    assert!(tenants.clone().all(|one| one.pod.is_some() && one.ids.len() == 1));
    assert_eq!(seen.usage.missing, [""; 0]);
    assert!(seen.duration < Duration::from_mins(2), "{:?}", seen.duration);
}
