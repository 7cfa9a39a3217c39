//! Texts for holders of a device.

use octavo_model::holder::{Holder, HolderDetails, Pod};
use octavo_model::inventory::ProcessKind;

/// Formats a holder without its start time: `pod team-a/train-0 (container main): pid 4711, python train.py`.
pub fn holder(who: &HolderDetails) -> String {
    let pid = who.pid.map(|pid| format!("pid {pid}"));
    let kind = who.kind.map(|kind| match kind {
        ProcessKind::Compute => "compute",
        ProcessKind::Graphics => "graphics",
    });
    let kind = kind.filter(|_| who.command.is_none()).map(str::to_owned);
    let parts: Vec<String> = [pid, who.command.clone(), kind].into_iter().flatten().collect();
    let process = parts.join(", ");
    match (&who.pod, process.is_empty()) {
        (None, false) => process,
        (None, true) => "an unknown process".to_owned(),
        (Some(pod), true) => pod_name(pod),
        (Some(pod), false) => format!("{}: {process}", pod_name(pod)),
    }
}

/// Formats holders without duplicates, in the given order, joined by `; `.
pub fn holders(all: &[Holder]) -> String {
    let mut texts: Vec<String> = all.iter().map(|one| holder(&one.details)).collect();
    texts.dedup();
    texts.join("; ")
}

fn pod_name(pod: &Pod) -> String {
    let name = match (&pod.namespace, &pod.name, &pod.uid) {
        (Some(namespace), Some(name), _) => format!("pod {namespace}/{name}"),
        (None, Some(name), _) => format!("pod {name}"),
        (_, None, Some(uid)) => format!("pod with uid {uid}"),
        (_, None, None) => "a pod".to_owned(),
    };
    match &pod.container {
        Some(container) => format!("{name} (container {container})"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_is_formatted_with_all_known_attributes() {
        let who = HolderDetails {
            pid: Some(4711),
            kind: Some(ProcessKind::Compute),
            ..HolderDetails::default()
        };
        assert_eq!(holder(&who), "pid 4711, compute");
        let who = HolderDetails { command: Some("python train.py".to_owned()), ..who };
        assert_eq!(holder(&who), "pid 4711, python train.py");
        let pod = Pod {
            namespace: Some("team-a".to_owned()),
            name: Some("train-0".to_owned()),
            container: Some("main".to_owned()),
            uid: Some("u".to_owned()),
        };
        let who = HolderDetails { pod: Some(pod), ..who };
        assert_eq!(holder(&who), "pod team-a/train-0 (container main): pid 4711, python train.py");
        let pod = Pod { uid: Some("1f".to_owned()), ..Pod::default() };
        let who = HolderDetails { pod: Some(pod), ..HolderDetails::default() };
        assert_eq!(holder(&who), "pod with uid 1f");
        assert_eq!(holder(&HolderDetails::default()), "an unknown process");
    }
}
