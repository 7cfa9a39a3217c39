//! Tests of the page of cost, with a ledger in SQLite.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use octavo_database::LedgerWriter;
use octavo_files::config_files::budgets::BudgetFile;
use octavo_files::config_files::prices::PriceFile;
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::cluster::PodOwner;
use octavo_fleet::price::{PriceKey, PurchaseOption};
use octavo_ledger::{Activity, Container, Day, Device, Holder, Interval, Part, Utilization};
use octavo_store::availability::Counter;
use octavo_store::clock::Clock;
use octavo_store::fleet::Fleet;
use octavo_store::ledger::LedgerReader;
use octavo_store::view::FleetView;
use tempfile::TempDir;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::tests::text;

const HOUR: i64 = 3600;
const PRICES: &str = "apiVersion: octavo.dev/v1
kind: PriceBook
currency: EUR
prices:
- {type: nvidia-l4-24gb, perHour: \"2\"}
- {type: nvidia-l40s-48gb, perHour: \"3.5\"}
";
const TIME: &str = "from=2026-11-03&until=2026-11-06";

fn second(date: &str) -> i64 {
    let date: Date = date.parse().unwrap();
    date.to_zoned(TimeZone::UTC).unwrap().timestamp().as_second()
}

fn container(namespace: &str, workload: &str) -> Holder {
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

fn interval(gpu: u8, date: &str, hours: i64, holder: Holder, activity: Activity) -> Interval {
    let device = Device {
        node: "gpu-07".parse().unwrap(),
        id: format!("GPU-{gpu}"),
        price_key: Some(PriceKey::new("nvidia-l4-24gb".parse().unwrap(), PurchaseOption::OnDemand)),
    };
    let start = second(date);
    Interval {
        device: Arc::new(device),
        start,
        end: start + hours * HOUR,
        slot: 0,
        part: Part { activity, ..Part::whole(holder) },
        inferred: false,
        utilization: Utilization { percent_seconds: 40 * hours * HOUR, seconds: hours * HOUR },
    }
}

/// Three days: `team-a` uses 10 h and leaves 20 h idle, `team-b` uses 24 h, and 6 h are unallocated.
fn usage() -> Vec<Interval> {
    vec![
        interval(1, "2026-11-03", 10, container("team-a", "train"), Activity::Active),
        interval(1, "2026-11-04", 20, container("team-a", "notebook"), Activity::Idle),
        interval(2, "2026-11-04", 24, container("team-b", "serve"), Activity::Active),
        interval(2, "2026-11-05", 6, Holder::Unallocated, Activity::Unknown),
    ]
}

async fn write(directory: &Path, intervals: &[Interval]) -> LedgerReader {
    let url = format!("sqlite://{}/ledger.db", directory.display());
    let (mut writer, _) = LedgerWriter::open(&url.parse().unwrap()).await.unwrap();
    writer.write(intervals).await.unwrap();
    writer.close_days(Day::of(second("2026-11-05")).start_time()).await.unwrap();
    LedgerReader::new(url.parse().unwrap())
}

/// The pages with a ledger of this usage.
struct Site {
    directory: TempDir,
    ledger: Option<LedgerReader>,
    has_prices: bool,
    budgets: Option<&'static str>,
    /// Content of the file of budgets after it was opened.
    replaced_budgets: Option<&'static str>,
    /// Content of the price book after it was opened.
    replaced_prices: Option<&'static str>,
}

impl Site {
    async fn new(intervals: &[Interval]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Some(write(directory.path(), intervals).await);
        Self {
            directory,
            ledger,
            has_prices: true,
            budgets: None,
            replaced_budgets: None,
            replaced_prices: None,
        }
    }

    async fn get(&self, path: &str, visibility: Visibility) -> (StatusCode, String) {
        let (_fleet, receiver) = watch::channel(Fleet::default());
        let mut view = FleetView::new(receiver, Clock::start()).with_ledger(self.ledger.clone());
        if self.has_prices {
            let prices = self.directory.path().join("prices.yaml");
            fs::write(&prices, PRICES).unwrap();
            view = view.with_prices(PriceFile::open(&prices).unwrap());
            if let Some(text) = self.replaced_prices {
                fs::write(&prices, text).unwrap();
            }
        }
        if let Some(text) = self.budgets {
            let budgets = self.directory.path().join("budgets.yaml");
            fs::write(&budgets, text).unwrap();
            view = view.with_budgets(Some(BudgetFile::open(&budgets).unwrap()));
            if let Some(text) = self.replaced_budgets {
                fs::write(&budgets, text).unwrap();
            }
        }
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(visibility);
        let site = crate::router(Counter::new(view, None));
        let answer = site.oneshot(request).await.unwrap();
        assert!(answer.headers().contains_key(header::CONTENT_SECURITY_POLICY));
        (answer.status(), text(answer).await)
    }

    async fn page(&self, path: &str) -> String {
        let (status, page) = self.get(path, Visibility::everything()).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        page
    }
}

/// Texts of the table row with this id, without tags.
fn row(page: &str, id: &str) -> String {
    let (_, rest) = page.split_once(&format!("id=\"{id}\"")).unwrap();
    let (row, _) = rest.split_once("</tr>").unwrap();
    let texts = row.split('<').filter_map(|part| Some(part.split_once('>')?.1.trim()));
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" | ")
}

#[tokio::test]
async fn groups_have_hours_utilization_and_cost_and_link_to_their_parts() {
    let site = Site::new(&usage()).await;
    let page = site.page(&format!("/cost?{TIME}")).await;
    assert_eq!(
        row(&page, "cost-0"),
        "team-a | 30.0 | 10.0 | 20.0 | 0.0 | 40 % | 60.00 EUR | 40.00 EUR"
    );
    assert_eq!(
        row(&page, "cost-1"),
        "team-b | 24.0 | 24.0 | 0.0 | 0.0 | 40 % | 48.00 EUR | 0.00 EUR"
    );
    assert!(row(&page, "cost-2").starts_with("No pod | unallocated or unknown | 6.0"), "{page}");
    assert!(page.contains("<strong>120.00</strong> EUR"), "{page}");
    assert!(page.contains("<b>33 %</b> idle (20.0 h)"), "{page}");
    assert!(page.contains("<b>10 %</b> unallocated (6.0 h)"), "{page}");
    assert!(page.contains("2026-11-04: device hours 24.0 used, 20.0 idle"), "{page}");
    let link = "/cost?from=2026-11-03&#38;until=2026-11-06&#38;namespace=team-a&#38;by=workload";
    assert!(page.contains(&format!("href=\"{link}\"")), "{page}");
    assert!(page.contains("href=\"/cost\" aria-current=\"page\""), "{page}");
    // The page, the command and the API request the same.
    let flags = "octavo cost --from=2026-11-03 --until=2026-11-06 --by=namespace";
    assert!(page.contains(flags), "{page}");
    let api = "/api/v1/cost?from=2026-11-03&#38;until=2026-11-06&#38;by=namespace";
    assert!(page.contains(api), "{page}");
}

#[tokio::test]
async fn drill_down_leads_from_a_namespace_over_workloads_to_days() {
    let site = Site::new(&usage()).await;
    let page = site.page(&format!("/cost?{TIME}&namespace=team-a")).await;
    assert!(row(&page, "cost-0").starts_with("team-a/Job/notebook | 20.0"), "{page}");
    assert!(!page.contains("team-b"), "{page}");
    let path = format!("/cost?{TIME}&namespace=team-a&workload=team-a%2FJob%2Fnotebook&by=day");
    assert!(page.contains("workload=team-a%2FJob%2Fnotebook&#38;by=day"), "{page}");
    let page = site.page(&path).await;
    assert!(row(&page, "cost-0").starts_with("2026-11-04 | 20.0"), "{page}");
    assert!(page.contains("<strong>team-a/Job/notebook</strong>"), "{page}");
    assert!(!page.contains("Most expensive idle"), "{page}");
}

#[tokio::test]
async fn rows_are_sorted_and_days_are_in_the_order_of_time() {
    let site = Site::new(&usage()).await;
    let names = |page: &str| [row(page, "cost-0"), row(page, "cost-1"), row(page, "cost-2")];
    let page = site.page(&format!("/cost?{TIME}&by=day")).await;
    let days = names(&page).map(|row| row.split(' ').next().unwrap().to_owned());
    assert_eq!(days, ["2026-11-03", "2026-11-04", "2026-11-05"]);
    let page = site.page(&format!("/cost?{TIME}&by=workload&sort=-idle")).await;
    assert!(names(&page)[0].starts_with("team-a/Job/notebook"), "{page}");
    let page = site.page(&format!("/cost?{TIME}&by=workload&sort=-hours")).await;
    assert!(names(&page)[0].starts_with("team-b/Job/serve"), "{page}");
    assert!(page.contains("aria-sort=\"descending\"><a href=\"/cost?from="), "{page}");
    // The API request has the order of the page. The command has none.
    let api = "/api/v1/cost?from=2026-11-03&#38;until=2026-11-06&#38;sort=-hours&#38;by=workload";
    assert!(page.contains(api), "{page}");
    let flags = "octavo cost --from=2026-11-03 --until=2026-11-06 --by=workload";
    assert!(page.contains(flags), "{page}");
}

#[tokio::test]
async fn limit_of_rows_does_not_apply_to_the_days_of_the_chart() {
    let site = Site::new(&usage()).await;
    let page = site.page(&format!("/cost?{TIME}&limit=1")).await;
    assert!(page.contains("1 of 3 rows"), "{page}");
    for day in ["2026-11-03", "2026-11-04", "2026-11-05"] {
        assert!(page.contains(&format!("{day}: device hours")), "{day}: {page}");
    }
}

#[tokio::test]
async fn most_expensive_idle_workloads_are_listed_first() {
    let mut intervals = usage();
    for number in 0..12 {
        let holder = container("team-c", &format!("job-{number:02}"));
        let hours = 2 + i64::from(number);
        intervals.push(interval(10 + number, "2026-11-04", hours, holder, Activity::Idle));
    }
    let site = Site::new(&intervals).await;
    let page = site.page(&format!("/cost?{TIME}")).await;
    let (_, idle) = page.split_once("id=\"idle\"").unwrap();
    let (idle, _) = idle.split_once("</section>").unwrap();
    let names: Vec<&str> = idle.split("data-stay>").skip(1).collect();
    let names: Vec<&str> = names.iter().filter_map(|text| text.split('<').next()).collect();
    assert_eq!(names.len(), super::MAX_IDLE_ROWS);
    assert_eq!(names[..2], ["team-a/Job/notebook", "team-c/Job/job-11"]);
    assert!(idle.contains("40.00 EUR") && idle.contains("100 %"), "{idle}");
}

#[tokio::test]
async fn compared_types_have_a_column_with_the_cost_or_the_reason() {
    let site = Site::new(&usage()).await;
    let types = "compare=nvidia-l40s-48gb,nvidia-h200-141gb,nvidia-t4-16gb";
    let page = site.page(&format!("/cost?{TIME}&{types}")).await;
    let first = row(&page, "cost-0");
    assert!(first.ends_with("| 40.00 EUR | 105.00 EUR | no price | less memory"), "{first}");
    assert!(page.contains(">Cost on NVIDIA L40S 48 GB</th>"), "{page}");
    assert!(page.contains("Note: the comparison considers prices only"), "{page}");
    let flags = format!("octavo cost --{TIME} --{types} --by=namespace").replace('&', " --");
    assert!(page.contains(&flags), "{flags}: {page}");
    let file = site.page(&format!("/cost.csv?{TIME}&{types}")).await;
    let mut lines = file.lines();
    let header = "nvidia-l40s-48gb_cost,nvidia-l40s-48gb_reason,nvidia-h200-141gb_cost,nvidia-h200-141gb_reason,\
                  nvidia-t4-16gb_cost,nvidia-t4-16gb_reason";
    assert!(lines.next().unwrap().ends_with(header), "{file}");
    let first = lines.next().unwrap();
    assert!(first.ends_with(",60.0000,105.0000,,,no-price,,less-memory"), "{file}");
}

#[tokio::test]
async fn budgets_are_shown_and_only_that_of_the_namespace() {
    let mut site = Site::new(&usage()).await;
    let page = site.page(&format!("/cost?{TIME}")).await;
    assert!(!page.contains("id=\"budgets\""), "{page}");
    site.budgets = Some(
        "apiVersion: octavo.dev/v1\nkind: Budgets\ncurrency: EUR\nbudgets:\n\
         - {namespace: team-a, amount: 500000}\n- {namespace: team-b, amount: 700000}\n\
         - {team: vision, amount: 900000}\n",
    );
    let page = site.page(&format!("/cost?{TIME}")).await;
    let (_, budgets) = page.split_once("id=\"budgets\"").unwrap();
    for text in ["500,000.00 EUR", "700,000.00 EUR", "team vision", "mean daily cost"] {
        assert!(budgets.contains(text), "{text}: {page}");
    }
    let page = site.page(&format!("/cost?{TIME}&namespace=team-b")).await;
    assert!(page.contains("700,000.00 EUR"), "{page}");
    assert!(!page.contains("500,000.00 EUR") && !page.contains("team vision"), "{page}");
}

#[tokio::test]
async fn missing_ledger_and_its_setting_are_explained() {
    let site = Site { ledger: None, has_prices: false, ..Site::new(&[]).await };
    for path in ["/cost", "/cost.csv"] {
        let (status, page) = site.get(path, Visibility::everything()).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(page.contains("--ledger"), "{page}");
    }
    let (_, page) = site.get("/cost", Visibility::everything()).await;
    assert!(page.contains("aggregator.ledger.enabled"), "{page}");
    // Without a ledger, the navigation has no link.
    assert!(!page.contains("href=\"/cost\""), "{page}");
}

#[tokio::test]
async fn empty_ledger_and_empty_time_are_explained() {
    let page = Site::new(&[]).await.page("/cost").await;
    assert!(page.contains("The ledger is empty") && page.contains("--usage-interval"), "{page}");
    let site = Site::new(&usage()).await;
    let page = site.page("/cost?from=2026-10-01&until=2026-10-02").await;
    assert!(page.contains("No usage in this time"), "{page}");
    assert!(page.contains("begins on 2026-11-03"), "{page}");
}

#[tokio::test]
async fn usage_without_a_price_book_has_hours_and_a_hint() {
    let mut site = Site::new(&usage()).await;
    site.has_prices = false;
    let page = site.page(&format!("/cost?{TIME}")).await;
    assert!(page.contains("id=\"no-prices\"") && page.contains("--price-book"), "{page}");
    assert!(page.contains("<strong>60.0</strong> device hours"), "{page}");
    assert_eq!(row(&page, "cost-0"), "team-a | 30.0 | 10.0 | 20.0 | 0.0 | 40 % | - | -");
}

#[tokio::test]
async fn unreadable_ledger_is_reported_and_its_cause_only_to_readers_who_may_list_nodes() {
    let mut site = Site::new(&usage()).await;
    let missing = format!("sqlite://{}/missing/ledger.db", site.directory.path().display());
    site.ledger = Some(LedgerReader::new(missing.parse().unwrap()));
    let (status, page) = site.get("/cost", Visibility::everything()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(page.contains("The ledger cannot be read") && page.contains("/missing/"), "{page}");
    for path in ["/cost", "/cost.csv"] {
        let (status, page) = site.get(path, without_nodes()).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(!page.contains("/missing/"), "{page}");
    }
}

fn without_nodes() -> Visibility {
    Visibility { types: VisibleTypes::All, nodes: false, profiles: false, pods: false }
}

#[tokio::test]
async fn usage_by_node_requires_the_permission_to_list_nodes() {
    let site = Site::new(&usage()).await;
    let page = site.page(&format!("/cost?{TIME}&by=node")).await;
    assert!(row(&page, "cost-0").starts_with("gpu-07"), "{page}");
    for path in ["/cost?by=node", "/cost?node=gpu-07", "/cost.csv?by=namespace,node"] {
        let (status, page) = site.get(path, without_nodes()).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        assert!(page.contains("list nodes.octavo.dev"), "{path}: {page}");
    }
    let (status, page) = site.get(&format!("/cost?{TIME}"), without_nodes()).await;
    assert_eq!(status, StatusCode::OK);
    assert!(!page.contains("gpu-07") && !page.contains("value=\"node\""), "{page}");
}

#[tokio::test]
async fn invalid_file_of_budgets_is_described_only_with_the_permission_to_list_nodes() {
    let mut site = Site::new(&usage()).await;
    site.budgets = Some(
        "apiVersion: octavo.dev/v1\nkind: Budgets\ncurrency: EUR\nbudgets:\n\
         - {namespace: team-a, amount: 500000}\n",
    );
    site.replaced_budgets = Some("kind: Secret\n");
    let page = site.page(&format!("/cost?{TIME}")).await;
    assert!(page.contains("500,000.00 EUR"), "{page}");
    assert!(page.contains("/budgets.yaml"), "{page}");
    let (status, page) = site.get(&format!("/cost?{TIME}"), without_nodes()).await;
    assert_eq!(status, StatusCode::OK);
    assert!(page.contains("500,000.00 EUR"), "{page}");
    assert!(page.contains("budgets may be outdated"), "{page}");
    assert!(!page.contains("/budgets.yaml"), "{page}");
}

#[tokio::test]
async fn invalid_price_book_is_described_only_with_the_permission_to_list_nodes() {
    let mut site = Site::new(&usage()).await;
    site.replaced_prices = Some("kind: Secret\n");
    let page = site.page(&format!("/cost?{TIME}")).await;
    assert!(page.contains("/prices.yaml"), "{page}");
    let (status, page) = site.get(&format!("/cost?{TIME}"), without_nodes()).await;
    assert_eq!(status, StatusCode::OK);
    assert!(page.contains("prices may be outdated"), "{page}");
    assert!(!page.contains("/prices.yaml"), "{page}");
}

#[tokio::test]
async fn invalid_address_has_a_message_and_no_usage() {
    let site = Site::new(&usage()).await;
    for (query, message) in [
        ("colour=red", "unknown parameter"),
        ("by=team&limitBy=team", "unknown parameter"),
        ("from=yesterday", "from"),
        ("compare=nvidia-h2200-141gb", "did you mean nvidia-h200-141gb?"),
        ("from=2026-11-06&until=2026-11-03", "a time after from"),
        ("sort=price", "for parameter sort: must be -cost, -hours, -idle"),
        ("sort=-cost&sort=-idle", "can be given only once"),
        ("namespace=team-a&namespace=team-b", "can be given only once"),
    ] {
        let (status, page) = site.get(&format!("/cost?{query}"), Visibility::everything()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
        assert!(page.contains(message), "{query}: {page}");
        // The report of all namespaces could show more than the reader may see.
        assert!(!page.contains("team-b") && !page.contains("id=\"totals\""), "{query}: {page}");
    }
}

#[tokio::test]
async fn file_has_the_groups_of_the_page_in_its_order() {
    let site = Site::new(&usage()).await;
    let file = site.page(&format!("/cost.csv?{TIME}&by=workload&sort=-idle")).await;
    let lines: Vec<&str> = file.lines().collect();
    assert!(lines[0].starts_with("workload,used_hours,idle_hours,"), "{file}");
    assert_eq!(lines[1], "team-a/Job/notebook,0,20,0,0,0,EUR,0.0000,40.0000,0.0000,0.0000,40.0000");
    assert_eq!(lines.len(), 5, "{file}");
}
