//! Resource requests of a pod, calculated as the scheduler does.
//!
//! Called when a pod is read. Any other calculation would make the free amounts differ from the scheduler's. Source:
//! Kubernetes, `k8s.io/component-helpers/resource`, `PodRequests`.

use octavo_fleet::cluster::{Amounts, Quantity};
use serde_json::Value;

use super::object::{Container, PodSpec, ResourceRequirements, Resources};

/// Resources with pod-level requests. Source: Kubernetes, `IsSupportedPodLevelResource`.
const POD_LEVEL_RESOURCES: [&str; 2] = ["cpu", "memory"];
const HUGE_PAGES: &str = "hugepages-";
/// Maximum number of resources read from one list; nodes have a few dozen.
const MAX_RESOURCES: usize = 512;

/// Parses amounts and records whether any was invalid.
#[derive(Debug, Default)]
pub(super) struct RequestCalculator {
    /// Whether an invalid amount was skipped.
    pub(super) found_invalid: bool,
}

impl RequestCalculator {
    /// Parses all listed resources.
    pub(super) fn amounts(&mut self, resources: Option<&Resources>) -> Amounts {
        self.found_invalid |= resources.is_some_and(|all| all.len() > MAX_RESOURCES);
        let named = resources.into_iter().flatten().take(MAX_RESOURCES);
        let read = named.filter_map(|(name, value)| {
            let quantity = quantity(value);
            self.found_invalid |= quantity.is_none();
            Some((name.as_str(), quantity?))
        });
        Amounts::from_quantities(read)
    }

    /// Returns the requests of a pod: the larger of all its containers together and its init containers at any point of
    /// the start, plus overhead.
    pub(super) fn pod(&mut self, spec: &PodSpec) -> Amounts {
        let mut running = Amounts::default();
        for container in spec.containers.iter().flatten() {
            running.add(&self.container(container.resources.as_ref()));
        }
        let mut starting = Amounts::default();
        let mut beside = Amounts::default();
        for container in spec.init_containers.iter().flatten() {
            let own = self.container(container.resources.as_ref());
            if is_sidecar(container) {
                running.add(&own);
                beside.add(&own);
                starting.raise_to(&beside);
            } else {
                let mut with = beside.clone();
                with.add(&own);
                starting.raise_to(&with);
            }
        }
        running.raise_to(&starting);
        if let Some(together) = &spec.resources {
            for (name, count) in self.amounts(together.requests.as_ref()).iter() {
                if POD_LEVEL_RESOURCES.contains(&name) || name.starts_with(HUGE_PAGES) {
                    running = running.with(name, count);
                }
            }
        }
        running.add(&self.amounts(spec.overhead.as_ref()));
        running
    }

    /// Returns the requests of a container. A device limit without a request counts as a request. Source: Kubernetes,
    /// "Schedule GPUs".
    fn container(&mut self, resources: Option<&ResourceRequirements>) -> Amounts {
        let Some(ResourceRequirements { requests, limits }) = resources else {
            return Amounts::default();
        };
        let mut amounts = self.amounts(requests.as_ref());
        for (name, count) in self.amounts(limits.as_ref()).devices() {
            let has_request = requests.as_ref().is_some_and(|all| all.contains_key(name));
            if !has_request {
                amounts = amounts.with(name, count);
            }
        }
        amounts
    }
}

/// Returns whether an init container is a sidecar, which keeps running. Source: Kubernetes, "Sidecar Containers".
fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: Value) -> (Amounts, bool) {
        let mut reckoner = RequestCalculator::default();
        let amounts = reckoner.pod(&serde_json::from_value(spec).unwrap());
        (amounts, reckoner.found_invalid)
    }

    fn asks(cpu: u64, gpus: u64) -> Value {
        json!({"resources": {"requests": {"cpu": cpu.to_string(), "nvidia.com/gpu": gpus.to_string()}}})
    }

    fn stays(cpu: u64, gpus: u64) -> Value {
        let mut container = asks(cpu, gpus);
        container["restartPolicy"] = json!("Always");
        container
    }

    #[test]
    fn pod_requests_match_the_scheduler() {
        for (case, init, containers, cpu, gpus) in [
            ("a sum of containers", vec![], vec![asks(1, 2), asks(2, 1)], 3, 3),
            (
                "the most of those that start first",
                vec![asks(4, 1), asks(1, 4)],
                vec![asks(2, 2)],
                4,
                4,
            ),
            ("who stays counts with the others", vec![stays(1, 1)], vec![asks(2, 2)], 3, 3),
            (
                "who starts after one that stays starts beside it",
                vec![stays(1, 1), asks(4, 4)],
                vec![asks(1, 1)],
                5,
                5,
            ),
            (
                "who starts before one that stays does not",
                vec![asks(4, 4), stays(1, 1)],
                vec![asks(1, 1)],
                4,
                4,
            ),
            (
                "those that stay start one after the other",
                vec![stays(2, 0), stays(3, 1), asks(1, 7)],
                vec![asks(0, 0)],
                6,
                8,
            ),
        ] {
            let spec = json!({"containers": containers, "initContainers": init});
            let (amounts, is_invalid) = of(spec);
            let found = (amounts.get("cpu"), amounts.get("nvidia.com/gpu"));
            assert_eq!((found, is_invalid), ((cpu * 1000, gpus), false), "{case}");
        }
    }

    #[test]
    fn device_limit_counts_as_request() {
        let limits = json!({"limits": {"cpu": "4", "nvidia.com/gpu": "2"}});
        let (amounts, _) = of(json!({"containers": [{"resources": limits}]}));
        assert_eq!((amounts.get("cpu"), amounts.get("nvidia.com/gpu")), (0, 2));
        let both = json!({"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}});
        let (amounts, _) = of(json!({"containers": [{"resources": both}]}));
        assert_eq!(amounts.get("nvidia.com/gpu"), 1);
    }

    #[test]
    fn pod_level_requests_and_overhead_are_counted() {
        let (amounts, _) = of(json!({
            "containers": [asks(1, 2)],
            "resources": {"requests": {"cpu": "6", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "8"}},
            "overhead": {"cpu": "250m", "memory": "64Mi"},
        }));
        let found: Vec<_> = amounts.iter().collect();
        let expected = [
            ("cpu", 6250),
            ("hugepages-2Mi", 4 << 20),
            ("memory", 64 << 20),
            ("nvidia.com/gpu", 2),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn i12_invalid_amount_is_skipped_and_reported() {
        for odd in [json!("many"), json!(null), json!([8]), json!(true)] {
            let requests = json!({"cpu": "1", "nvidia.com/gpu": odd});
            let (amounts, is_invalid) =
                of(json!({"containers": [{"resources": {"requests": requests}}]}));
            assert_eq!((amounts.get("cpu"), amounts.names("nvidia.com/gpu")), (1000, false));
            assert!(is_invalid, "{odd}");
        }
        assert_eq!(
            of(json!({"containers": [{"resources": {"requests": {"cpu": 2}}}]})).0.get("cpu"),
            2000
        );
        assert_eq!(of(json!({})), (Amounts::default(), false));
    }
}
