//! Random nodes and pods from small sets of values, so that some fit and some do not.

use serde_json::{Value, json};

/// Label with the fleet of a node, which its pods select.
pub(super) const LABEL: &str = "test.invalid/fleet";

const TAINTS: [&str; 3] = ["gpu", "team", "spot"];
const EFFECTS: [&str; 3] = ["NoSchedule", "NoExecute", "PreferNoSchedule"];
const ZONES: [&str; 3] = ["a", "b", "c"];

/// A pseudorandom generator with a fixed seed.
pub(super) struct RandomNumbers(u64);

impl RandomNumbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `below`. Source: "Xorshift RNGs", Marsaglia 2003.
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.next(times) == 0
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[usize::try_from(self.next(all.len() as u64)).unwrap()]
    }

    /// A ready node.
    pub(super) fn node(&mut self, fleet: &str, number: u64) -> Value {
        let name = format!("{fleet}-{number}");
        let mut labels =
            json!({"kubernetes.io/hostname": name, LABEL: fleet, "rank": number.to_string()});
        if !self.one_in(4) {
            labels["zone"] = json!(self.of(&ZONES));
        }
        let mut taints = Vec::new();
        for key in TAINTS {
            if self.one_in(4) {
                let effect = self.of(&EFFECTS);
                taints.push(json!({"key": key, "value": self.of(&["x", "y"]), "effect": effect}));
            }
        }
        let mut has = json!({
            "cpu": self.of(&["4", "8", "15500m", "32"]),
            "memory": self.of(&["8Gi", "32Gi"]),
            "pods": (3 + self.next(10)).to_string(),
        });
        has[device(fleet)] = json!(self.next(17).to_string());
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": self.one_in(6)},
            "status": {
                "capacity": has, "allocatable": has,
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Test", "message": "there is no machine",
                    "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        })
    }

    /// A pod's spec.
    pub(super) fn pod(&mut self, fleet: &str) -> Value {
        let mut first = Vec::new();
        for number in 0..self.next(3) {
            let mut container = self.container(fleet, &format!("first-{number}"));
            if self.one_in(3) {
                container["restartPolicy"] = json!("Always");
            }
            first.push(container);
        }
        let containers = 1 + self.next(2);
        let containers: Vec<Value> = (0..containers)
            .map(|number| self.container(fleet, &format!("then-{number}")))
            .collect();
        let mut spec = json!({
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "nodeSelector": {LABEL: fleet}, "initContainers": first, "containers": containers,
            "tolerations": self.tolerations(),
        });
        if self.one_in(6) {
            spec["nodeSelector"]["zone"] = json!(self.of(&ZONES));
        }
        if self.one_in(3) {
            let terms: Vec<Value> = (0..=self.next(2)).map(|_| self.term(fleet)).collect();
            let required = json!({"nodeSelectorTerms": terms});
            spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        }
        spec
    }

    fn container(&mut self, fleet: &str, name: &str) -> Value {
        let mut requests = json!({"memory": self.of(&["0", "64Mi", "1Gi"])});
        requests["cpu"] = json!(self.of(&["0", "100m", "1", "1500m"]));
        let mut limits = json!({});
        if !self.one_in(4) {
            let count = json!((1 + self.next(3)).to_string());
            limits[device(fleet)] = count.clone();
            if self.one_in(2) {
                requests[device(fleet)] = count;
            }
        }
        json!({
            "name": name, "image": "test.invalid/none:1",
            "resources": {"requests": requests, "limits": limits},
        })
    }

    fn tolerations(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        for key in TAINTS {
            match self.next(5) {
                0 => all.push(json!({"key": key, "operator": "Exists"})),
                1 => all.push(json!({"key": key, "value": self.of(&["x", "y"])})),
                2 => {
                    let effect = self.of(&EFFECTS);
                    all.push(json!({"key": key, "operator": "Exists", "effect": effect}));
                }
                _ => {}
            }
        }
        if self.one_in(4) {
            all.push(json!({"operator": "Exists"}));
        }
        if self.one_in(5) {
            let key = "node.kubernetes.io/unschedulable";
            all.push(json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}));
        }
        all
    }

    fn term(&mut self, fleet: &str) -> Value {
        let labels = match self.next(6) {
            0 => {
                json!({"key": "zone", "operator": "In", "values": [self.of(&ZONES), self.of(&ZONES)]})
            }
            1 => json!({"key": "zone", "operator": "NotIn", "values": [self.of(&ZONES)]}),
            2 => json!({"key": "zone", "operator": "Exists"}),
            3 => json!({"key": "zone", "operator": "DoesNotExist"}),
            4 => json!({"key": "rank", "operator": "Gt", "values": [self.next(3).to_string()]}),
            _ => {
                json!({"key": "rank", "operator": "Lt", "values": [(1 + self.next(3)).to_string()]})
            }
        };
        let mut term = json!({"matchExpressions": [labels]});
        if self.one_in(3) {
            let name = format!("{fleet}-{}", self.next(5));
            let operator = self.of(&["In", "NotIn"]);
            term["matchFields"] =
                json!([{"key": "metadata.name", "operator": operator, "values": [name]}]);
        }
        term
    }
}

/// The extended resource of a fleet.
fn device(fleet: &str) -> String {
    format!("{fleet}.test.invalid/gpu")
}
