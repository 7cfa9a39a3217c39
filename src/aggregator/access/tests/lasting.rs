//! Streams, and how long they last once the right to them is gone.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_stream_ends_within_a_minute_and_a_half_of_the_right_to_it() {
    let site = site(Believed::default());
    site.server.gives("ada: watch nodes.octavo.dev");
    let path = "/api/v1/events";
    assert_eq!(site.status(path, Some("ada")).await, 200);
    tokio::time::advance(Duration::from_secs(59)).await;
    let mut body = site.gets(path, Some("ada")).await.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    // Somebody else's question is answered just before the right is taken away: so long that counts.
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(site.status(path, Some("ada")).await, 200);
    site.server.takes_all();
    let start = tokio::time::Instant::now();
    while body.frame().await.is_some() {}
    let took = start.elapsed();
    assert!(took > Duration::from_mins(1), "{took:?}");
    assert!(took <= Duration::from_secs(90), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn while_the_api_server_is_away_a_stream_goes_on_and_then_ends_with_the_right_to_it() {
    let site = site(Believed::default());
    site.server.gives("ada: watch nodes.octavo.dev");
    let answer = site.gets("/api/v1/events", Some("ada")).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let start = tokio::time::Instant::now();
    let mut body = answer.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    // While nobody can say it goes on.
    site.server.0.away.store(true, Ordering::Relaxed);
    while start.elapsed() < Duration::from_mins(3) {
        assert!(body.frame().await.unwrap().is_ok());
    }
    site.server.0.away.store(false, Ordering::Relaxed);
    site.server.takes_all();
    while body.frame().await.is_some() {}
    assert!(
        start.elapsed() < Duration::from_mins(5),
        "{:?}",
        start.elapsed()
    );
}
