//! Generates the page of all reasons, `docs/reasons.md`.

use std::fmt::Write as _;

use super::{Reason, Severity};

const HEAD: &str = "\
# Reasons

Status, annotation, labels, metrics, history and log say why something stands as it does in the same words; an event has the
name beside it. They are never changed, so filters and alerts may rely on them. This page is written from the code (`make golden`).

| where | how it is found |
|---|---|
| log | `reason=blocked` at the end of the line; with `--log-format json` the field `reason` |
| Node's annotation `octavo.dev/status` | `state`, of the node and of each device |
| events | `kubectl get events -A --field-selector reason=LayoutBlocked` |
| metrics | `octavo_layout_info{reason=\"blocked\"}`, `octavo_layout_state{state=\"blocked\"}`, `octavo_applies_total{result=\"blocked\"}`, `octavo_nodes{state=\"nvml-lost\"}` |
| API | `GET /api/v1/nodes?layoutState=blocked` |

| word | event | kind | what it means | what to do |
|---|---|---|---|---|
";

const FOOT: &str = "
A warning wants somebody's look; what is normal needs none. The label `octavo.dev/layout-state` has four of the words:
`applied`; `pending`, also while it is `applying` or `yielded`; `blocked`, also for `needs-reset` and `drifted`; `failed`, also for
`rolled-back` and `infeasible`.
";

/// Returns the page as committed to the repository.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for reason in Reason::ALL {
        let event = reason.event().map(|name| format!("`{name}`"));
        let kind = match reason.kind() {
            Severity::Normal => "normal",
            Severity::Warning => "warning",
        };
        let row = format!(
            "| `{}` | {} | {kind} | {} | {} |\n",
            reason.as_str(),
            event.unwrap_or_default(),
            reason.meaning(),
            reason.remedy()
        );
        let _infallible = page.write_str(&row);
    }
    page.push_str(FOOT);
    page
}
