//! Admission policies that limit namespaces to types, with pods and claims that the API server admits and rejects.

use super::*;

const RULES: &str = "\
apiVersion: octavo.dev/v1
kind: AccessRules
namespaces:
  team-a: [nvidia-h100-80gb, nvidia-a100-80gb]
  team-b: []
others: [nvidia-t4-16gb]
";

/// Result of the creation of an object.
struct Admission(Output);

impl Admission {
    fn is_admitted(&self) -> bool {
        self.0.status.success()
    }

    /// The message of the policy.
    fn refusal(&self) -> String {
        assert!(!self.0.status.success(), "{}", text(&self.0.stdout));
        text(&self.0.stderr)
    }
}

impl Site<'_> {
    fn create(&self, object: &Value) -> Admission {
        let file = self.directory.path().join("object.json");
        fs::write(&file, object.to_string()).unwrap();
        let file = file.to_str().unwrap();
        Admission(self.api.try_kubectl(&["create", "--dry-run=server", "-o=json", "-f", file]))
    }

    /// Creates a pod with these fields of its specification.
    fn pod(&self, namespace: &str, limits: &Value, more: &Value) -> Admission {
        let container = json!({"name": "main", "image": "test.invalid/none:1", "resources": {"limits": limits}});
        let mut spec = json!({"automountServiceAccountToken": false, "containers": [container]});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let metadata = json!({"name": "one", "namespace": namespace});
        self.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    }

    fn claim(&self, namespace: &str, requests: &Value) -> Admission {
        let metadata = json!({"name": "one", "namespace": namespace});
        self.create(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata,
            "spec": {"devices": {"requests": requests}},
        }))
    }
}

fn of_type(name: &str) -> Value {
    json!({"nodeSelector": {"octavo.dev/type": name}})
}

#[test]
fn f7_namespaces_use_only_their_types_with_pods_and_claims() {
    let api = Api::fresh();
    let site = Site::new(&api);
    for namespace in ["octavo-system", "team-c"] {
        api.kubectl(&["create", "namespace", namespace]);
    }
    for namespace in ["team-a", "team-b", "team-c", "kube-system"] {
        let account = ["create", "serviceaccount", "default", "--namespace", namespace];
        // The controllers of this API server may have created it.
        let _ = api.try_kubectl(&account);
    }
    let file = site.directory.path().join("rules.yaml");
    fs::write(&file, RULES).unwrap();
    let flag = format!("--file={}", file.display());
    let directory = site.written("access", "access", &[&flag]);
    site.apply(&directory, &["--dry-run=server"]);
    site.apply(&directory, &[]);
    let first = site.versions(&directory);
    site.apply(&directory, &[]);
    assert_eq!(site.versions(&directory), first);
    let (gpu, none) = (json!({GPU: "1"}), json!({}));
    // The API server reads policies and their parameters soon after they are created.
    eventually("the policies", || {
        !site.pod("team-a", &gpu, &none).is_admitted()
            && !site.pod("team-c", &gpu, &none).is_admitted()
    });

    // Several types offer this resource, so that a pod selects one.
    let refusal = site.pod("team-a", &gpu, &none).refusal();
    let expected = "several accelerator types offer nvidia.com/gpu; select nodes by octavo.dev/type with one \
                    that the namespace team-a may use: nvidia-a100-80gb,nvidia-h100-80gb";
    assert!(refusal.contains(expected), "{refusal}");
    assert!(site.pod("team-a", &gpu, &of_type("nvidia-h100-80gb")).is_admitted());
    site.pod("team-a", &gpu, &of_type("nvidia-t4-16gb")).refusal();
    let affinity = |values: Value| {
        let term = json!({"matchExpressions": [{"key": "octavo.dev/type", "operator": "In", "values": values}]});
        let required = json!({"nodeSelectorTerms": [term]});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    };
    let both = json!(["nvidia-h100-80gb", "nvidia-a100-80gb"]);
    assert!(site.pod("team-a", &gpu, &affinity(both)).is_admitted());
    site.pod("team-a", &gpu, &affinity(json!(["nvidia-h100-80gb", "nvidia-t4-16gb"]))).refusal();
    // A pod that names its node bypasses the scheduler only.
    site.pod("team-a", &gpu, &json!({"nodeName": site.nodes[0].name()})).refusal();
    // Only an allowed type offers this one, and only another type that one.
    assert!(site.pod("team-a", &json!({SMALL: "1"}), &none).is_admitted());
    let refusal = site.pod("team-a", &json!({"amd.com/gpu": "1"}), &none).refusal();
    assert!(refusal.contains("the namespace team-a must not use amd.com/gpu"), "{refusal}");
    let init = json!({"initContainers": [
        {"name": "first", "image": "test.invalid/none:1", "resources": {"limits": {"amd.com/gpu": "1"}}},
    ]});
    site.pod("team-a", &none, &init).refusal();
    // The default of a limit range is a request of none.
    assert!(site.pod("team-b", &json!({GPU: "0", "cpu": "1"}), &none).is_admitted());
    site.pod("team-b", &gpu, &of_type("nvidia-h100-80gb")).refusal();
    // Other namespaces, but not those of the cluster.
    assert!(site.pod("team-c", &gpu, &of_type("nvidia-t4-16gb")).is_admitted());
    site.pod("team-c", &gpu, &of_type("nvidia-h100-80gb")).refusal();
    assert!(site.pod("kube-system", &gpu, &none).is_admitted());
    claims_are_limited(&site);
}

fn claims_are_limited(site: &Site<'_>) {
    let exactly = |class: &str| json!([{"name": "gpu", "exactly": {"deviceClassName": class}}]);
    assert!(site.claim("team-a", &exactly("nvidia-h100-80gb.octavo.dev")).is_admitted());
    assert!(site.claim("team-a", &exactly("network.example.com")).is_admitted());
    let refusal = site.claim("team-a", &exactly("gpu.octavo.dev")).refusal();
    let expected = "requests gpu: the namespace team-a may use only these classes of accelerators: \
                    nvidia-a100-80gb.octavo.dev,nvidia-h100-80gb.octavo.dev";
    assert!(refusal.contains(expected), "{refusal}");
    site.claim("team-a", &exactly("gpu.nvidia.com")).refusal();
    let first = |classes: [&str; 2]| {
        let [one, two] = classes.map(|class| json!({"name": "n", "deviceClassName": class}));
        let mut two = two;
        two["name"] = json!("m");
        json!([{"name": "gpu", "firstAvailable": [one, two]}])
    };
    let allowed = ["nvidia-h100-80gb.octavo.dev", "nvidia-a100-80gb.octavo.dev"];
    assert!(site.claim("team-a", &first(allowed)).is_admitted());
    site.claim("team-a", &first([allowed[0], "nvidia-t4-16gb.octavo.dev"])).refusal();
    let template = site.create(&json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": "team-a"},
        "spec": {"spec": {"devices": {"requests": exactly("mig.octavo.dev")}}},
    }));
    template.refusal();
}
