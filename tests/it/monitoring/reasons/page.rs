//! Generates the page of all reasons, `docs/reference/reasons.md`.

use std::fmt::Write as _;

use octavo_model::reason::Reason;

const HEAD: &str = "\
# Reasons

A reason is a stable identifier for the state of a node, a device or a change, such as `blocked`. This page lists every reason with its
meaning and the recommended action. It is for administrators who handle events and alerts, and for authors of filters and alert rules.

The page is generated from the code by `make golden`.

## Where reasons appear

Existing reasons never change, so filters and alerts can rely on them.

| place | how to find a reason |
|---|---|
| log | `reason=blocked` at the end of a line; the field `reason` with `--log-format json` |
| annotation `octavo.dev/status` of the Node | `state` of the node and of each device |
| events | `kubectl get events -A --field-selector reason=LayoutBlocked` |
| metric `octavo_layout_info` | `octavo_layout_info{reason=\"blocked\"}` |
| metric `octavo_layout_state` | `octavo_layout_state{state=\"blocked\"}` |
| metric `octavo_applies_total` | `octavo_applies_total{result=\"blocked\"}` |
| metric `octavo_nodes` | `octavo_nodes{state=\"nvml-lost\"}` |
| API | `GET /api/v1/nodes?layoutState=blocked` |

Each reason has a severity, which is also the type of its event. `Warning` means that attention is needed, `Normal` is informational.

The label `octavo.dev/layout-state` has four values:

| value | reasons |
|---|---|
| `applied` | `applied` |
| `pending` | `pending`, `applying`, `yielded` |
| `blocked` | `blocked`, `needs-reset`, `drifted` |
| `failed` | `failed`, `rolled-back`, `infeasible` |
";

/// First reason of each group, and the heading of the group.
const GROUPS: &[(Reason, &str)] = &[
    (Reason::Applied, "Layouts"),
    (Reason::NoDriver, "Driver and connection"),
    (Reason::KeysLeftToOthers, "Other programs on the node"),
    (Reason::DrainBegan, "Drains"),
    (Reason::SharingInForce, "Time-slicing"),
    (Reason::DeviceUnhealthy, "Health and memory of devices"),
];

/// Returns the page as committed to the repository.
pub(super) fn page() -> String {
    let mut page = HEAD.to_owned();
    for &reason in Reason::ALL {
        if let Some((_, heading)) = GROUPS.iter().find(|(first, _)| *first == reason) {
            let _infallible = write!(page, "\n## {heading}\n");
        }
        let severity = reason.kind().as_str();
        let event = match reason.event() {
            Some(event) => format!("`{event}`, type `{severity}`"),
            None => format!("none; the severity is `{severity}`"),
        };
        let (meaning, remedy) = (reason.meaning(), reason.remedy());
        let _infallible = write!(
            page,
            "\n### {reason}\n\n{meaning}\n\n- **Event:** {event}\n- **What to do:** {remedy}\n"
        );
    }
    page
}
