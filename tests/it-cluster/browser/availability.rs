//! What is to be had, as the page says it.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_fleet::cluster::{Amounts, ClusterPod, Phase, PodKey, PodRequirements, Sights};
use octavo_fleet::hardware_profile::TYPE_LABEL;

use super::chrome::{Start, browse};
use super::fixture::Site;
use super::profiles::{GPU, node};

const H200: &str = "nvidia-h200-141gb";

/// A pod that asks for devices of the type.
fn pod(name: &str, count: u32, node: Option<&str>) -> ClusterPod {
    ClusterPod {
        key: PodKey {
            namespace: "team".to_owned(),
            name: name.to_owned(),
        },
        node: node.map(ToOwned::to_owned),
        phase: node.map_or(Phase::Pending, |_| Phase::Bound),
        requirements: PodRequirements {
            amounts: Amounts::from_quantities([(GPU, count.to_string().parse().unwrap())]),
            selector: BTreeMap::from([(TYPE_LABEL.to_owned(), H200.to_owned())]),
            ..PodRequirements::default()
        },
        until: None,
        started_at: None,
    }
}

/// Two nodes of eight of which one is cordoned; somebody has all of the other, and two wait.
fn sights() -> Sights {
    let mut nodes = ["busy", "cordoned"].map(|name| node(name, H200));
    for node in &mut nodes {
        node.taints.clear();
    }
    nodes[1].is_cordoned = true;
    let pods = [
        pod("has", 8, Some("busy")),
        pod("waits-1", 1, None),
        pod("waits-4", 4, None),
    ];
    Sights {
        nodes: nodes
            .into_iter()
            .map(|node| (node.name.clone(), Arc::new(node)))
            .collect(),
        pods: pods
            .into_iter()
            .map(|pod| (Arc::new(pod.key.clone()), Arc::new(pod)))
            .collect(),
    }
}

#[tokio::test]
async fn ac_008_the_page_says_what_is_free_who_waits_and_how_honestly_that_can_be_told() {
    let site = Site::of_a_cluster();
    site.follow(sights(), Vec::new());
    browse(&site.url, Start::default(), async |page| {
        page.open("/availability").await;
        page.until(".offer h2", &[&format!("NVIDIA H200 141GB {H200}")])
            .await;
        let headline = page.text(".offer .headline").await;
        assert!(headline.starts_with("0 available "), "{headline}");
        let offer = page.text(".offer").await;
        for told in [
            "8 requested",
            "8 unusable",
            "5 waited for",
            "16 on 2 nodes",
            "8 on 1 node: ",
            "cordoned",
            "Wait unknown: ",
        ] {
            assert!(offer.contains(told), "{told}: {offer}");
        }
        assert_eq!(page.violations().await, Vec::<String>::new());
        page.assert_clean().await;

        // What ends is free for the next look.
        let mut later = sights();
        later.pods.clear();
        site.follow(later, Vec::new());
        page.open("/availability").await;
        page.until_text(".offer .headline", |text| text.starts_with("8 available "))
            .await;
    })
    .await;
}
