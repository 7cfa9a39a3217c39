//! Visibility for readers of single types, and error details that are restricted to callers who may list nodes.

use std::collections::BTreeMap;

use octavo_files::config_files::profiles::HardwareProfileFile;
use octavo_fleet::cluster::{Amounts, ClusterNode, ClusterSnapshot, Readiness};
use octavo_kube::cluster::WatchedCluster;
use octavo_store::estimate_engine::EstimateEngine;
use octavo_store::profiles::Profiles;
use tokio::time::Instant;

use super::*;

const H100: &str = "nvidia-h100-80gb";
const L4: &str = "nvidia-l4-24gb";
const AWAY: &str = "https://10.0.0.1:6443 refused serviceaccount octavo";

/// Nodes without agents, one per product, labeled as NVIDIA's feature discovery does.
fn cluster(products: &[&str]) -> Arc<WatchedCluster> {
    let amounts = Amounts::default().with("nvidia.com/gpu", 4).with("pods", 110);
    let node = |product: &&str| ClusterNode {
        name: format!("node-{}", product.to_lowercase()),
        labels: BTreeMap::from([("nvidia.com/gpu.product".to_owned(), (*product).to_owned())]),
        readiness: Readiness::Ready,
        capacity: amounts.clone(),
        allocatable: amounts.clone(),
        ..ClusterNode::default()
    };
    let nodes = products.iter().map(node);
    Arc::new(WatchedCluster {
        snapshot: Arc::new(ClusterSnapshot::new(nodes, [])),
        current_at: Some(Instant::now()),
        error: None,
        invalid_objects: 0,
    })
}

/// Site with nodes that have no agent. Its profiles: one for each of two types, one for any type, and one that claims a
/// single type but reaches all nodes.
struct LabeledSite {
    site: Site,
    cluster: watch::Sender<Arc<WatchedCluster>>,
    file: tempfile::NamedTempFile,
}

fn labeled(products: &[&str]) -> LabeledSite {
    let file = tempfile::NamedTempFile::new().unwrap();
    let profile = |name: &str, selector: &str| {
        format!(
            "apiVersion: infrastructure.opendatahub.io/v1\nkind: HardwareProfile\nmetadata: {{name: {name}, namespace: a}}\n\
            spec:\n  identifiers:\n  - {{displayName: GPU, identifier: nvidia.com/gpu, minCount: 1, defaultCount: 1}}\n{selector}"
        )
    };
    let to = |product: &str| {
        format!(
            "  scheduling: {{type: Node, node: {{nodeSelector: {{nvidia.com/gpu.product: {product}}}}}}}\n"
        )
    };
    let all = [
        profile("big", &to("NVIDIA-H100-80GB-HBM3")),
        profile("small", &to("NVIDIA-L4")),
        profile("any", ""),
        profile(&format!("wide, annotations: {{octavo.dev/type: {H100}}}"), ""),
    ];
    std::fs::write(file.path(), all.join("---\n")).unwrap();
    let (sender, watched) = watch::channel(cluster(products));
    let profile_file = HardwareProfileFile::open(file.path()).unwrap();
    let profiles = Profiles::new(None, Some(watched.clone()), Some(profile_file));
    let site = site_with(TrustedIdentitySources::default(), |view| {
        Counter::new(view.with_profiles(profiles), Some(watched))
    });
    LabeledSite { site, cluster: sender, file }
}

impl LabeledSite {
    async fn document(&self, path: &str, user: &str) -> Value {
        let answer = self.site.get(path, Some(user)).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path} for {user}");
        serde_json::from_str(&text(answer).await).unwrap()
    }

    async fn names(&self, path: &str, user: &str, key: &str) -> Vec<String> {
        let document = self.document(path, user).await;
        let items = document["items"].as_array().unwrap();
        let names = items.iter().map(|one| one[key].as_str().unwrap().to_owned());
        names.collect()
    }
}

const BOTH: [&str; 2] = ["NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"];

#[tokio::test]
async fn ac_003_type_known_from_labels_requires_permission_for_that_type() {
    let here = labeled(&BOTH);
    let path = "/api/v1/availability";
    assert_eq!(here.site.status(path, Some("ada")).await, 403);
    here.site.server.gives(&format!("bob: get acceleratortypes.octavo.dev {H100}"));
    assert_eq!(here.names(path, "bob", "type").await, [H100]);
    here.site.server.gives("eve: list acceleratortypes.octavo.dev");
    assert_eq!(here.names(path, "eve", "type").await, [H100, L4]);
}

#[tokio::test]
async fn nfr_003_reader_of_one_type_sees_only_profiles_of_that_type() {
    let here = labeled(&BOTH);
    let right = format!("bob: get acceleratortypes.octavo.dev {H100}");
    here.site.server.gives(&right);
    here.site.server.gives("eve: list hardwareprofiles.octavo.dev");
    here.site.server.gives("eve: watch hardwareprofiles.octavo.dev");
    for path in ["/api/v1/profiles", "/api/hardware-profiles"] {
        assert_eq!(here.site.status(path, Some("ada")).await, 403, "{path}");
        assert_eq!(here.names(path, "bob", "name").await, ["big"], "{path}");
        assert_eq!(here.names(path, "eve", "name").await, ["any", "big", "small", "wide"]);
    }
    for (path, status) in [
        ("/api/v1/profiles/big", 200),
        ("/api/v1/profiles/a/small", 404),
        ("/api/v1/profiles/any", 404),
        ("/api/v1/profiles/a/wide", 404),
        ("/profiles/a/big", 200),
        ("/profiles/a/small", 404),
        ("/profiles/a/wide", 404),
    ] {
        assert_eq!(here.site.status(path, Some("bob")).await, status, "{path}");
    }
    let page = text(here.site.get("/profiles", Some("bob")).await).await;
    assert!(page.contains("a/big") && !page.contains("small"), "{page}");
    // Estimates need permission for all types, so the form is hidden from a reader of single types.
    for (user, has_form) in [("bob", false), ("eve", true)] {
        let page = text(here.site.get("/profiles/a/big", Some(user)).await).await;
        assert_eq!(page.contains("id=\"estimate\""), has_form, "{page}");
    }

    assert_eq!(here.site.status("/api/v1/profile-events", Some("ada")).await, 403);
    let all = &["any", "big", "small", "wide"][..];
    for (user, expected) in [("bob", &["big"][..]), ("eve", all)] {
        let answer = here.site.get("/api/v1/profile-events", Some(user)).await;
        assert_eq!(answer.status(), StatusCode::OK, "{user}");
        assert_eq!(initial_profile_names(answer.into_body()).await, expected, "{user}");
    }
}

/// Names of the profiles that a stream begins with.
async fn initial_profile_names(mut body: Body) -> Vec<String> {
    named(&until_synced(&mut body).await)
}

/// Reads the stream up to the next `synced` event.
async fn until_synced(body: &mut Body) -> String {
    let mut text = String::new();
    while !text.contains("event: synced") {
        let frame = body.frame().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
    }
    text
}

/// Names of the profiles in the events.
fn named(text: &str) -> Vec<String> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
    let names = events.filter_map(|event| Some(event["profile"]["name"].as_str()?.to_owned()));
    names.collect()
}

#[tokio::test(start_paused = true)]
async fn outdated_last_event_id_causes_a_full_resync() {
    let here = labeled(&BOTH);
    here.site.server.gives("eve: watch hardwareprofiles.octavo.dev");
    let begins = async |last: Option<&str>| {
        let mut headers = vec![("authorization", "Bearer token-eve")];
        headers.extend(last.map(|id| ("last-event-id", id)));
        let path = "/api/v1/profile-events?changes=only";
        let answer = here.site.answers("GET", path, &headers).await;
        until_synced(&mut answer.into_body()).await
    };
    let first = begins(None).await;
    assert!(named(&first).is_empty(), "{first}");
    let id = first.lines().find_map(|line| line.strip_prefix("id: "));
    assert!(named(&begins(id).await).is_empty());
    here.cluster.send_replace(cluster(&["NVIDIA-L4"]));
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(named(&begins(id).await), ["any", "big", "small", "wide"]);
    assert!(named(&begins(None).await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn profile_stream_reports_and_clears_staleness_notice() {
    let here = labeled(&BOTH);
    here.site.server.gives("eve: watch hardwareprofiles.octavo.dev");
    let answer = here.site.get("/api/v1/profile-events", Some("eve")).await;
    let mut body = answer.into_body();
    let shown = until_synced(&mut body).await;
    assert!(!shown.contains("notice"), "{shown}");
    let become_so = |error: Option<&str>| {
        here.cluster.send_modify(|watched| {
            let watched = Arc::make_mut(watched);
            watched.error = error.map(ToOwned::to_owned);
            watched.current_at = Some(Instant::now());
        });
    };
    become_so(Some(AWAY));
    let shown = until_synced(&mut body).await;
    assert!(shown.contains("cannot be read"), "{shown}");
    assert!(named(&shown).is_empty() && !shown.contains(AWAY), "{shown}");
    become_so(None);
    let shown = until_synced(&mut body).await;
    assert!(!shown.contains("notice"), "{shown}");
    // No more updates arrive from here on.
    let shown = until_synced(&mut body).await;
    assert!(shown.contains("for more than a minute"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn stream_ends_when_visible_types_change() {
    let here = labeled(&BOTH);
    let may = |name: &str| {
        let right = format!("bob: get acceleratortypes.octavo.dev {name}");
        here.site.server.gives(&right);
    };
    may(H100);
    let answer = here.site.get("/api/v1/profile-events", Some("bob")).await;
    let mut body = answer.into_body();
    let start = tokio::time::Instant::now();
    while start.elapsed() < Duration::from_mins(3) {
        assert!(body.frame().await.unwrap().is_ok());
    }
    may(L4);
    while body.frame().await.is_some() {}
    let answer = here.site.get("/api/v1/profile-events", Some("bob")).await;
    // A profile without a selector reaches both types and no other.
    assert_eq!(initial_profile_names(answer.into_body()).await, ["any", "big", "small", "wide"]);
}

#[tokio::test]
async fn nfr_003_api_errors_and_file_names_require_permission_to_list_nodes() {
    let here = labeled(&BOTH);
    let file = here.file.path().display().to_string();
    std::fs::write(here.file.path(), "kind: Pod\n").unwrap();
    here.cluster.send_modify(|watched| {
        Arc::make_mut(watched).error = Some(AWAY.to_owned());
    });
    for user in ["reader", "admin"] {
        for right in ["list acceleratortypes.octavo.dev", "list hardwareprofiles.octavo.dev"] {
            here.site.server.gives(&format!("{user}: {right}"));
        }
    }
    here.site.server.gives("admin: list nodes.octavo.dev");
    let theirs = [AWAY, &file];
    for path in [
        "/api/v1/availability",
        "/availability",
        "/api/v1/profiles",
        "/api/hardware-profiles",
        "/api/v1/profiles/a/big",
        "/profiles",
        "/profiles/a/big",
    ] {
        let admin = text(here.site.get(path, Some("admin")).await).await;
        assert!(admin.contains(AWAY), "{path}: {admin}");
        let reader = here.site.get(path, Some("reader")).await;
        assert_eq!(reader.status(), StatusCode::OK, "{path}");
        let reader = text(reader).await;
        for words in theirs {
            assert!(!reader.contains(words), "{path}: {reader}");
        }
        assert!(
            reader
                .contains("the cause is visible only with the permission to list nodes.octavo.dev"),
            "{path}: {reader}"
        );
    }
    let admin = text(here.site.get("/api/v1/profiles", Some("admin")).await).await;
    assert!(admin.contains(&file), "{admin}");
}

#[tokio::test]
async fn nfr_003_engine_url_and_errors_require_permission_to_list_nodes() {
    // Nothing listens on this port.
    let url = "http://127.0.0.1:1/secret-engine";
    let engine = EstimateEngine::new(url, Duration::from_secs(10));
    let engine = engine.unwrap();
    let site = site_with(TrustedIdentitySources::default(), |view| {
        Counter::new(view.with_engine(engine), None)
    });
    for user in ["reader", "admin"] {
        let right = format!("{user}: list acceleratortypes.octavo.dev");
        site.server.gives(&right);
    }
    site.server.gives("admin: list nodes.octavo.dev");
    let question = r#"{"workload": {"kind": "decoding", "parameters": 8e9, "precision": "bf16"}, "devices": [{"type": "nvidia-l4-24gb", "count": 1}]}"#;
    for (user, is_shown) in [("reader", false), ("admin", true)] {
        let request = Request::post("/api/v1/estimates")
            .header("authorization", format!("Bearer token-{user}"))
            .header("content-type", "application/json")
            .body(Body::from(question))
            .unwrap();
        let answer = site.router.clone().oneshot(request).await.unwrap();
        let shown = text(answer).await;
        assert!(shown.contains("\"times\":\"none\""), "{shown}");
        assert!(shown.contains("cannot reach the estimate engine"), "{shown}");
        assert_eq!(shown.contains("secret-engine"), is_shown, "{user}: {shown}");
    }
}
