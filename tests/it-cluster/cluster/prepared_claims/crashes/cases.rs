//! The interrupted preparations and releases: a machine, its claims, and a cycle of steps that ends where it begins.

use crate::cluster::prepared_claims::node::Call;

/// A cycle of steps on one machine.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// GPUs, as in a scenario.
    pub(super) gpus: &'static str,
    /// Arguments of the agent.
    pub(super) arguments: &'static [&'static str],
    /// The devices of each claim: GPU, profile, first slice.
    pub(super) claims: &'static [&'static [Part]],
    /// An instance in which a process runs all the time.
    pub(super) in_use: Option<Part>,
    /// A claim that is prepared all the time.
    pub(super) prepared: Option<usize>,
    /// Steps, each with the state after it.
    pub(super) steps: &'static [Step],
    /// True if Unprepare after an interrupted Prepare, and the reverse, lead to the state before the step.
    pub(super) is_reversible: bool,
}

/// GPU, profile, first slice.
pub(super) type Part = (usize, &'static str, u32);

#[derive(Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    /// All instances afterwards.
    pub(super) instances: &'static [Part],
    /// Claims that are prepared afterwards.
    pub(super) prepared: &'static [usize],
    /// Instances of ended claims afterwards.
    pub(super) released: &'static [Part],
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    /// A call for this claim, which is interrupted.
    Call(Call, usize),
    /// A process starts in the instance of a claim.
    StartProcess(Part),
    /// That process ends, and the agent is interrupted while it handles that.
    EndProcess,
}

const fn prepare(claim: usize, instances: &'static [Part], prepared: &'static [usize]) -> Step {
    Step { action: Action::Call(Call::Prepare, claim), instances, prepared, released: &[] }
}

const fn unprepare(claim: usize, instances: &'static [Part], released: &'static [Part]) -> Step {
    Step { action: Action::Call(Call::Unprepare, claim), instances, prepared: &[], released }
}

const ONE: &str = "- {board: A100_40GB, mig: enabled}\n";
const PLAIN: Case = Case {
    name: "",
    gpus: ONE,
    arguments: &[],
    claims: &[],
    in_use: None,
    prepared: None,
    steps: &[],
    is_reversible: true,
};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "create-a100",
        claims: &[&[(0, "3g.20gb", 4)]],
        steps: &[prepare(0, &[(0, "3g.20gb", 4)], &[0]), unprepare(0, &[], &[])],
        ..PLAIN
    },
    Case {
        name: "create-h100-two-devices",
        gpus: "- {board: H100_80GB_SXM, mig: enabled}\n",
        claims: &[&[(0, "3g.40gb", 4), (0, "1g.10gb", 0)]],
        steps: &[prepare(0, &[(0, "3g.40gb", 4), (0, "1g.10gb", 0)], &[0]), unprepare(0, &[], &[])],
        ..PLAIN
    },
    Case {
        name: "create-beside-instances-in-use",
        gpus: "- {board: A100_40GB, mig: enabled, instances: [{profile: 2g.10gb, start: 0}]}\n",
        claims: &[&[(0, "3g.20gb", 4)], &[(0, "1g.5gb", 2)]],
        in_use: Some((0, "2g.10gb", 0)),
        prepared: Some(1),
        steps: &[
            prepare(0, &[(0, "2g.10gb", 0), (0, "1g.5gb", 2), (0, "3g.20gb", 4)], &[0, 1]),
            Step {
                action: Action::Call(Call::Unprepare, 0),
                instances: &[(0, "2g.10gb", 0), (0, "1g.5gb", 2)],
                prepared: &[1],
                released: &[],
            },
        ],
        ..PLAIN
    },
    Case {
        name: "keep-and-destroy-for-the-next-claim",
        arguments: &["--dra-release=keep"],
        claims: &[&[(0, "3g.20gb", 0)], &[(0, "1g.5gb", 2)]],
        steps: &[
            prepare(0, &[(0, "3g.20gb", 0)], &[0]),
            unprepare(0, &[(0, "3g.20gb", 0)], &[(0, "3g.20gb", 0)]),
            prepare(1, &[(0, "1g.5gb", 2)], &[1]),
            unprepare(1, &[(0, "1g.5gb", 2)], &[(0, "1g.5gb", 2)]),
        ],
        // An interrupted Prepare may have destroyed the released instance already.
        is_reversible: false,
        ..PLAIN
    },
    Case {
        name: "adopt",
        gpus: "- {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, start: 0}]}\n",
        claims: &[&[(0, "3g.20gb", 0)]],
        steps: &[prepare(0, &[(0, "3g.20gb", 0)], &[0]), unprepare(0, &[(0, "3g.20gb", 0)], &[])],
        ..PLAIN
    },
    Case {
        name: "release-h100-in-use",
        gpus: "- {board: H100_80GB_SXM, mig: enabled}\n",
        claims: &[&[(0, "2g.20gb", 2)]],
        steps: &[
            prepare(0, &[(0, "2g.20gb", 2)], &[0]),
            Step {
                action: Action::StartProcess((0, "2g.20gb", 2)),
                instances: &[(0, "2g.20gb", 2)],
                prepared: &[0],
                released: &[],
            },
            unprepare(0, &[(0, "2g.20gb", 2)], &[(0, "2g.20gb", 2)]),
            Step { action: Action::EndProcess, instances: &[], prepared: &[], released: &[] },
        ],
        // A released instance with a process does not serve a claim.
        is_reversible: false,
        ..PLAIN
    },
    Case {
        name: "two-gpus",
        gpus: "- {board: A100_40GB, count: 2, mig: enabled}\n",
        claims: &[&[(0, "3g.20gb", 4), (1, "4g.20gb", 0)]],
        steps: &[prepare(0, &[(0, "3g.20gb", 4), (1, "4g.20gb", 0)], &[0]), unprepare(0, &[], &[])],
        ..PLAIN
    },
];
