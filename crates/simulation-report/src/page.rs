//! Page of a simulation, without external files, with a section for each trace.

use askama::Template;
use octavo_cost_report::STYLE;
use octavo_demand::simulation::{Discipline, Strategy, TraceReport};
use octavo_model::text::{count_noun, join, printable};

use crate::bars::{Mark, SLICES};
use crate::requests::Requests;
use crate::text::{count, duration};
use crate::trace::Section;

/// Results of a simulation and its inputs.
#[derive(Debug)]
pub struct SimulationReport {
    /// Version of Octavo.
    pub version: String,
    /// Product names of the GPUs in the inventory, and their numbers.
    pub gpus: Vec<(String, usize)>,
    /// Number of simulated GPUs of each model, if it differs from the inventory.
    pub gpus_per_model: Option<u32>,
    /// Source of the requests.
    pub requests: Requests,
    /// Requests that do not fit.
    pub discipline: Discipline,
    /// Notes on the requests.
    pub notes: Vec<String>,
    /// Results of each trace.
    pub traces: Vec<TraceReport>,
}

#[derive(Template)]
#[template(path = "simulation.html")]
struct SimulationPage {
    style: &'static str,
    /// Names of the traces.
    scope: String,
    /// Name and value of each input.
    inputs: Vec<(&'static str, String)>,
    notes: Vec<String>,
    sections: Vec<Section>,
    /// Number of runs of each trace.
    runs: u32,
    terms: Terms,
}

/// Terms on the page that need an explanation.
#[derive(Debug)]
struct Terms {
    /// The strategy `octavo`.
    octavo: bool,
    /// Other strategies.
    others: bool,
    /// The acceptance of one pool.
    pool: bool,
}

impl SimulationReport {
    /// Renders the page.
    ///
    /// # Errors
    /// Fails if the template cannot be rendered.
    pub fn html(&self) -> Result<String, askama::Error> {
        let has_waits = self.discipline != Discipline::Loss;
        let traces = self.traces.iter().zip(1..);
        let sections =
            traces.map(|(trace, number)| Section::new(number, trace, self.requests, has_waits));
        let page = SimulationPage {
            style: STYLE,
            scope: join(self.traces.iter().map(|trace| printable(&trace.trace)), ", "),
            inputs: self.inputs(),
            notes: self.notes.iter().map(|note| printable(note)).collect(),
            sections: sections.collect(),
            runs: self.requests.runs(),
            terms: self.terms(),
        };
        // A template ends without a line break.
        Ok(page.render()? + "\n")
    }

    fn terms(&self) -> Terms {
        let results = || self.traces.iter().flat_map(|trace| &trace.comparison.strategies);
        Terms {
            octavo: results().any(|result| result.strategy == Strategy::Octavo),
            others: results().any(|result| result.strategy != Strategy::Octavo),
            pool: self.traces.iter().any(|trace| trace.comparison.pool_acceptance.is_some()),
        }
    }

    fn inputs(&self) -> Vec<(&'static str, String)> {
        let gpus = self
            .gpus
            .iter()
            .map(|(name, number)| format!("{} {}", count(*number), printable(name)));
        let mut inputs = vec![("GPUs in the inventory", join(gpus, ", "))];
        if let Some(gpus) = self.gpus_per_model {
            inputs.push(("GPUs of each simulated model", count(gpus as usize)));
        }
        match self.requests {
            Requests::File => inputs.push(("Requests", "from a file; all are counted".to_owned())),
            Requests::Random { count: number, warm_up, runs, load } => {
                let requests = format!(
                    "random, {} in each run; the first {} are not counted",
                    count(number),
                    count(warm_up)
                );
                let seeds = match runs {
                    0 | 1 => "0".to_owned(),
                    several => format!("0 to {}", several.saturating_sub(1)),
                };
                inputs.push(("Requests", requests));
                inputs.push(("Load", format!("{load} times the slices")));
                inputs.push(("Seeds", seeds));
            }
        }
        let unplaced = match self.discipline {
            Discipline::Loss => "are lost".to_owned(),
            Discipline::Queue { reserve_after: None, .. } => "wait".to_owned(),
            Discipline::Queue { reserve_after: Some(after), .. } => {
                format!("wait; a GPU is reserved for the oldest after {}", duration(after))
            }
        };
        inputs.push(("Requests that do not fit", unplaced));
        if let Discipline::Queue { limits: Some(limits), .. } = self.discipline {
            let demand = limits.demand;
            let text = format!(
                "hold {}, {} of a node per hour, {} per node",
                demand.hold,
                count_noun(demand.changes_per_hour as usize, "change", "changes"),
                count_noun(limits.gpus_per_node.get(), "GPU", "GPUs"),
            );
            inputs.push(("Limits of the strategy octavo", text));
        }
        inputs.push(("Version", format!("Octavo {}", self.version)));
        inputs
    }
}

#[cfg(test)]
mod tests;
