//! Accessibility: axe on every kind of page, in both themes, wide and narrow.

use super::chrome::{Page, Start, browse};
use super::fixture::{Site, inventory};
use super::layout::{BLOCKERS, blocked_machine, layout_status};
use super::profiles::cluster;
use super::sharing::give_shares;

pub(super) async fn check(page: &Page, path: &str) {
    for theme in ["light", "dark"] {
        page.open(path).await;
        page.click(&format!(".theme button[value={theme}]")).await;
        page.until_true(&format!("return document.documentElement.dataset.theme === '{theme}'"))
            .await;
        assert_eq!(page.violations().await, Vec::<String>::new(), "{path} {theme}");
        page.assert_clean().await;
    }
}

/// A node with a layout status in the list and on its page.
async fn give_a_layout(site: &Site) {
    let machine = blocked_machine().await;
    let layout = layout_status(&machine, 2, &BLOCKERS);
    site.set_layout_state("hgx-a100", &machine, &layout);
}

#[tokio::test]
async fn axe_reports_no_issue_on_any_page_in_either_theme() {
    let site = Site::of_the_demo().await;
    site.put_stale("stale", &inventory("t4").await);
    site.put("strangers", &inventory("unknown-cards").await);
    give_a_layout(&site).await;
    give_shares(&site).await;
    browse(&site.url, Start::default(), async |page| {
        for path in [
            "/",
            "/nodes",
            "/nodes?search=nothing-like-it",
            "/nodes?group=type",
            "/availability",
            "/map",
            "/map?by=memory&group=type",
            "/map?cells=node",
            "/map?view=table",
            "/layouts",
            "/layouts/dry-run",
            "/layouts/dry-run?plan=all-balanced",
            "/search?q=a100",
            "/search?q=nothing-like-it",
            "/teams",
            "/teams?namespace=nothing-like-it",
            "/nodes/hgx-a100",
            "/nodes/h200",
            "/nodes/shared",
            "/nodes/stale",
            "/nodes/strangers",
        ] {
            check(&page, path).await;
        }
        // The theme is stored.
        page.open("/nodes").await;
        page.until_true("return document.documentElement.dataset.theme === 'dark'").await;
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
        for path in ["/", "/nodes", "/availability", "/teams", "/layouts"] {
            check(&page, path).await;
        }
    })
    .await;
}

#[tokio::test]
async fn narrow_page_scrolls_in_one_direction_only() {
    let site = cluster().await;
    give_a_layout(&site).await;
    give_shares(&site).await;
    let start = Start { narrow: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        for path in [
            "/",
            "/nodes",
            "/availability",
            "/map",
            "/map?by=utilization&group=type",
            "/map?view=table",
            "/layouts",
            "/layouts/dry-run?plan=all-balanced",
            "/search?q=GPU-",
            "/search?q=a100",
            "/teams",
            "/nodes/hgx-a100",
            "/nodes/rtx-pro-6000",
            "/nodes/shared",
            "/nodes/strangers",
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

/// Pairs of overlapping or touching texts in a row. Invisible texts are ignored.
const TOUCHING: &str = r"
    const gap = 4, found = [];
    const boxes = (cell) => {
        const all = [], walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
        while (walk.nextNode()) {
            const text = walk.currentNode, range = document.createRange();
            if (text.data.trim() === '' || text.parentElement.closest('.unseen')) continue;
            range.selectNodeContents(text);
            const cut = text.parentElement.closest('.why')?.getBoundingClientRect();
            for (const box of range.getClientRects())
                if (box.width > 1 && box.height > 1)
                    all.push({left: box.left, right: box.right, top: box.top, bottom: cut ? Math.min(box.bottom, cut.bottom) : box.bottom});
        }
        return all;
    };
    for (const row of document.querySelectorAll('main tr')) {
        if (getComputedStyle(row.closest('thead') ?? row).clipPath !== 'none') continue;
        const cells = [...row.children].map((cell) => [cell.innerText.trim(), boxes(cell)]);
        cells.forEach(([one, here], at) => cells.slice(at + 1).forEach(([other, there]) => {
            for (const a of here) for (const b of there) {
                const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                if (down > 2 && across > -gap) found.push(`${one} | ${other}`);
            }
        }));
    }
    return [...new Set(found)];";

/// A fleet with the longest possible rows.
async fn crowded() -> Site {
    let site = cluster().await;
    site.put_stale("stale", &inventory("t4").await);
    give_a_layout(&site).await;
    give_shares(&site).await;
    site
}

const ESTIMATE: &str = "/profiles/opendatahub/premium?workload=training&parameters=7B&tokens=1T&precision=bf16&count=64";

#[tokio::test]
async fn row_text_does_not_overlap_on_any_phone() {
    let site = crowded().await;
    for width in [320, 375, 430] {
        let start = Start { narrow: true, width: Some(width), ..Start::default() };
        browse(&site.url, start, async |page| {
            for path in ["/", "/nodes", "/nodes?group=type", "/teams", "/profiles", ESTIMATE] {
                page.open(path).await;
                page.until_true(&format!("return innerWidth === {width}")).await;
                let touching = page.ask(TOUCHING, serde_json::json!([])).await;
                assert_eq!(touching, serde_json::json!([]), "{width} {path}");
                let wide = page
                    .ask("return document.documentElement.scrollWidth", serde_json::json!([]))
                    .await;
                assert_eq!(wide, width, "{path}");
            }
        })
        .await;
    }
}

#[tokio::test]
async fn number_columns_do_not_touch_adjacent_columns() {
    let site = crowded().await;
    browse(&site.url, Start::default(), async |page| {
        for path in
            ["/", "/nodes", "/teams", "/profiles", ESTIMATE, "/nodes/hgx-a100", "/nodes/shared"]
        {
            page.open(path).await;
            page.until(".live", &["Live"]).await;
            let touching = page.ask(TOUCHING, serde_json::json!([])).await;
            assert_eq!(touching, serde_json::json!([]), "{path}");
        }
    })
    .await;
}
