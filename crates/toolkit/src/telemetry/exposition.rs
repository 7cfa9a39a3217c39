//! Metrics encoding, in the text format negotiated with the scraper.

use std::collections::BTreeSet;
use std::fmt;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// Source: Prometheus, "Exposition formats".
const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Source: OpenMetrics 1.0, "Overall structure".
const OPEN_METRICS_CONTENT_TYPE: &str =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Encodes all metrics of `registry` for a client with these `Accept` values. Returns the content type and the text.
pub fn write<'a>(
    registry: &Registry,
    accepted: impl Iterator<Item = &'a str>,
) -> Result<(&'static str, String), fmt::Error> {
    write_all([registry], accepted)
}

/// Encodes the metrics of several registries, which must not share a metric name.
pub fn write_all<'a, 'b>(
    registries: impl IntoIterator<Item = &'b Registry>,
    mut accepted: impl Iterator<Item = &'a str>,
) -> Result<(&'static str, String), fmt::Error> {
    let mut body = String::new();
    for registry in registries {
        text::encode_registry(&mut body, registry)?;
    }
    text::encode_eof(&mut body)?;
    Ok(if accepted.any(|value| value.contains("application/openmetrics-text")) {
        (OPEN_METRICS_CONTENT_TYPE, body)
    } else {
        (PROMETHEUS_CONTENT_TYPE, to_prometheus_text(&body))
    })
}

/// Converts OpenMetrics text to the older Prometheus format, in which `TYPE` and `HELP` of a counter carry the suffix
/// `_total`. `curl` and `promtool check metrics` expect that format.
fn to_prometheus_text(open: &str) -> String {
    let described = |line: &'_ str| {
        let (what, rest) = line.strip_prefix("# ")?.split_once(' ')?;
        let (name, rest) = rest.split_once(' ')?;
        Some((what.to_owned(), name.to_owned(), rest.to_owned()))
    };
    let counters: BTreeSet<String> = open
        .lines()
        .filter_map(described)
        .filter(|(what, _, kind)| what == "TYPE" && kind == "counter")
        .map(|(_, name, _)| name)
        .collect();
    let mut text = String::with_capacity(open.len());
    for line in open.lines().filter(|line| *line != "# EOF") {
        match described(line) {
            Some((what, name, rest)) if counters.contains(&name) => {
                text.extend(["# ", &what, " ", &name, "_total ", &rest]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}
