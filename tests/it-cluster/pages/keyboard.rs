//! Keyboard navigation.

use super::chrome::{Start, browse};
use super::fixture::{MACHINES, Site};

const ENTER: &str = "\u{e007}";
const TAB: &str = "\u{e004}";
const ESCAPE: &str = "\u{e00c}";
const DOWN: &str = "\u{e015}";

#[tokio::test]
async fn list_is_filtered_navigated_and_opened_by_keyboard() {
    let site = Site::of_the_demo().await;
    browse(&site.url, Start::default(), async |page| {
        let focus = |id: &str| format!("return document.activeElement.id === '{id}'");
        page.open("/nodes").await;
        page.until("#main tbody th", &MACHINES).await;
        page.press(TAB).await;
        page.until_true("return document.activeElement.className === 'skip'").await;
        page.press("/").await;
        page.until_true(&focus("find")).await;
        page.press(ESCAPE).await;
        page.press("f").await;
        page.until_true(&focus("search")).await;
        page.press("a100").await;
        page.until("#main tbody th", &["hgx-a100", "mixed-l40s-a100"]).await;
        page.press(ESCAPE).await;
        page.press("j").await;
        page.until_true(&focus("open-hgx-a100")).await;
        page.press(DOWN).await;
        page.until_true(&focus("open-mixed-l40s-a100")).await;
        page.press("k").await;
        page.until_true(&focus("open-hgx-a100")).await;
        page.press("?").await;
        page.until_true("return document.getElementById('keys').open").await;
        page.press(ESCAPE).await;
        page.until_true("return !document.getElementById('keys').open").await;
        page.until_true(&focus("open-hgx-a100")).await;
        page.press(ENTER).await;
        page.until("h1", &["hgx-a100"]).await;
        page.press("j").await;
        page.until_true("return document.activeElement.innerText === 'GPU 0'").await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn compact_density_makes_rows_lower_and_is_remembered() {
    let site = Site::of_the_demo().await;
    browse(&site.url, Start::default(), async |page| {
        let lower =
            "return document.querySelector('#main tbody tr').offsetHeight < Number(window.name)";
        let pressed = "return document.querySelector('#density[aria-pressed=true]') !== null";
        page.open("/nodes").await;
        page.until("#main tbody th", &MACHINES).await;
        // The name of the window survives a reload.
        page.until_true(
            "window.name = document.querySelector('#main tbody tr').offsetHeight; return true",
        )
        .await;
        page.press("d").await;
        page.until_true(pressed).await;
        page.until_true(lower).await;
        page.open("/nodes").await;
        page.until_true(pressed).await;
        page.until_true(lower).await;
        page.click("#density").await;
        page.until_true("return document.querySelector('#density[aria-pressed=false]') !== null")
            .await;
        page.assert_clean().await;
    })
    .await;
}
