//! Nodes of the cluster without agent in the node view: marked, explained, and selected for a hardware profile.

use std::sync::Arc;

use octavo_fleet::cluster::ClusterSnapshot;

use super::chrome::{Start, browse};
use super::fixture::{Site, inventory};
use super::profiles::node;

const PRODUCT: &str = "nvidia.com/gpu.product";

/// One node with an agent, two with NVIDIA's labels only, and one without an accelerator.
async fn site() -> Site {
    let site = Site::of_a_cluster();
    site.put("h200", &inventory("h200").await);
    let mut nodes = vec![node("h200", "nvidia-h200-141gb")];
    for name in ["vendor-a100", "vendor-b100"] {
        let mut vendor = node(name, "");
        vendor.labels = [(PRODUCT.to_owned(), "NVIDIA-A100-SXM4-40GB".to_owned())].into();
        nodes.push(vendor);
    }
    let mut cpu = node("cpu-1", "");
    cpu.labels.clear();
    cpu.capacity = octavo_fleet::cluster::Amounts::default().with("cpu", 8000);
    cpu.allocatable = cpu.capacity.clone();
    nodes.push(cpu);
    let nodes = nodes.into_iter().map(|node| (node.name.clone(), Arc::new(node)));
    let snapshot = ClusterSnapshot::with_nodes(nodes.collect());
    site.follow(snapshot, Vec::new());
    site
}

#[tokio::test]
async fn ac_001_node_view_marks_and_explains_nodes_without_agent() {
    let site = site().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes").await;
        page.until("#glance-nodes ~ .headline", &["3 nodes 2 without an agent, known from the cluster only; 1 needs attention"])
            .await;
        assert_eq!(page.count("tr.by-labels").await, 2);
        assert_eq!(page.count("#node-cpu-1").await, 0);
        let row = page.text("#node-vendor-a100").await;
        for part in ["nvidia-a100-40gb ×8", "no-agent", PRODUCT, "install octavo-agent", "from the cluster; no agent"] {
            assert!(row.contains(part), "{part}: {row}");
        }
        let card = page.text("#type-nvidia-a100-40gb").await;
        assert!(card.contains("on 2 nodes, 2 without an agent"), "{card}");
        page.open("/nodes?state=no-agent&group=type").await;
        assert_eq!(page.count("tr.by-labels").await, 2);
        assert_eq!(page.violations().await, Vec::<String>::new());

        page.open("/nodes/vendor-a100").await;
        let text = page.text("#main").await;
        for part in ["No agent reports this node. It has 8 x nvidia-a100-40gb according to the label nvidia.com/gpu.product.", "DaemonSet"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(page.violations().await, Vec::<String>::new());
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn ac_003_profile_page_of_node_without_agent_selects_by_vendor_label() {
    let site = site().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes").await;
        page.click("#pick-vendor-a100").await;
        page.click("#make-profile").await;
        page.until("h1", &["New hardware profile"]).await;
        let yaml = page.text("#yaml").await;
        assert!(yaml.contains("nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB"), "{yaml}");
        let notes = page.texts("#notes li").await;
        assert!(
            notes.iter().any(|note| note.contains("changes when devices are shared")),
            "{notes:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn connecting_agent_replaces_the_entry_on_an_open_page() {
    let site = site().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes").await;
        page.until(".live", &["Live"]).await;
        assert_eq!(page.count("tr.by-labels").await, 2);
        site.put("vendor-a100", &inventory("hgx-a100").await);
        page.until_true("return document.querySelectorAll('tr.by-labels').length === 1").await;
        assert_eq!(page.count("#node-vendor-a100").await, 1);
        let row = page.text("#node-vendor-a100").await;
        assert!(!row.contains("no-agent"), "{row}");
    })
    .await;
}

#[tokio::test]
async fn nodes_without_agent_are_readable_on_a_phone_without_side_scrolling() {
    let site = site().await;
    let narrow = Start { narrow: true, ..Start::default() };
    browse(&site.url, narrow, async |page| {
        for path in ["/", "/nodes", "/nodes/vendor-a100", "/compare", "/objectives"] {
            page.open(path).await;
            let wide = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth";
            page.until_true(wide).await;
            if let Some(directory) = std::env::var_os("OCTAVO_SCREENSHOTS") {
                let name = format!("narrow{}.png", path.replace('/', "-"));
                let picture = page.screenshot().await;
                std::fs::write(std::path::Path::new(&directory).join(name), picture).unwrap();
            }
        }
    })
    .await;
}
