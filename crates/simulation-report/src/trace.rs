//! Section of a trace.

use octavo_demand::simulation::TraceReport;
use octavo_model::text::{count_noun, group_thousands, printable};

use crate::bars::{self, BarChart};
use crate::requests::Requests;
use crate::series::SeriesCharts;

/// Charts of a trace.
#[derive(Debug)]
pub(crate) struct Section {
    /// Number in the report, from 1.
    pub(crate) number: usize,
    /// Mix or file.
    pub(crate) name: String,
    /// Numbers of requests, GPUs and slices.
    pub(crate) summary: String,
    /// Acceptance, unless requests wait, operations and slices.
    pub(crate) charts: Vec<BarChart>,
    /// Waiting times; empty if requests do not wait.
    pub(crate) waits: Vec<BarChart>,
    /// Slices over time.
    pub(crate) series: Option<SeriesCharts>,
}

impl Section {
    pub(crate) fn new(
        number: usize,
        trace: &TraceReport,
        requests: Requests,
        has_waits: bool,
    ) -> Self {
        let comparison = &trace.comparison;
        let waits = if has_waits { bars::waiting_times(comparison) } else { Vec::new() };
        let mut charts = vec![bars::operations(comparison), bars::slices(comparison)];
        // Requests that wait get an instance sooner or later.
        if !has_waits {
            charts.insert(0, bars::acceptance(comparison));
        }
        Self {
            number,
            name: printable(&trace.trace),
            summary: format!(
                "{}, {} with {} slices.{}",
                requests.counted(comparison.requests),
                count_noun(trace.gpus, "GPU", "GPUs"),
                group_thousands(&trace.slices.to_string()),
                if has_waits { " Every request gets an instance." } else { "" }
            ),
            charts,
            waits,
            series: SeriesCharts::new(&comparison.strategies, trace.slices),
        }
    }
}
