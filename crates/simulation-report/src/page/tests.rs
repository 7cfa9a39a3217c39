//! The page of small simulations.

use std::time::Duration;

use octavo_demand::simulation::{
    Comparison, Discipline, MeanAndDeviation, Sample, Strategy, StrategyResult, TimeSeries,
    TraceReport, WaitingTime,
};

use super::*;

const HOSTILE: &str = "\"><script>alert('1')</script>\u{202e}<img src=x onerror=alert(2)>&";

fn figure(mean: f64, standard_deviation: f64) -> MeanAndDeviation {
    MeanAndDeviation { mean, standard_deviation }
}

fn result(strategy: Strategy, acceptance: MeanAndDeviation) -> StrategyResult {
    let wait = |seconds: f64| WaitingTime { mean_seconds: seconds, p95_seconds: 2.0 * seconds };
    let sample =
        |used: f64, fragmented: f64| Sample { used, fragmented, free: 14.0 - used - fragmented };
    StrategyResult {
        strategy,
        acceptance,
        operations_per_request: figure(0.5, 0.1),
        utilization: figure(0.6, 0.0),
        fragmentation: figure(0.25, 0.0),
        wait: wait(1_000.0),
        wait_by_profile: [
            ("1g.10gb".parse().unwrap(), wait(500.0)),
            ("7g.80gb".parse().unwrap(), wait(2_000.0)),
        ]
        .into(),
        series: TimeSeries {
            step: Duration::from_mins(15),
            measured_from: Duration::from_mins(15),
            end: Duration::from_hours(1),
            samples: vec![sample(0.0, 0.0), sample(7.0, 1.4), sample(7.0, 1.4), sample(14.0, 0.0)],
        },
    }
}

fn report(discipline: Discipline) -> SimulationReport {
    let comparison = Comparison {
        requests: 4_000,
        pool_acceptance: (discipline == Discipline::Loss).then(|| figure(0.95, 0.01)),
        strategies: vec![
            result(Strategy::Octavo, figure(0.9, 0.02)),
            result(Strategy::Spread, figure(0.8, 0.0)),
        ],
    };
    SimulationReport {
        version: "1.2.3".to_owned(),
        gpus: vec![("NVIDIA H100 80GB HBM3".to_owned(), 8)],
        gpus_per_model: Some(2),
        requests: Requests::Random { count: 5_000, warm_up: 1_000, runs: 3, load: 1.2 },
        discipline,
        notes: Vec::new(),
        traces: vec![TraceReport { trace: "uniform".to_owned(), gpus: 2, slices: 14, comparison }],
    }
}

/// Texts of an HTML fragment.
fn texts(html: &str) -> Vec<&str> {
    let texts =
        html.split('<').filter_map(|part| part.split_once('>').map(|(_, text)| text.trim()));
    texts.filter(|text| !text.is_empty()).collect()
}

/// The table with this caption.
fn table<'a>(page: &'a str, caption: &str) -> &'a str {
    let table = page.split("<table").find(|part| part.contains(&format!(">{caption}</caption>")));
    let table = table.unwrap_or_else(|| panic!("no table {caption}: {page}"));
    table.split_once("</table>").unwrap().0
}

/// The row of a strategy in a table.
fn row<'a>(table: &'a str, strategy: &str) -> &'a str {
    let row =
        table.split("<tr").find(|part| part.contains(&format!("<th scope=\"row\">{strategy}<")));
    row.unwrap_or_else(|| panic!("no row {strategy}: {table}"))
}

#[test]
fn inputs_are_listed() {
    let page = report(Discipline::Loss).html().unwrap();
    let inputs = page.split_once("<dl").unwrap().1.split_once("</dl>").unwrap().0;
    let expected = [
        ("GPUs in the inventory", "8 NVIDIA H100 80GB HBM3"),
        ("GPUs of each simulated model", "2"),
        ("Requests", "random, 5,000 in each run; the first 1,000 are not counted"),
        ("Load", "1.2 times the slices"),
        ("Seeds", "0 to 2"),
        ("Requests that do not fit", "are lost"),
        ("Version", "Octavo 1.2.3"),
    ];
    let expected: Vec<&str> = expected.iter().flat_map(|(name, value)| [*name, *value]).collect();
    assert_eq!(texts(inputs), expected);
    let reserve_after = Some(Duration::from_mins(90));
    let page = report(Discipline::Queue { reserve_after, limits: None }).html().unwrap();
    assert!(page.contains("wait; a GPU is reserved for the oldest after 1.5 h"), "{page}");
}

#[test]
fn acceptance_has_a_whisker_for_the_deviation_and_a_line_for_one_pool() {
    let page = report(Discipline::Loss).html().unwrap();
    let table = table(&page, "Accepted requests");
    let octavo = row(table, "octavo");
    // The scale is from 75 % to 95 %.
    assert!(octavo.contains(r#"<circle class="dot" cx="75.00%""#), "{octavo}");
    assert!(octavo.contains(r#"<line class="whisker" x1="65.00%" y1="50%" x2="85.00%""#));
    assert!(octavo.contains(r#"<line class="pool" x1="100.00%""#), "{octavo}");
    assert!(octavo.contains("90.0 % ± 2.0") && octavo.contains(" (best)</span>"), "{octavo}");
    let spread = row(table, "spread");
    assert!(!spread.contains("whisker") && !spread.contains("best"), "{spread}");
    let end = "Dashed line: one pool of as many slices, 95.0 %. The scale begins at 75 %.";
    assert!(page.contains(end), "{page}");
}

#[test]
fn scale_of_acceptance_includes_0_and_100_percent() {
    let page = |acceptance: f64| {
        let mut report = report(Discipline::Loss);
        let comparison = &mut report.traces[0].comparison;
        comparison.pool_acceptance = Some(figure(acceptance, 0.0));
        for result in &mut comparison.strategies {
            result.acceptance = figure(acceptance, 0.0);
        }
        report.html().unwrap()
    };
    let none = page(0.0);
    let chart = table(&none, "Accepted requests");
    assert!(chart.contains("<span>0 %</span><span>5 %</span>"), "{chart}");
    assert!(row(chart, "octavo").contains(r#"class="dot" cx="0.00%""#), "{chart}");
    assert!(!none.contains("The scale begins at"), "{none}");
    let all = page(1.0);
    let chart = table(&all, "Accepted requests");
    assert!(chart.contains("<span>95 %</span><span>100 %</span>"), "{chart}");
    assert!(row(chart, "octavo").contains(r#"class="dot" cx="100.00%""#), "{chart}");
    assert!(all.contains("The scale begins at 95 %."), "{all}");
}

#[test]
fn charts_without_operations_and_waiting_times_are_empty() {
    let mut report = report(Discipline::Queue { reserve_after: None, limits: None });
    for result in &mut report.traces[0].comparison.strategies {
        result.operations_per_request = figure(0.0, 0.0);
        result.wait = WaitingTime { mean_seconds: 0.0, p95_seconds: 0.0 };
        result.wait_by_profile.clear();
    }
    let page = report.html().unwrap();
    assert!(!page.contains("NaN"), "{page}");
    let operations = table(&page, "Operations per accepted request");
    assert!(operations.contains("<span>0</span><span>1.00</span>"), "{operations}");
    let waits = table(&page, "All requests");
    assert!(waits.contains("<span>0 s</span><span>1 s</span>"), "{waits}");
    for chart in [operations, waits] {
        assert!(row(chart, "octavo").contains(r#"class="value" x="0.00%" y="25%" width="0.00%""#));
    }
}

#[test]
fn only_terms_on_the_page_are_explained() {
    let mut report = report(Discipline::Loss);
    let page = report.html().unwrap();
    for text in ["octavo: the strategy", "The others are", "One pool: accepts a request"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    report.traces[0].comparison.strategies.remove(0);
    report.traces[0].comparison.pool_acceptance = None;
    let page = report.html().unwrap();
    for text in ["octavo: the strategy", "The others are", "One pool"] {
        assert!(!page.contains(text), "{text}: {page}");
    }
}

#[test]
fn requests_of_a_file_have_no_runs_and_no_warm_up() {
    let mut report = report(Discipline::Loss);
    report.requests = Requests::File;
    report.gpus_per_model = None;
    for result in &mut report.traces[0].comparison.strategies {
        result.series.measured_from = Duration::ZERO;
    }
    let page = report.html().unwrap();
    let inputs = page.split_once("<dl").unwrap().1.split_once("</dl>").unwrap().0;
    let expected = ["GPUs in the inventory", "8 NVIDIA H100 80GB HBM3", "Requests"];
    assert_eq!(texts(inputs)[..3], expected);
    assert!(page.contains("from a file; all are counted"), "{page}");
    assert!(page.contains("<p>4,000 requests, 2 GPUs with 14 slices."), "{page}");
    assert!(page.contains("<caption>Range of the sampled number of slices</caption>"), "{page}");
    for text in [r#"<p class="soft"></p>"#, "The charts show", "The dashed line marks"] {
        assert!(!page.contains(text), "{text}: {page}");
    }
}

#[test]
fn bars_of_slices_follow_each_other() {
    let page = report(Discipline::Loss).html().unwrap();
    let row = row(table(&page, "Slices"), "octavo");
    for bar in [
        r#"class="free" x="85.00%" y="25%" width="15.00%""#,
        r#"class="fragmented" x="60.00%" y="25%" width="25.00%""#,
        r#"class="in-use" x="0.00%" y="25%" width="60.00%""#,
    ] {
        assert!(row.contains(bar), "{row}");
    }
}

#[test]
fn waiting_times_by_profile_have_the_same_scale() {
    let page = report(Discipline::Queue { reserve_after: None, limits: None }).html().unwrap();
    let small = row(table(&page, "1g.10gb"), "spread");
    let large = row(table(&page, "7g.80gb"), "spread");
    assert!(small.contains(r#"width="12.50%""#) && small.contains(r#"x1="25.00%""#), "{small}");
    assert!(large.contains(r#"width="50.00%""#) && large.contains(r#"x1="100.00%""#), "{large}");
    assert_eq!(texts(large)[1..], ["2,000 s", "4,000 s"]);
    assert!(table(&page, "All requests").contains("1,000 s"));
    assert!(!page.contains("Accepted requests"), "{page}");
    assert!(page.contains("Every request gets an instance."), "{page}");
    assert!(!report(Discipline::Loss).html().unwrap().contains("Waiting time"));
}

#[test]
fn slices_over_time_are_stacked_steps() {
    let page = report(Discipline::Loss).html().unwrap();
    for path in [
        r#"class="free" d="M0 100H0.0V0.0H1000.0V100Z""#,
        r#"class="fragmented" d="M0 100H0.0V100.0H250.0V40.0H750.0V0.0H1000.0V100Z""#,
        r#"class="in-use" d="M0 100H0.0V100.0H250.0V50.0H750.0V0.0H1000.0V100Z""#,
        r#"class="warm-up-end" d="M250.0 0V100""#,
    ] {
        assert!(page.contains(path), "{path}: {page}");
    }
    let ranges =
        row(table(&page, "Range of the sampled number of slices after the warm-up"), "octavo");
    assert_eq!(texts(ranges)[1..], ["7 to 14", "0 to 1", "0 to 6"]);
    assert!(page.contains("Range of the samples: 7 to 14 in use, 0 to 1 fragmented, 0 to 6 free"));
    assert!(
        page.contains(
            "The charts show the first run. The dashed line marks the end of the warm-up."
        )
    );
    assert!(page.contains("4,000 counted requests in each of 3 runs, 2 GPUs with 14 slices."));
}

#[test]
fn simulation_without_passing_time_has_no_chart_over_time() {
    let mut report = report(Discipline::Loss);
    for result in &mut report.traces[0].comparison.strategies {
        result.series = TimeSeries::default();
    }
    assert!(!report.html().unwrap().contains("Slices over time"));
}

#[test]
fn page_is_self_contained_and_escapes_every_text() {
    let mut report = report(Discipline::Loss);
    report.traces[0].trace = HOSTILE.to_owned();
    report.gpus[0].0 = HOSTILE.to_owned();
    report.notes.push(HOSTILE.to_owned());
    let page = report.html().unwrap();
    assert_eq!(page.matches("alert(2)").count(), 4, "{page}");
    for part in ["<script", "<img", "\u{202e}", "http://", "https://", "@import", "url("] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'"), "{page}");
}
