//! The page for made-up usage.

use jiff::Timestamp;
use jiff::civil::{Date, date};
use octavo_fleet::price::{PriceBook, PriceEntry, PriceKey, PurchaseOption, Validity};
use octavo_ledger::report::{CostReport, GroupLimit, ReportBuilder};
use octavo_ledger::{CostOrder, Day, Dimension, PPM, UsageQuery, UsageState, UsageSum};
use octavo_model::source_position::SourcePosition;

use crate::monthly::{MonthlyReport, start};
use crate::section::{MAX_IDLE_WORKLOADS, MAX_WORKLOADS};

const MONTH: Date = date(2026, 11, 1);
const L4: &str = "nvidia-l4-24gb";
const H100: &str = "nvidia-h100-80gb";
const A10: &str = "nvidia-a10-24gb";
const HOSTILE: &str = "\"><script>alert('1')</script>\u{202e}<img src=x onerror=alert(2)>&";

/// Usage on a day.
#[derive(Debug, Clone, Copy)]
struct Entry {
    day: Date,
    team: Option<&'static str>,
    workload: Option<&'static str>,
    type_name: &'static str,
    state: UsageState,
    hours: i64,
}

fn used(day: i8, team: &'static str, workload: &'static str, hours: i64) -> Entry {
    Entry {
        day: date(2026, 11, day),
        team: Some(team),
        workload: Some(workload),
        type_name: L4,
        state: UsageState::Used,
        hours,
    }
}

fn idle(day: i8, team: &'static str, workload: &'static str, hours: i64) -> Entry {
    Entry { state: UsageState::Idle, ..used(day, team, workload, hours) }
}

/// Prices of one type in euros and of one in dollars; the third has none.
fn prices() -> PriceBook {
    let mut book = PriceBook::new("EUR".parse().unwrap());
    for (type_name, per_hour, currency) in [(L4, "2.5", "EUR"), (H100, "4", "USD")] {
        let refused = book.add(PriceEntry {
            key: PriceKey::new(type_name.parse().unwrap(), PurchaseOption::OnDemand),
            validity: Validity::default(),
            per_hour: per_hour.parse().unwrap(),
            currency: currency.parse().unwrap(),
            position: SourcePosition::default(),
        });
        assert_eq!(refused, None);
    }
    book
}

/// Usage by team that the aggregator returns for a month.
fn teams(entries: &[Entry], month: Date) -> CostReport {
    document(entries, &[Dimension::Team], month, None, GroupLimit::most_expensive(10_000))
}

/// Usage that the aggregator returns for a month.
fn document(
    entries: &[Entry],
    by: &[Dimension],
    month: Date,
    team: Option<&str>,
    limit: GroupLimit,
) -> CostReport {
    let until = month.last_of_month().tomorrow().unwrap();
    let query = UsageQuery {
        from: start(month),
        until: start(until),
        by: by.to_vec(),
        filters: Vec::new(),
        price_changes: Vec::new(),
    };
    let entries = entries.iter().filter(|entry| month <= entry.day && entry.day < until);
    let entries = entries.filter(|entry| team.is_none() || entry.team == team);
    let sums = entries.map(|entry| {
        let value = |dimension: &Dimension| match dimension {
            Dimension::Team => entry.team.map(str::to_owned),
            Dimension::Workload => entry.workload.map(str::to_owned),
            Dimension::Type => Some(entry.type_name.to_owned()),
            Dimension::Day => Some(entry.day.to_string()),
            Dimension::Namespace
            | Dimension::Profile
            | Dimension::Method
            | Dimension::Node
            | Dimension::Pod => panic!("no report has usage by {dimension}"),
        };
        UsageSum {
            values: by.iter().map(value).collect(),
            period: 0,
            price_key: Some(PriceKey::new(
                entry.type_name.parse().unwrap(),
                PurchaseOption::OnDemand,
            )),
            state: entry.state,
            inferred: false,
            ppm_seconds: entry.hours * 3600 * i64::from(PPM),
            percent_seconds: 50 * entry.hours * 3600 * i64::from(PPM),
            measured_seconds: entry.hours * 3600 * i64::from(PPM),
        }
    });
    let mut sums: Vec<UsageSum> = sums.collect();
    sums.sort_by(|one, two| one.values.cmp(&two.values));
    let prices = prices();
    let mut builder = ReportBuilder::new(&query, Some(&prices), &[], limit);
    for sum in &sums {
        builder.add(sum);
    }
    CostReport { begins: Some("2026-01-01".to_owned()), ..builder.finish() }
}

/// The report, two weeks after the month.
fn monthly(entries: &[Entry], team: Option<&str>) -> MonthlyReport {
    let of = |by, order, groups| {
        let limit = GroupLimit { order, groups, is_per_value: true };
        document(entries, &[Dimension::Team, by], MONTH, team, limit)
    };
    MonthlyReport {
        month: MONTH,
        at: Day::from_date(date(2026, 12, 15)).start_time(),
        team: team.map(str::to_owned),
        teams: teams(entries, MONTH),
        previous: teams(entries, date(2026, 10, 1)),
        types: of(Dimension::Type, CostOrder::Cost, 100),
        workloads: of(Dimension::Workload, CostOrder::Cost, MAX_WORKLOADS),
        idle: of(Dimension::Workload, CostOrder::Idle, MAX_IDLE_WORKLOADS),
        days: of(Dimension::Day, CostOrder::Cost, 31),
    }
}

/// Texts of an HTML fragment.
fn texts(html: &str) -> Vec<&str> {
    let texts =
        html.split('<').filter_map(|part| part.split_once('>').map(|(_, text)| text.trim()));
    texts.filter(|text| !text.is_empty()).collect()
}

/// Texts of the section with this heading.
fn section<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let section = page.split("<section").find(|part| part.contains(&format!(">{name}</h2>")));
    let section = section.unwrap_or_else(|| panic!("no section {name}: {page}"));
    texts(section.split_once("</section>").unwrap().0)
}

/// Texts of the table row that begins with a name.
fn row<'a>(texts: &[&'a str], name: &str, columns: usize) -> Vec<&'a str> {
    let at = texts.iter().position(|text| *text == name);
    let at = at.unwrap_or_else(|| panic!("no row {name}: {texts:#?}"));
    texts[at..at + columns].to_vec()
}

#[track_caller]
fn has(texts: &[&str], text: &str) {
    assert!(texts.contains(&text), "no {text:?}: {texts:#?}");
}

fn sample() -> Vec<Entry> {
    let october = |entry: Entry| Entry { day: date(2026, 10, 20), ..entry };
    vec![
        used(3, "vision", "v/Job/train", 100),
        idle(4, "vision", "v/Job/notebook", 20),
        Entry { type_name: H100, ..used(30, "vision", "v/Job/train", 10) },
        used(5, "language", "l/Job/serve", 200),
        Entry { type_name: A10, ..used(5, "language", "l/Job/serve", 7) },
        Entry { team: None, workload: None, state: UsageState::Unallocated, ..used(6, "", "", 63) },
        october(used(1, "vision", "v/Job/train", 80)),
        october(used(1, "former", "f/Job/train", 80)),
    ]
}

#[test]
fn sections_have_the_figures_of_their_team() {
    let page = monthly(&sample(), None).html().unwrap();
    let vision = section(&page, "vision");
    // 120 h at 2.50 EUR and 10 h at 4 USD, of 400 h of the fleet.
    for text in [
        "300.00 EUR",
        "40.00 USD",
        "+50 %; October 2026: 200.00 EUR",
        "new; October 2026: 0.00 USD",
        "130.0",
        "+62 %; October 2026: 80.0",
        "15 % of the device hours are idle",
        "32 %",
        "of 400.0 device hours",
    ] {
        has(&vision, text);
    }
    let type_row = row(&vision, "NVIDIA L4 24 GB", 8);
    let expected = ["120.0", "100.0", "20.0", "50 %", "300.00 EUR", "50.00 EUR"];
    assert_eq!((type_row[1], &type_row[2..]), (L4, &expected[..]));
    let expected =
        ["v/Job/train", "110.0", "110.0", "0.0", "50 %", "250.00 EUR", "40.00 USD", "0.00 EUR"];
    assert_eq!(row(&vision, "v/Job/train", 8), expected);
    let at = vision.iter().position(|text| *text == "Most expensive idle allocations").unwrap();
    assert_eq!(row(&vision[at..], "v/Job/notebook", 4)[1..], ["20.0", "100 %", "50.00 EUR"]);
    has(&vision, "2026-11-04: device hours 20.0 idle");
    let language = section(&page, "language");
    has(&language, "7.0 device hours have no price, so the cost does not include them.");
    let rest = section(&page, "No team");
    has(&rest, "Pods without a team, and device hours that were not allocated or not reported.");
    assert!(!page.contains("former"), "{page}");
}

#[test]
fn summary_adds_up_to_all_usage() {
    let report = monthly(&sample(), None);
    let page = report.html().unwrap();
    let summary = section(&page, "All teams");
    let total = row(&summary, "Total", 10);
    assert_eq!(total[1], "400.0");
    assert_eq!(total[4..6].join(" + "), report.teams.total.shown_costs(|cost| cost.total));
    assert_eq!(total[4..6], ["957.50 EUR", "40.00 USD"]);
    assert_eq!(total[8..], ["+139 % (EUR)", "new (USD)"]);
    let rows = ["language", "vision", "No team"].map(|team| row(&summary, team, 6));
    assert_eq!(rows.each_ref().map(|row| row[1]), ["207.0", "130.0", "63.0"]);
    assert_eq!(rows.each_ref().map(|row| row[4]), ["500.00 EUR", "300.00 EUR", "157.50 EUR"]);
    assert_eq!(rows[1][5], "40.00 USD");
    assert!(page.contains("octavo cost --month 2026-11 --by team<"), "{page}");
}

#[test]
fn hostile_names_are_text() {
    let entries = [used(3, HOSTILE, HOSTILE, 10), idle(4, HOSTILE, HOSTILE, 10)];
    for team in [None, Some(HOSTILE)] {
        let page = monthly(&entries, team).html().unwrap();
        for part in ["<script", "<img", "alert('1')", "\u{202e}", "'1'"] {
            assert!(!page.contains(part), "{part}: {page}");
        }
        let name = "&#34;&#62;&#60;script&#62;alert(&#39;1&#39;)&#60;/script&#62;\u{fffd}";
        assert!(page.contains(name), "{page}");
    }
}

#[test]
fn page_loads_no_other_file() {
    let page = monthly(&sample(), None).html().unwrap();
    for part in ["http://", "https://", "src=", "@import", "<link", "<script", "url(\""] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    let mut urls = page.match_indices("url(").map(|(at, _)| &page[at..]);
    assert!(urls.all(|url| url.starts_with("url(#idle-lines)")), "{page}");
    assert!(page.contains("default-src 'none'"), "{page}");
}

#[test]
fn report_on_one_team_names_no_other() {
    let page = monthly(&sample(), Some("vision")).html().unwrap();
    has(&section(&page, "vision"), "of 400.0 device hours");
    for part in ["language", "No team", "All teams", "former", "7.0 device hours"] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    assert!(page.contains("octavo cost --month 2026-11 --by team --team=vision<"), "{page}");
}

#[test]
fn team_without_usage_is_reported() {
    let report = monthly(&sample(), Some("former"));
    assert!(!report.has_usage());
    let page = report.html().unwrap();
    has(&texts(&page), "The ledger has no usage of team former in this month.");
    let page = monthly(&[], None).html().unwrap();
    has(&texts(&page), "The ledger has no usage in this month.");
    let unlabeled = Entry { team: None, ..used(3, "", "v/Job/train", 1) };
    let page = monthly(&[unlabeled], None).html().unwrap();
    assert!(page.contains("No pod had a team."), "{page}");
}

#[test]
fn only_whole_months_are_compared() {
    let whole = monthly(&sample(), None);
    assert!(whole.html().unwrap().contains("Since October 2026"));
    let at = |time: &str| time.parse::<Timestamp>().unwrap();
    let report = MonthlyReport { at: at("2026-11-28T12:00:00Z"), ..monthly(&sample(), None) };
    let page = report.html().unwrap();
    has(
        &texts(&page),
        "The month is not over. The report has the usage until 2026-11-28 12:00 UTC.",
    );
    assert!(!page.contains("October"), "{page}");
    let report = MonthlyReport { at: at("2026-12-02T00:00:00Z"), ..monthly(&sample(), None) };
    let page = report.html().unwrap();
    assert!(page.contains("The figures can change until 2026-12-08 00:00 UTC"), "{page}");
    assert!(page.contains("Since October 2026"), "{page}");
    let mut late = monthly(&sample(), None);
    late.previous.begins = Some("2026-10-02".to_owned());
    let page = late.html().unwrap();
    assert!(page.contains("There is no comparison with October 2026"), "{page}");
    assert!(!page.contains("Since October"), "{page}");
    late.workloads.begins = Some("2026-11-20".to_owned());
    let page = late.html().unwrap();
    assert!(page.contains("Usage by workload begins on 2026-11-20."), "{page}");
}

#[test]
fn workloads_that_are_not_listed_are_one_row_of_their_team() {
    let names: Vec<&'static str> = (10..40).map(|at| &*format!("v/Job/w{at}").leak()).collect();
    let entries = names.iter().zip(1..).map(|(name, hours)| used(3, "vision", name, hours));
    let mut entries: Vec<Entry> = entries.collect();
    entries.push(idle(4, "vision", "v/Job/w10", 1));
    // More hours, but cheaper: the type has no price.
    entries.push(Entry { type_name: A10, ..used(3, "vision", "v/Job/unpriced", 1000) });
    entries.push(used(5, "language", "l/Job/serve", 1));
    let page = monthly(&entries, None).html().unwrap();
    let vision = section(&page, "vision");
    let listed = vision.iter().filter(|text| text.starts_with("v/Job/w")).count();
    // The last one is in the table of idle allocations.
    assert_eq!(listed, 20 + 1, "{vision:#?}");
    has(&vision, "v/Job/w39");
    // 1 to 10 hours, the idle hour and 1,000 hours without a price.
    let expected =
        ["other: 11 workloads", "1,056.0", "1,055.0", "1.0", "50 %", "140.00 EUR", "2.50 EUR"];
    assert_eq!(row(&vision, "other: 11 workloads", 7), expected);
    has(&section(&page, "language"), "l/Job/serve");
}

#[test]
fn teams_with_missing_days_or_idle_allocations_are_counted_and_have_no_chart() {
    let mut entries = sample();
    entries.push(idle(5, "language", "l/Job/serve", 1));
    entries.push(idle(5, "language", "l/Job/batch", 2));
    let mut report = monthly(&entries, None);
    let page = report.html().unwrap();
    has(&section(&page, "vision"), "Device hours by day");
    assert!(!page.contains("no chart") && !page.contains("not listed"), "{page}");
    // The limit of all groups: the cheapest day of vision, and the idle allocation of language with the lower cost.
    let limit = GroupLimit::most_expensive(4);
    report.days = document(&entries, &[Dimension::Team, Dimension::Day], MONTH, None, limit);
    assert_eq!(report.days.omitted_items, 1);
    let limit = GroupLimit { order: CostOrder::Idle, groups: 1, is_per_value: true };
    report.idle = document(&entries, &[Dimension::Team, Dimension::Workload], MONTH, None, limit);
    let page = report.html().unwrap();
    has(&texts(&page), "There is no chart for 1 team, because not all days are listed.");
    has(&texts(&page), "Idle allocations with low costs are not listed for 1 team.");
    assert!(!section(&page, "vision").contains(&"Device hours by day"), "{page}");
    has(&section(&page, "language"), "Device hours by day");
}

#[test]
fn teams_that_are_not_listed_are_a_row_of_the_summary() {
    let mut entries = sample();
    entries.push(used(3, "small", "s/Job/train", 1));
    entries.push(used(3, "tiny", "t/Job/train", 2));
    let mut report = monthly(&entries, None);
    let limit = GroupLimit::most_expensive(3);
    report.teams = document(&entries, &[Dimension::Team], MONTH, None, limit);
    // A team that is not listed in the previous month is not new.
    let october = date(2026, 10, 1);
    let limit = GroupLimit::most_expensive(1);
    report.previous = document(&entries, &[Dimension::Team], october, None, limit);
    let page = report.html().unwrap();
    let summary = section(&page, "All teams");
    let other = row(&summary, "other: 2 teams", 6);
    assert_eq!(other[1..], ["3.0", "0.0", "&#60; 1 %", "7.50 EUR", "0.00 EUR"]);
    assert_eq!(row(&summary, "Total", 6)[1], "403.0");
    assert!(!section(&page, "language").iter().any(|text| text.contains("new")), "{page}");
}
