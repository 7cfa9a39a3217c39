//! Hardware profiles of a file with a real fleet and a test cluster.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use octavo_files::config_files::profiles::HardwareProfileFile;
use octavo_fleet::cluster::{Amounts, ClusterNode, ClusterPod, ClusterSnapshot, Readiness};
use octavo_kube::cluster::WatchedCluster;
use octavo_store::profiles::Profiles;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

use super::Answer;
use super::fleet::{Aggregator, Machines};
use crate::time_limits::until_async;

pub(super) const L4: &str = "nvidia-l4-24gb";

/// A cluster snapshot with its source, and the directory of the file.
pub(crate) struct ProfileFixture {
    pub(crate) cluster: watch::Sender<Arc<WatchedCluster>>,
    directory: TempDir,
}

/// A profile as returned by the API server. Its selector determines its types.
pub(crate) fn profile(namespace: &str, name: &str, key: &str, value: &str) -> Value {
    json!({
        "apiVersion": "infrastructure.opendatahub.io/v1", "kind": "HardwareProfile",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"opendatahub.io/display-name": "Premium GPU"}},
        "spec": {
            "identifiers": [{"displayName": "GPU", "identifier": "nvidia.com/gpu", "minCount": 1, "defaultCount": 1}],
            "scheduling": {"type": "Node", "node": {"nodeSelector": {key: value}}},
        },
    })
}

pub(super) fn node(name: &str, labels: &[(&str, &str)]) -> ClusterNode {
    let all = Amounts::default().with("nvidia.com/gpu", 1).with("pods", 110);
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ClusterNode {
        name: name.to_owned(),
        labels: labels.collect(),
        readiness: Readiness::Ready,
        capacity: all.clone(),
        allocatable: all,
        ..ClusterNode::default()
    }
}

pub(super) fn followed(nodes: impl IntoIterator<Item = ClusterNode>) -> Arc<WatchedCluster> {
    with_pods(nodes, [])
}

pub(super) fn with_pods(
    nodes: impl IntoIterator<Item = ClusterNode>,
    pods: impl IntoIterator<Item = ClusterPod>,
) -> Arc<WatchedCluster> {
    Arc::new(WatchedCluster {
        snapshot: Arc::new(ClusterSnapshot::new(nodes, pods)),
        current_at: Some(Instant::now()),
        error: None,
        ..WatchedCluster::default()
    })
}

impl ProfileFixture {
    /// Three profiles in a file, two of which have one name, and two nodes of a type.
    pub(crate) fn new() -> (Self, Profiles) {
        let label = "octavo.dev/type";
        let nodes = ["gpu-1", "gpu-2"].map(|name| node(name, &[(label, L4)]));
        let (cluster, seen) = watch::channel(followed(nodes));
        let fixture = Self { cluster, directory: tempfile::tempdir().unwrap() };
        fixture.write(&[
            profile("a", "large", label, L4),
            profile("a", "twice", label, L4),
            profile("b", "twice", "nvidia.com/gpu.product", "NVIDIA-L4"),
        ]);
        let book = HardwareProfileFile::open(&fixture.path()).unwrap();
        (fixture, Profiles::new(None, Some(seen), Some(book)))
    }

    /// A cluster with these nodes and pods, these profiles in a file, and the watcher.
    pub(crate) fn of(
        nodes: Vec<ClusterNode>,
        pods: Vec<ClusterPod>,
        profiles: &[Value],
    ) -> (Self, Profiles, watch::Receiver<Arc<WatchedCluster>>) {
        let (cluster, seen) = watch::channel(with_pods(nodes, pods));
        let fixture = Self { cluster, directory: tempfile::tempdir().unwrap() };
        fixture.write(profiles);
        let book = HardwareProfileFile::open(&fixture.path()).unwrap();
        let profiles = Profiles::new(None, Some(seen.clone()), Some(book));
        (fixture, profiles, seen)
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("profiles.yaml")
    }

    /// Replaces the file.
    pub(super) fn write(&self, profiles: &[Value]) {
        let texts: Vec<String> = profiles.iter().map(Value::to_string).collect();
        let draft = self.directory.path().join("draft");
        std::fs::write(&draft, texts.join("\n---\n")).unwrap();
        std::fs::rename(draft, self.path()).unwrap();
    }
}

#[tokio::test]
async fn ac_005_profiles_show_purpose_and_availability() {
    let (_fixture, profiles) = ProfileFixture::new();
    let aggregator = Aggregator::with_profiles(&Machines::read().await, profiles);
    let list = aggregator.get("/api/hardware-profiles").await.json();
    assert_eq!(list["kind"], "HardwareProfileList");
    let row = &list["items"][0];
    assert_eq!(
        *row,
        json!({
            "name": "large", "namespace": "a", "displayName": "Premium GPU",
            "acceleratorType": L4, "memory": "22.4 GiB", "architecture": "Ada Lovelace", "available": 2,
        })
    );
    let list = aggregator.get("/api/v1/profiles").await.json();
    assert_eq!(list["source"], "file");
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
    let large = &list["items"][0];
    assert_eq!(large["computeCapability"], "8.9");
    assert_eq!(large["memoryBandwidthGBs"], 300.0);
    assert_eq!(
        large["reach"]["types"],
        json!([{"type": L4, "nodes": 2, "devices": 2, "mixedNodes": 0, "mixedDevices": 0, "available": 2}])
    );
    assert_eq!(large["findings"], json!([]));
    let few = aggregator.get("/api/v1/profiles?namespace=b&type=none").await.json();
    assert_eq!(few["items"], json!([]));
    let few = aggregator.get(&format!("/api/v1/profiles?namespace=a&type={L4}")).await.json();
    assert_eq!(few["items"].as_array().unwrap().len(), 2);

    let one = aggregator.get("/api/v1/profiles/b/twice").await.json();
    let words = one["findings"].as_array().unwrap().iter().map(|one| &one["finding"]);
    assert_eq!(words.collect::<Vec<_>>(), ["nothing-selected", "changing-label"]);
    let both = aggregator.get("/api/v1/profiles/twice").await;
    assert_eq!(both.status, StatusCode::BAD_REQUEST);
    assert_eq!(both.json()["type"], "/problems/ambiguous-profile");
    assert!(both.json()["detail"].as_str().unwrap().contains("a, b"), "{}", both.body);
}

#[tokio::test]
async fn req_007_unchanged_response_is_not_sent_again() {
    let (fixture, profiles) = ProfileFixture::new();
    let aggregator = Aggregator::with_profiles(&Machines::read().await, profiles);
    for path in ["/api/hardware-profiles", "/api/v1/profiles", "/api/v1/profiles/large"] {
        let first = aggregator.get(path).await;
        let tag = first.header("etag").to_owned();
        assert_eq!(first.header("cache-control"), "no-cache");
        let again = |tag: String| {
            let router = aggregator.router.clone();
            let request = Request::builder().uri(path).header(header::IF_NONE_MATCH, tag);
            router.oneshot(request.body(Body::empty()).unwrap())
        };
        let same = again(format!("\"other\", W/{tag}")).await.unwrap();
        assert_eq!(same.status(), StatusCode::NOT_MODIFIED, "{path}");
        assert_eq!(same.headers()[header::ETAG], tag);
        let other = again("\"other\"".to_owned()).await.unwrap();
        assert_eq!(other.status(), StatusCode::OK, "{path}");
    }
    let tag = aggregator.get("/api/v1/profiles").await.header("etag").to_owned();
    fixture.cluster.send_replace(followed([]));
    // A result is cached for at most a second.
    let profiles = async || aggregator.get("/api/v1/profiles").await;
    let is_new = |answer: &Answer| answer.header("etag") != tag;
    let list = until_async("another etag", profiles, is_new).await.json();
    assert_eq!(list["items"][0]["available"], 0);
}

#[tokio::test]
async fn outdated_data_is_marked_and_invalid_file_keeps_previous_profiles() {
    let (fixture, profiles) = ProfileFixture::new();
    let aggregator = Aggregator::with_profiles(&Machines::read().await, profiles);
    let list = aggregator.get("/api/v1/profiles").await.json();
    assert_eq!(list.get("notice"), None);
    fixture.cluster.send_modify(|followed| {
        Arc::make_mut(followed).error = Some("the API server is unavailable".to_owned());
    });
    std::fs::write(fixture.path(), "kind: Pod\n").unwrap();
    let expected = "the API server is unavailable; cannot use the profiles in ";
    let profiles = async || aggregator.get("/api/v1/profiles").await.json();
    let list = until_async(expected, profiles, |list| {
        let notice = list["notice"].as_str();
        notice.is_some_and(|notice| notice.starts_with(expected))
    })
    .await;
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn profiles_without_cluster_are_listed_without_availability() {
    let (fixture, _followed) = ProfileFixture::new();
    let book = HardwareProfileFile::open(&fixture.path()).unwrap();
    let profiles = Profiles::new(None, None, Some(book));
    let aggregator = Aggregator::with_profiles(&Machines::read().await, profiles);
    let list = aggregator.get("/api/hardware-profiles").await.json();
    assert_eq!(list["items"][0]["available"], Value::Null);
    assert_eq!(list["items"][0]["acceleratorType"], L4);
    let one = aggregator.get("/api/v1/profiles/large").await.json();
    assert_eq!((one.get("reach"), one.get("available")), (None, None));
    let nothing = Aggregator::of(&Machines::read().await);
    let list = nothing.get("/api/v1/profiles").await.json();
    assert_eq!((&list["source"], &list["items"]), (&json!("nowhere"), &json!([])));
}

#[tokio::test]
async fn draft_has_the_object_and_notes_before_creation() {
    let (fixture, profiles) = ProfileFixture::new();
    let machines = Machines::read().await;
    let aggregator = Aggregator::with_profiles(&machines, profiles);
    let path =
        "/api/v1/profile-draft?nodes=gpu-1,none&name=my-gpu&namespace=b&displayName=My%20GPU";
    let draft = aggregator.get(path).await.json();
    let object = &draft["profile"];
    assert_eq!(object["metadata"]["name"], "my-gpu");
    assert_eq!(object["metadata"]["annotations"]["opendatahub.io/display-name"], "My GPU");
    assert_eq!(
        object["spec"]["scheduling"]["node"]["nodeSelector"],
        json!({"octavo.dev/type": L4})
    );
    assert_eq!(draft["nodes"], json!(["gpu-1"]));
    let notes = draft["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 2, "{notes:?}");
    let yaml = draft["yaml"].as_str().unwrap();
    assert!(yaml.contains("octavo.dev/type: nvidia-l4-24gb"), "{yaml}");
    let refused = aggregator.get("/api/v1/profile-draft?nodes=none").await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.body.contains("it does not exist in the cluster"), "{}", refused.body);
    // An agent takes precedence over a label: this node has H100s, some of them partitioned.
    fixture.cluster.send_replace(followed([node("mixed-1", &[("octavo.dev/type", L4)])]));
    let refused = aggregator.get("/api/v1/profile-draft?nodes=mixed-1").await;
    assert!(refused.body.contains("it lacks the label octavo.dev/type"), "{}", refused.body);
}

#[tokio::test]
async fn draft_accepts_more_nodes_than_fit_into_a_url() {
    let (fixture, profiles) = ProfileFixture::new();
    let aggregator = Aggregator::with_profiles(&Machines::read().await, profiles);
    let label = "x".repeat(60);
    let names: Vec<String> =
        (0..1000).map(|at| format!("n{at:04}.{}.a", [label.as_str(); 4].join("."))).collect();
    let nodes = names.iter().map(|name| node(name, &[("octavo.dev/type", L4)]));
    fixture.cluster.send_replace(followed(nodes));
    let order = json!({"nodes": names, "name": "many", "counts": [{"identifier": "nvidia.com/gpu", "max": "1"}]});
    let answer = aggregator.post("/api/v1/profile-draft", &order.to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let draft = answer.json();
    assert_eq!(draft["nodes"].as_array().unwrap().len(), 1000);
    assert_eq!(draft["profile"]["metadata"]["name"], "many");
    let refused =
        aggregator.post("/api/v1/profile-draft", r#"{"nodes": ["none"], "name": "A"}"#).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(refused.json()["parameter"], "name");
}

/// A thousand nodes of five types, and two hundred profiles, forty for each.
fn many() -> (watch::Receiver<Arc<WatchedCluster>>, HardwareProfileFile, TempDir) {
    let types = ["l4-24gb", "t4-16gb", "h100-80gb", "h200-141gb", "a100-80gb"];
    let types = types.map(|one| format!("nvidia-{one}"));
    let label = "octavo.dev/type";
    let nodes = (0..1000)
        .map(|number| node(&format!("gpu-{number:04}"), &[(label, &types[number % types.len()])]));
    let profiles = (0..200).map(|number| {
        profile("a", &format!("p-{number:03}"), label, &types[number % types.len()]).to_string()
    });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("profiles.yaml");
    std::fs::write(&path, profiles.collect::<Vec<_>>().join("\n---\n")).unwrap();
    let (_gone, seen) = watch::channel(followed(nodes));
    (seen, HardwareProfileFile::open(&path).unwrap(), directory)
}

/// The measured speed is in docs/performance.md.
#[tokio::test]
async fn nfr_001_hundred_concurrent_clients_get_equal_answers() {
    let (seen, book, _directory) = many();
    let profiles = Profiles::new(None, Some(seen), Some(book));
    let aggregator = Aggregator::with_profiles(&Machines::default(), profiles);
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..100 {
        let path = ["/api/hardware-profiles", "/api/v1/profiles"][number % 2];
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        asking.spawn(aggregator.router.clone().oneshot(request));
    }
    let mut tags = std::collections::BTreeSet::new();
    for answer in asking.join_all().await {
        let answer = answer.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        tags.insert(answer.headers()[header::ETAG].to_str().unwrap().to_owned());
    }
    assert_eq!(tags.len(), 2, "one answer for each path: {tags:?}");
    let list = aggregator.get("/api/v1/profiles").await.json();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 200);
    for one in items {
        assert_eq!((&one["available"], &one["findings"]), (&json!(200), &json!([])));
    }
}
