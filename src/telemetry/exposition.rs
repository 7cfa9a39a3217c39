//! Metrics as text, in the form that the reader prefers.

use std::collections::BTreeSet;
use std::fmt;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// Source: Prometheus, "Exposition formats".
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Source: OpenMetrics 1.0, "Overall structure".
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All of `registry` for a reader with these values of `Accept`: the content type, and the text.
pub fn write<'a>(
    registry: &Registry,
    accepted: impl Iterator<Item = &'a str>,
) -> Result<(&'static str, String), fmt::Error> {
    write_all([registry], accepted)
}

/// The same of several, which have no name in common.
pub fn write_all<'a, 'b>(
    registries: impl IntoIterator<Item = &'b Registry>,
    mut accepted: impl Iterator<Item = &'a str>,
) -> Result<(&'static str, String), fmt::Error> {
    let mut body = String::new();
    for registry in registries {
        text::encode_registry(&mut body, registry)?;
    }
    text::encode_eof(&mut body)?;
    Ok(
        if accepted.any(|value| value.contains("application/openmetrics-text")) {
            (OPEN_METRICS, body)
        } else {
            (TEXT, plain(&body))
        },
    )
}

/// OpenMetrics text in the older form, in which a counter is described under the name that its samples have. A person with
/// `curl` and `promtool check metrics` read that one.
fn plain(open: &str) -> String {
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
