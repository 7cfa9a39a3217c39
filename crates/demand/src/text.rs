//! Texts about proposals, shared by the terminal and the web page.

use std::collections::BTreeMap;

use octavo_model::reported::Reported;
use octavo_model::slices::words::slice_range;
use octavo_model::text::{count_noun, join};

use crate::proposal::{MAX_PODS, MIN_AGE_SECONDS};
use crate::report::{
    Defragmentation, DemandReport, InstancePlace, Outcome, PodMove, PodProposal, ProposedInstance,
};

/// Statement that the proposals have no effect.
pub const ONLY_PROPOSALS: &str =
    "these are proposals; only policies with spec.demand carry them out";

impl DemandReport {
    /// Number of pods by outcome, in the order of the outcomes; without outcomes that no pod has.
    pub fn outcomes(&self) -> Vec<(&Reported<Outcome>, usize)> {
        let mut outcomes: BTreeMap<&Reported<Outcome>, usize> = BTreeMap::new();
        for pod in &self.items {
            let count = outcomes.entry(&pod.outcome).or_default();
            *count = count.saturating_add(1);
        }
        outcomes.into_iter().collect()
    }

    /// Number of pods that wait for MIG instances, with those that are not planned.
    pub fn waiting_pods(&self) -> usize {
        self.items.len().saturating_add(self.omitted_pods).saturating_add(self.recent_pods)
    }

    /// `3 pods wait for MIG instances`, with those that are not planned.
    pub fn waiting_text(&self) -> String {
        let pods = count_noun(self.waiting_pods(), "pod waits", "pods wait");
        format!("{pods} for MIG instances")
    }

    /// Notes about pods that have no proposal.
    pub fn notes(&self) -> Vec<String> {
        let recent = (self.recent_pods > 0).then(|| {
            format!(
                "{} not planned yet: younger than {MIN_AGE_SECONDS} s",
                count_noun(self.recent_pods, "pod is", "pods are")
            )
        });
        let omitted = (self.omitted_pods > 0).then(|| {
            format!(
                "{} omitted: at most {MAX_PODS} pods are planned, and fewer with costly requests",
                count_noun(self.omitted_pods, "pod is", "pods are")
            )
        });
        let none = (self.items.is_empty() && recent.is_none())
            .then(|| "no pending pod requests MIG instances".to_owned());
        [none, omitted, recent].into_iter().flatten().collect()
    }
}

impl Outcome {
    /// Its meaning, as a clause.
    pub fn description(self) -> &'static str {
        match self {
            Self::Available => {
                "idle instances exist; the scheduler takes them unless a rule prevents it"
            }
            Self::Create => "the instances can be created in free slices",
            Self::Replace => "the instances can be created after idle ones are destroyed",
            Self::Reserve => {
                "the pod has waited for a long time; a GPU should be reserved for it until enough of its instances are idle"
            }
            Self::Blocked => "no change of idle instances helps",
        }
    }
}

impl PodProposal {
    /// Namespace and name: `team-a/train`.
    pub fn reference(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }

    /// Requested instances: `2 x mig-1g.10gb, mig-3g.40gb`.
    pub fn requests(&self) -> String {
        let each = self.resources.iter().map(|(resource, count)| {
            let name = resource.strip_prefix("nvidia.com/").unwrap_or(resource);
            if *count == 1 { name.to_owned() } else { format!("{count} x {name}") }
        });
        join(each, ", ")
    }

    /// Growth of the fragmentation in words.
    pub fn fragmentation_text(&self) -> Option<String> {
        self.fragmentation.map(growth_text)
    }
}

impl Defragmentation {
    /// The pods that would restart, and the instance for which they make room, as a clause.
    pub(crate) fn describe(&self) -> String {
        let pods = count_noun(self.moves.len(), "pod restarts", "pods restart");
        let moves = self.moves.iter().map(|one| format!("{} with {}", one.reference(), one.to()));
        format!(
            "{} of {} on node {} fits after {pods}: {}",
            self.instance.describe(),
            self.device_name,
            self.node,
            join(moves, ", ")
        )
    }

    /// Growth of the fragmentation in words.
    pub fn fragmentation_text(&self) -> String {
        growth_text(self.fragmentation)
    }
}

impl PodMove {
    /// Namespace and name: `team-a/train`.
    pub fn reference(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }

    /// The other instance: `1g.10gb at slice 4 of GPU 3 on node gpu-1`.
    pub fn to(&self) -> String {
        let ProposedInstance { instance, device_name, .. } = &self.to;
        format!("{} of {device_name} on node {}", instance.describe(), self.node)
    }
}

fn growth_text(growth: f64) -> String {
    let slices = format!("{:.1}", growth.abs());
    match (slices.as_str(), growth > 0.0) {
        ("0.0", _) => "unchanged".to_owned(),
        (_, true) => format!("{slices} more slices are unusable for an average request"),
        (_, false) => format!("{slices} fewer slices are unusable for an average request"),
    }
}

impl ProposedInstance {
    /// Proposed action: `use`, `create` or `replace`.
    pub fn action(&self) -> &'static str {
        match (self.exists, self.destroys.is_empty()) {
            (true, _) => "use",
            (false, true) => "create",
            (false, false) => "replace",
        }
    }

    /// Idle instances that are destroyed: `1g.10gb at slice 4, 1g.10gb at slice 5`.
    pub fn destroyed(&self) -> String {
        join(self.destroys.iter().map(InstancePlace::describe), ", ")
    }
}

impl InstancePlace {
    /// Slices of the placement: `slices 4-7`.
    pub fn slices(&self) -> String {
        slice_range(self.placement.start, self.placement.size)
    }
}
