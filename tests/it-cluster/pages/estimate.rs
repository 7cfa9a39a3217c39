//! Estimates on the page of a hardware profile: by keyboard, without scripts, and with unavailable, hanging or invalid
//! engines.

use std::time::Duration;

use octavo_files::config_files::prices::PriceFile;
use serde_json::json;

use super::chrome::{Page, Start, browse};
use super::fixture::{Site, inventory};
use super::profiles::{cluster, follow};
use crate::engine::{EngineBehavior, TestEngine, engine_client};

const ENTER: &str = "\u{e007}";
const TAB: &str = "\u{e004}";
const PREMIUM: &str = "/profiles/opendatahub/premium";
const QUERY: &str =
    "/profiles/opendatahub/premium?workload=training&parameters=7B&tokens=1T&precision=bf16";
const ROWS: &str = "#estimated tbody tr";

/// A fleet of one node and its two profiles, with an estimation engine.
async fn asking(url: &str, timeout: Duration) -> Site {
    let engine = engine_client(url, timeout);
    let site = Site::viewed(|view| view.with_engine(engine));
    site.put("h200", &inventory("h200").await);
    follow(&site);
    site
}

async fn focus(page: &Page, id: &str) {
    let here = format!("return document.activeElement.id === '{id}'");
    for _ in 0..40 {
        if page.ask(&here, json!([])).await == true {
            return;
        }
        page.press(TAB).await;
    }
    panic!("the keyboard does not reach {id}");
}

#[tokio::test]
async fn ac_007_profile_estimates_training_time_by_keyboard() {
    let site = cluster().await;
    browse(&site.url, Start::default(), async |page| {
        page.open(PREMIUM).await;
        page.find("#parameters").await;
        assert_eq!(page.count("#estimated").await, 0);
        focus(&page, "parameters").await;
        page.press("7B").await;
        focus(&page, "tokens").await;
        page.press("1T").await;
        focus(&page, "count").await;
        page.press("8").await;
        page.press(ENTER).await;
        page.until_true("return document.querySelector('#estimated tbody tr td:nth-child(2)')?.innerText === '8'")
            .await;
        // 6 x 7e9 x 1e12 operations on 8 devices, with 48 % and 20 % of the dense bf16 peak (989e12 per second as SXM,
        // 836e12 as NVL).
        page.until(ROWS, &["nvidia-h200-141gb 8 128 to 362 days interpolated -"])
            .await;
        let text = page.text("#estimate").await;
        assert!(text.contains("Estimate for one workload of this profile. It is not a guarantee"), "{text}");
        assert!(text.contains("Source: octavo roofline"), "{text}");
        let command = page.text("#estimated > p:last-child code").await;
        let flags = "--parameters 7B --tokens 1T --precision bf16 --profile premium --namespace opendatahub --count 8";
        assert_eq!(
            command,
            format!("octavo estimate training {flags} --server {}", site.url)
        );
        page.until_address(|address| address.contains("parameters=7B&tokens=1T"))
            .await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn form_shows_costs_and_errors_without_scripts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prices.yaml");
    let text = "apiVersion: octavo.dev/v1\nkind: PriceBook\ncurrency: USD\nprices:\n- {type: nvidia-h200-141gb, perHour: 4}\n";
    std::fs::write(&path, text).unwrap();
    let prices = PriceFile::open(&path).unwrap();
    let site = Site::viewed(|view| view.with_prices(prices));
    site.put("h200", &inventory("h200").await);
    follow(&site);
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open(QUERY).await;
        let row = page.text(ROWS).await;
        // A workload has two devices by default.
        assert!(row.starts_with("nvidia-h200-141gb 2 "), "{row}");
        assert!(row.contains(" USD per run"), "{row}");
        page.click("#estimate .button").await;
        page.until(ROWS, &[&row]).await;
        for (query, why) in [
            ("parameters=seven&tokens=1T", "\"seven\" is not a count such as 7B, 1.5T or 7e9"),
            ("parameters=7B", "Enter the number of training tokens."),
            (
                "parameters=7B&tokens=1T&count=-1",
                "invalid number of devices \"-1\": enter a number such as 8",
            ),
            (
                "parameters=7&tokens=1T",
                "workload.parameters must be a number from 1e6 to 1e14, not 7e0",
            ),
            ("parameters=7B&tokens=1T&precision=int3", "\"int3\" is not one of bf16, fp16, fp8"),
        ] {
            page.open(&format!("{PREMIUM}?workload=training&{query}")).await;
            page.until("#estimate [role=alert]", &[why]).await;
            page.until("h1", &["Premium <b>GPU</b>"]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn hanging_or_invalid_engine_leaves_profile_without_times() {
    let invalid = json!({
        "source": "<script>alert(1)</script>",
        "items": [{"type": "nvidia-h200-141gb", "count": 2, "seconds": {"low": -5, "high": 1}}],
    });
    let long = Duration::from_mins(1);
    for (behavior, time_limits, why) in [
        (EngineBehavior::Hangs, Duration::from_millis(100), "did not respond within 100ms"),
        (EngineBehavior::Stalls, Duration::from_millis(100), "did not respond within 100ms"),
        (EngineBehavior::Responds(invalid.to_string()), long, "-5 is not a valid time"),
        (EngineBehavior::Responds("x".repeat(1 << 20)), long, "more than 256 KiB"),
    ] {
        let engine = TestEngine::new(behavior).await;
        let site = asking(&engine.url, time_limits).await;
        browse(&site.url, Start::default(), async |page| {
            page.open(QUERY).await;
            page.until("h1", &["Premium <b>GPU</b>"]).await;
            page.until(ROWS, &["nvidia-h200-141gb 2 no estimate -"]).await;
            let reported = page.text("#estimated .notice").await;
            assert!(
                reported.starts_with("No estimate available: the estimate engine "),
                "{reported}"
            );
            // After several failures it is suspended, which is reported instead.
            assert!(reported.contains(why) || reported.contains("suspended"), "{why}: {reported}");
            // The rest of the page is complete.
            page.until("#reached tbody tr", &["nvidia-h200-141gb 1 8 4"]).await;
            assert_eq!(page.violations().await, Vec::<String>::new());
            page.assert_clean().await;
        })
        .await;
    }
}

#[tokio::test]
async fn engine_text_is_shown_with_engine_name_and_never_as_markup() {
    let engine_response = json!({
        "source": "bench <b>2026</b>", "assumptions": ["flash <i>attention</i>"],
        "items": [{"type": "nvidia-h200-141gb", "count": 2, "seconds": {"low": 7200, "high": 9000}}],
    });
    let engine = TestEngine::new(EngineBehavior::Responds(engine_response.to_string())).await;
    let site = asking(&engine.url, Duration::from_mins(1)).await;
    browse(&site.url, Start::default(), async |page| {
        page.open(QUERY).await;
        page.until(ROWS, &["nvidia-h200-141gb 2 2.0 to 2.5 h -"]).await;
        let text = page.text("#estimated").await;
        assert!(text.contains("Source: bench <b>2026</b>"), "{text}");
        page.click("#assumed summary").await;
        page.until("#assumed li", &["flash <i>attention</i>"]).await;
        page.assert_clean().await;
    })
    .await;
}
