//! The trend of the fleet, charts of a type and of a node, links to Prometheus, and the name of the cluster.

use octavo_history::{DeviceSample, Sample, SeriesKey};
use octavo_model::quantity::Mebibytes;
use octavo_store::history::{SharedHistory, timestamp};
use serde_json::json;

use super::chrome::{Start, browse};
use super::fixture::{Site, inventory};
use super::quality::check;

const ENTER: &str = "\u{e007}";

/// A machine with a history of two samples per device, a name of the cluster and a Prometheus.
async fn site() -> Site {
    let machine = inventory("dgx-h100").await;
    let history = SharedHistory::new(1 << 20);
    let samples = machine.devices.iter().map(|device| DeviceSample {
        key: SeriesKey { device: device.pci, partition: None },
        type_name: "nvidia-h100-80gb".parse().ok(),
        memory: Mebibytes::new(81_559),
        sample: Sample::new([Some(40), Some(70), Some(400), Some(61), Some(100)]),
    });
    let reports = [("dgx-h100".parse().unwrap(), samples.collect())];
    for seconds in [1_800_000_000, 1_800_000_015] {
        let step = history.next_step(timestamp(seconds)).unwrap();
        history.record(step, &reports).await;
    }
    let site = Site::viewed(|view| {
        let prometheus = Some("https://metrics.example/prom".to_owned());
        view.with_history(history).with_site(Some("prod-eu".to_owned()), prometheus)
    });
    site.put("dgx-h100", &machine);
    site
}

#[tokio::test]
async fn charts_have_a_table_and_links_to_prometheus() {
    let site = site().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/").await;
        page.until("#trend h3", &["Last hour", "Last 24 hours"]).await;
        let names = page.texts("#trend .trends span").await;
        assert_eq!(names[..3], ["Utilization 40 %", "Allocation 100 %", "Power 3200 W"]);
        assert_eq!((names.len(), page.count("#trend svg.chart").await), (6, 6));
        assert!(page.text("#trend p").await.contains("The history begins at"));
        assert_eq!(page.count("#trend p time[datetime='2027-01-15T08:00:00Z']").await, 1);
        page.until(".cluster", &["Cluster prod-eu"]).await;
        page.until_true("return document.title === 'Overview - prod-eu - Octavo'").await;
        // The table opens by keyboard.
        let focus = "document.querySelector('#trend-values summary').focus(); return true";
        page.ask(focus, json!([])).await;
        page.press(ENTER).await;
        page.until("#trend-values tbody td", &["40 %", "100 %", "3200 W"]).await;
        let links = "return [...document.querySelectorAll('a[href^=\"https://metrics.example/prom/graph?\"]')]\
             .map(a => new URL(a.href).searchParams.get('g0.expr'))";
        let expected = json!(["avg(octavo_device_utilization_ratio)"]);
        assert_eq!(page.ask(links, json!([])).await, expected);
        page.open("/nodes/dgx-h100").await;
        let expected = json!(["avg(octavo_device_utilization_ratio{node=\"dgx-h100\"})"]);
        assert_eq!(page.ask(links, json!([])).await, expected);
        page.open("/availability").await;
        assert_eq!(page.count(".type-history svg.chart").await, 5);
        for path in ["/", "/nodes/dgx-h100", "/availability"] {
            check(&page, path).await;
        }
    })
    .await;
    for width in [380, 320] {
        let start = Start { narrow: true, width: Some(width), ..Start::default() };
        browse(&site.url, start, async |page| {
            for path in ["/", "/nodes/dgx-h100", "/availability"] {
                page.open(path).await;
                let width_of = "return document.documentElement.scrollWidth";
                assert_eq!(page.ask(width_of, json!([])).await, width, "{path}");
                check(&page, path).await;
            }
        })
        .await;
    }
}
