//! Budgets and comparisons, of the shipped aggregator and command with a ledger from earlier days.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use jiff::Timestamp;
use octavo_database::LedgerWriter;
use octavo_fleet::price::{PriceKey, PurchaseOption};
use octavo_ledger::{Activity, Container, Day, Device, Holder, Interval, Part, Utilization};
use serde_json::Value;
use tempfile::TempDir;

use super::TYPE;
use crate::fleet_api::Api;
use crate::process::Aggregator;
use crate::time_limits::{Finish, until_async};

pub(super) const PRICES: &str = "apiVersion: octavo.dev/v1
kind: PriceBook
currency: EUR
prices:
- {type: nvidia-l4-24gb, perHour: \"3.6\"}
- {type: nvidia-h200-141gb, perHour: \"10\"}
";
const BUDGETS: &str = "apiVersion: octavo.dev/v1
kind: Budgets
currency: EUR
budgets:
- {namespace: team-a, amount: \"1000000\"}
- {namespace: team-b, amount: \"0.01\"}
- {team: vision, amount: \"1000000\", currency: USD}
";

/// The first ten hours of a day on one GPU.
pub(super) fn usage(gpu: &str, namespace: &str, day: Day) -> Interval {
    let container = Container {
        namespace: namespace.to_owned(),
        pod: "train".to_owned(),
        team: Some("vision".to_owned()),
        ..Container::default()
    };
    let price_key = Some(PriceKey::new(TYPE.parse().unwrap(), PurchaseOption::OnDemand));
    let device = Device { node: "gpu-1".parse().unwrap(), id: gpu.to_owned(), price_key };
    let part = Part::whole(Holder::Container(Arc::new(container)));
    Interval {
        device: Arc::new(device),
        start: day.start(),
        end: day.start() + 10 * 3600,
        slot: 0,
        part: Part { activity: Activity::Active, ..part },
        inferred: false,
        utilization: Utilization::default(),
    }
}

/// An aggregator whose ledger has usage of the last three days.
async fn aggregator(files: &TempDir) -> Aggregator {
    let path = |name: &str| files.path().join(name).display().to_string();
    let ledger = format!("sqlite://{}", path("ledger.db"));
    let (mut writer, _) = LedgerWriter::open(&ledger.parse().unwrap()).await.unwrap();
    let today = Day::of(Timestamp::now().as_second());
    let days = (1..=3).map(|before| Day(today.0 - before));
    let usage = days.flat_map(|day| [usage("GPU-1", "team-a", day), usage("GPU-2", "team-b", day)]);
    writer.write(&usage.collect::<Vec<_>>()).await.unwrap();
    fs::write(path("prices.yaml"), PRICES).unwrap();
    fs::write(path("budgets.yaml"), BUDGETS).unwrap();
    let prices = format!("--price-book={}", path("prices.yaml"));
    let budgets = format!("--budgets={}", path("budgets.yaml"));
    Aggregator::start(&["--plaintext", "--ledger", &ledger, &prices, &budgets])
}

fn amount(value: &Value) -> f64 {
    value.as_str().unwrap().parse().unwrap()
}

/// Output of `octavo cost` with these arguments.
pub(super) fn cost(aggregator: &Aggregator, arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    let server = format!("--server=http://{}", aggregator.http);
    let output = command.arg("cost").args(arguments).arg(server).finish();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn budgets_have_cost_forecast_state_and_metrics() {
    let files = TempDir::new().unwrap();
    let aggregator = aggregator(&files).await;
    let api = Api::at(aggregator.http);
    let answer = api.get("/api/v1/cost/budgets").await;
    let report: Value = serde_json::from_str(&answer.body).unwrap();
    let items = report["items"].as_array().unwrap();
    let at: Timestamp = report["at"].as_str().unwrap().parse().unwrap();
    let today = Day::of(at.as_second());
    let in_month = (1..=3).filter(|before| Day(today.0 - before) >= today.first_of_month()).count();
    let spent = 36.0 * f64::from(u8::try_from(in_month).unwrap());
    assert!((amount(&items[0]["spent"]) - spent).abs() < 1e-9, "{report:#}");
    // The ledger begins three days ago, and the first day is not complete.
    let (_, month_end) = (1..=31).map(|day| Day(today.0 + day)).fold((0, today), |found, day| {
        if day.first_of_month() == today.first_of_month() { (0, day) } else { found }
    });
    #[expect(clippy::cast_precision_loss, reason = "seconds of a month")]
    let rest = (month_end.end() - at.as_second()) as f64 / 86_400.0;
    let forecast = amount(&items[0]["forecast"]);
    assert!((forecast - spent - 36.0 * rest).abs() < 0.01, "{report:#}");
    assert_eq!((&items[0]["namespace"], &items[0]["state"]), (&"team-a".into(), &"ok".into()));
    let state = items[1]["state"].as_str().unwrap();
    assert!(["at-risk", "exceeded"].contains(&state), "{report:#}");
    // The budget of the team is in another currency.
    assert_eq!(items[2]["spent"], "0.0000");
    if in_month > 0 {
        let note = report["notes"][0].as_str().unwrap();
        assert!(note.starts_with("the budget of team vision does not include"), "{note}");
    }

    let scrape = async || api.get("/metrics").await.body;
    let metrics = until_async("metrics of the budgets", scrape, |text| {
        text.contains("octavo_budget_spent_ratio{")
    });
    let metrics = metrics.await;
    for series in ["spent_ratio{namespace=\"team-b\"}", "forecast_ratio{team=\"vision\"} 0"] {
        assert!(metrics.contains(&format!("octavo_budget_{series}")), "{metrics}");
    }
    let (_, table, _) = cost(&aggregator, &["budgets"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("SCOPE"), "{table}");
    assert!(lines[1].starts_with("namespace team-a  1,000,000.00 EUR"), "{table}");
    assert!(lines[1].ends_with("ok") && lines[2].ends_with(state), "{table}");
}

#[tokio::test]
async fn reader_of_one_namespace_sees_its_budget_only() {
    let files = TempDir::new().unwrap();
    let aggregator = aggregator(&files).await;
    let (_, names, _) = cost(&aggregator, &["budgets", "-n", "team-b", "-o", "name"]);
    assert_eq!(names, "namespace/team-b\n");
    let api = Api::at(aggregator.http);
    let page = api.get("/cost?namespace=team-b").await.body;
    let (_, budgets) = page.split_once("id=\"budgets\"").unwrap();
    assert!(budgets.contains("namespace team-b") && !page.contains("team-a"), "{page}");
    let answer = api.get("/api/v1/cost/budgets?team=vision").await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    let (is_success, table, notes) = cost(&aggregator, &["budgets", "--namespace=other"]);
    assert!(is_success && table.is_empty() && notes.contains("no budgets found"), "{notes}");
}

#[tokio::test]
async fn missing_budgets_name_the_flag_and_flags_require_a_ledger() {
    let aggregator =
        Aggregator::start(&["--plaintext", "--ledger=sqlite:///proc/nowhere/ledger.db"]);
    let answer = Api::at(aggregator.http).get("/api/v1/cost/budgets").await;
    assert_eq!(answer.status, 404, "{}", answer.body);
    assert!(answer.body.contains("start it with --budgets"), "{}", answer.body);
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo-aggregator"));
    let refused = command.args(["--plaintext", "--budgets=budgets.yaml"]).finish();
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("--ledger") && error.contains("--price-book"), "{error}");
}

#[tokio::test]
async fn command_compares_a_workload_with_other_types() {
    let files = TempDir::new().unwrap();
    let aggregator = aggregator(&files).await;
    let first = Day(Day::of(Timestamp::now().as_second()).0 - 3).date().to_string();
    let compare = "--compare=nvidia-h200-141gb,nvidia-t4-16gb,nvidia-l40s-48gb";
    let request = ["--workload=team-a/Pod/train", "--from", &first, compare];
    let (_, table, notes) = cost(&aggregator, &request);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].contains("COST ON nvidia-h200-141gb  COST ON nvidia-t4-16gb"), "{table}");
    let total = lines.last().unwrap();
    assert!(total.contains("108.00 EUR") && total.contains("300.00 EUR"), "{table}");
    assert!(total.contains("less memory") && total.ends_with("no price"), "{table}");
    assert!(notes.contains("the comparison considers prices only"), "{notes}");
    let (is_success, _, error) = cost(&aggregator, &["--compare=nvidia-h2200-141gb"]);
    assert!(!is_success && error.contains("did you mean nvidia-h200-141gb?"), "{error}");
}
