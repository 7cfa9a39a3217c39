//! Tests of registration times on a simulated clock.

use std::fs;

use super::super::plugin_dir::PluginDir;
use super::*;
use crate::device_plugin::plugin_dir::KUBELET;

/// Kubelets of different starts.
fn kubelets() -> [KubeletInstance; 2] {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join(KUBELET);
    let epoch = |content: &str| {
        fs::write(directory.path().join("new"), content).unwrap();
        fs::rename(directory.path().join("new"), &socket).unwrap();
        PluginDir::new(directory.path()).kubelet().unwrap()
    };
    let both = [epoch("1"), epoch("2")];
    assert_ne!(both[0], both[1]);
    both
}

fn refused() -> Result<(), RegisterError> {
    Err(RegisterError::TimedOut)
}

#[tokio::test(start_paused = true)]
async fn resource_is_registered_once_per_kubelet_start() {
    let [first, second] = kubelets();
    let mut link = Registration::default();
    let now = Instant::now();
    assert_eq!(link.next_step(now, None, false), Step::Wait(None));
    assert_eq!(link.next_step(now, Some(first), false), Step::Register(first));
    assert_eq!(link.next_step(now, Some(first), false), Step::Wait(None));
    link.record_result(now, first, &Ok(()));
    assert!(link.is_registered(Some(first)));
    assert_eq!(link.next_step(now, Some(first), true), Step::Wait(None));
    assert_eq!(link.next_step(now, Some(second), true), Step::Register(second));
    assert!(!link.is_registered(Some(second)));
}

#[tokio::test(start_paused = true)]
async fn failure_delay_doubles_and_resets_for_new_kubelet() {
    let [first, second] = kubelets();
    let mut link = Registration::default();
    let mut now = Instant::now();
    let mut waits = Vec::new();
    for _ in 0..8 {
        assert_eq!(link.next_step(now, Some(first), false), Step::Register(first));
        link.record_result(now, first, &refused());
        let Step::Wait(Some(wait)) = link.next_step(now, Some(first), false) else {
            panic!("it does not wait");
        };
        waits.push(wait.as_secs());
        now += wait;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    link.next_step(now, Some(first), false);
    link.record_result(now, first, &refused());
    assert_eq!(link.next_step(now, Some(second), false), Step::Register(second));
}

#[tokio::test(start_paused = true)]
async fn unsupported_version_is_not_retried_until_kubelet_changes() {
    let [first, second] = kubelets();
    let mut link = Registration::default();
    let now = Instant::now();
    link.next_step(now, Some(first), false);
    let message = "not supported by kubelet".to_owned();
    link.record_result(now, first, &Err(RegisterError::Unsupported { message }));
    let later = now + Duration::from_hours(24);
    assert_eq!(link.next_step(later, Some(first), false), Step::Wait(None));
    assert!(link.error().unwrap().contains("does not support v1beta1"));
    assert_eq!(link.next_step(later, Some(second), false), Step::Register(second));
}

#[tokio::test(start_paused = true)]
async fn unread_list_is_registered_again_with_backoff() {
    let [kubelet, _] = kubelets();
    let mut link = Registration::default();
    let mut now = Instant::now();
    link.next_step(now, Some(kubelet), false);
    link.record_result(now, kubelet, &Ok(()));
    let mut waits = Vec::new();
    for _ in 0..4 {
        let Step::Wait(Some(wait)) = link.next_step(now, Some(kubelet), false) else {
            panic!("it does not wait");
        };
        waits.push(wait.as_secs());
        now += wait;
        assert_eq!(link.next_step(now, Some(kubelet), false), Step::Register(kubelet));
        link.record_result(now, kubelet, &Ok(()));
    }
    assert_eq!(waits, [20, 40, 80, 160]);
    assert_eq!(link.next_step(now, Some(kubelet), true), Step::Wait(None));
    let Step::Wait(Some(wait)) = link.next_step(now, Some(kubelet), false) else {
        panic!("it does not wait");
    };
    assert_eq!(wait.as_secs(), 20);
}
