//! The interrupted changes: the state of a machine, its desired layout, and the possible outcomes.

/// A change of one machine.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// GPUs in the flow form of a scenario.
    pub(super) gpus: &'static str,
    /// Processes in the flow form of a scenario.
    pub(super) processes: &'static str,
    /// The rules of the layout.
    pub(super) layout: &'static str,
    /// The desired GPUs, as in a scenario. Placements do not count.
    pub(super) wanted: &'static str,
    /// Permanent faults of the driver.
    pub(super) faults: &'static [&'static str],
    /// Allowed final state of each GPU, one character each: `t` at its target, `p` at its previous state, `e` either,
    /// `b` at the first layout or its previous state.
    pub(super) ends: &'static str,
    /// A process that starts to use this instance while the agent is down, if the instance exists.
    pub(super) late_process: Option<LateProcess>,
    /// Rules that replace those of the layout while the agent is down.
    pub(super) afterwards: Option<&'static str>,
    /// Another layout that is requested after the interruption.
    pub(super) other: Option<OtherLayout>,
    /// The GPUs under the first layout, if they may stay in it.
    pub(super) begun: Option<&'static str>,
    /// Faults of the first start after the crash.
    pub(super) first_reading: &'static [&'static str],
    /// True if the other layout is rejected: the run that requests it exits with 1.
    pub(super) is_refused: bool,
    /// True if `nvidia-smi` exists, which resets a GPU.
    pub(super) nvidia_smi: bool,
}

#[derive(Debug)]
pub(super) struct OtherLayout {
    pub(super) rules: &'static str,
    pub(super) by: AppliedBy,
}

/// The program that applies a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppliedBy {
    Agent,
    Command,
}

/// A process that starts to use an instance.
#[derive(Debug)]
pub(super) struct LateProcess {
    pub(super) gpu: usize,
    pub(super) profile: &'static str,
    pub(super) start: u32,
}

/// A change without faults, which always ends at its target.
pub(super) const PLAIN: Case = Case {
    name: "",
    gpus: "",
    processes: "[]",
    layout: "",
    wanted: "",
    faults: &[],
    ends: "t",
    late_process: None,
    afterwards: None,
    other: None,
    begun: None,
    first_reading: &[],
    is_refused: false,
    nvidia_smi: false,
};

pub(super) const SEVEN: &str =
    "[{board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]}]";

pub(super) const CASES: &[Case] = &[
    Case {
        name: "grow",
        gpus: "[{board: A100_40GB, mig: enabled, instances: [{profile: 2g.10gb, start: 0}]}]",
        layout: "[{devices: all, mig: {2g.10gb: 1, 1g.5gb: 3}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [
            {profile: 2g.10gb}, {profile: 1g.5gb, count: 3}]}]",
        ..PLAIN
    },
    Case {
        name: "shrink",
        gpus: SEVEN,
        layout: "[{devices: all, mig: {1g.5gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, count: 2}]}]",
        ..PLAIN
    },
    Case {
        name: "reshape",
        gpus: SEVEN,
        layout: "[{devices: all, mig: {3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 1}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [
            {profile: 3g.20gb, start: 4}, {profile: 2g.10gb}, {profile: 1g.5gb}]}]",
        ..PLAIN
    },
    Case {
        name: "reshape-two-gpus",
        gpus: "[{board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, count: 4}]},
            {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]}]",
        layout: "[{devices: all, mig: {4g.20gb: 1, 2g.10gb: 1, 1g.5gb: 1}}]",
        wanted: "[{board: A100_40GB, count: 2, mig: enabled, instances: [
            {profile: 4g.20gb}, {profile: 2g.10gb}, {profile: 1g.5gb}]}]",
        ends: "tt",
        ..PLAIN
    },
    Case {
        name: "compute-splits",
        gpus: "[{board: A100_40GB, mig: enabled, instances: [
            {profile: 3g.20gb, start: 0, compute: [1c.3g.20gb, 1c.3g.20gb, 1c.3g.20gb]},
            {profile: 2g.10gb, start: 4}]}]",
        layout: "[{devices: all, mig: {1c.3g.20gb: 1, 2c.3g.20gb: 1, 1c.2g.10gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [
            {profile: 3g.20gb, compute: [2c.3g.20gb, 1c.3g.20gb]},
            {profile: 2g.10gb, compute: [1c.2g.10gb, 1c.2g.10gb]}]}]",
        ..PLAIN
    },
    Case {
        name: "reshape-around-one-in-use",
        gpus: "[{board: A100_40GB, mig: enabled, instances: [
            {profile: 2g.10gb, start: 4}, {profile: 1g.5gb, start: 0},
            {profile: 1g.5gb, start: 1}, {profile: 1g.5gb, start: 2}]}]",
        processes: "[{pid: 5120, gpu: 0, gi: 5, ci: 0, memory_mib: 600}]",
        layout: "[{devices: all, mig: {2g.10gb: 3}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 2g.10gb, count: 3}]}]",
        ..PLAIN
    },
    Case {
        name: "one-gpu-blocked",
        gpus: "[{board: A100_40GB, mig: enabled, instances: [
            {profile: 1g.5gb, start: 0}, {profile: 1g.5gb, start: 2}]},
            {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, count: 3}]}]",
        processes: "[{pid: 5120, gpu: 0, gi: 7, ci: 0, memory_mib: 600}]",
        layout: "[{devices: all, mig: {7g.40gb: 1}}]",
        wanted: "[{board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 7g.40gb}]}]",
        ends: "pt",
        ..PLAIN
    },
    Case {
        name: "mode-on-a100",
        gpus: "[{board: A100_40GB}]",
        layout: "[{devices: all, mig: {3g.20gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]}]",
        ..PLAIN
    },
    Case {
        name: "mode-on-a100-by-reset",
        gpus: "[{board: A100_40GB}]",
        layout: "[{devices: all, mig: {3g.20gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]}]",
        faults: &["{call: nvmlDeviceSetMigMode, activation: IN_USE}"],
        nvidia_smi: true,
        ..PLAIN
    },
    Case {
        name: "mode-on-h100",
        gpus: "[{board: H100_80GB_SXM}]",
        layout: "[{devices: all, mig: {3g.40gb: 1, 1g.10gb: 2}}]",
        wanted: "[{board: H100_80GB_SXM, mig: enabled, instances: [
            {profile: 3g.40gb}, {profile: 1g.10gb, count: 2}]}]",
        ..PLAIN
    },
    Case {
        name: "mode-off",
        gpus: "[{board: A100_40GB, mig: enabled, instances: [{profile: 2g.10gb, count: 3}]}]",
        layout: "[{devices: all, mig: disabled}]",
        wanted: "[{board: A100_40GB}]",
        ..PLAIN
    },
    Case {
        name: "rtx-pro-6000",
        gpus: "[{board: RTX_PRO_6000_BLACKWELL_96GB, mig: enabled, instances: [
            {profile: 1g.24gb-me, start: 0}, {profile: 1g.24gb+me.all, start: 9}]}]",
        layout: "[{devices: all, mig: {2g.48gb: 2}}]",
        wanted: "[{board: RTX_PRO_6000_BLACKWELL_96GB, mig: enabled, instances: [
            {profile: 2g.48gb, count: 2}]}]",
        ..PLAIN
    },
    Case {
        name: "a30",
        gpus: "[{board: A30_24GB, mig: enabled, instances: [
            {profile: 1g.6gb, start: 0}, {profile: 1g.6gb, start: 2}, {profile: 1g.6gb, start: 3}]}]",
        processes: "[{pid: 310, gpu: 0, gi: 5, ci: 0, memory_mib: 900}]",
        layout: "[{devices: all, mig: {2g.12gb: 1, 1g.6gb: 2}}]",
        wanted: "[{board: A30_24GB, mig: enabled, instances: [
            {profile: 2g.12gb}, {profile: 1g.6gb, count: 2}]}]",
        ..PLAIN
    },
    // From here on the driver refuses permanently or another process interferes, and the change is rolled back.
    Case {
        name: "compute-refused-beside-one-in-use",
        gpus: "[{board: A100_40GB, mig: enabled, instances: [{profile: 2g.10gb, start: 0}]}]",
        processes: "[{pid: 5120, gpu: 0, gi: 3, ci: 0, memory_mib: 600}]",
        layout: "[{devices: all, mig: {2g.10gb: 1, 3g.20gb: 1, 1g.5gb: 1}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [
            {profile: 3g.20gb, start: 4}, {profile: 2g.10gb}, {profile: 1g.5gb}]}]",
        faults: &["{call: nvmlGpuInstanceCreateComputeInstance*, return: NOT_SUPPORTED}"],
        ends: "p",
        ..PLAIN
    },
    Case {
        name: "second-instance-refused",
        gpus: SEVEN,
        layout: "[{devices: all, mig: {3g.20gb: 1, 2g.10gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [
            {profile: 3g.20gb, start: 4}, {profile: 2g.10gb, count: 2}]}]",
        faults: &[
            "{call: nvmlDeviceCreateGpuInstanceWithPlacement, nth: 2, times: 1, return: NOT_SUPPORTED}",
        ],
        ends: "e",
        ..PLAIN
    },
    Case {
        name: "destroying-refused",
        gpus: "[{board: A100_40GB, mig: enabled, instances: [
            {profile: 3g.20gb, start: 0, compute: [2c.3g.20gb, 1c.3g.20gb]}]}]",
        layout: "[{devices: all, mig: {7g.40gb: 1}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 7g.40gb}]}]",
        faults: &["{call: nvmlGpuInstanceDestroy, return: NO_PERMISSION}"],
        ends: "p",
        ..PLAIN
    },
    Case {
        name: "mode-on-and-compute-refused",
        gpus: "[{board: H100_80GB_SXM}]",
        layout: "[{devices: all, mig: {3g.40gb: 2}}]",
        wanted: "[{board: H100_80GB_SXM, mig: enabled, instances: [{profile: 3g.40gb, count: 2}]}]",
        faults: &["{call: nvmlGpuInstanceCreateComputeInstance*, return: NOT_SUPPORTED}"],
        ends: "p",
        ..PLAIN
    },
    Case {
        name: "somebody-comes-while-the-agent-is-down",
        gpus: SEVEN,
        layout: "[{devices: all, mig: {7g.40gb: 1}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 7g.40gb}]}]",
        ends: "e",
        late_process: Some(LateProcess {
            gpu: 0,
            profile: "1g.5gb",
            start: 6,
        }),
        ..PLAIN
    },
    Case {
        name: "what-is-asked-for-is-impossible-afterwards",
        gpus: SEVEN,
        layout: "[{devices: all, mig: {3g.20gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]}]",
        ends: "e",
        afterwards: Some("[{devices: all, mig: {4g.20gb: 1, 3g.20gb: 1, 1g.5gb: 1}}]"),
        ..PLAIN
    },
    Case {
        name: "another-gpu-cannot-have-its-part-afterwards",
        gpus: "[{board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]},
            {board: A100_40GB, mig: enabled}]",
        layout: "[{devices: 0, mig: {3g.20gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]},
            {board: A100_40GB, mig: enabled}]",
        ends: "ee",
        afterwards: Some("[{devices: 0, mig: {3g.20gb: 2}}, {devices: 1, mig: {4g.20gb: 1, 3g.20gb: 1, 1g.5gb: 1}}]"),
        ..PLAIN
    },
    Case {
        name: "the-layout-is-gone-afterwards",
        gpus: SEVEN,
        layout: "[{devices: all, mig: {3g.20gb: 2}}]",
        wanted: "[{board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]}]",
        ends: "e",
        afterwards: Some("[{devices: all, mig: {3g.40gb: 2}}]"),
        ..PLAIN
    },
];
