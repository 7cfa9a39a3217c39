//! Interrupted changes followed by another request: another layout, an unresolvable one, or none for the GPU; and
//! failing first readings after the crash.

use super::cases::{AppliedBy, Case, OtherLayout, PLAIN, SEVEN};

const SEVEN_TWICE: &str =
    "[{board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]}]";
const HALVES: &str =
    "[{board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]}]";
const WHOLE: &str = "[{board: A100_40GB, mig: enabled, instances: [{profile: 7g.40gb}]}]";
/// The last of seven instances is in use.
const USED: &str = "[{pid: 5120, gpu: 0, gi: 7, ci: 0, memory_mib: 600}]";

pub(super) const CHOSEN: &[Case] = &[
    Case {
        name: "another-layout-by-command",
        gpus: SEVEN,
        layout: "[{devices: all, mig: {3g.20gb: 2}}]",
        wanted: WHOLE,
        other: Some(OtherLayout {
            rules: "[{devices: all, mig: {7g.40gb: 1}}]",
            by: AppliedBy::Command,
        }),
        ..PLAIN
    },
    Case {
        name: "another-layout-by-agent",
        gpus: SEVEN,
        layout: "[{devices: all, mig: {3g.20gb: 2}}]",
        wanted: WHOLE,
        other: Some(OtherLayout {
            rules: "[{devices: all, mig: {7g.40gb: 1}}]",
            by: AppliedBy::Agent,
        }),
        ..PLAIN
    },
    Case {
        name: "another-layout-that-is-blocked-by-command",
        gpus: SEVEN,
        processes: USED,
        layout: "[{devices: all, mig: {3g.20gb: 1, 1g.5gb: 1}}]",
        wanted: WHOLE,
        begun: Some(
            "[{board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb}, {profile: 1g.5gb}]}]",
        ),
        ends: "b",
        other: Some(OtherLayout {
            rules: "[{devices: all, mig: {7g.40gb: 1}}]",
            by: AppliedBy::Command,
        }),
        ..PLAIN
    },
    Case {
        name: "another-layout-that-is-impossible-by-command",
        gpus: SEVEN,
        layout: "[{devices: all, mig: {3g.20gb: 2}}]",
        wanted: WHOLE,
        begun: Some(HALVES),
        ends: "b",
        other: Some(OtherLayout {
            rules: "[{devices: all, mig: {4g.20gb: 1, 3g.20gb: 1, 1g.5gb: 1}}]",
            by: AppliedBy::Command,
        }),
        ..PLAIN
    },
    Case {
        name: "another-layout-for-one-of-two-gpus-by-command",
        gpus: SEVEN_TWICE,
        layout: "[{devices: all, mig: {3g.20gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]},
            {board: A100_40GB, mig: enabled, instances: [{profile: 7g.40gb}]}]",
        ends: "et",
        other: Some(OtherLayout {
            rules: "[{devices: 1, mig: {7g.40gb: 1}}]",
            by: AppliedBy::Command,
        }),
        ..PLAIN
    },
    Case {
        name: "another-layout-for-the-other-gpu-by-command",
        gpus: SEVEN_TWICE,
        layout: "[{devices: 0, mig: {3g.20gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]},
            {board: A100_40GB, mig: enabled, instances: [{profile: 7g.40gb}]}]",
        ends: "et",
        other: Some(OtherLayout {
            rules: "[{devices: 1, mig: {7g.40gb: 1}}]",
            by: AppliedBy::Command,
        }),
        ..PLAIN
    },
    Case {
        name: "another-layout-for-the-other-gpu-by-agent",
        gpus: SEVEN_TWICE,
        layout: "[{devices: 0, mig: {3g.20gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]},
            {board: A100_40GB, mig: enabled, instances: [{profile: 7g.40gb}]}]",
        ends: "et",
        other: Some(OtherLayout {
            rules: "[{devices: 1, mig: {7g.40gb: 1}}]",
            by: AppliedBy::Agent,
        }),
        ..PLAIN
    },
    Case {
        name: "a-layout-that-does-not-resolve-by-command",
        gpus: SEVEN_TWICE,
        layout: "[{devices: 1, mig: {3g.20gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]},
            {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]}]",
        ends: "pe",
        other: Some(OtherLayout {
            rules: "[{devices: 7, mig: {7g.40gb: 1}}]",
            by: AppliedBy::Command,
        }),
        is_refused: true,
        ..PLAIN
    },
    Case {
        name: "a-layout-that-does-not-resolve-by-agent",
        gpus: SEVEN_TWICE,
        layout: "[{devices: 1, mig: {3g.20gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]},
            {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]}]",
        ends: "pe",
        other: Some(OtherLayout {
            rules: "[{devices: 7, mig: {7g.40gb: 1}}]",
            by: AppliedBy::Agent,
        }),
        is_refused: true,
        ..PLAIN
    },
    Case {
        name: "a-file-of-layouts-that-cannot-be-read-by-command",
        gpus: SEVEN,
        layout: "[{devices: all, mig: {3g.20gb: 2}}]",
        wanted: HALVES,
        ends: "e",
        other: Some(OtherLayout { rules: "[", by: AppliedBy::Command }),
        is_refused: true,
        ..PLAIN
    },
    Case {
        name: "first-reading-without-instances",
        gpus: SEVEN,
        layout: "[{devices: all, mig: {3g.20gb: 2}}]",
        wanted: HALVES,
        first_reading: &["{call: nvmlDeviceGetGpuInstances, times: 1, return: UNKNOWN}"],
        ..PLAIN
    },
    Case {
        name: "first-reading-without-mig-mode",
        gpus: SEVEN,
        layout: "[{devices: all, mig: {3g.20gb: 2}}]",
        wanted: HALVES,
        first_reading: &["{call: nvmlDeviceGetMigMode, times: 1, return: UNKNOWN}"],
        ..PLAIN
    },
    Case {
        name: "first-reading-without-a-gpu-and-another-layout-by-command",
        gpus: SEVEN_TWICE,
        layout: "[{devices: all, mig: {3g.20gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]},
            {board: A100_40GB, mig: enabled, instances: [{profile: 7g.40gb}]}]",
        ends: "et",
        first_reading: &["{call: nvmlDeviceGetHandleByIndex*, times: 1, return: UNKNOWN}"],
        other: Some(OtherLayout {
            rules: "[{devices: 1, mig: {7g.40gb: 1}}]",
            by: AppliedBy::Command,
        }),
        ..PLAIN
    },
];
