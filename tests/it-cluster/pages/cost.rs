//! The page of cost: three weeks of usage in a ledger, by keyboard, without scripts, narrow and in both themes.

use std::fs;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use octavo_database::LedgerWriter;
use octavo_files::config_files::prices::PriceFile;
use octavo_fleet::cluster::PodOwner;
use octavo_fleet::price::{PriceKey, PurchaseOption};
use octavo_ledger::{Activity, Container, Day, Device, Holder, Interval, Part, Utilization};
use octavo_store::ledger::LedgerReader;
use serde_json::json;
use tempfile::TempDir;

use super::chrome::{Page, Start, browse};
use super::fixture::Site;
use super::quality::check;

const ENTER: &str = "\u{e007}";
const NAMES: &str = ".cost tbody th";
const HOUR: i64 = 3600;
const DAYS: i64 = 21;
const PRICES: &str = "apiVersion: octavo.dev/v1
kind: PriceBook
currency: EUR
prices:
- {type: nvidia-h100-80gb, perHour: \"4.1\"}
- {type: nvidia-a100-80gb, perHour: \"2.4\"}
";
/// Namespace, workload and busy hours a day of each device.
const WORKLOADS: [(&str, &str, i64); 8] = [
    ("vision", "train-detector", 22),
    ("vision", "train-segmenter", 17),
    ("language", "fine-tune-7b", 20),
    ("language", "notebook-anna", 3),
    ("language", "serve-chat", 24),
    ("search", "embed", 12),
    ("search", "notebook-shared", 1),
    ("platform", "benchmark", 6),
];

fn holder(namespace: &str, workload: &str) -> Holder {
    Holder::Container(Arc::new(Container {
        namespace: namespace.to_owned(),
        pod: format!("{workload}-0"),
        uid: format!("uid-{workload}"),
        container: "main".to_owned(),
        claim: None,
        owner: Some(PodOwner { kind: "Job".to_owned(), name: workload.to_owned() }),
        team: None,
    }))
}

/// Interval of a device that begins at an hour of a day.
fn interval(
    number: i64,
    (day, hour, hours): (Day, i64, i64),
    part: (Holder, Activity),
) -> Interval {
    let type_name = if number % 2 == 0 { "nvidia-h100-80gb" } else { "nvidia-a100-80gb" };
    let device = Device {
        node: format!("gpu-{:02}", number / 4).parse().unwrap(),
        id: format!("GPU-{number}"),
        price_key: Some(PriceKey::new(type_name.parse().unwrap(), PurchaseOption::OnDemand)),
    };
    let start = day.start() + hour * HOUR;
    let (holder, activity) = part;
    let percent = if activity == Activity::Active { 70 } else { 0 };
    Interval {
        device: Arc::new(device),
        start,
        end: start + hours * HOUR,
        slot: 0,
        part: Part { activity, ..Part::whole(holder) },
        inferred: false,
        utilization: Utilization { percent_seconds: percent * hours * HOUR, seconds: hours * HOUR },
    }
}

/// Usage of ten devices on the last days, of which two are not allocated to any pod, and one did not report on some days.
fn usage(today: Day) -> Vec<Interval> {
    let mut intervals = Vec::new();
    for past in 1..=DAYS {
        let day = Day(today.0 - i32::try_from(past).unwrap());
        for (number, (namespace, workload, busy)) in (0..).zip(WORKLOADS) {
            let busy = (busy - (past + number) % 4).max(1);
            let used = (holder(namespace, workload), Activity::Active);
            intervals.push(interval(number, (day, 0, busy), used));
            if busy < 24 {
                let idle = (holder(namespace, workload), Activity::Idle);
                intervals.push(interval(number, (day, busy, 24 - busy), idle));
            }
        }
        let free = (Holder::Unallocated, Activity::Unknown);
        intervals.push(interval(8, (day, 0, 24), free.clone()));
        let unknown = (Holder::Unknown, Activity::Unknown);
        intervals.push(interval(9, (day, 0, 24), if past % 5 == 0 { unknown } else { free }));
    }
    intervals
}

/// Pages of a ledger, and the address of the page of cost for its days.
pub(super) struct CostSite {
    pub(super) site: Site,
    pub(super) path: String,
    _directory: TempDir,
}

pub(super) async fn cost_site() -> CostSite {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/ledger.db", directory.path().display());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let today = Day::of(i64::try_from(now).unwrap());
    let (mut writer, _) = LedgerWriter::open(&url.parse().unwrap()).await.unwrap();
    writer.write(&usage(today)).await.unwrap();
    writer.close_days(today.start_time()).await.unwrap();
    let prices = directory.path().join("prices.yaml");
    fs::write(&prices, PRICES).unwrap();
    let prices = PriceFile::open(&prices).unwrap();
    let ledger = LedgerReader::new(url.parse().unwrap());
    let site = Site::viewed(|view| view.with_ledger(Some(ledger)).with_prices(prices));
    let first = Day(today.0 - i32::try_from(DAYS).unwrap()).date();
    CostSite {
        site,
        path: format!("/cost?from={first}&until={}", today.date()),
        _directory: directory,
    }
}

#[tokio::test]
async fn namespace_is_opened_by_keyboard_down_to_the_days_of_a_workload() {
    let CostSite { site, path, _directory } = cost_site().await;
    browse(&site.url, Start::default(), async |page| {
        page.open(&path).await;
        page.until("nav.places [aria-current]", &["Cost"]).await;
        page.until(".live", &["Live"]).await;
        let names = page.texts(NAMES).await;
        assert_eq!(names[0], "language", "the most expensive: {names:?}");
        assert_eq!(page.count("#idle tbody tr").await, 8);
        page.press("j").await;
        page.until_true("return document.activeElement.innerText === 'language'").await;
        page.press(ENTER).await;
        page.until_address(|address| address.ends_with("&namespace=language&by=workload")).await;
        page.until(
            NAMES,
            &["language/Job/fine-tune-7b", "language/Job/serve-chat", "language/Job/notebook-anna"],
        )
        .await;
        page.click(".cost tbody tr:nth-child(3) a").await;
        page.until_address(|address| address.contains("notebook-anna&by=day")).await;
        page.until_true("return document.querySelectorAll('.cost tbody tr').length === 21").await;
        page.back().await;
        page.until_address(|address| address.ends_with("&namespace=language&by=workload")).await;
        page.click("#sort-idle").await;
        page.until_true(
            "return document.querySelector('#sort-idle').closest('th').ariaSort === 'descending'",
        )
        .await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn usage_is_filtered_without_scripts() {
    let CostSite { site, path, _directory } = cost_site().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open(&path).await;
        let field = page.find("#namespace").await;
        field.send_keys("search").await.unwrap();
        page.click("form.filter button").await;
        page.until_address(|address| address.contains("namespace=search")).await;
        page.until(NAMES, &["search"]).await;
        page.click(".cost tbody th a").await;
        page.until_address(|address| address.contains("by=workload")).await;
        page.click("#clear").await;
        page.until_address(|address| !address.contains("namespace")).await;
    })
    .await;
}

/// Checks a page with an error status, which the browser reports as well.
async fn check_error(page: &Page, path: &str) {
    page.open(path).await;
    assert_eq!(page.violations().await, Vec::<String>::new(), "{path}");
    let _status = page.complaints().await;
}

#[tokio::test]
async fn axe_reports_no_issue_and_narrow_page_scrolls_in_one_direction_only() {
    let CostSite { site, path, _directory } = cost_site().await;
    let paths = [
        path.clone(),
        format!("{path}&by=workload&sort=-idle"),
        format!("{path}&by=type"),
        format!("{path}&namespace=nothing-like-it"),
        "/cost?from=2020-01-01&until=2020-02-01".to_owned(),
    ];
    for start in [Start::default(), Start { narrow: true, ..Start::default() }] {
        let width = start.narrow.then_some(380);
        browse(&site.url, start, async |page| {
            for path in &paths {
                check(&page, path).await;
                if let Some(width) = width {
                    let script = "return document.documentElement.scrollWidth";
                    assert_eq!(page.ask(script, json!([])).await, width, "{path}");
                }
            }
            check_error(&page, "/cost?colour=red").await;
        })
        .await;
    }
    let empty = Site::empty();
    browse(&empty.url, Start::default(), async |page| check_error(&page, "/cost").await).await;
}
