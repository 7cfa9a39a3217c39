//! Nobody is shut out: axe on every kind of page, in both themes, wide and narrow.

use super::chrome::{Page, Start, browse};
use super::fixture::{Site, inventory};
use super::layout::{IN_THE_WAY, standing};
use super::profiles::cluster;
use super::sharing::give_shares;

async fn check(page: &Page, path: &str) {
    for theme in ["light", "dark"] {
        page.open(path).await;
        page.click(&format!(".theme button[value={theme}]")).await;
        page.until_true(&format!(
            "return document.documentElement.dataset.theme === '{theme}'"
        ))
        .await;
        assert_eq!(
            page.violations().await,
            Vec::<String>::new(),
            "{path} {theme}"
        );
        page.assert_clean().await;
    }
}

/// A node with something to say of its layout, in the list and on its page.
async fn give_a_layout(site: &Site) {
    let machine = inventory("hgx-a100").await;
    let layout = standing(&machine, 2, &IN_THE_WAY);
    site.put_standing("hgx-a100", &machine, &layout);
}

#[tokio::test]
async fn axe_finds_nothing_on_any_page_in_either_theme() {
    let site = Site::of_the_demo().await;
    site.put_stale("stale", &inventory("t4").await);
    site.put("strangers", &inventory("unknown-cards").await);
    give_a_layout(&site).await;
    give_shares(&site).await;
    browse(&site.url, Start::default(), async |page| {
        for path in [
            "/",
            "/?search=nothing-like-it",
            "/?group=type",
            "/availability",
            "/nodes/hgx-a100",
            "/nodes/h200",
            "/nodes/shared",
            "/nodes/stale",
            "/nodes/strangers",
            "/nodes/strangers?type-override=grayskull-e150",
            "/nodes/strangers?type-override=mixed",
        ] {
            check(&page, path).await;
        }
        // A theme is remembered.
        page.open("/").await;
        page.until_true("return document.documentElement.dataset.theme === 'dark'")
            .await;
    })
    .await;
    let cluster = cluster().await;
    browse(&cluster.url, Start::default(), async |page| {
        for path in [
            "/profiles",
            "/profiles/opendatahub/gone",
            "/profiles/opendatahub/premium",
            "/profiles/opendatahub/premium?workload=training&parameters=7B&tokens=1T&precision=bf16",
            "/profiles/opendatahub/premium?workload=training&parameters=seven",
            "/profiles/new?node=h200&node=strangers",
        ] {
            check(&page, path).await;
        }
    })
    .await;
    let empty = Site::empty();
    browse(&empty.url, Start::default(), async |page| {
        check(&page, "/").await;
        check(&page, "/availability").await;
    })
    .await;
}

#[tokio::test]
async fn a_narrow_page_scrolls_in_one_direction_only() {
    let site = cluster().await;
    give_a_layout(&site).await;
    give_shares(&site).await;
    let start = Start {
        narrow: true,
        ..Start::default()
    };
    browse(&site.url, start, async |page| {
        for path in [
            "/",
            "/availability",
            "/nodes/hgx-a100",
            "/nodes/rtx-pro-6000",
            "/nodes/shared",
            "/nodes/strangers?type-override=grayskull-e150",
            "/profiles",
            "/profiles/opendatahub/gone",
            "/profiles/opendatahub/premium?workload=training&parameters=7B&tokens=1T&precision=bf16",
            "/profiles/new?node=h200&node=strangers",
        ] {
            page.open(path).await;
            page.until_true("return innerWidth === 380").await;
            let width = "return document.documentElement.scrollWidth";
            assert_eq!(page.ask(width, serde_json::json!([])).await, 380, "{path}");
            check(&page, path).await;
        }
    })
    .await;
}
