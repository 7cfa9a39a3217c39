//! Tests of registration times on a simulated clock.

use std::fs;

use super::super::folder::Folder;
use super::*;
use crate::k8s::device_plugin::register::KUBELET;

/// Kubelets of different starts.
fn kubelets() -> [Epoch; 2] {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join(KUBELET);
    let epoch = |content: &str| {
        fs::write(folder.path().join("new"), content).unwrap();
        fs::rename(folder.path().join("new"), &socket).unwrap();
        Folder::new(folder.path()).kubelet().unwrap()
    };
    let both = [epoch("1"), epoch("2")];
    assert_ne!(both[0], both[1]);
    both
}

fn refused() -> Result<(), RegisterError> {
    Err(RegisterError::TimedOut)
}

#[tokio::test(start_paused = true)]
async fn kubelet_is_told_once_and_again_when_it_was_started_again() {
    let [first, second] = kubelets();
    let mut link = Link::default();
    let now = Instant::now();
    assert_eq!(link.step(now, None, false), Step::Wait(None));
    assert_eq!(link.step(now, Some(first), false), Step::Register(first));
    assert_eq!(link.step(now, Some(first), false), Step::Wait(None));
    link.answered(now, first, &Ok(()));
    assert!(link.is_registered(Some(first)));
    assert_eq!(link.step(now, Some(first), true), Step::Wait(None));
    assert_eq!(link.step(now, Some(second), true), Step::Register(second));
    assert!(!link.is_registered(Some(second)));
}

#[tokio::test(start_paused = true)]
async fn failures_wait_longer_each_time_and_not_for_another_kubelet() {
    let [first, second] = kubelets();
    let mut link = Link::default();
    let mut now = Instant::now();
    let mut waits = Vec::new();
    for _ in 0..8 {
        assert_eq!(link.step(now, Some(first), false), Step::Register(first));
        link.answered(now, first, &refused());
        let Step::Wait(Some(wait)) = link.step(now, Some(first), false) else {
            panic!("it does not wait");
        };
        waits.push(wait.as_secs());
        now += wait;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    link.step(now, Some(first), false);
    link.answered(now, first, &refused());
    assert_eq!(link.step(now, Some(second), false), Step::Register(second));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_kubelet_does_not_speak_is_given_up_until_there_is_another_kubelet() {
    let [first, second] = kubelets();
    let mut link = Link::default();
    let now = Instant::now();
    link.step(now, Some(first), false);
    let message = "not supported by kubelet".to_owned();
    link.answered(now, first, &Err(RegisterError::Unsupported { message }));
    let later = now + Duration::from_hours(24);
    assert_eq!(link.step(later, Some(first), false), Step::Wait(None));
    assert!(link.trouble().unwrap().contains("does not speak v1beta1"));
    assert_eq!(
        link.step(later, Some(second), false),
        Step::Register(second)
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_nobody_reads_is_told_of_again_and_ever_more_seldom() {
    let [kubelet, _] = kubelets();
    let mut link = Link::default();
    let mut now = Instant::now();
    link.step(now, Some(kubelet), false);
    link.answered(now, kubelet, &Ok(()));
    let mut waits = Vec::new();
    for _ in 0..4 {
        let Step::Wait(Some(wait)) = link.step(now, Some(kubelet), false) else {
            panic!("it does not wait");
        };
        waits.push(wait.as_secs());
        now += wait;
        assert_eq!(
            link.step(now, Some(kubelet), false),
            Step::Register(kubelet)
        );
        link.answered(now, kubelet, &Ok(()));
    }
    assert_eq!(waits, [20, 40, 80, 160]);
    assert_eq!(link.step(now, Some(kubelet), true), Step::Wait(None));
    let Step::Wait(Some(wait)) = link.step(now, Some(kubelet), false) else {
        panic!("it does not wait");
    };
    assert_eq!(wait.as_secs(), 20);
}
