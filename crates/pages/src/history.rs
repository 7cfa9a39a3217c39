//! History of a node and its devices.

use octavo_fleet::history::{History, Metric, Points, SeriesKey, SeriesSum, Span, Step};
use octavo_model::id::{NodeName, PciAddress};
use octavo_node::sharing::usage::UnitUsage;
use octavo_store::history::timestamp;

use super::badges::format_time;
use super::chart::{Chart, NO_VALUE, format_value};
use super::sharing::unit_name;

/// History of a node, as a section of its page.
#[derive(Debug)]
pub(super) struct HistorySection {
    /// Time from which there are values, if it is within the last 24 hours.
    pub(super) begins: Option<String>,
    pub(super) charts: Vec<Chart>,
    /// Rows of the table, with a column per chart.
    pub(super) rows: Vec<HistoryRow>,
}

/// Values of an hour.
#[derive(Debug)]
pub(super) struct HistoryRow {
    /// Begin of the hour.
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

impl HistorySection {
    /// History of the last 24 hours; `None` without any value.
    pub(super) fn new(history: &History, node: &NodeName) -> Option<Self> {
        let chart_window = history.window(Span::Day, Step::QuarterHour);
        let hours = history.window(Span::Day, Step::Hour);
        let devices = || {
            let all = history.of_node(node).iter();
            all.filter(|(key, _)| key.partition.is_none()).map(|(_, series)| series)
        };
        let mut section = Self {
            begins: history
                .begins()
                .filter(|begins| *begins > chart_window.start())
                .map(|begins| format_time(timestamp(begins))),
            charts: Vec::new(),
            rows: Vec::new(),
        };
        let mut columns: Vec<(Metric, Points)> = Vec::new();
        for metric in Metric::ALL {
            let points = SeriesSum::of(metric, chart_window, devices());
            if let Some(chart) = Chart::new(metric, node.as_str(), Span::Day, &points) {
                section.charts.push(chart);
                columns.push((metric, SeriesSum::of(metric, hours, devices())));
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
    use octavo_fleet::history::{DeviceSample, Sample};
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
