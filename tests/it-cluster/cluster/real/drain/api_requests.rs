//! API requests of agents during a drain, from the audit log.

use jiff::Timestamp;
use serde_json::Value;

use super::TAINT;
use crate::cluster::real::site::ACCOUNT;
use crate::cluster::real::{received, writes};

/// When agents wrote taints since `since`, and whether ours was among them. Conflicting writes do not count.
pub(super) fn taints(log: &[Value], since: Timestamp) -> Vec<(Timestamp, bool)> {
    let writes = writes(log, since).into_iter();
    let done = writes.filter(|event| event["responseStatus"]["code"] == 200);
    let written = done.filter_map(|event| {
        let taints = event["requestObject"]["spec"]["taints"].as_array()?;
        let ours = taints.iter().any(|taint| taint["key"] == TAINT);
        Some((received(event), ours))
    });
    written.collect()
}

/// Evictions that agents requested since `since`: time, pod and status code.
pub(super) fn evictions(log: &[Value], since: Timestamp) -> Vec<(Timestamp, &str, u64)> {
    let requested = log.iter().filter(|event| {
        let of = &event["objectRef"];
        event["user"]["username"] == ACCOUNT && of["subresource"] == "eviction"
    });
    requested
        .filter(|event| received(event) > since)
        .map(|event| {
            let pod = event["objectRef"]["name"].as_str().unwrap();
            let code = event["responseStatus"]["code"].as_u64().unwrap();
            (received(event), pod, code)
        })
        .collect()
}
