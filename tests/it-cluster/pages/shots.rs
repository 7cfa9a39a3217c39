//! Screenshots for the documentation: `make screenshots` writes them; other runs only check that they can be taken.

use std::path::Path;

use serde_json::json;

use super::chrome::{Start, browse};
use super::cost::{CostSite, cost_site};
use super::fixture::{Site, inventory};
use super::layout::{BLOCKERS, blocked_machine, layout_status};
use super::profiles::follow;
use super::sharing::give_notebooks;

/// Machines of the demo with devices of other vendors and with unavailable ones.
const OTHERS: [&str; 7] =
    ["inf2", "mi210-pair", "mi300x", "mixed-vendors", "passed-through", "trn2", "unknown-cards"];

/// A profile of the selection, with one node left out.
const DRAFT: &str = "/profiles/new?node=h200&node=mixed-l40s-a100";

#[tokio::test]
async fn screenshots_of_all_pages_can_be_taken() {
    let directory = std::env::var_os("OCTAVO_SCREENSHOTS");
    let site = Site::of_the_demo().await;
    site.put("inference-01", &inventory("t4").await);
    site.put_stale("train-07", &inventory("dgx-h100").await);
    for machine in OTHERS {
        site.put(machine, &inventory(machine).await);
    }
    follow(&site);
    browse(&site.url, Start::default(), async |page| {
        for (path, name, height) in [
            ("/", "overview", 1810),
            ("/nodes", "nodes", 1810),
            ("/availability", "availability", 1500),
            ("/map", "map", 1100),
            ("/nodes/hgx-a100", "node", 1290),
            ("/nodes/trn2", "neuron", 1100),
            ("/nodes/mi300x", "amd", 1100),
            (DRAFT, "profile", 1500),
            ("/nodes/hgx-a100", "layout", 700),
            ("/nodes/notebooks", "sharing", 980),
            ("/teams", "teams", 700),
        ] {
            if name == "layout" {
                let machine = blocked_machine().await;
                let layout = layout_status(&machine, 2, &BLOCKERS);
                site.set_layout_state("hgx-a100", &machine, &layout);
            }
            if name == "sharing" {
                give_notebooks(&site).await;
            }
            page.resize(height).await;
            for theme in ["light", "dark"] {
                page.open(path).await;
                page.click(&format!(".theme button[value={theme}]")).await;
                page.until(".live", &["Live"]).await;
                let picture = page.screenshot().await;
                assert!(picture.len() > 10_000, "an empty picture");
                if let Some(directory) = &directory {
                    let file = format!("{name}-{theme}.png");
                    std::fs::write(Path::new(directory).join(file), picture).unwrap();
                }
            }
        }
    })
    .await;
    let narrow = Start { narrow: true, ..Start::default() };
    browse(&site.url, narrow, async |page| {
        page.open("/nodes/notebooks").await;
        page.until(".live", &["Live"]).await;
        page.ask("document.querySelector('.device:last-child').scrollIntoView()", json!([])).await;
        let picture = page.screenshot().await;
        assert!(picture.len() > 10_000, "an empty picture");
        if let Some(directory) = &directory {
            std::fs::write(Path::new(directory).join("sharing-narrow.png"), picture).unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn screenshots_of_the_cost_page_can_be_taken() {
    let directory = std::env::var_os("OCTAVO_SCREENSHOTS");
    let CostSite { site, path, .. } = &cost_site().await;
    let narrow = Start { narrow: true, ..Start::default() };
    for (start, shots) in
        [(Start::default(), &["light", "dark"][..]), (narrow, &["narrow-light", "narrow-dark"][..])]
    {
        browse(&site.url, start, async |page| {
            for shot in shots {
                if !shot.starts_with("narrow") {
                    page.resize(1500).await;
                }
                page.open(path).await;
                let theme = shot.trim_start_matches("narrow-");
                page.click(&format!(".theme button[value={theme}]")).await;
                page.until(".live", &["Live"]).await;
                let picture = page.screenshot().await;
                assert!(picture.len() > 10_000, "an empty picture");
                if let Some(directory) = &directory {
                    let file = format!("cost-{shot}.png");
                    std::fs::write(Path::new(directory).join(file), picture).unwrap();
                }
            }
        })
        .await;
    }
}
