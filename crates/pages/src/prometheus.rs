//! Links to graphs in Prometheus, with queries of the agents' metrics.

use octavo_history::Metric;
use octavo_model::id::NodeName;

use super::address::encoded;

/// Link to the graphs of `metrics` over the last day, for a node or the fleet; `None` without a metric that agents export.
/// `base` is the URL of the web interface of Prometheus, without a trailing slash.
pub(super) fn graph_link(
    base: &str,
    node: Option<&NodeName>,
    metrics: &[Metric],
) -> Option<String> {
    // The name of a node contains no quotes or backslashes.
    let scope = node.map(|node| format!("{{node=\"{node}\"}}")).unwrap_or_default();
    let queries = metrics.iter().filter_map(|metric| query(*metric, &scope));
    let graphs = queries.enumerate().map(|(at, query)| {
        format!("g{at}.expr={}&g{at}.tab=0&g{at}.range_input=1d", encoded(&query))
    });
    let graphs: Vec<String> = graphs.collect();
    (!graphs.is_empty()).then(|| format!("{base}/graph?{}", graphs.join("&")))
}

/// Query with the meaning of a chart of several devices; `None` if agents export no metric for it.
fn query(metric: Metric, scope: &str) -> Option<String> {
    match metric {
        Metric::Utilization => Some(format!("avg(octavo_device_utilization_ratio{scope})")),
        Metric::Memory => Some(format!(
            "sum(octavo_device_memory_used_bytes{scope}) / sum(octavo_device_memory_total_bytes{scope})"
        )),
        Metric::Power => Some(format!("sum(octavo_device_power_watts{scope})")),
        Metric::Temperature => Some(format!("max(octavo_device_temperature_celsius{scope})")),
        Metric::Allocation => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_has_a_graph_per_metric() {
        let metrics = [Metric::Utilization, Metric::Allocation, Metric::Power];
        assert_eq!(
            graph_link("https://metrics.example/prometheus", None, &metrics).unwrap(),
            "https://metrics.example/prometheus/graph?g0.expr=avg%28octavo_device_utilization_ratio%29&g0.tab=0&g0.range_input=1d\
             &g1.expr=sum%28octavo_device_power_watts%29&g1.tab=0&g1.range_input=1d"
        );
        let node = "gpu-07.example".parse().unwrap();
        let link = graph_link("http://p", Some(&node), &[Metric::Temperature]).unwrap();
        assert!(
            link.contains("octavo_device_temperature_celsius%7Bnode%3D%22gpu-07.example%22%7D"),
            "{link}"
        );
        assert_eq!(graph_link("http://p", None, &[Metric::Allocation]), None);
    }

    #[test]
    fn queries_name_documented_metrics() {
        let reference = include_str!("../../../docs/reference/metrics.md");
        for metric in Metric::ALL {
            let query = query(metric, "").unwrap_or_default();
            let words = query.split(|one: char| !one.is_ascii_alphanumeric() && one != '_');
            for name in words.filter(|word| word.starts_with("octavo_")) {
                assert!(reference.contains(&format!("### `{name}`")), "{name}");
            }
        }
    }
}
