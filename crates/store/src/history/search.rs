//! Series that match a query, calculated in small steps.

use std::collections::BTreeMap;

use octavo_history::document::SeriesRow;
use octavo_history::{History, Points, Series, SeriesKey, SeriesSum, Window};
use octavo_model::id::{NodeName, TypeName};

use super::query::{Grouping, Query};
use crate::fleet::Fleet;
use crate::query::QueryError;

/// Search in progress. Pure: the caller yields between the steps.
#[derive(Debug)]
pub struct Search<'a> {
    history: &'a History,
    query: &'a Query,
    window: Window,
    /// Remaining nodes; the next one is last.
    nodes: Vec<&'a NodeName>,
    /// The current node, its remaining series, and the sum of the others.
    node: Option<&'a NodeName>,
    series: &'a [(SeriesKey, Series)],
    sum: Option<SeriesSum>,
    /// Groups of several nodes.
    groups: BTreeMap<Option<TypeName>, SeriesSum>,
    /// Groups whose totals are in the history.
    totals: Vec<SeriesRow>,
    items: Vec<SeriesRow>,
    most: usize,
}

/// Maximum number of values of an answer: about 400 KiB.
const MAX_VALUES: usize = 100_000;
/// Maximum number of groups of several nodes, because peers choose the types.
const MAX_GROUPS: usize = 256;
/// Number of series that are decoded per step.
const SERIES_PER_STEP: usize = 50;

impl<'a> Search<'a> {
    /// Prepares the search in the history of `fleet`, without decoding.
    pub fn new(history: &'a History, fleet: &Fleet, query: &'a Query) -> Self {
        Self::within(history, fleet, query, MAX_VALUES)
    }

    /// Like [`new`](Self::new), with a limit of values.
    fn within(history: &'a History, fleet: &Fleet, query: &'a Query, most: usize) -> Self {
        let is_wanted = |name: &NodeName| {
            let is_named = query.node.as_ref().is_none_or(|node| node == name);
            let labels = || fleet.nodes.get(name).map(|node| &node.labels);
            let has_labels = || labels().is_some_and(|labels| query.selector.matches(labels));
            is_named && (query.selector.is_empty() || has_labels())
        };
        let mut nodes: Vec<&NodeName> = history.nodes().filter(|name| is_wanted(name)).collect();
        nodes.reverse();
        let step = query.step.unwrap_or_else(|| query.window.default_step());
        let window = history.window(query.window, step);
        let totals = query.totals(history, window);
        if totals.is_some() {
            nodes.clear();
        }
        Self {
            history,
            query,
            window,
            nodes,
            node: None,
            series: &[],
            sum: None,
            groups: BTreeMap::new(),
            totals: totals.unwrap_or_default(),
            items: Vec::new(),
            most,
        }
    }

    /// Points in time of the series.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Decodes a bounded number of series; returns whether more have to be decoded.
    pub fn step(&mut self) -> Result<bool, QueryError> {
        for _ in 0..SERIES_PER_STEP {
            if let Some(((key, series), rest)) = self.series.split_first() {
                self.series = rest;
                if self.query.accepts(key, series) {
                    self.take(key, series)?;
                }
                continue;
            }
            self.end_node()?;
            let Some(node) = self.nodes.pop() else {
                return Ok(false);
            };
            self.node = Some(node);
            self.series = self.history.of_node(node);
        }
        Ok(true)
    }

    /// Returns the series.
    pub fn items(mut self) -> Result<Vec<SeriesRow>, QueryError> {
        for row in std::mem::take(&mut self.totals) {
            self.push(row)?;
        }
        for (type_name, sum) in std::mem::take(&mut self.groups) {
            let row = SeriesRow { type_name, ..grouped(sum.points()) };
            self.push(row)?;
        }
        Ok(self.items)
    }

    /// Adds a series of the current node.
    fn take(&mut self, key: &SeriesKey, series: &Series) -> Result<(), QueryError> {
        let (metric, window) = (self.query.metric, self.window);
        let is_device = key.partition.is_none();
        match self.query.group_by {
            Grouping::Device => {
                let points = SeriesSum::of(metric, window, [series]);
                if is_device || points.values.iter().any(Option::is_some) {
                    self.push(SeriesRow {
                        node: self.node.map(ToString::to_string),
                        device: Some(key.device.to_string()),
                        partition: key.partition.as_deref().map(str::to_owned),
                        type_name: series.type_name().cloned(),
                        devices: None,
                        ..grouped(points)
                    })?;
                }
            }
            Grouping::Node if is_device => {
                self.sum.get_or_insert_with(|| SeriesSum::new(metric, window)).add(series);
            }
            Grouping::Type | Grouping::All if is_device => {
                let is_by_type = self.query.group_by == Grouping::Type;
                let group = series.type_name().filter(|_| is_by_type).cloned();
                if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&group) {
                    return Err(QueryError::TooManyTypes { most: MAX_GROUPS });
                }
                let sum = || SeriesSum::new(metric, window);
                self.groups.entry(group).or_insert_with(sum).add(series);
            }
            Grouping::Node | Grouping::Type | Grouping::All => {}
        }
        Ok(())
    }

    /// Adds the row of the current node, if series are grouped by node.
    fn end_node(&mut self) -> Result<(), QueryError> {
        let Some(sum) = self.sum.take() else { return Ok(()) };
        let node = self.node.map(ToString::to_string);
        self.push(SeriesRow { node, ..grouped(sum.points()) })
    }

    fn push(&mut self, row: SeriesRow) -> Result<(), QueryError> {
        self.items.push(row);
        if self.items.len().saturating_mul(self.window.points()) > self.most {
            return Err(QueryError::TooManyValues { most: self.most });
        }
        Ok(())
    }
}

impl Query {
    fn accepts(&self, key: &SeriesKey, series: &Series) -> bool {
        self.device.is_none_or(|device| device == key.device)
            && self.accepts_type(series.type_name())
    }

    fn accepts_type(&self, type_name: Option<&TypeName>) -> bool {
        self.types.is_empty() || self.types.iter().any(|one| one.as_ref() == type_name)
    }

    /// The totals in the history, if they are the answer. Their cost does not depend on the number of devices.
    fn totals(&self, history: &History, window: Window) -> Option<Vec<SeriesRow>> {
        let is_filtered = self.node.is_some() || self.device.is_some() || !self.selector.is_empty();
        if is_filtered || !history.has_all_types(window) {
            return None;
        }
        let sum = |accepts: &dyn Fn(Option<&TypeName>) -> bool| {
            grouped(history.of_types(self.metric, window, accepts))
        };
        let mut types = history.types().filter(|name| self.accepts_type(*name));
        let rows = match self.group_by {
            Grouping::Device | Grouping::Node => return None,
            Grouping::Type => {
                let row = |name: Option<&TypeName>| SeriesRow {
                    type_name: name.cloned(),
                    ..sum(&|other| other == name)
                };
                types.map(row).collect()
            }
            Grouping::All if types.next().is_none() => Vec::new(),
            Grouping::All if self.types.is_empty() => {
                vec![grouped(history.of_fleet(self.metric, window))]
            }
            Grouping::All => vec![sum(&|name| self.accepts_type(name))],
        };
        Some(rows)
    }
}

/// Row of a group.
fn grouped(points: Points) -> SeriesRow {
    SeriesRow {
        node: None,
        device: None,
        partition: None,
        type_name: None,
        values: points.values,
        devices: Some(points.devices),
    }
}

#[cfg(test)]
mod tests {
    use octavo_history::{DeviceSample, Metric, SAMPLE_SECONDS, Sample, Span, Step};
    use octavo_model::id::PciAddress;
    use octavo_model::quantity::Mebibytes;

    use super::*;

    fn sample(device: u8, partition: Option<&str>, kind: &str, value: u32) -> DeviceSample {
        let pci = PciAddress::new(0, device, 0, 0).unwrap();
        let memory = Some(value);
        let values = if partition.is_some() {
            [None, memory, None, None, None]
        } else {
            [Some(value), memory, Some(value * 8), Some(value), None]
        };
        DeviceSample {
            key: SeriesKey { device: pci, partition: partition.map(Into::into) },
            type_name: kind.parse().ok(),
            memory: Mebibytes::new(1000),
            sample: Sample::new(values),
        }
    }

    /// Two nodes with three devices and a partition, after two samples.
    fn history() -> History {
        let mut history = History::new(1 << 20);
        let a: NodeName = "a".parse().unwrap();
        let b: NodeName = "b".parse().unwrap();
        for (tick, value) in [(0, 10), (1, 20)] {
            let of_a = [
                sample(1, None, "nvidia-h100-80gb", value),
                sample(1, Some("MIG-1"), "nvidia-h100-80gb", 90),
                sample(2, None, "", 40),
            ];
            let of_b = [sample(1, None, "nvidia-h100-80gb", value + 20)];
            let seconds = 1_800_000_000 + tick * SAMPLE_SECONDS;
            history.record(seconds, [(&a, &of_a[..]), (&b, &of_b[..])]);
        }
        history
    }

    fn found(query: &Query) -> Result<Vec<SeriesRow>, QueryError> {
        let (history, fleet) = (history(), Fleet::default());
        let mut search = Search::new(&history, &fleet, query);
        while search.step()? {}
        search.items()
    }

    /// Node, device, partition and type of each row, and its last two values.
    fn rows(query: &Query) -> Vec<(String, Vec<u32>)> {
        let rows = found(query).unwrap().into_iter().map(|row| {
            let type_name = row.type_name.map(|name| name.to_string());
            let names = [row.node, row.device, row.partition, type_name];
            let names: Vec<String> = names.into_iter().flatten().collect();
            assert_eq!(row.values.len(), 240);
            (names.join(" "), row.values.into_iter().flatten().collect())
        });
        rows.collect()
    }

    #[test]
    fn series_are_those_of_devices_nodes_types_or_all() {
        let with = |group_by, metric| rows(&Query { metric, group_by, ..Query::default() });
        let row = |name: &str, values: &[u32]| (name.to_owned(), values.to_vec());
        assert_eq!(
            with(Grouping::Device, Metric::Memory),
            [
                row("a 0000:01:00.0 nvidia-h100-80gb", &[10, 20]),
                row("a 0000:01:00.0 MIG-1 nvidia-h100-80gb", &[90, 90]),
                row("a 0000:02:00.0", &[40, 40]),
                row("b 0000:01:00.0 nvidia-h100-80gb", &[30, 40]),
            ]
        );
        assert_eq!(with(Grouping::Device, Metric::Utilization).len(), 3);
        assert_eq!(
            with(Grouping::Node, Metric::Utilization),
            [row("a", &[25, 30]), row("b", &[30, 40])]
        );
        assert_eq!(
            with(Grouping::Type, Metric::Power),
            [row("", &[320, 320]), row("nvidia-h100-80gb", &[320, 480])]
        );
        assert_eq!(with(Grouping::All, Metric::Temperature), [row("", &[40, 40])]);
        assert_eq!(with(Grouping::All, Metric::Allocation), [row("", &[])]);
    }

    #[test]
    fn filters_are_combined() {
        let query = Query { group_by: Grouping::Device, ..Query::default() };
        let h100 = vec!["nvidia-h100-80gb".parse().ok()];
        for (query, expected) in [
            (Query { node: "b".parse().ok(), ..query.clone() }, 1),
            (Query { node: "c".parse().ok(), ..query.clone() }, 0),
            (Query { device: "0000:01:00.0".parse().ok(), ..query.clone() }, 2),
            (Query { types: h100, ..query.clone() }, 2),
            (Query { types: vec![None], ..query.clone() }, 1),
            // The nodes do not report any more, so their labels are unknown.
            (Query { selector: "a".parse().unwrap(), ..query }, 0),
        ] {
            assert_eq!(found(&query).unwrap().len(), expected, "{query:?}");
        }
    }

    #[test]
    fn too_large_answer_is_refused() {
        let (history, fleet) = (history(), Fleet::default());
        let query = Query { group_by: Grouping::Device, ..Query::default() };
        let within = |most| {
            let mut search = Search::within(&history, &fleet, &query, most);
            while search.step()? {}
            search.items().map(|items| items.len())
        };
        assert_eq!(within(720), Ok(3));
        assert_eq!(within(719), Err(QueryError::TooManyValues { most: 719 }));
    }

    #[test]
    fn too_many_types_are_refused() {
        let mut history = History::new(1 << 24);
        let samples: Vec<DeviceSample> =
            (0..=250).map(|number| sample(number, None, &format!("type-{number}"), 10)).collect();
        let nodes: [NodeName; 2] = ["a".parse().unwrap(), "b".parse().unwrap()];
        let more: Vec<DeviceSample> =
            (0..9).map(|number| sample(number, None, &format!("other-{number}"), 10)).collect();
        history.record(1_800_000_000, [(&nodes[0], &samples[..]), (&nodes[1], &more[..])]);
        let (fleet, query) = (Fleet::default(), Query::default());
        let mut search = Search::new(&history, &fleet, &query);
        let mut steps = 0;
        let error = loop {
            match search.step() {
                Ok(_) => steps += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, QueryError::TooManyTypes { most: 256 });
        assert_eq!((steps, error.parameter()), (5, "groupBy"));
    }

    #[test]
    fn window_has_the_default_step_of_its_span() {
        let (history, fleet) = (history(), Fleet::default());
        for (window, step, seconds) in
            [(Span::Hour, None, 15), (Span::Day, None, 300), (Span::Day, Some(Step::Hour), 3600)]
        {
            let query = Query { window, step, ..Query::default() };
            let search = Search::new(&history, &fleet, &query);
            assert_eq!(search.window().step_seconds(), seconds);
        }
    }
}
