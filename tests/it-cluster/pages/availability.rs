//! The availability page.

use std::collections::BTreeMap;

use octavo_fleet::cluster::{Amounts, ClusterPod, ClusterSnapshot, Phase, PodKey, PodRequirements};
use octavo_fleet::hardware_profile::TYPE_LABEL;

use super::chrome::{Start, browse};
use super::fixture::Site;
use super::profiles::{GPU, node};

const H200: &str = "nvidia-h200-141gb";

/// A pod that asks for devices of the type.
fn pod(name: &str, count: u32, node: Option<&str>) -> ClusterPod {
    ClusterPod {
        key: PodKey { namespace: "team".to_owned(), name: name.to_owned() },
        node: node.map(ToOwned::to_owned),
        phase: node.map_or(Phase::Pending, |_| Phase::Bound),
        requirements: PodRequirements {
            amounts: Amounts::from_quantities([(GPU, count.to_string().parse().unwrap())]),
            selector: BTreeMap::from([(TYPE_LABEL.to_owned(), H200.to_owned())]),
            ..PodRequirements::default()
        },
        ..ClusterPod::default()
    }
}

/// Two nodes of eight, one of them cordoned; one pod has all of the other, and two are pending.
fn snapshot() -> ClusterSnapshot {
    let mut nodes = ["busy", "cordoned"].map(|name| node(name, H200));
    for node in &mut nodes {
        node.taints.clear();
    }
    nodes[1].is_cordoned = true;
    let pods = [pod("has", 8, Some("busy")), pod("waits-1", 1, None), pod("waits-4", 4, None)];
    ClusterSnapshot::new(nodes, pods)
}

#[tokio::test]
async fn ac_008_page_shows_free_devices_pending_pods_and_their_certainty() {
    let site = Site::of_a_cluster();
    site.follow(snapshot(), Vec::new());
    browse(&site.url, Start::default(), async |page| {
        page.open("/availability").await;
        page.until(".offer h2", &[&format!("NVIDIA H200 141GB {H200}")]).await;
        let headline = page.text(".offer .headline").await;
        assert!(headline.starts_with("0 available "), "{headline}");
        let offer = page.text(".offer").await;
        for shown in [
            "8 requested",
            "8 unavailable",
            "5 pending",
            "16 on 2 nodes",
            "8 on 1 node: ",
            "cordoned",
            "Wait time unknown: ",
        ] {
            assert!(offer.contains(shown), "{shown}: {offer}");
        }
        assert_eq!(page.violations().await, Vec::<String>::new());
        page.assert_clean().await;

        // Devices of an ended pod are free after the next count.
        let later = ClusterSnapshot::with_nodes(snapshot().nodes);
        site.follow(later, Vec::new());
        page.open("/availability").await;
        page.until_text(".offer .headline", |text| text.starts_with("8 available ")).await;
    })
    .await;
}

#[tokio::test]
async fn types_are_listed_at_the_top_and_their_details_open_without_scripts() {
    let site = Site::of_the_demo().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/availability").await;
        let first = page.text("#profiles tbody tr").await;
        assert!(first.starts_with("1g."), "{first}");
        page.click("#types a[href='#of-nvidia-a100-80gb']").await;
        page.until_address(|address| address.ends_with("#of-nvidia-a100-80gb")).await;
        let more = "#more-nvidia-a100-80gb";
        assert!(!page.text(more).await.contains("If idle GPUs were repartitioned"));
        page.click(&format!("{more} summary")).await;
        let text = page.text(more).await;
        assert!(text.contains("If idle GPUs were repartitioned"), "{text}");
    })
    .await;
}
