//! Resources of a node with a free unit.

use octavo_fleet::accelerator_resource::is_accelerator;
use octavo_fleet::cluster::{ClusterNode, ClusterPod, Readiness};
use octavo_model::text::first_names;
use octavo_node::node_object::REPARTITIONING_TAINT;
use octavo_node::validation::{Expectation, StepResult, Validation, ValidationStep};

/// Maximum number of listed pods that hold units.
const SHOWN: usize = 3;

/// Decision about a resource of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum PlannedStep {
    /// A pod is created.
    Pod(Box<PlannedPod>),
    /// The result is known without a pod.
    Done(Validation),
}

/// A pod to create.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedPod {
    /// The node.
    pub node: ClusterNode,
    /// The resource.
    pub resource: String,
    /// Expected properties of one unit.
    pub expected: Expectation,
    /// Result of the step [`ValidationStep::FreeUnits`].
    pub free: StepResult,
}

/// Selects the resources of a node to create pods for. `pods` are those that hold resources of the node. `wanted` limits the resources; if
/// it is empty, all accelerator resources are validated.
pub fn plan_node(node: &ClusterNode, pods: &[ClusterPod], wanted: &[String]) -> Vec<PlannedStep> {
    let failed = |evidence: &str, remedy: &str| {
        let step = StepResult::failing(ValidationStep::FreeUnits, evidence.to_owned(), remedy);
        vec![PlannedStep::Done(Validation::new(&node.name, None, vec![step]))]
    };
    if node.readiness != Readiness::Ready {
        return failed(
            "the node is not ready",
            "check the kubelet: `kubectl describe node NODE` shows its conditions",
        );
    }
    if node.taints.iter().any(|taint| taint.key == REPARTITIONING_TAINT) {
        let evidence = "the node is being repartitioned".to_owned();
        let step = StepResult::skipped(ValidationStep::FreeUnits, evidence);
        return vec![PlannedStep::Done(Validation::new(&node.name, None, vec![step]))];
    }
    // The kubelet lists a resource without units after its device plugin has ended.
    let offered = node.capacity.iter().filter(|(name, count)| *count > 0 && is_accelerator(name));
    let names: Vec<&str> = if wanted.is_empty() {
        offered.map(|(name, _)| name).collect()
    } else {
        wanted.iter().map(String::as_str).collect()
    };
    if names.is_empty() {
        let evidence = "the node offers no units of an accelerator resource";
        return failed(evidence, "check the driver and the device plugin: `octavo doctor NODE`");
    }
    names.into_iter().map(|name| plan_resource(node, pods, name)).collect()
}

fn plan_resource(node: &ClusterNode, pods: &[ClusterPod], resource: &str) -> PlannedStep {
    let done = |step| PlannedStep::Done(Validation::new(&node.name, Some(resource), vec![step]));
    let step = ValidationStep::FreeUnits;
    if !node.capacity.iter().any(|(name, _)| name == resource) {
        let remedy = "check the driver and the device plugin: `octavo doctor NODE`";
        return done(StepResult::failing(step, "the node does not offer it".to_owned(), remedy));
    }
    let Some(expected) = Expectation::new(resource, &node.labels) else {
        let remedy = "specify a resource of NVIDIA, AMD or AWS Neuron with --resource";
        return done(StepResult::failing(
            step,
            "the vendor of the resource is not known".to_owned(),
            remedy,
        ));
    };
    let (capacity, all) = (node.capacity.get(resource), node.allocatable.get(resource));
    if all == 0 {
        let evidence = format!("0 of {capacity} units are allocatable");
        return done(StepResult::failing(
            step,
            evidence,
            "check the device plugin and the health of the devices: `octavo doctor NODE`",
        ));
    }
    let holders = pods.iter().filter(|pod| pod.holding_node() == Some(node.name.as_str()));
    let holders = holders.filter_map(|pod| {
        let count = pod.requirements.amounts.get(resource);
        (count > 0).then(|| (format!("{}/{} ({count})", pod.key.namespace, pod.key.name), count))
    });
    let (names, counts): (Vec<String>, Vec<u64>) = holders.unzip();
    let held = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    let free = all.saturating_sub(held);
    if free == 0 {
        let evidence = format!("0 of {all} are free; held by {}", first_names(&names, SHOWN));
        return done(StepResult::skipped(step, evidence));
    }
    PlannedStep::Pod(Box::new(PlannedPod {
        node: node.clone(),
        resource: resource.to_owned(),
        expected,
        free: StepResult::ok(step, format!("{free} of {all} are free")),
    }))
}

#[cfg(test)]
mod tests {
    use octavo_fleet::cluster::{Amounts, Phase, PodKey};
    use octavo_node::validation::Outcome;

    use super::*;

    const GPU: &str = "nvidia.com/gpu";

    fn node(capacity: u64, allocatable: u64) -> ClusterNode {
        ClusterNode {
            name: "a".to_owned(),
            readiness: Readiness::Ready,
            capacity: Amounts::default()
                .with(GPU, capacity)
                .with("cpu", 1)
                .with("nvidia.com/mig-1g.5gb", 0),
            allocatable: Amounts::default().with(GPU, allocatable),
            ..ClusterNode::default()
        }
    }

    fn holder(name: &str, count: u64) -> ClusterPod {
        let mut pod = ClusterPod {
            key: PodKey { namespace: "ml".to_owned(), name: name.to_owned() },
            node: Some("a".to_owned()),
            phase: Phase::Bound,
            ..ClusterPod::default()
        };
        pod.requirements.amounts = Amounts::default().with(GPU, count);
        pod
    }

    /// The outcome and the evidence of a node without a pod.
    fn done(node: &ClusterNode, pods: &[ClusterPod], wanted: &[String]) -> (Outcome, String) {
        let planned = plan_node(node, pods, wanted);
        let [PlannedStep::Done(done)] = planned.as_slice() else {
            panic!("{planned:?}");
        };
        (done.outcome, done.steps[0].evidence.clone())
    }

    #[test]
    fn one_pod_is_planned_per_resource_with_a_free_unit() {
        let planned = plan_node(&node(2, 2), &[holder("train", 1)], &[]);
        let [PlannedStep::Pod(pod)] = planned.as_slice() else {
            panic!("{planned:?}");
        };
        assert_eq!((pod.resource.as_str(), pod.free.evidence.as_str()), (GPU, "1 of 2 are free"));
    }

    #[test]
    fn node_without_free_units_is_skipped_with_its_holders() {
        let pods = [holder("train", 1), holder("serve", 1)];
        let evidence = "0 of 2 are free; held by ml/train (1), ml/serve (1)";
        assert_eq!(done(&node(2, 2), &pods, &[]), (Outcome::Skipped, evidence.to_owned()));
    }

    #[test]
    fn node_that_cannot_be_validated_fails_with_the_reason() {
        let failed = |node: &ClusterNode, wanted: &[String], evidence: &str| {
            assert_eq!(done(node, &[], wanted), (Outcome::Failed, evidence.to_owned()));
        };
        failed(&node(2, 0), &[], "0 of 2 units are allocatable");
        failed(&node(0, 0), &[], "the node offers no units of an accelerator resource");
        let other = ["example.com/fpga".to_owned()];
        failed(&node(2, 2), &other, "the node does not offer it");
        failed(&node(2, 2), &["cpu".to_owned()], "the vendor of the resource is not known");
        let mut unready = node(2, 2);
        unready.readiness = Readiness::NotReady;
        failed(&unready, &[], "the node is not ready");
    }
}
