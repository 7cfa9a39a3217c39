//! History of the fleet, a type, a node and its devices.

use octavo_fleet::access::VisibleTypes;
use octavo_history::{History, Metric, Points, SeriesKey, SeriesSum, Span, Step, Window};
use octavo_model::id::{NodeName, PciAddress, TypeName};
use octavo_node::sharing::usage::UnitUsage;
use octavo_store::history::timestamp;

use super::badges::format_time;
use super::chart::{Chart, NO_VALUE, format_value};
use super::prometheus::graph_link;
use super::sharing::unit_name;

/// History of several devices over the last 24 hours.
#[derive(Debug)]
pub(super) struct HistorySection {
    /// Name of the devices: `gpu-07`.
    pub(super) of: String,
    /// Time from which there are values, if it is within the last 24 hours.
    pub(super) begins: Option<String>,
    pub(super) charts: Vec<Chart>,
    /// Rows of the table, with a column per chart.
    pub(super) rows: Vec<HistoryRow>,
    /// Link to the same graphs in Prometheus, if its URL is configured.
    pub(super) prometheus: Option<String>,
}

/// History of the fleet.
#[derive(Debug)]
pub(super) struct FleetTrend {
    pub(super) hour: Vec<Chart>,
    pub(super) day: HistorySection,
}

/// Values of an hour.
#[derive(Debug)]
pub(super) struct HistoryRow {
    /// Start of the hour.
    pub(super) time: String,
    pub(super) values: Vec<String>,
}

/// Charts of a device or partition.
#[derive(Debug)]
pub(super) struct Trends {
    /// Name of the partition; empty for the device itself.
    pub(super) of: String,
    pub(super) charts: Vec<Chart>,
}

/// Metrics of the fleet.
const FLEET_METRICS: [Metric; 3] = [Metric::Utilization, Metric::Allocation, Metric::Power];

impl HistorySection {
    /// History of a node; `None` without any value. `prometheus` is the base URL of Prometheus.
    pub(super) fn of_node(
        history: &History,
        node: &NodeName,
        prometheus: Option<&str>,
    ) -> Option<Self> {
        let section = Self::new(history, node.as_str(), &Metric::ALL, |metric, window| {
            let devices = history.of_node(node).iter();
            let devices = devices.filter(|(key, _)| key.partition.is_none());
            SeriesSum::of(metric, window, devices.map(|(_, series)| series))
        })?;
        let link = prometheus.and_then(|base| graph_link(base, Some(node), &Metric::ALL));
        Some(Self { prometheus: link, ..section })
    }

    /// History of the devices of a type; `None` without any value.
    pub(super) fn of_type(history: &History, name: &TypeName) -> Option<Self> {
        Self::new(history, name.as_str(), &Metric::ALL, |metric, window| {
            history.of_types(metric, window, |one| one == Some(name))
        })
    }

    fn new(
        history: &History,
        of: &str,
        metrics: &[Metric],
        points: impl Fn(Metric, Window) -> Points,
    ) -> Option<Self> {
        let chart_window = history.window(Span::Day, Step::QuarterHour);
        let hours = history.window(Span::Day, Step::Hour);
        let mut section = Self {
            of: of.to_owned(),
            begins: history
                .begins()
                .filter(|begins| *begins > chart_window.start())
                .map(|begins| format_time(timestamp(begins))),
            charts: Vec::new(),
            rows: Vec::new(),
            prometheus: None,
        };
        let mut columns: Vec<(Metric, Points)> = Vec::new();
        for metric in metrics.iter().copied() {
            let values = points(metric, chart_window);
            if let Some(chart) = Chart::new(metric, of, Span::Day, &values) {
                section.charts.push(chart);
                columns.push((metric, points(metric, hours)));
            }
        }
        let times = (0..).map(|hour: u64| hours.start() + hour * hours.step_seconds());
        for (at, time) in (0..hours.points()).zip(times) {
            let values = columns.iter().map(|(metric, points)| {
                let value = points.values.get(at).copied().flatten();
                value.map_or_else(|| NO_VALUE.to_owned(), |value| format_value(*metric, value))
            });
            let values: Vec<String> = values.collect();
            if values.iter().any(|value| value != NO_VALUE) {
                section.rows.push(HistoryRow { time: format_time(timestamp(time)), values });
            }
        }
        (!section.charts.is_empty()).then_some(section)
    }
}

impl FleetTrend {
    /// History of all devices, or of those of the visible types; `None` without any value, and if a visible type could be
    /// missing in the totals. `prometheus` is the base URL of Prometheus.
    pub(super) fn new(
        history: &History,
        types: &VisibleTypes,
        prometheus: Option<&str>,
    ) -> Option<Self> {
        let (of, prometheus) = match types {
            VisibleTypes::All => ("the fleet", prometheus),
            VisibleTypes::Only(_)
                if !history.has_all_types(history.window(Span::Day, Step::Hour)) =>
            {
                return None;
            }
            // Prometheus has the metrics of all types.
            VisibleTypes::Only(_) => ("the types that you can view", None),
        };
        let points = |metric, window| match types {
            VisibleTypes::All => history.of_fleet(metric, window),
            VisibleTypes::Only(_) => history.of_types(metric, window, |name| types.contains(name)),
        };
        let day = HistorySection::new(history, of, &FLEET_METRICS, points)?;
        let window = history.window(Span::Hour, Step::Minute);
        let hour = FLEET_METRICS
            .into_iter()
            .filter_map(|metric| Chart::new(metric, of, Span::Hour, &points(metric, window)));
        let link = prometheus.and_then(|base| graph_link(base, None, &FLEET_METRICS));
        Some(Self { hour: hour.collect(), day: HistorySection { prometheus: link, ..day } })
    }
}

/// Charts of the last hour of a device and of its partitions.
pub(super) fn device_trends(
    history: &History,
    node: &NodeName,
    device: PciAddress,
    units: &[UnitUsage],
    title: &str,
) -> Vec<Trends> {
    let window = history.window(Span::Hour, Step::Minute);
    let trends = |partition: Option<&UnitUsage>| {
        let key = SeriesKey { device, partition: partition.map(|unit| unit.uuid.as_str().into()) };
        let of = partition.map(unit_name).unwrap_or_default();
        let name = if of.is_empty() { title.to_owned() } else { format!("{of} of {title}") };
        // The allocation of a device rarely changes and is visible in its table.
        let metrics = Metric::ALL.into_iter().filter(|metric| *metric != Metric::Allocation);
        let charts = metrics.filter_map(|metric| {
            let points = history.of_device(node, &key, metric, window);
            Chart::new(metric, &name, Span::Hour, &points)
        });
        Trends { charts: charts.collect(), of }
    };
    let partitions = units.iter().filter(|unit| unit.gpu_instance.is_some());
    let all = std::iter::once(None).chain(partitions.map(Some)).map(trends);
    all.filter(|trends| !trends.charts.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use octavo_history::{DeviceSample, Sample};
    use octavo_model::quantity::Mebibytes;

    use super::*;

    #[test]
    fn device_without_current_usage_has_charts() {
        let (node, device) = ("n".parse().unwrap(), "0000:07:00.0".parse().unwrap());
        let mut history = History::new(1 << 20);
        let sample = DeviceSample {
            key: SeriesKey { device, partition: None },
            type_name: None,
            memory: Mebibytes::new(81_559),
            sample: Sample::new([Some(40); Metric::ALL.len()]),
        };
        history.record(1_800_000_000, [(&node, &[sample][..])]);
        let trends = device_trends(&history, &node, device, &[], "GPU 0");
        let names: Vec<&str> = trends[0].charts.iter().map(|chart| chart.name).collect();
        assert_eq!(names, ["Utilization", "Memory", "Power", "Temperature"]);
        assert_eq!((trends.len(), trends[0].of.as_str()), (1, ""));
    }
}
