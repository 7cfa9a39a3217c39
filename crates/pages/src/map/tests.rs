//! The map as HTML, without a browser.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use octavo_fleet::access::Visibility;
use octavo_model::examples;
use octavo_model::inventory::{Condition, Identity, Inventory, Mig};
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_node::label_set::LabelSet;
use octavo_node::sharing::usage::{DeviceUsage, Usage};
use octavo_store::availability::Counter;
use octavo_store::clock::Clock;
use octavo_store::fleet::{Fleet, Freshness, Node, ReportingAgent, StatusSummary};
use octavo_store::view::FleetView;
use octavo_stream::protocol::{Change, Run};
use octavo_stream::status;
use tokio::sync::watch;
use tower::ServiceExt;

/// Utilization of the devices of a node: `None` for one that does not report it.
type Load = [Option<u8>];

fn node(clock: &Clock, name: &str, load: &Load, bound: Duration) -> Arc<Node> {
    let mut inventory = Inventory::default();
    let mut usage = Usage::default();
    for (number, percent) in (0_u8..).zip(load) {
        let mut device = examples::gpu();
        device.pci = format!("0000:{:02x}:00.0", number + 1).parse().unwrap();
        device.index = Some(number.into());
        device.mig = Mig::NotCapable;
        let text = format!(r#"{{"pci":"{}","name":"GPU {number}","units":[]}}"#, device.pci);
        let used: DeviceUsage = serde_json::from_str(&text).unwrap();
        usage.devices.push(DeviceUsage {
            utilization: percent.map(Percent),
            memory: percent.map(|percent| MemoryUse {
                total: Mebibytes::new(1000),
                used: Mebibytes::new(u64::from(percent) * 10),
                reserved: Mebibytes::new(0),
            }),
            ..used
        });
        inventory.devices.push(device);
    }
    if load.len() == 3 {
        inventory.devices[2].condition = Condition::Failing { reason: "lost".to_owned() };
    }
    let parts = status::encode(&inventory, &LabelSet::default(), None)
        .apply(&Change { changed: vec![status::encode_usage(&usage)], removed: Vec::new() });
    let origin = ReportingAgent {
        name: name.parse().unwrap(),
        run: Run { epoch: 1, boot_id: "b".to_owned() },
        agent_version: "1".to_owned(),
    };
    let digest = StatusSummary::new(&inventory, Arc::default(), None).with_usage(Some(&usage));
    Arc::new(Node::new(origin, parts, digest, Freshness::new(clock.now(), bound)))
}

fn view(nodes: &[(&str, &Load)]) -> FleetView {
    let clock = Clock::start();
    let mut fleet = Fleet::default();
    for (name, load) in nodes {
        fleet.nodes.insert(node(&clock, name, load, Duration::from_hours(1)));
    }
    let (_, receiver) = watch::channel(fleet);
    FleetView::new(receiver, clock)
}

async fn get(view: &FleetView, path: &str, visibility: Option<Visibility>) -> (StatusCode, String) {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    if let Some(visibility) = visibility {
        request.extensions_mut().insert(visibility);
    }
    let site = crate::router(Counter::new(view.clone(), None));
    let response = site.oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

async fn map(view: &FleetView, path: &str) -> String {
    let (status, text) = get(view, path, Some(Visibility::everything())).await;
    assert_eq!(status, StatusCode::OK, "{path}");
    assert!(!text.contains(" style="), "{path}");
    text
}

/// Class and text of each cell.
fn cells(page: &str) -> Vec<(String, String)> {
    let cells = page.split("<a class=\"cell ").skip(1).map(|cell| {
        let (class, rest) = cell.split_once('"').unwrap();
        let text = rest.split_once('>').unwrap().1.split('<').next().unwrap();
        (class.to_owned(), text.to_owned())
    });
    cells.collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(class, text)| ((*class).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn cell_shows_its_value_and_links_to_its_device() {
    let view = view(&[("a", &[Some(0), None, Some(95)]), ("b", &[Some(42)])]);
    let page = map(&view, "/map").await;
    // A working device without processes; utilization alone does not mean that it is allocated.
    assert_eq!(
        cells(&page),
        pairs(&[("free", ""), ("free", ""), ("unavailable", ""), ("free", "")])
    );
    assert!(page.contains("4 devices on 2 nodes"), "{page}");
    assert!(page.contains("href=\"/nodes/a#device-0000:02:00.0\""), "{page}");
    let label =
        "aria-label=\"b GPU 0: type unknown, free, utilization 42 %, memory 420 MiB of 1000 MiB\"";
    assert!(page.contains(label), "{page}");

    let page = map(&view, "/map?by=utilization").await;
    let expected = pairs(&[("step-1", "0"), ("no-data", "-"), ("step-5", "95"), ("step-3", "42")]);
    assert_eq!(cells(&page), expected);
    assert!(page.contains("<b>1</b> not reported"), "{page}");
    assert!(page.contains("<b>1</b> below 20 %"), "{page}");
    assert_eq!(cells(&map(&view, "/map?by=memory").await), expected);
}

#[tokio::test]
async fn cells_are_grouped_filtered_and_listed_as_the_address_says() {
    let view = view(&[("a", &[Some(10), Some(31)]), ("b", &[None])]);
    let by_type = map(&view, "/map?group=type").await;
    assert_eq!(by_type.matches("<section class=\"map-group\">").count(), 1);
    assert!(by_type.contains("href=\"/map?group=type&#38;type=unknown\""), "{by_type}");
    let one = map(&view, "/map?search=b&by=utilization").await;
    assert_eq!(cells(&one), pairs(&[("no-data", "-")]));
    // The form and the links retain the other parameters.
    assert!(one.contains("name=\"by\" value=\"utilization\""), "{one}");
    assert!(one.contains("href=\"/map?search=b&#38;by=memory\""), "{one}");
    let nodes = map(&view, "/map?cells=node&by=utilization").await;
    assert_eq!(cells(&nodes), pairs(&[("step-2", "20"), ("no-data", "-")]));
    assert!(nodes.contains("href=\"/nodes/a\""), "{nodes}");
    let table = map(&view, "/map?view=table").await;
    assert_eq!(table.matches("<tr>").count(), 4);
    assert!(table.contains("31 %") && table.contains("not reported"), "{table}");
}

#[tokio::test]
async fn type_selects_devices_of_mixed_nodes() {
    let clock = Clock::start();
    let mut inventory = Inventory::default();
    for (number, name) in (1..).zip(["nvidia-l4-24gb", "nvidia-a100-80gb", "nvidia-l4-24gb"]) {
        let mut device = examples::gpu();
        device.pci = format!("0000:{number:02x}:00.0").parse().unwrap();
        device.identity = Identity::Manual { type_name: name.parse().unwrap(), sku: None };
        inventory.devices.push(device);
    }
    let origin = ReportingAgent {
        name: "mixed".parse().unwrap(),
        run: Run { epoch: 1, boot_id: "b".to_owned() },
        agent_version: "1".to_owned(),
    };
    let parts = status::encode(&inventory, &LabelSet::default(), None);
    let digest = StatusSummary::new(&inventory, Arc::default(), None);
    let fresh = Freshness::new(clock.now(), Duration::from_hours(1));
    let mut fleet = Fleet::default();
    fleet.nodes.insert(Arc::new(Node::new(origin, parts, digest, fresh)));
    let (_, receiver) = watch::channel(fleet);
    let view = FleetView::new(receiver, clock);
    assert_eq!(cells(&map(&view, "/map").await).len(), 3);
    let page = map(&view, "/map?type=nvidia-l4-24gb").await;
    assert_eq!(cells(&page).len(), 2);
    assert!(page.contains("2 devices on 1 node<"), "{page}");
    let page = map(&view, "/map?type=nvidia-l4-24gb&cells=node").await;
    assert!(page.contains("aria-label=\"mixed: 2 devices, nvidia-l4-24gb"), "{page}");
}

#[tokio::test]
async fn form_retains_filters_that_it_does_not_show() {
    let view = view(&[("a", &[Some(1)])]);
    let page = map(&view, "/map?problem=failing&sort=-name&group=type").await;
    for (name, value) in [("problem", "failing"), ("sort", "-name"), ("group", "type")] {
        let field = format!("<input type=\"hidden\" name=\"{name}\" value=\"{value}\">");
        assert!(page.contains(&field), "{name}: {page}");
    }
    assert!(page.contains("id=\"map-clear\" href=\"/map?sort=-name&#38;group=type\""), "{page}");
    assert!(page.contains("</span> --problem=failing</code>"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn unknown_is_never_zero() {
    let clock = Clock::start();
    let mut fleet = Fleet::default();
    fleet.nodes.insert(node(&clock, "stale", &[Some(7)], Duration::ZERO));
    let (_, receiver) = watch::channel(fleet);
    let view = FleetView::new(receiver, clock);
    tokio::time::advance(Duration::from_secs(1)).await;
    for path in ["/map?by=utilization", "/map?by=memory&cells=node"] {
        assert_eq!(cells(&map(&view, path).await), pairs(&[("no-data", "-")]), "{path}");
    }
    assert_eq!(cells(&map(&view, "/map").await), pairs(&[("unknown", "!")]));
}

#[tokio::test]
async fn large_fleet_begins_with_nodes_and_cells_are_bounded() {
    let load = [Some(50); 8];
    let names: Vec<String> = (0..1300).map(|number| format!("node-{number:04}")).collect();
    let nodes: Vec<(&str, &Load)> = names.iter().map(|name| (name.as_str(), &load[..])).collect();
    let few = view(&nodes[..250]);
    let page = map(&few, "/map").await;
    assert_eq!(cells(&page).len(), 2000);
    assert!(page.contains("data-refresh-ms"), "{page}");
    let many = view(&nodes);
    let page = map(&many, "/map").await;
    assert_eq!(cells(&page).len(), 1300);
    assert!(page.contains("Maps of more than 2000 devices begin with nodes."), "{page}");
    let page = map(&many, "/map?cells=device").await;
    assert_eq!(cells(&page).len(), 10_000);
    assert!(page.contains("Only the first 10000 cells are shown."), "{page}");
    assert!(page.contains("10400 devices on 1300 nodes"), "{page}");
}

#[tokio::test]
async fn nfr_003_map_without_permission_is_empty_and_invalid_addresses_are_refused() {
    let view = view(&[("secret", &[Some(1)])]);
    let (_, page) = get(&view, "/map", None).await;
    assert!(!page.contains("secret"), "{page}");
    for path in ["/map?by=color", "/map?group=pool", "/map?cells=x", "/map?view=x", "/map?stat=ok"]
    {
        let (status, page) = get(&view, path, Some(Visibility::everything())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert!(page.contains("Invalid address: "), "{page}");
    }
}

/// Contrast of two colors `#rrggbb`, as WCAG 2.2 defines it.
fn contrast(one: &str, other: &str) -> f64 {
    let luminance = |color: &str| {
        let part = |at: usize| {
            let part = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// The two values of a color of the style sheet, light and dark.
fn color(name: &str) -> [&'static str; 2] {
    let css = include_str!("../../assets/octavo.css");
    let (_, rest) = css.split_once(&format!("--{name}: light-dark(")).unwrap();
    let (light, dark) = rest.split_once(')').unwrap().0.split_once(", ").unwrap();
    [light, dark]
}

#[test]
fn steps_borders_and_texts_have_the_contrast_of_wcag() {
    let [ink, deep, edge, paper, card] = ["ink", "on-deep", "edge", "paper", "card"].map(color);
    for theme in [0, 1] {
        for number in 1..=5 {
            let step = color(&format!("step-{number}"))[theme];
            let text = if number < 4 { ink } else { deep };
            // The bar of a step has the color of its text, and differs in length from those of adjacent steps.
            let has = contrast(step, text[theme]);
            assert!(has >= 4.5, "step {number}, theme {theme}: {has}");
        }
        let steps = [3, 4].map(|number| color(&format!("step-{number}"))[theme]);
        assert!(contrast(steps[0], steps[1]) >= 3.0);
        for ground in [paper, card] {
            let has = contrast(edge[theme], ground[theme]);
            assert!(has >= 3.0, "border, theme {theme}: {has}");
        }
    }
}
