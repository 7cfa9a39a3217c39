//! Pods as the kubelet and the scheduler report them.

use octavo_node::doctor::CheckResult;
use octavo_node::validation::Outcome;
use serde_json::{Value, json};

use super::*;

fn pod(status: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "n", "activeDeadlineSeconds": 240, "containers": [{"name": "validate"}]},
        "status": status,
    }))
    .unwrap()
}

fn container(state: &Value) -> Value {
    let bound = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"});
    let status = json!({"name": "validate", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
    json!({"phase": "Pending", "conditions": [bound], "containerStatuses": [status]})
}

fn expected() -> Expectation {
    Expectation::new("nvidia.com/gpu", &std::collections::BTreeMap::new()).unwrap()
}

/// The last step of a pod that will not change.
fn last(pod: &Pod) -> Option<(ValidationStep, String, String)> {
    let steps = results(pod, &state(pod), &expected())?;
    let last = steps.into_iter().next_back()?;
    Some((last.step, last.evidence, last.remedy.unwrap_or_default()))
}

#[test]
fn report_in_the_termination_message_becomes_the_results() {
    let gpu = json!({"vendor": "nvidia", "id": "GPU-a", "memoryMiB": 81_920});
    let report =
        json!({"deviceFiles": ["nvidia0", "nvidiactl"], "environment": {}, "units": [gpu]});
    let ended = json!({"terminated": {"exitCode": 0, "startedAt": "2026-01-01T00:00:04Z", "message": report.to_string()}});
    let pod = pod(&container(&ended));
    let steps = results(&pod, &state(&pod), &expected()).unwrap();
    assert_eq!(Outcome::of_steps(&steps), Outcome::Passed, "{steps:?}");
    let times: Vec<&str> = steps.iter().take(2).map(|step| step.evidence.as_str()).collect();
    assert_eq!(times, ["after 1 s", "after 4 s"]);
    assert_eq!(steps.len(), 6);
}

#[test]
fn failed_pods_have_the_reason_of_the_kubelet_and_a_remedy() {
    let admission = json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"});
    let image = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
    let failed = json!({"terminated": {"exitCode": 128, "reason": "StartError", "message": "nvidia-container-cli: no device"}});
    let silent = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
    let strange = json!({"terminated": {"exitCode": 0, "message": "hello"}});
    for (status, evidence, remedy) in [
        (admission, "UnexpectedAdmissionError: Allocate failed", "device plugin"),
        (container(&image), "ImagePullBackOff: no such image", "--image"),
        (
            container(&failed),
            "StartError: exit code 128: nvidia-container-cli: no device",
            "octavo doctor",
        ),
        (container(&silent), "exit code 1", "octavo doctor"),
        (container(&strange), "InvalidImageReport: the container returned no report", "--image"),
    ] {
        let (step, found, advice) = last(&pod(&status)).unwrap();
        assert_eq!(step, ValidationStep::Started);
        assert!(found.starts_with(evidence), "{found}");
        assert!(advice.contains(remedy), "{advice}");
    }
}

#[test]
fn pod_that_is_late_fails_with_the_reason_of_the_scheduler_or_the_latest_event() {
    let late = |pod: &Pod, warning: Option<&str>| {
        let now = state(pod);
        assert_eq!(results(pod, &now, &expected()), None);
        results_at_timeout(pod, &now, ("180 s", warning.map(str::to_owned)))
    };
    let unmet =
        json!({"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"});
    let mut waiting = pod(&json!({"phase": "Pending", "conditions": [unmet]}));
    waiting.spec.as_mut().unwrap().node_name = None;
    let steps = late(&waiting, None);
    let text = "the pod was not scheduled within 180 s: 0/2 nodes are available";
    assert_eq!((steps[0].step, steps[0].evidence.as_str()), (ValidationStep::Scheduled, text));
    let creating = pod(&container(&json!({"waiting": {"reason": "ContainerCreating"}})));
    let steps = late(&creating, Some("FailedCreatePodSandBox: no runtime for \"nvidia\""));
    let text = "the container did not report within 180 s: FailedCreatePodSandBox: no runtime for \"nvidia\"";
    assert_eq!(steps[1].evidence, text);
    assert_eq!((steps[0].verdict, steps[1].verdict), (CheckResult::Ok, CheckResult::Failing));
}

#[test]
fn pod_is_expired_after_its_own_deadline() {
    let pod = pod(&json!({"phase": "Running"}));
    let at = |text: &str| text.parse().unwrap();
    assert!(!is_expired(&pod, at("2026-01-01T00:04:00Z")));
    assert!(is_expired(&pod, at("2026-01-01T00:04:01Z")));
}
