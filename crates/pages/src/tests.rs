//! Tests of the pages' responses, without a browser.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::cluster::{Amounts, ClusterNode, ClusterSnapshot};
use octavo_fleet::startup::StartupProgress;
use octavo_kube::cluster::WatchedCluster;
use octavo_model::inventory::Inventory;
use octavo_store::availability::Counter;
use octavo_store::clock::Clock;
use octavo_store::fleet::{Fleet, Freshness, Node, ReportingAgent, StatusSummary};
use octavo_store::view::FleetView;
use octavo_stream::protocol::{Parts, Run};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tower::ServiceExt;

use super::profiles::MAX_LONG_FORMS;
use super::{MAX_STREAMS, router};

/// A fleet of this many nodes without devices.
fn view(nodes: usize) -> (watch::Sender<Fleet>, FleetView) {
    let clock = Clock::start();
    let inventory = Inventory::default();
    let mut fleet = Fleet::default();
    for number in 0..nodes {
        let origin = ReportingAgent {
            name: format!("node-{number:05}").parse().unwrap(),
            run: Run { epoch: 1, boot_id: "boot".to_owned() },
            agent_version: "<b>0.1.0</b>".to_owned(),
        };
        let fresh = Freshness::new(clock.now(), Duration::from_hours(1));
        let node = Node::new(
            origin,
            Parts::default(),
            StatusSummary::new(&inventory, Arc::default(), None),
            fresh,
        );
        fleet.nodes.insert(Arc::new(node));
    }
    let (fleet, receiver) = watch::channel(fleet);
    (fleet, FleetView::new(receiver, clock))
}

pub(crate) async fn get(view: &FleetView, path: &str) -> Response<Body> {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(Visibility::everything());
    router(Counter::new(view.clone(), None)).oneshot(request).await.unwrap()
}

pub(crate) async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn every_response_has_the_security_headers() {
    let (_fleet, view) = view(1);
    for (path, status) in [
        ("/", StatusCode::OK),
        ("/?sort=nothing", StatusCode::PERMANENT_REDIRECT),
        ("/nodes?sort=nothing", StatusCode::BAD_REQUEST),
        ("/nodes?search=%ff", StatusCode::OK),
        ("/teams", StatusCode::OK),
        ("/cost", StatusCode::NOT_FOUND),
        ("/layouts", StatusCode::OK),
        ("/demand", StatusCode::OK),
        ("/demand?sort=nothing", StatusCode::BAD_REQUEST),
        ("/layouts/dry-run", StatusCode::OK),
        ("/layouts/dry-run?sort=nothing", StatusCode::BAD_REQUEST),
        ("/teams?sort=nothing", StatusCode::BAD_REQUEST),
        ("/teams?sort=&namespace=team-a", StatusCode::OK),
        ("/map?colour=red", StatusCode::BAD_REQUEST),
        ("/nodes/node-00000", StatusCode::OK),
        ("/nodes/NOT-A-NAME", StatusCode::NOT_FOUND),
        ("/profiles", StatusCode::OK),
        ("/profiles/opendatahub/nobody", StatusCode::NOT_FOUND),
        ("/profiles/new", StatusCode::BAD_REQUEST),
        ("/profiles/new?colour=red", StatusCode::BAD_REQUEST),
        ("/profiles/new?node=a", StatusCode::SERVICE_UNAVAILABLE),
        ("/assets/octavo.css", StatusCode::OK),
        ("/assets/..%2f..%2fpages.rs", StatusCode::NOT_FOUND),
        ("/assets/..%2f..", StatusCode::NOT_FOUND),
        ("/elsewhere", StatusCode::NOT_FOUND),
        ("/live", StatusCode::OK),
    ] {
        let answer = get(&view, path).await;
        assert_eq!(answer.status(), status, "{path}");
        let headers = answer.headers();
        let policy = headers.get(header::CONTENT_SECURITY_POLICY).unwrap();
        let policy = policy.to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{path}");
        assert!(!policy.contains("unsafe"), "{path}");
        let sniff = headers.get(header::X_CONTENT_TYPE_OPTIONS).unwrap();
        assert_eq!(sniff, "nosniff", "{path}");
        assert!(headers.contains_key(header::CACHE_CONTROL), "{path}");
        if status == StatusCode::NOT_FOUND {
            assert_ne!(text(answer).await, "", "{path}");
        }
    }
}

#[tokio::test]
async fn lists_show_a_notice_while_the_aggregator_is_starting() {
    let (_fleet, view) = view(4);
    let now = StartupProgress::new(4, Some(9));
    let (progress, startup) = watch::channel(Some(now));
    let view = view.with_startup(startup);
    let notice = "The aggregator is starting: 4 of about 9 nodes have reported. The data shown is incomplete.";
    for path in ["/", "/nodes", "/availability", "/teams", "/layouts", "/layouts/dry-run"] {
        let page = text(get(&view, path).await).await;
        assert!(page.contains(notice), "{path}: {page}");
    }
    for path in ["/profiles", "/compare"] {
        let page = text(get(&view, path).await).await;
        assert!(page.contains("4 of about 9 nodes"), "{path}: {page}");
    }
    let form = "rows=%5B%7B%22hardware_type%22%3A%22L4%22%2C%22hardware_count%22%3A1%7D%5D";
    let site = router(Counter::new(view.clone(), None));
    let objectives = send(&site, "/objectives", form);
    let objectives = text(objectives.await).await;
    assert!(objectives.contains("4 of about 9 nodes"), "{objectives}");
    progress.send_replace(None);
    for path in ["/", "/nodes", "/availability", "/teams", "/profiles", "/compare"] {
        let page = text(get(&view, path).await).await;
        assert!(!page.contains("is starting"), "{path}: {page}");
    }
}

#[tokio::test]
async fn node_whose_agent_left_needs_attention_after_startup() {
    let (_fleet, view) = view(0);
    let node = |name: &str, (key, value): (&str, &str)| ClusterNode {
        name: name.to_owned(),
        labels: [(key.to_owned(), value.to_owned())].into(),
        capacity: Amounts::default().with("nvidia.com/gpu", 4),
        ..ClusterNode::default()
    };
    let nodes = [
        node("left", ("octavo.dev/type", "nvidia-l4-24gb")),
        node("vendor", ("nvidia.com/gpu.product", "NVIDIA-L4")),
    ];
    let (_cluster, watched) = watch::channel(Arc::new(WatchedCluster {
        snapshot: Arc::new(ClusterSnapshot::new(nodes, [])),
        current_at: Some(Instant::now()),
        ..WatchedCluster::default()
    }));
    let (progress, startup) = watch::channel(Some(StartupProgress::new(0, None)));
    let view = view.with_startup(startup).with_cluster(Some(watched));
    let during = text(get(&view, "/nodes").await).await;
    assert!(!during.contains("without an agent, known from the cluster only"), "{during}");
    assert!(!during.contains("1 needs attention"), "{during}");
    progress.send_replace(None);
    let after = text(get(&view, "/nodes").await).await;
    assert!(
        after.contains("2 without an agent, known from the cluster only; 1 needs attention"),
        "{after}"
    );
    // Nothing is known of its devices, and it never reported.
    let node = text(get(&view, "/nodes/left").await).await;
    assert!(node.contains("No agent reports this node."), "{node}");
    assert!(!node.contains("No problems") && !node.contains("Last report"), "{node}");
    let file = text(get(&view, "/nodes.csv").await).await;
    let line = file.lines().find(|line| line.starts_with("left,")).unwrap();
    assert!(line.ends_with(",,,,false,"), "{line}");
}

#[tokio::test]
async fn file_of_nodes_has_a_row_per_node_in_several_parts() {
    for nodes in [0, 500, 1201] {
        let (_fleet, view) = view(nodes);
        let file = text(get(&view, "/nodes.csv").await).await;
        assert_eq!(file.lines().count(), nodes + 1);
        assert!(file.starts_with("node,state,"), "{file}");
        let names = file.lines().skip(1).map(|line| line.split(',').next().unwrap());
        assert!(names.is_sorted(), "{file}");
    }
}

#[tokio::test]
async fn search_in_a_namespace_keeps_it_and_finds_no_nodes() {
    let (_fleet, view) = view(1);
    let all = get(&view, "/search?q=node-00000").await;
    assert_eq!(all.status(), StatusCode::SEE_OTHER);
    let page = text(get(&view, "/search?q=node-00000&namespace=team-a").await).await;
    assert!(page.contains("0 matches"), "{page}");
    assert!(page.contains("<input type=\"hidden\" name=\"namespace\" value=\"team-a\">"), "{page}");
    assert!(page.contains("href=\"/search?q=node-00000\""), "{page}");
}

#[tokio::test]
async fn unknown_and_repeated_parameters_are_refused_with_a_message() {
    let (_fleet, view) = view(1);
    for (path, valid) in [
        ("/teams", "namespace, sort"),
        ("/availability", "none"),
        ("/layouts", "none"),
        ("/profiles", "none"),
    ] {
        assert_eq!(get(&view, &format!("{path}?colour=")).await.status(), StatusCode::OK);
        let answer = get(&view, &format!("{path}?colour=red")).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{path}");
        let page = text(answer).await;
        let message = format!(
            "Invalid address: unknown parameter &#34;colour&#34;; valid parameters: {valid}."
        );
        assert!(page.contains(&message), "{path}: {page}");
    }
    let page = text(get(&view, "/teams?namespace=a&namespace=b").await).await;
    assert!(page.contains("the parameter namespace can be given only once"), "{page}");
    // The answer with the message is also a page with its content.
    let page = text(get(&view, "/map?colour=red").await).await;
    assert!(page.contains("unknown parameter &#34;colour&#34;"), "{page}");
}

#[tokio::test]
async fn former_addresses_and_a_slash_at_the_end_are_redirected() {
    let (_fleet, view) = view(1);
    for (path, there) in [
        ("/?state=ok&group=type", "/nodes?state=ok&group=type"),
        ("/nodes/?sort=-free", "/nodes?sort=-free"),
        ("/nodes/", "/nodes"),
        ("/nodes/node-00000/?layout=a", "/nodes/node-00000?layout=a"),
        ("/teams/?sort=namespace", "/teams?sort=namespace"),
        ("/profiles/opendatahub/large/", "/profiles/opendatahub/large"),
    ] {
        let answer = get(&view, path).await;
        assert_eq!(answer.status(), StatusCode::PERMANENT_REDIRECT, "{path}");
        assert_eq!(answer.headers()[header::LOCATION], there, "{path}");
    }
    assert_eq!(get(&view, "/?").await.status(), StatusCode::OK);
    // Never to another site.
    for path in ["//evil.example/", "/\\evil.example/", "/elsewhere/", "/nodes//"] {
        assert_eq!(get(&view, path).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn navigation_marks_the_current_page() {
    let (_fleet, view) = view(1);
    for (path, current) in [
        ("/", "href=\"/\" aria-current=\"page\""),
        ("/nodes", "href=\"/nodes\" aria-current=\"page\""),
        ("/nodes/node-00000", "href=\"/nodes\" aria-current=\"true\""),
        ("/availability", "href=\"/availability\" aria-current=\"page\""),
        ("/demand", "href=\"/demand\" aria-current=\"page\""),
        ("/teams", "href=\"/teams\" aria-current=\"page\""),
        ("/profiles", "href=\"/profiles\" aria-current=\"page\""),
        ("/compare", "href=\"/compare\" aria-current=\"page\""),
    ] {
        let page = text(get(&view, path).await).await;
        let (_, rest) = page.split_once("<nav class=\"places\"").unwrap();
        let (nav, _) = rest.split_once("</nav>").unwrap();
        assert!(nav.contains(current), "{path}: {nav}");
        assert_eq!(nav.matches("aria-current").count(), 1, "{path}: {nav}");
    }
}

async fn send(site: &Router, path: &str, form: &str) -> Response<Body> {
    let mut request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(header::CONTENT_LENGTH, form.len())
        .body(Body::from(form.to_owned()))
        .unwrap();
    request.extensions_mut().insert(Visibility::everything());
    site.clone().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn i10_form_length_and_number_of_long_forms_are_bounded() {
    let (_fleet, view) = view(0);
    let site = router(Counter::new(view, None));
    let long = format!("rows={}", "x".repeat(300 << 10));
    let refused = send(&site, "/objectives", &long).await;
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);

    let mut reading = JoinSet::new();
    for _ in 0..MAX_LONG_FORMS {
        let body = StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let mut request = Request::post("/profiles/new")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::new(body))
            .unwrap();
        request.extensions_mut().insert(Visibility::everything());
        reading.spawn(site.clone().oneshot(request));
    }
    let long = format!("name={}", "x".repeat(300 << 10));
    let refused = async {
        loop {
            let answer = send(&site, "/profiles/new", &long).await;
            if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
                break answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let refused = timeout(Duration::from_mins(1), refused).await.unwrap();
    assert!(refused.headers().contains_key(header::RETRY_AFTER));
    let short = send(&site, "/profiles/new", "name=a").await;
    assert_ne!(short.status(), StatusCode::SERVICE_UNAVAILABLE);
    reading.shutdown().await;
    let read = send(&site, "/profiles/new", &long).await;
    assert_ne!(read.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn nodes_are_grouped_by_type_with_filter_and_order() {
    let (_fleet, view) = view(30);
    let path = "/nodes?search=node-0000&sort=-name&group=type";
    let page = text(get(&view, path).await).await;
    assert!(page.contains(">no accelerator</span> <span class=\"soft\">10 nodes<"), "{page}");
    let at = |name: &str| page.find(&format!("id=\"node-{name}\"")).unwrap();
    assert!(at("node-00009") < at("node-00000"));
    assert!(page.contains("--group-by=type"), "{page}");
    // The API has no groups, and clearing the filter keeps them.
    assert!(page.contains("/api/v1/nodes?search=node-0000&#38;sort=-name"), "{page}");
    assert!(page.contains("href=\"/nodes?sort=-name&#38;group=type\""), "{page}");
    let wrong = get(&view, "/nodes?group=colour").await;
    assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
    let message = text(wrong).await;
    assert!(message.contains("for parameter group: must be type"), "{message}");

    let (_fleet, view) = self::view(300);
    let page = text(get(&view, "/nodes?group=type").await).await;
    assert_eq!(page.matches(" data-row ").count(), 200);
    assert!(page.contains(">100 more<"), "{page}");
}

#[tokio::test]
async fn assets_are_addressed_by_hash_and_cached() {
    let (_fleet, view) = view(0);
    let page = text(get(&view, "/").await).await;
    let links = page.split('"').filter(|part| part.starts_with("/assets/"));
    let links: Vec<&str> = links.collect();
    assert_eq!(links.len(), 5);
    for link in links {
        let answer = get(&view, link).await;
        let cache_control = answer.headers().get(header::CACHE_CONTROL).unwrap();
        assert_eq!(cache_control, "public, max-age=31536000, immutable", "{link}");
        let tag = answer.headers().get(header::ETAG).unwrap();
        let again = Request::get(link).header(header::IF_NONE_MATCH, tag);
        let again = again.body(Body::empty()).unwrap();
        let answer = router(Counter::new(view.clone(), None)).oneshot(again).await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_MODIFIED, "{link}");
        let other = format!("{link}0");
        let answer = get(&view, &other).await;
        let cache_control = answer.headers().get(header::CACHE_CONTROL).unwrap();
        assert_eq!(cache_control, "no-cache", "{other}");
    }
}

#[tokio::test]
async fn large_fleet_is_paginated_completely() {
    let (_fleet, view) = view(10_000);
    let mut path = "/nodes?sort=-name&limit=1000".to_owned();
    let mut seen = 0;
    let mut pages = 0;
    loop {
        let page = text(get(&view, &path).await).await;
        let rows = page.matches("<tr role=\"row\" id=").count();
        assert!(rows <= 200, "{rows} rows");
        assert!(page.len() < 300_000, "{} bytes", page.len());
        seen += rows;
        pages += 1;
        let Some((_, next)) = page.split_once("id=\"next\" href=\"") else {
            break;
        };
        let (next, _) = next.split_once('"').unwrap();
        path = next.replace("&#38;", "&").replace("&amp;", "&");
    }
    assert_eq!((seen, pages), (10_000, 50));
}

#[tokio::test]
async fn unreadable_status_is_reported_and_peer_texts_are_escaped() {
    let (_fleet, view) = view(1);
    let page = text(get(&view, "/nodes/node-00000").await).await;
    assert!(page.contains("The report of the agent cannot be decoded completely"));
    assert!(!page.contains("<b>0.1.0</b>"));
    let page = text(get(&view, "/nodes?selector=%3Cscript%3E").await).await;
    assert!(page.contains("Invalid filter"));
    assert!(!page.contains("<script>"));
}

#[tokio::test]
async fn number_of_live_streams_is_bounded() {
    let (_fleet, view) = view(0);
    let site = router(Counter::new(view, None));
    let mut open = Vec::new();
    for _ in 0..MAX_STREAMS {
        let request = Request::get("/live").body(Body::empty()).unwrap();
        let answer = site.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        open.push(answer);
    }
    let request = Request::get("/live").body(Body::empty()).unwrap();
    let answer = site.oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.headers().contains_key(header::RETRY_AFTER));
}

#[tokio::test]
async fn live_stream_sends_changes_and_ends_with_the_store() {
    let (fleet, view) = view(0);
    let answer = get(&view, "/live").await;
    fleet.send_modify(|fleet| fleet.revision = 7);
    let mut body = answer.into_body();
    let event = body.frame().await.unwrap().unwrap();
    let event = event.into_data().unwrap();
    assert_eq!(&event[..], b"event: change\ndata: 7\n\n");
    drop(fleet);
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn list_hides_nodes_without_permission_and_explains_it() {
    let (_fleet, view) = view(3);
    let asks = async |visibility: Option<Visibility>| {
        let mut request = Request::get("/nodes").body(Body::empty()).unwrap();
        if let Some(visibility) = visibility {
            request.extensions_mut().insert(visibility);
        }
        let answer = router(Counter::new(view.clone(), None)).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        text(answer).await
    };
    let types = Visibility { types: VisibleTypes::All, nodes: false, profiles: false, pods: false };
    // Without a guard in front of it, the page shows nothing either.
    for visibility in [Some(types), None] {
        let page = asks(visibility).await;
        assert!(!page.contains("node-0000"), "{page}");
        assert!(page.contains("list nodes.octavo.dev"), "{page}");
    }
    assert!(asks(Some(Visibility::everything())).await.contains("node-00002"));
}

#[tokio::test]
async fn nfr_003_profiles_are_compared_for_users_who_may_list_them() {
    let (_fleet, view) = view(1);
    let visibility =
        Visibility { types: VisibleTypes::All, nodes: false, profiles: false, pods: false };
    for visibility in [Some(visibility), None] {
        let mut request = Request::get("/compare").body(Body::empty()).unwrap();
        if let Some(visibility) = visibility {
            request.extensions_mut().insert(visibility);
        }
        let answer = router(Counter::new(view.clone(), None)).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let page = text(answer).await;
        assert!(page.contains("permission to list hardwareprofiles"), "{page}");
    }
}
