//! The simulated Kubernetes API server of the demo, as the released programs and other clients use it.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::*;
use crate::fleet_api::Api;
use crate::time_limits::until_async;

/// A demo with some of its machines, its aggregator and its API server.
struct SmallDemo {
    demo_dir: DemoDirectory,
    demo: Demo,
    aggregator: Api,
    kubernetes: Api,
    kubeconfig: String,
    server: String,
}

impl SmallDemo {
    fn start(machines: &[&str]) -> Self {
        let demo_dir = DemoDirectory::new();
        let machines = demo_dir.machines(machines);
        let mut demo = demo_dir.start(&["--machines", &machines]);
        let line = demo.expect_line(" profiles create");
        let word = |name: &str| {
            let mut words = line.split_whitespace();
            words.find_map(|word| word.strip_prefix(name)).unwrap().to_owned()
        };
        let (server, kubeconfig) = (word("OCTAVO_SERVER="), word("KUBECONFIG="));
        let text = fs::read_to_string(&kubeconfig).unwrap();
        let url = text.split('\'').nth(1).unwrap();
        let kubernetes = Api::at(address(url));
        Self {
            demo_dir,
            demo,
            aggregator: Api::at(address(&server)),
            kubernetes,
            kubeconfig,
            server,
        }
    }

    fn octavo(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(arguments)
            .env("OCTAVO_SERVER", &self.server)
            .env("KUBECONFIG", &self.kubeconfig)
            .finish()
    }

    /// Waits until a document of the aggregator satisfies `wanted`.
    async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let answer =
            self.aggregator.until(path, |answer| answer.status == 200 && wanted(&answer.json()));
        answer.await.json()
    }

    fn stop(mut self) {
        kill(self.demo.pid(), Signal::SIGINT).unwrap();
        assert_eq!(exit_status(&mut self.demo.child).code(), Some(0));
        self.demo_dir.is_left_clean();
    }
}

fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["name"].as_str().or_else(|| item["name"].as_str()).unwrap())
        .collect()
}

const PROFILES: &str =
    "/apis/infrastructure.opendatahub.io/v1/namespaces/platform/hardwareprofiles";

#[tokio::test]
async fn profile_created_through_rest_api_is_stored_in_cluster_and_listed_with_its_nodes() {
    let demo = SmallDemo::start(&["h200", "t4"]);
    let order = json!({"type": "nvidia-h200-141gb", "namespace": "platform", "name": "h200-job", "displayName": "H200 job", "reason": "a test"});
    let order = order.to_string();
    // The draft needs the Nodes with the agents' labels and the allocatable devices.
    demo.until("/api/v1/profile-draft?type=nvidia-h200-141gb&namespace=platform", |_| true).await;
    let dry = demo.aggregator.whole("POST", "/api/v1/profiles?dryRun=All", &order).await;
    assert_eq!(dry.status, 200, "{}", dry.body);
    let object = format!("{PROFILES}/h200-job");
    assert_eq!(demo.kubernetes.get(&object).await.status, 404);
    let made = demo.aggregator.whole("POST", "/api/v1/profiles", &order).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let stored = demo.kubernetes.get(&object).await.json();
    let identifiers = stored["spec"]["identifiers"].as_array().unwrap();
    let is_gpu = |one: &Value| one["identifier"] == "nvidia.com/gpu";
    assert!(identifiers.iter().any(is_gpu), "{stored}");
    assert_eq!(stored["metadata"]["managedFields"][0]["manager"], "octavo-profiles");
    assert_eq!(stored["metadata"]["annotations"]["octavo.dev/reason"], "a test");
    let listed = demo
        .until("/api/v1/profiles", |list| {
            let profiles = list["items"].as_array().unwrap();
            profiles.iter().any(|one| one["name"] == "h200-job")
        })
        .await;
    assert!(names(&listed).contains(&"h100-training"), "{listed}");
    // The same profile is up to date, and another one with its name is refused.
    let again = demo.aggregator.whole("POST", "/api/v1/profiles", &order).await;
    assert_eq!((again.status, again.json()["outcome"].as_str()), (200, Some("unchanged")));
    let other = order.replace("H200 job", "Another");
    assert_eq!(demo.aggregator.whole("POST", "/api/v1/profiles", &other).await.status, 409);
    demo.stop();
}

#[tokio::test]
async fn nodes_and_pods_of_cluster_agree_with_agents_and_usage() {
    let demo = SmallDemo::start(&["mi210-pair", "t4"]);
    demo.until("/api/v1/availability", |list| {
        let rows = list["items"].as_array().unwrap();
        list["basis"] == "cluster"
            && rows.iter().any(|row| row["type"] == "nvidia-t4-16gb" && row["requested"] == 2)
    })
    .await;
    // The agent writes the labels after its report.
    let is_labeled =
        |node: &Value| node["metadata"]["labels"]["octavo.dev/type"] == "nvidia-t4-16gb";
    let node = async || demo.kubernetes.get("/api/v1/nodes/t4").await.json();
    let node = until_async("the labels of the node", node, is_labeled).await;
    let managers = node["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|one| one["manager"] == "octavo-agent"), "{managers:?}");
    assert_eq!(node["status"]["allocatable"]["nvidia.com/gpu"], "3");
    let other = demo.kubernetes.get("/api/v1/nodes/mi210-pair").await.json();
    assert_eq!(other["status"]["allocatable"]["amd.com/gpu"], "2");
    let selected = "/api/v1/pods?fieldSelector=spec.nodeName%3Dt4";
    let pods = demo.kubernetes.get(selected).await.json();
    assert_eq!(names(&pods), ["notebook-7", "triton-0"]);
    let used = || {
        let output = demo.octavo(&["top", "--node=t4", "--no-headers"]);
        text(&output)
    };
    let rows = until("both pods", used, |rows| rows.contains("research/notebook-7"));
    assert!(rows.contains("serving/triton-0"), "{rows}");
    // A deleted pod ends with its process, and its time slice is free.
    let deleted = "/api/v1/namespaces/serving/pods/triton-0";
    assert_eq!(demo.kubernetes.whole("DELETE", deleted, "").await.status, 200);
    demo.until("/api/v1/availability", |list| {
        let rows = list["items"].as_array().unwrap();
        rows.iter().any(|row| row["type"] == "nvidia-t4-16gb" && row["requested"] == 1)
    })
    .await;
    until("the other pod alone", used, |rows| !rows.contains("serving/triton-0"));
    let types = demo.aggregator.get("/api/v1/types").await.json();
    assert_eq!(types["cluster"], "demo");
    demo.stop();
}

#[tokio::test]
async fn command_creates_profile_with_kubeconfig_and_invalid_ones_are_refused() {
    let demo = SmallDemo::start(&["t4"]);
    let create = |more: &[&str]| {
        let base = ["profiles", "create", "--type=nvidia-t4-16gb", "--namespace=platform"];
        let output = demo.octavo(&[&base[..], more].concat());
        (output.status.code(), text(&output))
    };
    // The agent publishes the label that the profile selects by soon after its start.
    let made = || create(&["--name=t4-small"]);
    let (_, output) = until("a new profile", made, |(code, _)| *code == Some(0));
    assert!(output.contains("profile platform/t4-small created"), "{output}");
    let stored = demo.kubernetes.get(&format!("{PROFILES}/t4-small")).await.json();
    let by = &stored["metadata"]["annotations"]["octavo.dev/created-by"];
    assert_eq!(by, "demo-user", "{stored}");
    let odd = json!({"metadata": {"name": "odd"}, "spec": {"identifiers": [{"identifier": "x"}]}});
    let refused = demo.kubernetes.whole("POST", PROFILES, &odd.to_string()).await;
    assert_eq!(refused.status, 422, "{}", refused.body);
    let elsewhere = PROFILES.replace("platform", "nowhere");
    let whole = json!({"metadata": {"name": "a"}, "spec": {"identifiers": []}});
    let refused = demo.kubernetes.whole("POST", &elsewhere, &whole.to_string()).await;
    assert!(refused.body.contains("namespaces \\\"nowhere\\\" not found"), "{}", refused.body);
    demo.stop();
}

/// Machines whose layouts do not change: whole, partitioned and time-sliced GPUs, AMD, Neuron, and two that cannot be used.
const STATIC_MACHINES: [&str; 7] = [
    "train-h100",
    "train-h100-mig",
    "t4",
    "mi210-pair",
    "inf2",
    "mixed-l40s-a100",
    "unknown-cards",
];

#[test]
fn p3_generated_manifests_match_golden_files() {
    let demo = SmallDemo::start(&STATIC_MACHINES);
    let flags = ["--namespace=research,serving", "--priorities=high,normal,low"];
    for target in ["kueue", "quotas"] {
        let generate = || demo.octavo(&[&["generate", target], &flags[..]].concat());
        // The agents publish labels, and the kubelets resources, soon after their start.
        let output = until("resources of all machines", generate, |output| {
            let (manifests, notes) = (text(output), String::from_utf8_lossy(&output.stderr));
            let resources = ["nvidia.com/mig-3g.40gb", "amd.com/gpu", "aws.amazon.com/neuron"];
            resources.iter().all(|name| manifests.contains(name))
                && !notes.contains("allocatable")
                && !notes.contains("no label names")
                && !notes.contains("no label octavo")
                // The layout of this machine is applied after the start too.
                && (target == "quotas" || manifests.contains("nvidia-t4-16gb-time-slicing"))
        });
        golden(
            &format!("cli/generate/{target}.yaml"),
            std::str::from_utf8(&output.stdout).unwrap(),
        );
    }
    demo.stop();
}

/// A demo whose machines are EC2 instances.
async fn cloud_demo() -> SmallDemo {
    let demo = SmallDemo::start(&["train-h100", "train-h100-mig", "t4", "inf2"]);
    for (node, instance_type, zone, capacity) in [
        ("train-h100", "p5.48xlarge", "us-east-1a", "on-demand"),
        ("train-h100-mig", "p5.48xlarge", "us-east-1a", "on-demand"),
        ("t4", "g4dn.xlarge", "us-east-1b", "spot"),
        ("inf2", "inf2.48xlarge", "us-east-1a", "on-demand"),
    ] {
        let labels = json!({
            "node.kubernetes.io/instance-type": instance_type, "topology.kubernetes.io/zone": zone,
            "karpenter.sh/capacity-type": capacity,
        });
        let patch = json!({"metadata": {"labels": labels}}).to_string();
        let target = format!("/api/v1/nodes/{node}");
        let labeled = demo.kubernetes.whole("PATCH", &target, &patch).await;
        assert_eq!(labeled.status, 200, "{}", labeled.body);
    }
    demo
}

#[tokio::test]
async fn f1_f7_machine_pools_and_access_match_golden_files() {
    let demo = cloud_demo().await;
    let sets = "--machine-sets=tests/golden/cli/generate/machine-sets.yaml";
    let rules = "--file=tests/golden/cli/generate/access-rules.yaml";
    let targets: [(&str, &[&str]); 3] =
        [("karpenter", &[]), ("openshift", &[sets]), ("access", &[rules])];
    for (target, flags) in targets {
        let generate = || demo.octavo(&[&["generate", target], flags].concat());
        let output = until("resources of all machines", generate, |output| {
            let resources: &[&str] = match target {
                "access" => &["aws.amazon.com/neuron", "mig-3g.40gb", "selected: nvidia.com/gpu"],
                _ => &["nvidia-h100-80gb-mixed", "time-slicing", "aws-inferentia2-32gb"],
            };
            output.status.success()
                && resources.iter().all(|name| text(output).contains(name))
                && !String::from_utf8_lossy(&output.stderr).contains("excluded")
        });
        golden(
            &format!("cli/generate/{target}.yaml"),
            std::str::from_utf8(&output.stdout).unwrap(),
        );
    }
    demo.stop();
}

#[test]
fn f1_p5_manifests_without_nodes_match_golden_files() {
    let repository = ["--repo=https://git.example/fleet.git", "--path=deploy/machines"];
    let layouts = ["--file=demo/layouts.yaml"];
    for (target, flags) in [("argocd", &repository[..]), ("gpu-operator", &layouts)] {
        let mut octavo = Command::new(env!("CARGO_BIN_EXE_octavo"));
        let output = octavo.args(["generate", target]).args(flags).finish();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let manifests = std::str::from_utf8(&output.stdout).unwrap();
        golden(&format!("cli/generate/{target}.yaml"), manifests);
    }
}

#[tokio::test]
async fn f2_quotas_of_the_fleet_and_of_additional_instances_are_checked() {
    let demo = cloud_demo().await;
    let quota = |code: &str, name: &str, value: f64| json!({"ServiceCode": "ec2", "QuotaCode": code, "QuotaName": name, "Value": value});
    let limits = json!({"Quotas": [
        quota("L-417A185B", "Running On-Demand P instances", 384.0),
        quota("L-1945791B", "Running On-Demand Inf instances", 192.0),
        quota("L-3819A6DF", "All G and VT Spot Instance Requests", 4.0),
    ]});
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), limits.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    let check = |more: &[&str]| demo.octavo(&[&["quota-check", "-f", path], more].concat());
    let fits = until(
        "all instances",
        || check(&["--no-headers"]),
        |output| text(output).lines().count() == 3,
    );
    assert_eq!((fits.status.code(), fits.stderr.as_slice()), (Some(0), &b""[..]));
    let expected = "\
L-1945791B  Running On-Demand Inf instances      192  192  0  sufficient
L-3819A6DF  All G and VT Spot Instance Requests  4    4    0  sufficient
L-417A185B  Running On-Demand P instances        384  384  0  sufficient
";
    assert_eq!(text(&fits), expected);
    let more = check(&["--add=p5.48xlarge=2", "--add-spot=g6.xlarge=1", "--no-headers"]);
    assert_eq!(more.status.code(), Some(3));
    let notes = String::from_utf8_lossy(&more.stderr);
    assert!(notes.contains("--quota-code L-417A185B --desired-value 768`"), "{notes}");
    assert!(
        notes.contains("All G and VT Spot Instance Requests: 8 virtual CPUs are needed"),
        "{notes}"
    );
    let unknown = check(&["--add=p5.1xlarge=2"]);
    assert_eq!(unknown.status.code(), Some(1));
    demo.stop();
}

#[tokio::test]
async fn drain_is_stuck_at_pod_that_its_disruption_budget_protects() {
    let demo_dir = DemoDirectory::new();
    let machines = demo_dir.machines(&[]);
    let pool = fs::read_to_string(format!("{POOLS}/shared-a100.yaml")).unwrap();
    let machine = pool.replace("pool-machine", "shared-a100-02");
    fs::write(format!("{machines}/shared-a100-02.yaml"), machine).unwrap();
    let mut demo = demo_dir.start(&["--machines", &machines]);
    let line = demo.expect_line(" profiles create");
    let server = line.split_whitespace().find_map(|word| word.strip_prefix("OCTAVO_SERVER="));
    let aggregator = Api::at(address(server.unwrap()));
    let node = aggregator
        .node("shared-a100-02", |node| node.to_string().contains("PodDisruptionBudget"))
        .await
        .to_string();
    assert!(node.contains("serving/guardrail-0"), "{node}");
    kill(demo.pid(), Signal::SIGINT).unwrap();
    assert_eq!(exit_status(&mut demo.child).code(), Some(0));
    demo_dir.is_left_clean();
}

#[test]
fn tour_runs_all_commands_against_the_whole_fleet() {
    let demo_dir = DemoDirectory::new();
    let output = demo_dir.demo(&["--tour"]).finish();
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert_eq!(shown.matches("\n$ octavo ").count(), 10, "{shown}");
    for expected in [
        "train-h100-05",
        "research/notebook-7",
        "serving/guardrail-0",
        "profile platform/h200 created",
        "v100-legacy",
        "the tour has ended",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in {shown}");
    }
    demo_dir.is_left_clean();
}
