//! Metrics that agent and aggregator expose, compared with rules, dashboard and documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;
use octavo_agent::metrics::LayoutMetrics;
use octavo_aggregator::budgets::BudgetMetrics;
use octavo_aggregator::ledger::LedgerMetrics;
use octavo_aggregator::rest::metrics;
use octavo_aggregator::serve::FLOODS;
use octavo_fleet::budget::BudgetScope;
use octavo_kube::cluster::WatchedCluster;
use octavo_kube::policies::{KnownPolicies, PolicyRequests};
use octavo_ledger::budget::{BudgetReport, BudgetState, BudgetStatus};
use octavo_model::reason::Reason;
use octavo_model::sharing_status::{DeviceProvider, ResourceStatus};
use octavo_model::{resource::ResourceName, sharing_status::SharingStatus};
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_policy::{Policy, PolicyState, PolicyStatus};
use octavo_store::policies::PolicyView;
use octavo_store::stats::Stats;
use octavo_toolkit::telemetry::exposition;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::Instant;

use super::dashboard::{queries, variables};
use super::rules::alerts;
use crate::fleet::layout::{SHARED, partition};
use crate::fleet_api::Api;
use crate::machine::Machine;
use crate::process::{Aggregator, Program};
use crate::time_limits::until_async;

/// Labels of a metric with the observed values.
pub(super) type Labels = BTreeMap<String, BTreeSet<String>>;

/// An aggregator, and an agent whose layout is blocked by a process on one of two devices.
pub(super) struct RunningFleet {
    pub(super) agent: SocketAddr,
    pub(super) aggregator: Aggregator,
    _program: Program,
    _machine: Machine,
}

pub(super) async fn running(arguments: &[&str]) -> RunningFleet {
    let aggregator = Aggregator::start(&[&["--plaintext"], arguments].concat());
    let machine = Machine::new(SHARED);
    let mut program = partition(&machine, &aggregator, "both");
    let agent = program.metrics();
    let api = Api::at(aggregator.http);
    api.node("shared", |node| {
        let devices = &node["layout"]["devices"];
        devices[0]["state"] == "applied" && devices[1]["state"] == "blocked"
    })
    .await;
    RunningFleet { agent, aggregator, _program: program, _machine: machine }
}

/// Exposed metrics by name: type, and labels with their values.
#[derive(Debug, Default)]
pub(super) struct ExposedMetrics {
    pub(super) metrics: BTreeMap<String, (String, Labels)>,
    /// Help texts by name.
    pub(super) help: BTreeMap<String, String>,
}

impl ExposedMetrics {
    pub(super) fn add(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((name, help)) =
                line.strip_prefix("# HELP ").and_then(|help| help.split_once(' '))
            {
                self.help.insert(name.to_owned(), help.to_owned());
            } else if let Some(described) = line.strip_prefix("# TYPE ") {
                let (name, kind) = described.split_once(' ').unwrap();
                let metric = self.metrics.entry(name.to_owned()).or_default();
                kind.clone_into(&mut metric.0);
            } else if !line.starts_with('#') {
                let end = line.find(['{', ' ']).unwrap();
                let name = self.described(&line[..end]).unwrap().to_owned();
                let labels = &mut self.metrics.get_mut(&name).unwrap().1;
                for (label, _, value) in matchers(&line[end..]) {
                    labels.entry(label).or_default().insert(value);
                }
            }
        }
    }

    /// The name that a series is documented by, which is shorter for parts of a histogram.
    fn described<'a>(&self, series: &'a str) -> Option<&'a str> {
        if self.metrics.contains_key(series) {
            return Some(series);
        }
        let parts = ["_bucket", "_sum", "_count"].into_iter();
        let mut whole = parts.filter_map(|part| series.strip_suffix(part));
        whole.find(|name| {
            let metric = self.metrics.get(*name);
            metric.is_some_and(|(kind, _)| kind == "histogram")
        })
    }
}

/// Label, operator and value of each matcher in a leading `{label="value",…}`; empty without one.
fn matchers(text: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let Some(mut rest) = text.strip_prefix('{') else {
        return found;
    };
    while let Some((head, tail)) = rest.split_once('"') {
        if head.contains('}') {
            break;
        }
        let (value, after) = tail.split_once('"').unwrap();
        let head = head.trim_start_matches([',', ' ']);
        let label = head.trim_end_matches(['=', '~', '!']);
        let operator = &head[label.len()..];
        found.push((label.to_owned(), operator.to_owned(), value.to_owned()));
        rest = after;
    }
    found
}

/// Metrics of the agent, and of the aggregator.
pub(super) async fn served() -> (ExposedMetrics, ExposedMetrics) {
    let running = running(&["--upstream=paris=http://127.0.0.1:1"]).await;
    let mut agent = ExposedMetrics::default();
    agent.add(&Api::at(running.agent).get("/metrics").await.body);
    agent.add(&given());
    let mut aggregator = ExposedMetrics::default();
    let http = Api::at(running.aggregator.http);
    // A scrape does not wait for a slow recount of the availability.
    let scrape = async || http.get("/metrics").await.body;
    let is_counted = |text: &String| text.contains("octavo_aggregator_availability{");
    aggregator.add(&until_async("the availability metrics", scrape, is_counted).await);
    aggregator.add(&counted());
    (agent, aggregator)
}

/// Series of an agent about pod allocations, which need a kubelet or NVIDIA's plugin.
fn given() -> String {
    let applies = LayoutMetrics::default();
    let resource = ResourceStatus {
        name: ResourceName::gpu(),
        wanted: 4,
        allocatable: Some(4),
        units: Vec::new(),
    };
    applies.record_status(&NodeLayoutStatus {
        sharing: Some(SharingStatus {
            mode: DeviceProvider::Embedded.into(),
            state: Reason::SharingInForce.into(),
            message: None,
            resources: vec![resource],
            retained: Vec::new(),
            ..SharingStatus::default()
        }),
        ..NodeLayoutStatus::default()
    });
    exposition::write(&applies.registry(), std::iter::empty()).unwrap().1
}

/// Series of aggregator counters that this fleet does not increase: the same counters, each incremented once.
fn counted() -> String {
    let stats = Stats::default();
    stats.count_message("hello");
    stats.refused("claimed");
    stats.count_token_review("denied");
    stats.count_http_refusal("forbidden");
    stats.count_audit_failure("late");
    stats.checked("token", "denied");
    stats.count_resync("hello");
    stats.connections("grpc").inc();
    stats.count_connection("grpc");
    stats.count_refused_connection("grpc");
    for reason in FLOODS.into_iter().chain(["no_request"]) {
        stats.count_closed_connection(reason);
    }
    stats.count_handshake_failure("grpc");
    stats.count_invariant_violation("I9");
    let mut registry = Registry::default();
    stats.register(&mut registry);
    // Series about a watched cluster.
    let followed = WatchedCluster {
        current_at: Some(Instant::now()),
        error: None,
        ..WatchedCluster::default()
    };
    let (_follower, followed) = watch::channel(Arc::new(followed));
    metrics::cluster::register(&mut registry, followed);
    exposition::write(&registry, std::iter::empty()).unwrap().1
}

/// Metrics of an aggregator with an accelerator policy in each state of the alerts.
pub(super) fn policies() -> ExposedMetrics {
    let policy = |state: PolicyState| {
        let policy = Policy {
            name: state.to_string(),
            uid: String::new(),
            version: String::new(),
            generation: 1,
            created: None,
            is_deleting: false,
            has_finalizer: true,
            rollback_to: None,
            approved: BTreeSet::new(),
            spec: Err(String::new()),
            status: PolicyStatus { state, ..PolicyStatus::default() },
        };
        (state.to_string(), Arc::new(policy))
    };
    let states = [PolicyState::Stopped, PolicyState::RolledBack, PolicyState::Refused];
    let all = states.map(policy).into();
    let (_known, known) =
        watch::channel(Arc::new(KnownPolicies { all, ..KnownPolicies::default() }));
    let (_cluster, cluster) = watch::channel(Arc::default());
    let mut registry = Registry::default();
    octavo_aggregator::policies::register(
        &mut registry,
        PolicyView::new(known, cluster),
        PolicyRequests::default(),
    );
    let mut served = ExposedMetrics::default();
    served.add(&exposition::write(&registry, std::iter::empty()).unwrap().1);
    served
}

/// Metrics of an aggregator with budgets of a namespace and a team.
pub(super) fn budgets() -> ExposedMetrics {
    let item = |scope| BudgetStatus {
        scope,
        amount: "10".parse().unwrap(),
        currency: "USD".parse().unwrap(),
        spent: "5".parse().unwrap(),
        forecast: Some("8".parse().unwrap()),
        state: BudgetState::Ok,
    };
    let scopes = [BudgetScope::Namespace("team-a".into()), BudgetScope::Team("vision".into())];
    let report = BudgetReport {
        api_version: String::new(),
        kind: String::new(),
        month: String::new(),
        at: Timestamp::UNIX_EPOCH,
        items: scopes.map(item).into(),
        notes: Vec::new(),
    };
    let metrics = BudgetMetrics::default();
    metrics.set(Some(report));
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut served = ExposedMetrics::default();
    served.add(&exposition::write(&registry, std::iter::empty()).unwrap().1);
    served
}

/// Metrics of an aggregator with a ledger.
pub(super) fn ledger() -> ExposedMetrics {
    let mut registry = Registry::default();
    LedgerMetrics::default().register(&mut registry);
    let mut served = ExposedMetrics::default();
    served.add(&exposition::write(&registry, std::iter::empty()).unwrap().1);
    served
}

/// Labels and values of a series as rules see it, including those added by the scrape.
fn labels(series: &str, (agent, aggregator): &(ExposedMetrics, ExposedMetrics)) -> Option<Labels> {
    let of = |served: &ExposedMetrics| {
        let name = served.described(series)?;
        Some(served.metrics[name].1.clone())
    };
    if series == "up" {
        return Some(BTreeMap::from(
            [("job", ""), ("node", "")]
                .map(|(label, value)| (label.to_owned(), BTreeSet::from([value.to_owned()]))),
        ));
    }
    if let Some(mut labels) = of(agent) {
        labels.entry("node".to_owned()).or_default();
        return Some(labels);
    }
    of(aggregator)
}

/// True if the label may have this value: an observed one, or a reason.
fn may_be(value: &str, seen: &BTreeSet<String>) -> bool {
    seen.contains(value) || Reason::parse(value).is_some()
}

/// Metric names in a query, each with the text after it.
fn series(query: &str) -> Vec<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = query;
    while let Some(start) = rest.find(is_part) {
        let word = &rest[start..];
        let end = word.find(|c| !is_part(c)).unwrap_or(word.len());
        let (name, after) = word.split_at(end);
        if name.starts_with("octavo_") || name == "up" {
            found.push((name, after));
        }
        rest = after;
        // Text in quotes is a value.
        if let Some(value) = rest.strip_prefix('"') {
            rest = value.split_once('"').map_or("", |(_, after)| after);
        }
    }
    found
}

/// Labels that a query groups by.
fn grouped(query: &str) -> Vec<String> {
    let by = query.split("by (").skip(1);
    let lists = by.map(|rest| rest.split(')').next().unwrap());
    let labels = lists.flat_map(|list| list.split(','));
    labels.map(|label| label.trim().to_owned()).collect()
}

/// Errors in a query.
fn faults(query: &str, shown: &[String], served: &(ExposedMetrics, ExposedMetrics)) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut all = BTreeSet::from(["le".to_owned()]);
    let series = series(query);
    if series.is_empty() {
        wrong.push(format!("the query uses no metric of Octavo: {query}"));
    }
    for (name, after) in series {
        let Some(labels) = labels(name, served) else {
            wrong.push(format!("no program serves {name}: {query}"));
            continue;
        };
        for (label, operator, value) in matchers(after) {
            match labels.get(&label) {
                None => wrong.push(format!("{name} has no label {label}: {query}")),
                Some(_) if label == "node" || label == "job" => {}
                Some(seen) => {
                    let values: Vec<&str> = if operator.ends_with('~') {
                        value.split('|').collect()
                    } else {
                        vec![&value]
                    };
                    for value in values.into_iter().filter(|value| !may_be(value, seen)) {
                        wrong.push(format!("{name} has no {label} {value}: {query}"));
                    }
                }
            }
        }
        all.extend(labels.into_keys());
    }
    let used = grouped(query).into_iter().chain(shown.iter().cloned());
    for label in used.filter(|label| !all.contains(label)) {
        wrong.push(format!("no label {label}: {query}"));
    }
    wrong
}

/// Labels referenced by a text: `{{ $labels.node }}` in an alert, `{{node}}` in a legend.
fn shown(text: &str) -> Vec<String> {
    let parts = text.split("{{").skip(1);
    let inside = parts.map(|part| part.split("}}").next().unwrap().trim());
    let labels = inside.map(|inside| inside.strip_prefix("$labels.").unwrap_or(inside));
    let is_name = |label: &&str| label.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    labels
        .filter(is_name)
        .map(str::to_owned)
        .filter(|label| label != "end" && label != "else")
        .collect()
}

#[tokio::test]
async fn every_metric_and_label_used_by_alerts_and_dashboard_is_exposed() {
    let mut served = served().await;
    served.1.metrics.extend(policies().metrics);
    served.1.metrics.extend(budgets().metrics);
    served.1.metrics.extend(ledger().metrics);
    let mut wrong = Vec::new();
    for alert in alerts() {
        let notes = &alert["annotations"];
        let text = format!("{} {}", notes["summary"], notes["description"]);
        wrong.extend(faults(alert["expr"].as_str().unwrap(), &shown(&text), &served));
    }
    for (query, legend) in queries() {
        wrong.extend(faults(&query, &shown(&legend), &served));
    }
    for query in variables() {
        let requested = query.strip_prefix("label_values(").unwrap().trim_end_matches(')');
        let (name, label) = requested.split_once(", ").unwrap();
        let labels = labels(name, &served);
        if labels.is_none_or(|labels| !labels.contains_key(label)) {
            wrong.push(query);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn query_for_missing_series_is_detected() {
    let served = served().await;
    for (query, shown) in [
        ("max(octavo_nothing)", &[][..]),
        ("octavo_nodes{colour=\"red\"}", &[]),
        ("octavo_nodes{state=\"purple\"}", &[]),
        ("sum by (node) (octavo_nodes)", &[]),
        ("octavo_layout_info", &["colour".to_owned()]),
        ("octavo_apply_duration_seconds_most", &[]),
        ("vector(1)", &[]),
    ] {
        assert_eq!(faults(query, shown, &served).len(), 1, "{query}");
    }
    let good = "sum by (node, le) (octavo_apply_duration_seconds_bucket{node=~\"a.*\"})";
    assert!(faults(good, &["node".to_owned()], &served).is_empty());
}
