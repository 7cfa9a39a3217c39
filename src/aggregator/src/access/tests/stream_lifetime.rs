//! Lifetime of streams whose authorization is revoked.

use octavo_stream::proto::v1;
use tokio::sync::Semaphore;
use tokio_stream::StreamExt;
use tonic::Code;

use super::*;
use crate::watch::WatchSession;

#[tokio::test(start_paused = true)]
async fn stream_ends_within_90_seconds_of_revocation() {
    let site = site(TrustedIdentitySources::default());
    site.server.gives("ada: watch nodes.octavo.dev");
    let path = "/api/v1/events";
    assert_eq!(site.status(path, Some("ada")).await, 200);
    tokio::time::advance(Duration::from_secs(59)).await;
    let mut body = site.get(path, Some("ada")).await.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    // Another request refreshes the cached grant just before it is revoked, which is the worst case.
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(site.status(path, Some("ada")).await, 200);
    site.server.revoke_all();
    let start = tokio::time::Instant::now();
    while body.frame().await.is_some() {}
    let took = start.elapsed();
    assert!(took > Duration::from_mins(1), "{took:?}");
    assert!(took <= Duration::from_secs(90), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn stream_continues_while_the_api_server_is_down() {
    let site = site(TrustedIdentitySources::default());
    site.server.gives("ada: watch nodes.octavo.dev");
    let answer = site.get("/api/v1/events", Some("ada")).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let start = tokio::time::Instant::now();
    let mut body = answer.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    // The stream continues while the API server does not answer.
    site.server.0.away.store(true, Ordering::Relaxed);
    while start.elapsed() < Duration::from_mins(3) {
        assert!(body.frame().await.unwrap().is_ok());
    }
    site.server.0.away.store(false, Ordering::Relaxed);
    site.server.revoke_all();
    while body.frame().await.is_some() {}
    assert!(start.elapsed() < Duration::from_mins(5), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn grpc_watch_ends_on_revocation() {
    let server = Server::default();
    let (_fleet, receiver) = watch::channel(Fleet::default());
    let view = FleetView::new(receiver, Clock::start());
    let guard = Guard::with_reviewer(
        TrustedIdentitySources::default(),
        Box::new(server.clone()),
        Counter::new(view.clone(), None),
        Stats::default(),
    );
    let mut headers = HeaderMap::new();
    headers.insert("authorization", "Bearer token-ada".parse().unwrap());
    let peer = "192.0.2.7".parse().unwrap();
    assert!(guard.authorize_watch(&headers, peer).await.is_err());
    server.gives("ada: watch nodes.octavo.dev");
    tokio::time::advance(Duration::from_secs(10)).await;
    let right = guard.authorize_watch(&headers, peer).await.unwrap();
    let watching = WatchSession {
        peer: Peer::new(PEER.parse().unwrap()),
        view,
        stats: Stats::default(),
        read_timeout: Duration::from_secs(30),
    };
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let request = v1::WatchRequest::default();
    let mut events = watching.start((place, right), &request).ok().unwrap();
    assert!(events.next().await.unwrap().is_ok(), "synced");
    // The stream continues while the API server does not answer.
    server.0.away.store(true, Ordering::Relaxed);
    let quiet = tokio::time::timeout(Duration::from_mins(5), events.next()).await;
    assert!(quiet.is_err());
    server.0.away.store(false, Ordering::Relaxed);
    server.revoke_all();
    let start = tokio::time::Instant::now();
    let status = events.next().await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    let message = status.message();
    assert!(
        message.contains("you do not have the permission to watch nodes.octavo.dev"),
        "{message}"
    );
    assert!(start.elapsed() < Duration::from_mins(2));
    assert!(events.next().await.is_none());
}
