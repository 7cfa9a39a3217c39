//! An open page stays current, and reports when it cannot.

use std::io::{Read, Write};
use std::net::TcpStream;

use octavo_model::inventory::Condition;
use serde_json::json;

use super::chrome::{Start, browse};
use super::fixture::{Site, inventory};
use crate::time_limits::TIME_LIMIT;

#[tokio::test]
async fn page_updates_live_without_reload() {
    let site = Site::empty();
    let mut machine = inventory("rtx-pro-6000").await;
    browse(&site.url.clone(), Start::default(), async move |page| {
        page.open("/nodes").await;
        page.until("#empty h2", &["No node has reported yet"]).await;
        page.ask("window.marker = 7", json!([])).await;
        page.until(".live", &["Live"]).await;

        site.put("node-a", &machine);
        page.until("#main tbody th", &["node-a"]).await;
        let field = page.find("#search").await;
        field.send_keys("node").await.unwrap();
        page.until_true("return location.search.includes('search=node')").await;

        machine.devices[0].condition = Condition::Failing { reason: "GPU is lost".to_owned() };
        site.put("node-a", &machine);
        page.until("#node-node-a .at-state .badge", &["degraded"]).await;
        site.put("node-b", &machine);
        page.until("#main tbody th", &["node-a", "node-b"]).await;
        page.until_true("return document.activeElement.id === 'search'").await;
        page.until_true("return document.activeElement.value === 'node'").await;

        site.put_stale("node-b", &machine);
        page.until("#node-node-b .at-state .badge", &["stale"]).await;
        assert_eq!(page.count("#node-node-b.stale-row").await, 1);
        let since = page.text("#node-node-b .since").await;
        assert!(since.starts_with("no report since "), "{since}");
        assert_eq!(page.ask("return window.marker", json!([])).await, 7);
        page.assert_clean().await;

        page.open("/nodes/node-b").await;
        let notice = page.text(".notice").await;
        assert!(notice.starts_with("Stale: no report from the agent"), "{notice}");
        assert_eq!(page.count(".devices.was").await, 1);
    })
    .await;
}

#[tokio::test]
async fn lost_connection_is_shown_until_aggregator_returns() {
    let mut site = Site::of_the_demo().await;
    browse(&site.url.clone(), Start::default(), async move |page| {
        page.open("/nodes").await;
        page.until(".live", &["Live"]).await;
        site.stop();
        page.until_true("return !document.getElementById('banner').hidden").await;
        let banner = page.text("#banner").await;
        assert!(banner.starts_with("No connection to the aggregator since"), "{banner}");
        page.until(".live", &["Disconnected"]).await;
        site.start_again();
        page.until_true("return document.getElementById('banner').hidden").await;
        page.until(".live", &["Live"]).await;
    })
    .await;
}

#[tokio::test]
async fn page_polls_if_its_stream_is_refused() {
    let site = Site::empty();
    let machine = inventory("t4").await;
    // The maximum number of other streams is open.
    let mut others = Vec::new();
    for _ in 0..256 {
        let address = site.url.strip_prefix("http://").unwrap();
        let mut other = TcpStream::connect(address).unwrap();
        other.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        other.write_all(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        other.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        others.push(other);
    }
    browse(&site.url.clone(), Start::default(), async move |page| {
        page.open("/nodes").await;
        page.until(".live", &["Polling"]).await;
        site.put("node-a", &machine);
        page.until("#main tbody th", &["node-a"]).await;
        assert_eq!(page.text(".live").await, "Polling");
    })
    .await;
    drop(others);
}
