//! Tests of the guard with the real routes and a fake API server, in paused time; the cluster tests use a real one.

mod document;
mod proxies;
mod stream_lifetime;
mod visibility;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::post;
use http_body_util::BodyExt;
use octavo_access::guard::{ReviewAccess, TrustedIdentitySources};
use octavo_access::trusted_proxies::TrustedProxies;
use octavo_fleet::access::{AccessReview, Caller, Method, ROUTE_RULES};
use octavo_fleet::credential::{Token, TokenReview};
use octavo_kube::token_review::ReviewError;
use octavo_store::availability::Counter;
use octavo_store::clock::Clock;
use octavo_store::fleet::Fleet;
use octavo_store::peer::Peer;
use octavo_store::stats::Stats;
use octavo_store::view::FleetView;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt;

use super::*;

/// Fake API server that accepts tokens of the form `token-USER` and stores what each user may do.
#[derive(Debug, Clone, Default)]
struct Server(Arc<State>);

#[derive(Debug, Default)]
struct State {
    rights: Mutex<BTreeSet<String>>,
    requests: AtomicUsize,
    away: AtomicBool,
}

#[tonic::async_trait]
impl ReviewAccess for Server {
    async fn authenticate(&self, token: &Token) -> Result<TokenReview, ReviewError> {
        self.respond()?;
        let user = token.expose().strip_prefix("token-");
        Ok(TokenReview {
            authenticated: user.is_some(),
            caller: Caller { user: user.unwrap_or_default().to_owned(), ..Caller::default() },
            ..TokenReview::default()
        })
    }

    async fn is_allowed(
        &self,
        caller: &Caller,
        question: &AccessReview,
    ) -> Result<bool, ReviewError> {
        self.respond()?;
        let groups = caller.groups.iter().chain([&caller.user]);
        let mut reviews = groups.map(|who| format!("{who}: {question}"));
        let rights = self.0.rights.lock().unwrap();
        Ok(reviews.any(|review| rights.contains(&review)))
    }
}

impl Server {
    fn respond(&self) -> Result<(), ReviewError> {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        if self.0.away.load(Ordering::Relaxed) {
            return Err(ReviewError::TimedOut);
        }
        Ok(())
    }

    fn gives(&self, right: &str) {
        self.0.rights.lock().unwrap().insert(right.to_owned());
    }

    fn revoke_all(&self) {
        self.0.rights.lock().unwrap().clear();
    }

    fn requests(&self) -> usize {
        self.0.requests.load(Ordering::Relaxed)
    }
}

struct Site {
    server: Server,
    router: Router,
    _fleet: watch::Sender<Fleet>,
    _ready: watch::Sender<bool>,
}

const PEER: &str = "192.0.2.7:4000";

fn site(believed: TrustedIdentitySources) -> Site {
    site_with(believed, |view| Counter::new(view, None))
}

/// Like `site`, with a custom `Counter`.
fn site_with(believed: TrustedIdentitySources, more: impl FnOnce(FleetView) -> Counter) -> Site {
    let server = Server::default();
    let (fleet, receiver) = watch::channel(Fleet::default());
    let counter = more(FleetView::new(receiver, Clock::start()));
    let guard =
        Guard::with_reviewer(believed, Box::new(server.clone()), counter.clone(), Stats::default());
    let (ready, is_ready) = watch::channel(true);
    Site { router: guarded(routes(counter, is_ready), guard), server, _fleet: fleet, _ready: ready }
}

fn routes(availability: Counter, ready: watch::Receiver<bool>) -> Router {
    let context = rest::ApiContext {
        view: availability.view().clone(),
        availability: availability.clone(),
        registry: Arc::new(Registry::default()),
        ready,
        max_streams: 4,
    };
    let changes = Router::new().route("/change", post(async || "changed"));
    rest::router(context).merge(octavo_pages::router(availability)).merge(changes)
}

impl Site {
    async fn answers(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        let peer: SocketAddr = PEER.parse().unwrap();
        request.extensions_mut().insert(Peer::new(peer));
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn get(&self, path: &str, user: Option<&str>) -> Response {
        let token = user.map(|user| format!("Bearer token-{user}"));
        let header = token.iter().map(|token| ("authorization", token.as_str()));
        let headers: Vec<_> = header.collect();
        self.answers("GET", path, &headers).await
    }

    async fn status(&self, path: &str, user: Option<&str>) -> u16 {
        self.get(path, user).await.status().as_u16()
    }
}

async fn text(response: Response) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn every_route_is_in_the_access_table() {
    let site = site(TrustedIdentitySources::default());
    let document = text(site.get("/openapi.json", None).await).await;
    let document: Value = serde_json::from_str(&document).unwrap();
    let mut routes = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let known = Method::from_name(&method.to_uppercase()).unwrap();
            let listed = ROUTE_RULES.iter().any(|row| row.path == path && row.method == known);
            assert!(listed, "{method} {path} is not in octavo_fleet::access::ROUTE_RULES");
            routes += 1;
        }
    }
    let of_pages = include_str!("../../../../crates/pages/src/lib.rs").split(".route(").skip(1);
    for path in of_pages.map(|rest| rest.split('"').nth(1).unwrap()) {
        let listed = ROUTE_RULES.iter().any(|row| row.path == path);
        assert!(listed, "{path} is not in octavo_fleet::access::ROUTE_RULES");
        routes += 1;
    }
    assert!(routes >= 17, "{routes}");
}

/// Path, the permission it needs, and the resulting status for a caller with only that permission.
const ROWS: &[(&str, &str, u16)] = &[
    ("/metrics", "get /metrics", 200),
    ("/", "list acceleratortypes.octavo.dev", 200),
    ("/live", "list acceleratortypes.octavo.dev", 200),
    ("/nodes", "list acceleratortypes.octavo.dev", 200),
    ("/nodes/", "list acceleratortypes.octavo.dev", 308),
    ("/nodes/a", "get nodes.octavo.dev a", 404),
    ("/api/v1/types", "list acceleratortypes.octavo.dev", 200),
    ("/api/v1/nodes", "list nodes.octavo.dev", 200),
    ("/api/v1/nodes/a", "get nodes.octavo.dev a", 404),
    ("/api/v1/nodes/a/plan?layout=x", "get nodes.octavo.dev a", 404),
    ("/api/v1/nodes/a/layouts", "get nodes.octavo.dev a", 404),
    ("/api/v1/layouts/x/plan", "get nodes.octavo.dev", 200),
    ("/layouts/dry-run", "get nodes.octavo.dev", 200),
    ("/api/v1/events", "watch nodes.octavo.dev", 200),
    ("/api/v1/profiles", "list hardwareprofiles.octavo.dev", 200),
    ("/api/v1/profile-events", "watch hardwareprofiles.octavo.dev", 200),
    ("/api/v1/usage", "list usage.octavo.dev", 200),
    ("/api/v1/usage?namespace=a", "list usage.octavo.dev in namespace a", 200),
    ("/teams", "list usage.octavo.dev", 200),
    ("/teams?namespace=a", "list usage.octavo.dev in namespace a", 200),
    ("/cost", "list usage.octavo.dev", 404),
    ("/cost?namespace=a", "list usage.octavo.dev in namespace a", 404),
    ("/cost.csv?namespace=a", "list usage.octavo.dev in namespace a", 404),
];

#[tokio::test]
async fn each_path_requires_exactly_its_permission() {
    let site = site(TrustedIdentitySources::default());
    for path in ["/healthz", "/readyz", "/openapi.json", "/assets/octavo.css"] {
        assert_eq!(site.status(path, None).await, 200, "{path}");
    }
    for (number, (path, right, status)) in ROWS.iter().enumerate() {
        assert_eq!(site.status(path, None).await, 401, "{path}");
        let refused = site.get(path, Some("nobody")).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{path}");
        let body = text(refused).await;
        let what = format!("you do not have the permission to {right}");
        assert!(body.contains(&what), "{path}: {body}");
        assert!(body.contains("kubectl auth can-i "), "{path}: {body}");
        let user = format!("user-{number}");
        for (_, other, _) in ROWS.iter().filter(|row| row.1 != *right) {
            site.server.gives(&format!("others-{number}: {other}"));
        }
        let all_else = site.status(path, Some(&format!("others-{number}"))).await;
        // A list of nodes includes all types, so permission to list nodes also opens these pages.
        let of_types = right.ends_with("types.octavo.dev") && *path != "/live";
        let expected = if of_types && *path != "/api/v1/types" { *status } else { 403 };
        assert_eq!(all_else, expected, "{path} with every other permission");
        site.server.gives(&format!("{user}: {right}"));
        assert_eq!(site.status(path, Some(&user)).await, *status, "{path}");
    }
}

#[tokio::test]
async fn unlisted_paths_are_refused() {
    let site = site(TrustedIdentitySources::default());
    for (_, right, _) in ROWS {
        site.server.gives(&format!("ada: {right}"));
    }
    for (path, status) in [("/api/v1/secrets", 404), ("/elsewhere", 404), ("/change", 404)] {
        assert_eq!(site.status(path, None).await, 401, "{path}");
        assert_eq!(site.status(path, Some("ada")).await, status, "{path}");
    }
    let ada = [("authorization", "Bearer token-ada")];
    let answer = site.answers("POST", "/change", &ada).await;
    assert_eq!(answer.status(), 404, "a route without a rule is not rejected");
    let answer = site.answers("POST", "/api/v1/nodes", &ada).await;
    assert_eq!(answer.status(), 405);
    assert_eq!(answer.headers()["allow"], "GET, HEAD");
}

#[tokio::test]
async fn invalid_token_is_refused_with_a_reason_and_never_echoed() {
    let site = site(TrustedIdentitySources::default());
    for (shown, why) in [
        ("Bearer stolen-secret", "rejected the token"),
        ("Bearer stolen secret", "characters"),
        ("Bearer ", "empty"),
        ("Basic c3RvbGVu", "must be a single bearer token"),
        ("stolen", "must be a single bearer token"),
    ] {
        for path in ["/api/v1/nodes", "/", "/api/v1/stolen"] {
            let answer = site.answers("GET", path, &[("authorization", shown)]).await;
            assert_eq!(answer.status(), 401, "{shown}");
            assert_eq!(answer.headers()["www-authenticate"], "Bearer");
            assert_eq!(answer.headers()["cache-control"], "no-store");
            let body = text(answer).await;
            assert!(body.contains(why), "{shown}: {body}");
            assert!(!body.contains("secret") && !body.contains("c3Rv"), "{body}");
        }
    }
    let twice = [("authorization", "Bearer token-a"), ("authorization", "Bearer token-b")];
    assert_eq!(site.answers("GET", "/", &twice).await.status(), 401);
}

#[tokio::test(start_paused = true)]
async fn grant_is_cached_for_a_minute() {
    let site = site(TrustedIdentitySources::default());
    site.server.gives("ada: list nodes.octavo.dev");
    for _ in 0..59 {
        assert_eq!(site.status("/api/v1/nodes", Some("ada")).await, 200);
        assert_eq!(site.server.requests(), 2, "one review of the token and one of the permission");
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    site.server.revoke_all();
    assert_eq!(site.status("/api/v1/nodes", Some("ada")).await, 200);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(site.status("/api/v1/nodes", Some("ada")).await, 403);
    site.server.gives("ada: list nodes.octavo.dev");
    assert_eq!(site.status("/api/v1/nodes", Some("ada")).await, 403);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(site.status("/api/v1/nodes", Some("ada")).await, 200);
}

#[tokio::test(start_paused = true)]
async fn cached_callers_continue_while_the_api_server_is_down() {
    let site = site(TrustedIdentitySources::default());
    site.server.gives("ada: list nodes.octavo.dev");
    assert_eq!(site.status("/api/v1/nodes", Some("ada")).await, 200);
    site.server.0.away.store(true, Ordering::Relaxed);
    let start = site.server.requests();
    for number in 0..100 {
        assert_eq!(site.status("/api/v1/nodes", Some("ada")).await, 200);
        for path in ["/api/v1/nodes", "/"] {
            let answer = site.get(path, Some(&format!("new-{number}"))).await;
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(answer.headers()["retry-after"], "1");
        }
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    // Ten seconds passed, with a pause of one second after each failure.
    assert!(site.server.requests() - start <= 11, "{}", site.server.requests());
    assert_eq!(site.status("/healthz", None).await, 200);
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(site.status("/api/v1/nodes", Some("ada")).await, 503);
    site.server.0.away.store(false, Ordering::Relaxed);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(site.status("/api/v1/nodes", Some("ada")).await, 200);
}

#[tokio::test]
async fn cross_site_post_is_refused() {
    let (_fleet, receiver) = watch::channel(Fleet::default());
    let (_ready, is_ready) = watch::channel(true);
    let view = FleetView::new(receiver, Clock::start());
    let guard = Guard::open(Stats::default());
    let router = guarded(routes(Counter::new(view, None), is_ready), guard);
    let posts = async |headers: &[(&str, &str)]| {
        let mut request = Request::post("/change").header("host", "octavo.example");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        answer.status().as_u16()
    };
    assert_eq!(posts(&[]).await, 200);
    assert_eq!(posts(&[("sec-fetch-site", "same-origin")]).await, 200);
    assert_eq!(posts(&[("origin", "https://octavo.example")]).await, 200);
    assert_eq!(posts(&[("sec-fetch-site", "cross-site")]).await, 403);
    assert_eq!(posts(&[("origin", "https://evil.example")]).await, 403);
    assert_eq!(posts(&[("origin", "null")]).await, 403);
}
