//! Hardware profiles: created from selected nodes, listed with their matching nodes, and each on its own page.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_fleet::cluster::{
    Amounts, ClusterNode, ClusterSnapshot, Effect, Readiness, Taint, Toleration,
};
use octavo_fleet::hardware_profile::{
    Count, HardwareProfile, Identifier, ProfileKey, Scheduling, TYPE_LABEL,
};

use super::chrome::{Page, Start, browse};
use super::fixture::{MACHINES, Site, inventory};

const ENTER: &str = "\u{e007}";
const NAMES: &str = "#main tbody th";
pub(super) const GPU: &str = "nvidia.com/gpu";

/// A node of the cluster with eight devices of a type, and its taint.
pub(super) fn node(name: &str, type_name: &str) -> ClusterNode {
    let all = Amounts::from_quantities([
        ("cpu", "64".parse().unwrap()),
        ("memory", "512Gi".parse().unwrap()),
        ("pods", "110".parse().unwrap()),
        (GPU, "8".parse().unwrap()),
    ]);
    ClusterNode {
        name: name.to_owned(),
        labels: BTreeMap::from([(TYPE_LABEL.to_owned(), type_name.to_owned())]),
        taints: vec![Taint {
            key: GPU.to_owned(),
            value: "true".to_owned(),
            effect: Effect::NoSchedule,
        }],
        readiness: Readiness::Ready,
        capacity: all.clone(),
        allocatable: all,
        ..ClusterNode::default()
    }
}

/// A profile that selects by a type.
pub(super) fn profile(name: &str, shown: &str, type_name: &str) -> HardwareProfile {
    HardwareProfile {
        key: ProfileKey { namespace: "opendatahub".to_owned(), name: name.to_owned() },
        display_name: Some(shown.to_owned()),
        identifiers: vec![Identifier {
            display_name: "GPU".to_owned(),
            resource: GPU.to_owned(),
            min: Count::whole(1),
            max: Some(Count::whole(8)),
            default: Count::whole(2),
            resource_type: None,
        }],
        scheduling: Scheduling::Node {
            selector: BTreeMap::from([(TYPE_LABEL.to_owned(), type_name.to_owned())]),
            tolerations: vec![Toleration::for_key(GPU)],
        },
        ..HardwareProfile::default()
    }
}

/// The demo's fleet, an unknown node, and their cluster.
pub(super) async fn cluster() -> Site {
    let site = Site::of_the_demo().await;
    site.put("strangers", &inventory("unknown-cards").await);
    follow(&site);
    site
}

/// The cluster of the demo's nodes, with these profiles.
pub(super) fn cluster_of(site: &Site, profiles: Vec<HardwareProfile>) {
    let nodes = [
        node("dgx-h100", "nvidia-h100-80gb"),
        node("h200", "nvidia-h200-141gb"),
        node("hgx-a100", "nvidia-a100-80gb"),
        node("mixed-l40s-a100", "mixed"),
        node("strangers", "unknown"),
    ];
    let nodes = nodes.map(|node| (node.name.clone(), Arc::new(node)));
    let snapshot = ClusterSnapshot::with_nodes(nodes.into_iter().collect());
    site.follow(snapshot, profiles);
}

/// The cluster of the demo's nodes, and two profiles, one of which matches no node.
pub(super) fn follow(site: &Site) {
    let profiles = vec![
        profile("premium", "Premium <b>GPU</b>", "nvidia-h200-141gb"),
        profile("gone", "Large GPU", "nvidia-v100-32gb"),
    ];
    cluster_of(site, profiles);
}

async fn focused(page: &Page, id: &str) {
    page.until_true(&format!("return document.activeElement.id === '{id}'")).await;
}

#[tokio::test]
async fn ac_002_profile_is_created_from_selected_nodes_by_keyboard() {
    let site = cluster().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes").await;
        page.until_true("return document.getElementById('pick-strangers') !== null")
            .await;
        for name in ["hgx-a100", "mixed-l40s-a100", "strangers"] {
            // Navigates the list like a user.
            for _ in 0..=MACHINES.len() {
                let here = format!("return document.activeElement.id === 'open-{name}'");
                if page.ask(&here, serde_json::json!([])).await == true {
                    break;
                }
                page.press("j").await;
            }
            focused(&page, &format!("open-{name}")).await;
            page.press("x").await;
        }
        page.until("#picked", &["3 nodes selected"]).await;
        page.press("p").await;
        page.until("h1", &["New hardware profile"]).await;
        // Unsupported nodes are left out and named.
        let notes = page.texts("#notes li").await;
        let mixed = |note: &String| note.starts_with("mixed-l40s-a100 is excluded: it is mixed (");
        assert!(notes.iter().any(mixed), "{notes:?}");
        assert!(notes.iter().any(|note| note.starts_with("strangers is excluded: the type of its devices is unknown")), "{notes:?}");
        let yaml = page.text("#yaml").await;
        assert!(yaml.contains("octavo.dev/type: nvidia-a100-80gb"), "{yaml}");
        assert!(yaml.contains("kind: HardwareProfile"), "{yaml}");
        let filled = "return ['name', 'display-name', 'namespace'].map(id => document.getElementById(id).value)";
        assert_eq!(
            page.ask(filled, serde_json::json!([])).await,
            serde_json::json!(["nvidia-a100-80gb", "NVIDIA A100 80GB", "opendatahub"])
        );
        let rows = page.texts("#made tbody tr").await;
        assert!(rows.contains(&"nvidia.com/gpu GPU 1 1 8".to_owned()), "{rows:?}");

        // A custom name is in the command and in the object.
        for _ in 0..30 {
            if page.ask("return document.activeElement.id === 'name'", serde_json::json!([])).await == true {
                break;
            }
            page.press("\u{e004}").await;
        }
        focused(&page, "name").await;
        page.press("\u{e009}a\u{e009}").await;
        page.press("premium-a100").await;
        page.press(ENTER).await;
        page.until_true("return document.getElementById('yaml').innerText.includes('name: premium-a100')")
            .await;
        let create = page.text("#create").await;
        assert!(create.contains(" --from-nodes hgx-a100,mixed-l40s-a100,strangers "), "{create}");
        assert!(create.contains(" --name premium-a100 "), "{create}");
        assert!(create.contains(" --display-name 'NVIDIA A100 80GB'"), "{create}");
        assert!(create.starts_with("octavo profiles create --server http://127.0.0.1:"), "{create}");
        assert_eq!(page.violations().await, Vec::<String>::new());
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn selection_of_several_types_is_refused_and_offers_each_type() {
    let site = cluster().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/profiles/new?node=h200&node=dgx-h100").await;
        let why = page.text("#refused .wrong-text").await;
        assert!(why.contains("2 types"), "{why}");
        assert_eq!(page.count("#yaml").await, 0);
        page.until(
            "#refused .chip",
            &["only nvidia-h100-80gb", "only nvidia-h200-141gb"],
        )
        .await;
        assert_eq!(page.violations().await, Vec::<String>::new());
        page.click("#refused li:last-child button").await;
        page.until_true("return document.getElementById('yaml')?.innerText.includes('octavo.dev/type: nvidia-h200-141gb')")
            .await;
        // A page without a selection explains how to select nodes.
        page.open("/profiles/new").await;
        let why = page.text("#refused .wrong-text").await;
        assert!(why.starts_with("No nodes are selected"), "{why}");
        page.open("/profiles/new?node=h200&name=%3Cscript%3E").await;
        let why = page.text("#refused .wrong-text").await;
        assert!(why.contains("is not an object name"), "{why}");
        assert_eq!(page.count("main script").await, 0);
        let field = "return document.getElementById('name').value";
        assert_eq!(page.ask(field, serde_json::json!([])).await, "<script>");
    })
    .await;
}

#[tokio::test]
async fn req_008_profiles_are_listed_with_matching_nodes_and_issues() {
    let site = cluster().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes").await;
        page.click(".places a[href='/profiles']").await;
        page.until(
            NAMES,
            &["Large GPU opendatahub/gone", "Premium <b>GPU</b> opendatahub/premium"],
        )
        .await;
        let cells = page.texts("#profile-2 td").await;
        assert_eq!(cells[0], "nvidia-h200-141gb");
        assert_eq!(cells[3], "2 nvidia.com/gpu");
        assert_eq!(cells[4], "1 node");
        assert_eq!(cells[5], "4");
        assert_eq!(cells[6], "ok");
        let wrong = page.text("#profile-1 .at-state").await;
        assert!(
            wrong.starts_with("error no node has the label octavo.dev/type=nvidia-v100-32gb"),
            "{wrong}"
        );
        page.press("j").await;
        page.press(ENTER).await;
        page.until("h1", &["Large GPU"]).await;
        assert!(page.text("#findings").await.contains("Remedy: select by octavo.dev/type"));
        page.open("/profiles/opendatahub/premium").await;
        page.until("#reached tbody tr", &["nvidia-h200-141gb 1 8 4"]).await;
        let command = page.text(".same code").await;
        assert!(
            command.starts_with(
                "octavo profiles show premium --namespace opendatahub --server http://127.0.0.1:"
            ),
            "{command}"
        );
        page.assert_clean().await;
        page.open("/profiles/opendatahub/nobody").await;
        page.until("h1", &["Hardware profile not found"]).await;
    })
    .await;
}

#[tokio::test]
async fn ac_011_rows_of_generic_profile_add_up_to_its_total() {
    let site = cluster().await;
    let mut generic = profile("generic", "Any GPU", "");
    generic.scheduling =
        Scheduling::Node { selector: BTreeMap::new(), tolerations: vec![Toleration::for_key(GPU)] };
    cluster_of(&site, vec![generic]);
    browse(&site.url, Start::default(), async |page| {
        page.open("/profiles/opendatahub/generic").await;
        page.until(".title .badge", &["ok"]).await;
        let rows = page.texts("#reached tbody tr").await;
        assert!(
            rows.iter().any(|row| row.starts_with("nodes with several types 1 6 ")),
            "{rows:?}"
        );
        let sum = |from_the_end: usize| -> u64 {
            let cells = rows.iter().map(|row| row.rsplit(' ').nth(from_the_end).unwrap());
            cells.map(|cell| cell.parse::<u64>().unwrap()).sum()
        };
        let facts = page.texts(".facts dd").await;
        assert!(facts.contains(&format!("{} nodes", sum(2))), "{facts:?}");
        assert!(facts.contains(&format!("room for {} more workloads", sum(0))), "{facts:?}");
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn pages_explain_what_is_missing_without_a_cluster() {
    let site = Site::of_the_demo().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/profiles").await;
        page.until("#empty h2", &["No source of hardware profiles"]).await;
        page.open("/nodes").await;
        page.click("#pick-h200").await;
        page.click("#make-profile").await;
        page.until("h1", &["New hardware profile"]).await;
        let why = page.text("#refused .wrong-text").await;
        assert!(why.starts_with("The resources of the nodes are not known: "), "{why}");
    })
    .await;
}
