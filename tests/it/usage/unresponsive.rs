//! A peer that does not answer: its last data stays and is marked as stale, and nothing else waits for it.

use std::time::Duration;

use super::rig::{CgroupLayout, Rig, RunningObserver, adds_up, named, unit};
use crate::record::uid;

async fn shared() -> (Rig, RunningObserver) {
    let rig = Rig::new("- {board: H100_80GB_SXM}\n");
    let gpu = rig.gpu(0);
    for (at, pod) in [(0_u32, "a"), (1, "b")] {
        rig.kubelet.give(pod, "nvidia.com/gpu", &[format!("{gpu}::{at}")]);
        rig.assign_to_pod(100 + at, pod, CgroupLayout::V2Systemd);
        rig.add_process(100 + at, 0, None, 1000);
    }
    let mut observer = rig.watch(Some(2)).await;
    observer.until(|seen| seen.usage.devices.len() == 1).await;
    (rig, observer)
}

fn both() -> [(String, Option<u64>); 2] {
    ["a", "b"].map(|pod| (pod.to_owned(), Some(1000)))
}

#[tokio::test]
async fn last_data_of_a_slow_or_unavailable_kubelet_stays_until_it_is_back() {
    let (mut rig, mut observer) = shared().await;
    rig.kubelet.stop();
    let seen = observer.until(|seen| !seen.answered.kubelet).await;
    assert_eq!(named(unit(&seen, 0)), both());
    assert!(
        seen.usage.missing[0].contains("cannot connect to the kubelet"),
        "{:?}",
        seen.usage.missing
    );
    assert!(!seen.usage.are_allocations_unknown, "the last allocations are unknown");
    adds_up(&seen);
    rig.kubelet.listen();
    observer.until(|seen| seen.answered.kubelet && seen.usage.missing.is_empty()).await;
    rig.kubelet.answers_slowly(true);
    let seen = observer.until(|seen| !seen.answered.kubelet).await;
    assert!(seen.usage.missing[0].contains("within 2"), "{:?}", seen.usage.missing);
    assert_eq!(named(unit(&seen, 0)), both());
    assert!(seen.duration < Duration::from_mins(2), "{:?}", seen.duration);
    rig.kubelet.answers_slowly(false);
    observer.until(|seen| seen.answered.kubelet).await;
}

#[tokio::test]
async fn allocations_are_unknown_until_the_kubelet_answers() {
    let mut rig = Rig::new("- {board: H100_80GB_SXM}\n");
    rig.kubelet.stop();
    let mut observer = rig.watch(None).await;
    let seen = observer.until(|seen| seen.usage.devices.len() == 1).await;
    assert!(seen.usage.are_allocations_unknown);
    rig.kubelet.listen();
    observer.until(|seen| !seen.usage.are_allocations_unknown).await;
}

#[tokio::test]
async fn usage_of_node_without_nvidia_driver_is_complete() {
    let rig = Rig::new("- {board: H100_80GB_SXM}\n");
    std::fs::remove_file(rig.machine.library()).unwrap();
    let mut observer = rig.watch(None).await;
    let seen = observer.next().await;
    assert!(!seen.answered.driver);
    assert_eq!(seen.usage.missing, Vec::<String>::new());
}

#[tokio::test]
async fn pods_are_known_and_missing_data_is_reported_without_host_processes() {
    let (rig, mut observer) = shared().await;
    rig.hide_processes();
    let seen = observer.until(|seen| !seen.answered.processes).await;
    assert_eq!(named(unit(&seen, 0)), ["a", "b"].map(|pod| (pod.to_owned(), None)));
    assert_eq!(unit(&seen, 0).unattributed.unwrap().get(), 2000);
    adds_up(&seen);
    let missing = seen.usage.missing.join("\n");
    assert!(missing.contains("does not show all processes"), "{missing}");
    assert!(missing.contains("hostPID"), "{missing}");
    rig.kubelet.end_pod("b");
    let seen = observer.until(|seen| unit(seen, 0).tenants.len() == 1).await;
    // The leftover process of b is not attributed to a.
    assert_eq!(named(unit(&seen, 0)), [("a".to_owned(), None)]);
}

#[tokio::test]
async fn agent_without_host_pid_reports_pods_with_unknown_usage() {
    let (rig, mut observer) = shared().await;
    rig.restrict_pid_namespace();
    let seen = observer.until(|seen| !seen.answered.processes).await;
    assert_eq!(named(unit(&seen, 0)), ["a", "b"].map(|pod| (pod.to_owned(), None)));
    adds_up(&seen);
    let missing = seen.usage.missing.join("\n");
    assert!(missing.contains("hostPID"), "{missing}");
}

#[tokio::test]
async fn newer_checkpoint_of_unavailable_kubelet_names_no_pod() {
    let (mut rig, mut observer) = shared().await;
    rig.kubelet.stop();
    observer.until(|seen| !seen.answered.kubelet).await;
    // The allocation of a belongs to a new pod now, which only the checkpoint names and whose process runs.
    let gpu = rig.gpu(0);
    rig.kubelet.end_pod("a");
    rig.kubelet.give("new", "nvidia.com/gpu", &[format!("{gpu}::0")]);
    rig.remove_process(100);
    rig.assign_to_pod(110, "new", CgroupLayout::V2Systemd);
    rig.add_process(110, 0, None, 500);
    let new = (uid("new"), Some(500));
    let seen = observer.until(|seen| named(unit(seen, 0)).contains(&new)).await;
    let of = |name: &str, memory| (name.to_owned(), Some(memory));
    assert_eq!(named(unit(&seen, 0)), [of("b", 1000), new, of("a", 0)]);
    rig.kubelet.listen();
    observer.until(|seen| named(unit(seen, 0)) == [of("b", 1000), of("new", 500)]).await;
}

#[tokio::test]
async fn hanging_driver_blocks_nothing_and_its_last_data_stays() {
    let (rig, mut observer) = shared().await;
    rig.machine.faults("- {call: nvmlDeviceGetMemoryInfo_v2, hang: forever}");
    let seen = observer.until(|seen| !seen.answered.driver).await;
    assert_eq!(named(unit(&seen, 0)), both());
    assert!(seen.usage.missing[0].contains("busy"), "{:?}", seen.usage.missing);
    let again = observer.next().await;
    assert!(!again.answered.driver && again.answered.kubelet);
    rig.machine.faults("[]");
    let seen = observer.until(|seen| seen.answered.driver).await;
    adds_up(&seen);
}

#[tokio::test]
async fn older_driver_without_reserved_memory_is_read() {
    let mut rig = Rig::new("- {board: T4}\n");
    rig.machine = rig.machine.without(&[
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetTotalEnergyConsumption",
    ]);
    let mut observer = rig.watch(None).await;
    let seen = observer.until(|seen| seen.readings.len() == 1).await;
    let memory = seen.readings[0].memory.unwrap();
    assert_eq!(memory.reserved.get(), 0);
    assert!(memory.used.get() > 0);
    assert_eq!(seen.readings[0].metrics.energy_mj, None);
    assert_eq!(seen.readings[0].metrics.memory_temperature, None);
    adds_up(&seen);
}
