//! Comparison of hardware profiles: by estimates and by measured objectives, with and without scripts, and with failing
//! engines.

use std::time::Duration;

use octavo_files::config_files::prices::PriceFile;
use serde_json::json;
use tempfile::TempDir;

use super::chrome::{Page, Start, browse};
use super::fixture::{Site, inventory};
use super::profiles::{cluster_of, profile};
use crate::engine::{EngineBehavior, TestEngine, engine_client};

const QUERY: &str = "/compare?workload=training&parameters=7B&tokens=1T&precision=bf16";
const ROWS: &str = "#compared tbody tr";

fn prices() -> (TempDir, PriceFile) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prices.yaml");
    let text = "apiVersion: octavo.dev/v1\nkind: PriceBook\ncurrency: USD\nprices:\n- {type: nvidia-h200-141gb, perHour: 5}\n\
                - {type: nvidia-h100-80gb, perHour: 1}\n- {type: nvidia-a100-80gb, perHour: 2}\n";
    std::fs::write(&path, text).unwrap();
    let prices = PriceFile::open(&path).unwrap();
    (directory, prices)
}

/// Three profiles for three types, with prices.
async fn priced() -> (TempDir, Site) {
    let (directory, prices) = prices();
    let site = Site::viewed(|view| view.with_prices(prices));
    for machine in ["h200", "dgx-h100", "hgx-a100"] {
        site.put(machine, &inventory(machine).await);
    }
    cluster_of(
        &site,
        vec![
            profile("premium", "Premium GPU", "nvidia-h200-141gb"),
            profile("large", "Large GPU", "nvidia-h100-80gb"),
            profile("small", "Small GPU", "nvidia-a100-80gb"),
            profile("gone", "Gone", "nvidia-v100-32gb"),
        ],
    );
    (directory, site)
}

async fn photograph(page: &Page, name: &str) {
    let Some(directory) = std::env::var_os("OCTAVO_SCREENSHOTS") else {
        return;
    };
    for theme in ["light", "dark"] {
        page.click(&format!(".theme button[value={theme}]")).await;
        let picture = page.screenshot().await;
        let file = format!("{name}-{theme}.png");
        std::fs::write(std::path::Path::new(&directory).join(file), picture).unwrap();
    }
}

#[tokio::test]
async fn ac_007_profiles_are_compared_with_cheapest_and_fastest_marked() {
    let (_directory, site) = priced().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes").await;
        page.click(".places a[href='/compare']").await;
        page.until("h1", &["Compare hardware profiles"]).await;
        assert_eq!(page.count("#compared").await, 0);
        page.click("#parameters").await;
        page.press("7B").await;
        page.click("#tokens").await;
        page.press("1T").await;
        page.click("#compare .button").await;
        page.until_true("return document.querySelectorAll('#compared tbody tr').length === 3")
            .await;
        let rows = page.texts(ROWS).await;
        let row = |name: &str| rows.iter().find(|row| row.contains(name)).unwrap();
        assert!(row("Large GPU").contains("cheapest"), "{rows:?}");
        assert_eq!(rows.iter().filter(|row| row.contains("cheapest")).count(), 1, "{rows:?}");
        assert!(rows.iter().any(|row| row.contains("fastest")), "{rows:?}");
        for row in &rows {
            let has_time = row.contains(" days") || row.contains(" years");
            assert!(row.contains(" USD per run") && has_time, "{row}");
        }
        let text = page.text("#compared").await;
        assert!(text.contains("octavo roofline"), "{text}");
        page.resize(900).await;
        photograph(&page, "compare").await;

        // Missed objectives are warnings beside the figures of a profile.
        page.open(&format!("{QUERY}&limit=1&budget=10")).await;
        let text = page.text("#compared").await;
        assert!(
            text.contains("longer than 1 days") && text.contains("costs more than 10"),
            "{text}"
        );
        page.open(&format!("{QUERY}&count=64")).await;
        let text = page.text("#compared").await;
        assert!(text.contains("the profile allows 1 to 8 devices"), "{text}");
        assert_eq!(page.violations().await, Vec::<String>::new());
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn profiles_are_compared_and_errors_explained_without_scripts() {
    let (_directory, site) = priced().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open(QUERY).await;
        assert_eq!(page.count(ROWS).await, 3);
        for (query, why) in [
            ("parameters=seven&tokens=1T", "\"seven\" is not a count such as 7B, 1.5T or 7e9"),
            ("parameters=7B", "Enter the number of training tokens."),
            (
                "parameters=7B&tokens=1T&limit=soon",
                "invalid number \"soon\": must be greater than 0",
            ),
        ] {
            page.open(&format!("/compare?workload=training&{query}")).await;
            page.until("#compare [role=alert]", &[why]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn hanging_or_invalid_engine_leaves_comparison_without_times() {
    let long = Duration::from_mins(1);
    for (behavior, time_limits) in [
        (EngineBehavior::Hangs, Duration::from_millis(100)),
        (EngineBehavior::Responds(json!({"source": "x", "items": [{"type": "nvidia-h200-141gb", "count": 2, "seconds": {"low": -5, "high": 1}}]}).to_string()), long),
    ] {
        let engine = TestEngine::new(behavior).await;
        let engine_way = engine_client(&engine.url, time_limits);
        let site = Site::viewed(|view| view.with_engine(engine_way));
        site.put("h200", &inventory("h200").await);
        cluster_of(&site, vec![profile("premium", "Premium GPU", "nvidia-h200-141gb")]);
        browse(&site.url, Start::default(), async |page| {
            page.open(QUERY).await;
            let row = page.text(ROWS).await;
            assert!(row.contains("Premium GPU") && row.contains("no estimate"), "{row}");
            assert!(!row.contains("fastest") && !row.contains("cheapest"), "{row}");
            let reported = page.text("#compared .notice").await;
            assert!(reported.starts_with("No estimate available: the estimate engine "), "{reported}");
            page.assert_clean().await;
        })
        .await;
    }
}

#[tokio::test]
async fn req_003_objectives_show_profile_availability_and_cost() {
    let (_directory, site) = priced().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/objectives").await;
        let rows = json!([
            {"hardware_type": "H200", "hardware_count": 1, "requests_per_second": 9, "ttft_p90": 120},
            {"hardware_type": "A100 80GB", "hardware_count": 1, "requests_per_second": 2, "ttft_p90": 900},
        ]);
        page.click("#rate").await;
        page.press("5").await;
        page.click("#latencies").await;
        page.press("ttft_p90=300").await;
        page.click("#rows").await;
        page.press(&rows.to_string()).await;
        page.click("#objectives .button").await;
        page.until("#summary", &["1 of 2 results meet all objectives"]).await;
        let rows = page.texts("#answered tbody tr").await;
        assert!(
            rows[0].starts_with("H200 1 1 5.00 USD meets all Premium GPU - ") && rows[0].contains("available opendatahub/premium"),
            "{rows:?}"
        );
        assert!(rows[1].contains("ttft_p90 is 900, above the limit of 300"), "{rows:?}");
        assert!(page.text("#objectives").await.contains("Find profiles"));
    })
    .await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/objectives").await;
        page.click("#rows").await;
        page.press("{").await;
        page.click("#objectives .button").await;
        page.until_true("return document.querySelector('#objectives [role=alert]')?.innerText.startsWith('benchmark results: ') === true")
            .await;
        assert_eq!(page.violations().await, Vec::<String>::new());
        photograph(&page, "objectives").await;
    })
    .await;
}

#[tokio::test]
async fn fleet_without_profiles_shows_notice_instead_of_comparison() {
    let site = Site::of_the_demo().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/compare").await;
        page.until(
            "#nothing p:first-child",
            &["No enabled hardware profile without errors requests an accelerator."],
        )
        .await;
        page.assert_clean().await;
    })
    .await;
}
