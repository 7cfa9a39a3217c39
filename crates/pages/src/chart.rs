//! Line chart of one series, as SVG.

use std::fmt::Write;

use octavo_history::{Metric, Points, Span};

/// Chart of one metric. The template `parts::trend` draws it.
#[derive(Debug)]
pub(super) struct Chart {
    /// Name of the metric: `Utilization`.
    pub(super) name: &'static str,
    /// Last value: `35 %`.
    pub(super) value: String,
    /// Description for screen readers: `Utilization of GPU 0, last hour: 35 % now, 0 % to 97 %`.
    pub(super) title: String,
    /// Size of the drawing.
    pub(super) width: usize,
    pub(super) height: u32,
    /// Line with a gap where values are missing.
    pub(super) path: String,
}

/// Text for a time without a value.
pub(super) const NO_VALUE: &str = "–";
/// Distance between two points.
const POINT_WIDTH: usize = 4;
/// Height of the drawing. Half of the line's width is outside of the values' range.
const HEIGHT: u32 = 32;
const MARGIN: u32 = 1;
/// Lowest upper end of a temperature scale, in degrees Celsius.
const MIN_TOP_CELSIUS: u32 = 100;
/// Lowest upper end of a power scale per device, in watts.
const MIN_TOP_WATTS: u32 = 400;
/// Power from which it is in kilowatts, in watts.
const MIN_KILOWATTS: u32 = 10_000;

impl Chart {
    /// Chart of the metric of a device, a node or the fleet; `None` without a value.
    pub(super) fn new(metric: Metric, of: &str, span: Span, points: &Points) -> Option<Self> {
        let known = points.values.iter().copied().flatten();
        let (least, most) = (known.clone().min()?, known.max()?);
        let latest = points.values.last().copied().flatten();
        let top = match metric {
            Metric::Utilization | Metric::Memory | Metric::Allocation => 100,
            Metric::Power => {
                let devices = points.devices.iter().copied().max().unwrap_or_default().max(1);
                most.max(devices.saturating_mul(MIN_TOP_WATTS))
            }
            Metric::Temperature => most.max(MIN_TOP_CELSIUS),
        };
        let name = metric_name(metric);
        let now = latest.map_or_else(
            || "no current value".to_owned(),
            |latest| format!("{} now", format_value(metric, latest)),
        );
        let of = if of.is_empty() { String::new() } else { format!(" of {of}") };
        let period = match span {
            Span::Hour => "last hour",
            Span::Day => "last 24 hours",
        };
        let (from, to) = (format_value(metric, least), format_value(metric, most));
        Some(Self {
            name,
            value: latest
                .map_or_else(|| NO_VALUE.to_owned(), |latest| format_value(metric, latest)),
            title: format!("{name}{of}, {period}: {now}, {from} to {to}"),
            width: points.values.len().saturating_sub(1).saturating_mul(POINT_WIDTH),
            height: HEIGHT,
            path: path(&points.values, top),
        })
    }
}

/// Name of a metric.
pub(super) fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Utilization => "Utilization",
        Metric::Memory => "Memory",
        Metric::Power => "Power",
        Metric::Temperature => "Temperature",
        Metric::Allocation => "Allocation",
    }
}

/// Value with its unit: `35 %`.
pub(super) fn format_value(metric: Metric, value: u32) -> String {
    match metric {
        Metric::Utilization | Metric::Memory | Metric::Allocation => format!("{value} %"),
        Metric::Power if value >= MIN_KILOWATTS => format!("{:.1} kW", f64::from(value) / 1000.0),
        Metric::Power => format!("{value} W"),
        Metric::Temperature => format!("{value} °C"),
    }
}

/// Path of a line through the values, from 0 to `top`. A gap begins a new line, and a single value is a short one.
fn path(values: &[Option<u32>], top: u32) -> String {
    let mut path = String::new();
    let mut x = 0_usize;
    for line in values.chunk_by(|a, b| a.is_some() == b.is_some()) {
        for (number, value) in line.iter().enumerate() {
            if let Some(value) = value {
                let before = if number == 0 { 'M' } else { ' ' };
                // Writing to a string does not fail.
                let _ok = write!(path, "{before}{x} {}", height_of(*value, top));
            }
            x = x.saturating_add(POINT_WIDTH);
        }
        if let [Some(_)] = line {
            // At the right edge, a line to the right would be outside of the drawing.
            let is_last = x == values.len().saturating_mul(POINT_WIDTH);
            path.push_str(if is_last { "h-1" } else { "h1" });
        }
    }
    path
}

/// Distance of a value from the upper edge.
fn height_of(value: u32, top: u32) -> u64 {
    let range = u64::from(HEIGHT - 2 * MARGIN);
    let above = u64::from(top.saturating_sub(value)).saturating_mul(range);
    let top = u64::from(top.max(1));
    u64::from(MARGIN).saturating_add(above.saturating_add(top / 2) / top)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[Option<u32>]) -> Points {
        Points { values: values.to_vec(), devices: vec![1; values.len()] }
    }

    #[test]
    fn gap_interrupts_the_line() {
        let values = [Some(0), Some(50), None, Some(100), None, None, Some(200), Some(10)];
        assert_eq!(path(&values, 100), "M0 31 4 16M12 1h1M24 1 28 28");
        assert_eq!(path(&[None, None], 100), "");
        assert_eq!(path(&[Some(0), None, Some(100)], 100), "M0 31h1M8 1h-1");
        assert_eq!(path(&[Some(0), Some(0)], 0), "M0 1 4 1");
    }

    #[test]
    fn chart_describes_its_values() {
        let chart = |metric, values: &[Option<u32>]| {
            Chart::new(metric, "GPU 0", Span::Hour, &points(values)).unwrap()
        };
        let one = chart(Metric::Utilization, &[Some(97), None, Some(0), Some(35)]);
        assert_eq!(one.title, "Utilization of GPU 0, last hour: 35 % now, 0 % to 97 %");
        assert_eq!(
            (one.name, one.value.as_str(), one.width, one.height),
            ("Utilization", "35 %", 12, 32)
        );
        let other = chart(Metric::Power, &[Some(5600), None]);
        assert_eq!(other.title, "Power of GPU 0, last hour: no current value, 5600 W to 5600 W");
        assert_eq!(format_value(Metric::Power, 15_640), "15.6 kW");
        assert_eq!((other.value.as_str(), other.path.as_str()), ("–", "M0 1h1"));
        // A device that draws little power has a low line.
        let idle = chart(Metric::Power, &[Some(40), Some(40)]);
        assert_eq!(idle.path, "M0 28 4 28");
        let fleet = Chart::new(Metric::Temperature, "", Span::Day, &points(&[Some(40)])).unwrap();
        assert_eq!(fleet.title, "Temperature, last 24 hours: 40 °C now, 40 °C to 40 °C");
        assert!(Chart::new(Metric::Memory, "", Span::Day, &points(&[None])).is_none());
    }
}
