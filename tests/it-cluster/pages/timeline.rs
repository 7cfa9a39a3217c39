//! The timeline of a node, live and without scripts.

use octavo_model::inventory::{Condition, Inventory};

use super::chrome::{Start, browse};
use super::fixture::{Site, inventory};
use super::layout::{BLOCKERS, blocked_machine, layout_status};

fn failing(machine: &Inventory, device: usize) -> Inventory {
    let mut machine = machine.clone();
    machine.devices[device].condition = Condition::Failing { reason: "GPU is lost".to_owned() };
    machine
}

#[tokio::test]
async fn timeline_shows_what_changed_newest_first() {
    let site = Site::empty();
    let machine = blocked_machine().await;
    site.put("hgx-a100", &machine);
    browse(&site.url.clone(), Start::default(), async move |page| {
        page.open("/nodes/hgx-a100").await;
        page.until(".live", &["Live"]).await;
        let texts = page.texts("#timeline .what").await;
        assert_eq!(texts.len(), 3, "{texts:?}");
        site.put("hgx-a100", &failing(&machine, 7));
        let failed = "Needs attention: GPU 7: ok -> failing failing: GPU is lost";
        page.until_text("#timeline .what", |text| text == failed).await;
        site.set_layout_state("hgx-a100", &machine, &layout_status(&machine, 2, &BLOCKERS));
        page.until_true("return document.querySelectorAll('#timeline li').length === 7").await;
        let texts = page.texts("#timeline .what").await;
        assert!(texts.iter().any(|text| text.contains("GPU 7: failing -> ok")), "{texts:?}");
        assert!(texts.iter().any(|text| text.contains("Layout state: ")), "{texts:?}");
        let ages = page.texts("#timeline .when").await;
        assert!(ages.iter().all(|age| age.ends_with(" ago")), "{ages:?}");
        assert_eq!(page.violations().await, Vec::<String>::new());
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn timeline_counts_repeated_changes_without_scripts() {
    let site = Site::empty();
    let machine = inventory("rtx-pro-6000").await;
    for _ in 0..3 {
        site.put("a", &machine);
        site.put("a", &failing(&machine, 0));
    }
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/nodes/a").await;
        let texts = page.texts("#timeline .what").await;
        let failed: Vec<&String> =
            texts.iter().filter(|text| text.contains("GPU 0: ok -> failing")).collect();
        assert_eq!(failed.len(), 1, "{texts:?}");
        assert!(failed[0].contains("(3 times since "), "{texts:?}");
        page.assert_clean().await;
    })
    .await;
}
