//! Permissions of readers over HTTP, with tokens of service accounts and roles of a real API server.

mod place;

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use octavo_stream::proto::v1::WatchRequest;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use serde_json::{Value, json};
use tonic::transport::Endpoint;
use tonic::{Code, Request};

use self::place::{A100_TYPE, H100_TYPE, ReaderNamespace, Site};
use super::Api;
use crate::fleet_api::Api as Readers;
use crate::machine::Machine;
use crate::process::Aggregator;
use crate::time_limits::{Finish, until_async};

/// Status for each account: no token, an unknown account, viewer, scraper, some, team, admin.
const ROWS: &[(&str, [u16; 7])] = &[
    ("/healthz", [200; 7]),
    ("/readyz", [200; 7]),
    ("/openapi.json", [200; 7]),
    ("/metrics", [401, 403, 403, 200, 403, 403, 200]),
    ("/", [401, 403, 200, 403, 200, 403, 200]),
    ("/live", [401, 403, 200, 403, 200, 403, 200]),
    ("/nodes", [401, 403, 200, 403, 200, 403, 200]),
    ("/nodes/", [401, 403, 308, 403, 308, 403, 308]),
    ("/nodes/node-a", [401, 403, 403, 403, 200, 403, 200]),
    ("/nodes/node-b", [401, 403, 403, 403, 403, 403, 200]),
    ("/api/v1/types", [401, 403, 200, 403, 200, 403, 200]),
    ("/api/v1/nodes", [401, 403, 403, 403, 403, 403, 200]),
    ("/api/v1/nodes/node-a", [401, 403, 403, 403, 200, 403, 200]),
    ("/api/v1/nodes/node-b", [401, 403, 403, 403, 403, 403, 200]),
    ("/api/v1/nodes/node-b/layouts", [401, 403, 403, 403, 403, 403, 200]),
    ("/api/v1/nodes/node-b/plan?layout=all-balanced", [401, 403, 403, 403, 403, 403, 200]),
    ("/api/v1/layouts/all-balanced/plan", [401, 403, 403, 403, 403, 403, 200]),
    ("/layouts/dry-run", [401, 403, 403, 403, 403, 403, 200]),
    ("/api/v1/events", [401, 403, 403, 403, 403, 403, 200]),
    ("/api/v1/usage", [401, 403, 403, 403, 403, 403, 200]),
    ("/api/v1/usage?namespace=NAMESPACE", [401, 403, 403, 403, 403, 200, 200]),
    ("/api/v1/usage?namespace=NAMESPACE&node=node-a", [401, 403, 403, 403, 403, 403, 200]),
    ("/teams", [401, 403, 403, 403, 403, 403, 200]),
    ("/teams?namespace=NAMESPACE", [401, 403, 403, 403, 403, 200, 200]),
    ("/cost", [401, 403, 403, 403, 403, 403, 404]),
    ("/cost?namespace=NAMESPACE", [401, 403, 403, 403, 403, 404, 404]),
    ("/api/v1/audit", [401, 403, 403, 403, 403, 403, 404]),
    ("/api/v1/audit?namespace=NAMESPACE", [401, 403, 403, 403, 403, 403, 404]),
    ("/api/v1/usage?namespace=kube-system", [401, 403, 403, 403, 403, 403, 200]),
    ("/api/v1/nothing", [401, 404, 404, 404, 404, 404, 404]),
];

#[tokio::test]
async fn nfr_003_cluster_roles_authorize_each_path_and_types_without_nodes() {
    let cluster = Api::shared();
    let place = ReaderNamespace::new(cluster);
    let mut site = place.site(&["--http-auth=token-review"]).await;
    let accounts = ["nobody", "viewer", "scraper", "some", "team", "admin"];
    let tokens = accounts.map(|account| place.token(account));
    let mut who = vec![site.readers.clone()];
    who.extend(tokens.iter().map(|token| site.as_who(token)));
    for (path, statuses) in ROWS {
        let path = path.replace("NAMESPACE", &place.namespace);
        for (number, (reader, status)) in who.iter().zip(statuses).enumerate() {
            let what = format!("{path} for {number}");
            let read = async || reader.status(&path).await;
            match status {
                401 | 403 => assert_eq!(read().await, *status, "{what}"),
                // A role takes effect with a delay.
                _ => {
                    until_async(&what, read, |found| found == status).await;
                }
            }
        }
    }
    by_grpc(&place, &site).await;
    shown_without_nodes(&place, &who).await;

    let reported = site.aggregator.kill();
    let audit = format!("who=\"{}\"", place.user("nobody"));
    let refused = reported.iter().filter(|line| line.contains("outcome=\"refused\""));
    let of_unknown_user: Vec<_> = refused.filter(|line| line.contains(&audit)).collect();
    assert!((1..=20).contains(&of_unknown_user.len()), "{of_unknown_user:?}");
    for token in &tokens {
        let secret = token.rsplit('.').next().unwrap();
        let line = reported.iter().find(|line| line.contains(secret));
        assert!(line.is_none(), "{line:?}");
    }
}

/// Watches on the port of agents require the same permission.
async fn by_grpc(place: &ReaderNamespace<'_>, site: &Site) {
    for (account, code) in [
        (None, Some(Code::Unauthenticated)),
        (Some("viewer"), Some(Code::PermissionDenied)),
        (Some("admin"), None),
    ] {
        let endpoint = Endpoint::from_shared(format!("http://{}", site.aggregator.grpc)).unwrap();
        let mut client = FleetClient::new(endpoint.connect().await.unwrap());
        let mut request = Request::new(WatchRequest::default());
        if let Some(account) = account {
            let shown = format!("Bearer {}", place.token(account));
            let shown = shown.parse().unwrap();
            request.metadata_mut().insert("authorization", shown);
        }
        let answer = client.watch(request).await;
        assert_eq!(answer.err().map(|status| status.code()), code, "{account:?}");
    }
}

/// Responses to readers with partial permissions.
async fn shown_without_nodes(place: &ReaderNamespace<'_>, who: &[Readers]) {
    let [_, nobody, viewer, scraper, some, team, _admin] = who else {
        panic!("seven readers");
    };
    let problem = nobody.get("/api/v1/nodes").await.json();
    assert_eq!(problem["type"], "/problems/forbidden");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("you do not have the permission to list nodes.octavo.dev"), "{detail}");
    assert!(detail.contains("kubectl auth can-i list nodes.octavo.dev"), "{detail}");
    for (path, reader) in [
        ("/api/v1/types", viewer),
        ("/", viewer),
        ("/nodes", viewer),
        ("/metrics", scraper),
        ("/", some),
    ] {
        let body = reader.get(path).await.body;
        assert!(body.contains(H100_TYPE) || body.contains("H100"), "{path}: {body}");
        for hidden in ["node-a", "node-b", "GPU-"] {
            assert!(!body.contains(hidden), "{path} has {hidden}: {body}");
        }
    }
    let types = |answer: &Value| -> Vec<String> {
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|item| item["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(types(&viewer.get("/api/v1/types").await.json()), [A100_TYPE, H100_TYPE]);
    assert_eq!(types(&some.get("/api/v1/types").await.json()), [H100_TYPE]);
    let own = format!("/api/v1/usage?namespace={}", place.namespace);
    assert_eq!(team.get(&own).await.json()["items"], json!([]));
}

#[tokio::test]
async fn known_readers_continue_while_api_server_is_unavailable() {
    let mut cluster = Api::fresh();
    let place = ReaderNamespace::new(&cluster);
    let mut site = place.site(&["--http-auth=token-review"]).await;
    let (admin, viewer) = (place.token("admin"), place.token("viewer"));
    let (admin, viewer) = (site.as_who(&admin), site.as_who(&viewer));
    assert_eq!(admin.status("/api/v1/nodes").await, 200);
    let ReaderNamespace { asks, .. } = place;
    cluster.stop();
    assert_eq!(admin.status("/api/v1/nodes").await, 200);
    let answer = viewer.get("/api/v1/types").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["type"], "/problems/unchecked");
    assert_eq!(site.readers.status("/readyz").await, 200);
    site.aggregator.expect_log("cannot authorize HTTP clients; ");
    cluster.start();
    let status = async || viewer.status("/api/v1/types").await;
    until_async("a reader who is checked", status, |status| *status == 200).await;
    site.aggregator.expect_log("authorization of HTTP clients works again");
    drop(asks);
}

#[tokio::test]
async fn only_trusted_proxy_may_set_the_user() {
    let cluster = Api::shared();
    let place = ReaderNamespace::new(cluster);
    let site = place.site(&["--http-auth=proxy-header", "--trusted-proxy=127.0.0.1"]).await;
    let user = |account: &str| format!("X-Forwarded-User: {}", place.user(account));
    let forwarded = |account: &str| site.readers.with_header(&user(account));
    assert_eq!(forwarded("admin").status("/api/v1/nodes").await, 200);
    assert_eq!(forwarded("viewer").status("/api/v1/nodes").await, 403);
    assert_eq!(forwarded("viewer").status("/api/v1/types").await, 200);
    let privileged = forwarded("nobody").with_header("X-Forwarded-Groups: system:masters");
    assert_eq!(privileged.status("/api/v1/nodes").await, 400);
    assert_eq!(site.readers.status("/api/v1/nodes").await, 401);

    let kubeconfig = format!("--kubeconfig={}", place.asks.path().display());
    let proxy = ["--http-auth=proxy-header", "--trusted-proxy=192.0.2.0/24"];
    let arguments = [&["--plaintext", &kubeconfig], &proxy[..]].concat();
    let elsewhere = Aggregator::start(&arguments);
    let readers = Readers::at(elsewhere.http);
    let answer = readers.with_header(&user("admin")).get("/api/v1/nodes").await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["type"], "/problems/untrusted-proxy");
    let token = format!("Authorization: Bearer {}", place.token("admin"));
    assert_eq!(readers.with_header(&token).status("/api/v1/nodes").await, 200);
}

/// The API server of one cluster reviews the token of the aggregator of another one.
#[tokio::test]
async fn aggregator_of_another_cluster_needs_the_permission_to_watch_nodes() {
    let place = ReaderNamespace::new(Api::shared());
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::create_dir(path("paris")).unwrap();
    fs::write(path("paris/ca.crt"), pair.cert.pem()).unwrap();
    fs::write(path("tls.key"), pair.signing_key.serialize_pem()).unwrap();
    let arguments = [
        "--http-auth=token-review",
        &format!("--kubeconfig={}", place.asks.path().display()),
        &format!("--tls-cert={}", path("paris/ca.crt")),
        &format!("--tls-key={}", path("tls.key")),
    ];
    let paris = Aggregator::start_at(Ipv4Addr::LOCALHOST.into(), &arguments);
    let machine = Machine::new("{machine: t4, driver: 570.133.20, gpus: [{board: T4}]}");
    let mut agent = machine.agent(&[
        &format!("--aggregator=https://{}", paris.grpc),
        &format!("--aggregator-ca={}", path("paris/ca.crt")),
        "--aggregator-server-name=localhost",
        "--node-name=node-a",
    ]);
    agent.expect_log("reporting to the aggregator aggregator=https://");

    // The role of the aggregator takes effect with a delay.
    let admin = place.token("admin");
    let readers = Readers::trusting(paris.http, Path::new(&path("paris/ca.crt")));
    let readers = readers.with_header(&format!("Authorization: Bearer {admin}"));
    let status = async || readers.status("/api/v1/nodes").await;
    until_async("a review", status, |status| *status == 200).await;
    let set_token = |token: &str| {
        fs::write(path("token"), token).unwrap();
        fs::rename(path("token"), path("paris/token")).unwrap();
    };
    set_token("a.b.c");
    let mut central = Aggregator::start(&[
        "--plaintext",
        &format!("--upstream=paris=https://localhost:{}", paris.grpc.port()),
        &format!("--upstream-credentials={}", path("")),
    ]);
    let line = central.expect_log("cannot receive the fleet of another cluster");
    assert!(line.contains("the API server rejected the token"), "{line}");
    set_token(&place.token("viewer"));
    let line = central.expect_log("cannot receive the fleet of another cluster");
    assert!(line.contains("permission to watch nodes.octavo.dev"), "{line}");
    set_token(&admin);
    central.expect_log("receiving the fleet of another cluster");
    let readers = Readers::at(central.http);
    let node = readers.node("node-a.paris", |node| node["connected"] == true).await;
    assert_eq!(node["labels"]["octavo.dev/cluster"], "paris");
}

#[tokio::test]
async fn cli_sends_its_token_and_reports_missing_access() {
    let cluster = Api::shared();
    let place = ReaderNamespace::new(cluster);
    let site = place.site(&["--http-auth=token-review"]).await;
    let directory = tempfile::tempdir().unwrap();
    let run = |verb: &str, account: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
        command.args([verb, "--server", &format!("http://{}", site.aggregator.http)]);
        if let Some(account) = account {
            let file = directory.path().join(account);
            std::fs::write(&file, place.token(account)).unwrap();
            command.env("OCTAVO_TOKEN_FILE", file);
        }
        let output = command.finish();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, nodes, _) = run("nodes", Some("admin"));
    assert_eq!(code, Some(0));
    assert!(nodes.contains("node-a") && nodes.contains("node-b"), "{nodes}");
    let (code, types, reported) = run("types", Some("some"));
    assert_eq!(code, Some(0), "{reported}");
    assert!(
        types.contains(H100_TYPE) && !types.contains(A100_TYPE) && !types.contains("node-a"),
        "{types}"
    );
    assert!(reported.contains("nodes are not shown"), "{reported}");
    let (code, _, reported) = run("nodes", Some("viewer"));
    assert_eq!(code, Some(1));
    assert!(
        reported.contains("you do not have the permission to list nodes.octavo.dev"),
        "{reported}"
    );
    assert!(reported.contains("try: ask the cluster administrator for a role"), "{reported}");
    let (code, _, reported) = run("nodes", None);
    assert_eq!(code, Some(1));
    assert!(
        reported.contains("the request has no token") && reported.contains("--token-file"),
        "{reported}"
    );
}
