//! Tests of the charts of the fleet, its types and nodes, of their links, and of the name of the cluster.

use octavo_fleet::access::VisibleTypes;
use octavo_history::{DeviceSample, Sample, SeriesKey};
use octavo_model::id::PciAddress;
use octavo_model::quantity::Mebibytes;
use octavo_store::clock::Clock;
use octavo_store::history::{SharedHistory, timestamp};

use super::{H200, fleet, limited, view_of};
use crate::tests::{get, text};

/// Two samples of an H200 and an L4.
async fn history() -> SharedHistory {
    let history = SharedHistory::new(1 << 20);
    let sample = |device: u8, kind: &str, value: u32| DeviceSample {
        key: SeriesKey { device: PciAddress::new(0, device, 0, 0).unwrap(), partition: None },
        type_name: kind.parse().ok(),
        memory: Mebibytes::new(1000),
        sample: Sample::new([Some(value), None, Some(value * 8), Some(40), Some(100)]),
    };
    let samples = [sample(0, H200, 20), sample(1, "nvidia-l4-24gb", 80)];
    let reports = [("node-000".parse().unwrap(), samples.into())];
    for seconds in [1_800_000_000, 1_800_000_015] {
        let step = history.next_step(timestamp(seconds)).unwrap();
        history.record(step, &reports).await;
    }
    history
}

#[tokio::test]
async fn trend_is_that_of_the_visible_types() {
    let clock = Clock::start();
    let (_fleet, view) = view_of(fleet(1, clock), clock);
    assert!(!text(get(&view, "/").await).await.contains("id=\"trend\""));
    let view = view
        .with_history(history().await)
        .with_site(None, Some("https://metrics.example/prom".to_owned()));
    let page = text(get(&view, "/").await).await;
    for expected in [
        "Utilization of the fleet, last hour: 50 % now, 50 % to 50 %",
        "Utilization of the fleet, last 24 hours: 50 % now",
        "Allocation of the fleet, last hour: 100 % now",
        "Power of the fleet, last hour: 800 W now",
        "The history begins at <time datetime=\"2027-01-15T08:00:00Z\">",
        "href=\"https://metrics.example/prom/graph?g0.expr=avg%28octavo_device_utilization_ratio%29",
        "id=\"trend-values\"",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    let page = limited(&view, "/", VisibleTypes::Only([H200.parse().unwrap()].into())).await;
    for expected in [
        "Utilization of the types that you can view, last hour: 20 % now",
        "Power of the types that you can view, last hour: 160 W now",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    assert!(!page.contains("metrics.example"), "{page}");
    let none = VisibleTypes::Only(["nvidia-t4-16gb".parse().unwrap()].into());
    assert!(!limited(&view, "/", none).await.contains("id=\"trend\""));
}

#[tokio::test]
async fn node_and_type_have_charts_and_only_configured_links() {
    let clock = Clock::start();
    let (_fleet, view) = view_of(fleet(1, clock), clock);
    let view = view.with_history(history().await);
    let page = text(get(&view, "/nodes/node-000").await).await;
    assert!(page.contains("id=\"history-values\"") && !page.contains("Prometheus"), "{page}");
    let view = view.with_site(None, Some("https://metrics.example".to_owned()));
    let page = text(get(&view, "/nodes/node-000").await).await;
    let link = "https://metrics.example/graph?g0.expr=avg%28octavo_device_utilization_ratio%7Bnode%3D%22node-000%22%7D%29";
    assert!(page.contains(link), "{page}");
    let page = text(get(&view, "/availability").await).await;
    let title = format!("Utilization of {H200}, last 24 hours: 20 % now");
    assert!(page.contains(&title) && page.contains(&format!("id=\"history-{H200}\"")), "{page}");
    // No node has the other type.
    assert!(!page.contains("id=\"history-nvidia-l4-24gb\""), "{page}");
}

#[tokio::test]
async fn cluster_name_is_in_the_header_and_the_title_of_every_page() {
    let clock = Clock::start();
    let (_fleet, view) = view_of(fleet(1, clock), clock);
    let paths = [
        "/",
        "/nodes",
        "/nodes/node-000",
        "/nodes/none",
        "/map",
        "/availability",
        "/teams",
        "/cost",
        "/search?q=a",
    ];
    for path in paths.into_iter().chain(["/profiles", "/compare", "/objectives", "/elsewhere"]) {
        let page = text(get(&view, path).await).await;
        assert!(!page.contains("class=\"cluster\""), "{path}: {page}");
        let named = view.clone().with_site(Some("prod <eu>".to_owned()), None);
        let page = text(get(&named, path).await).await;
        assert!(page.contains(" - prod &#60;eu&#62; - Octavo</title>"), "{path}: {page}");
        assert!(page.contains("Cluster </span>prod &#60;eu&#62;</span>"), "{path}: {page}");
    }
}
