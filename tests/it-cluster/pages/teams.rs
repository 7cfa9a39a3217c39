//! The page of teams: usage by namespace, by keyboard, without scripts, and after going back.

use super::chrome::{Start, browse};
use super::fixture::Site;
use super::sharing::give_shares;

const ENTER: &str = "\u{e007}";
const NAMES: &str = ".teams tbody th";

async fn site() -> Site {
    let site = Site::empty();
    give_shares(&site).await;
    site
}

#[tokio::test]
async fn ac_010_teams_page_shows_usage_by_namespace_and_type() {
    let site = site().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/teams").await;
        page.until("nav.places [aria-current]", &["Teams"]).await;
        page.until(NAMES, &["team-a"]).await;
        let cells = page.texts(".teams tbody td").await;
        assert_eq!(cells[1], "3", "pods: {cells:?}");
        assert_eq!(cells[2], "3 time slices", "{cells:?}");
        assert!(cells[3].contains(" of "), "{cells:?}");
        assert_eq!(cells[4], "45 %", "{cells:?}");
        assert_eq!(cells[6], "1", "over the fair share: {cells:?}");
        assert_eq!(page.count("#not-followed").await, 1);
        // The order is part of the address.
        page.click("#sort-namespace").await;
        page.until_address(|address| address == "/teams?sort=namespace").await;
        page.until_true("return document.querySelector('#sort-namespace').closest('th').ariaSort === 'ascending'")
            .await;
        page.back().await;
        page.until_true("return document.querySelector('#sort-idle').closest('th').ariaSort === 'descending'")
            .await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn namespace_is_selected_by_keyboard_and_restored_by_going_back() {
    let site = site().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/teams").await;
        page.until(".live", &["Live"]).await;
        page.press("j").await;
        page.until_true("return document.activeElement.innerText === 'team-a'").await;
        page.press(ENTER).await;
        page.until_address(|address| address == "/teams?namespace=team-a").await;
        page.until(NAMES, &["team-a"]).await;
        page.back().await;
        page.until_address(|address| address == "/teams").await;
        let field = page.find("#namespace").await;
        field.send_keys("nothing\n").await.unwrap();
        page.until("#empty h2", &["No allocation in this namespace"]).await;
        page.until_address(|address| address == "/teams?namespace=nothing").await;
        page.click("#clear").await;
        page.until(NAMES, &["team-a"]).await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn namespace_is_selected_without_scripts() {
    let site = site().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/teams").await;
        page.click(".teams tbody th a").await;
        page.until_address(|address| address == "/teams?namespace=team-a").await;
        let field = page.find("#namespace").await;
        field.clear().await.unwrap();
        field.send_keys("nothing").await.unwrap();
        page.click("form.filter button").await;
        page.until("#empty h2", &["No allocation in this namespace"]).await;
    })
    .await;
}
