//! Reuses results for equal devices: sixteen equal devices need one search.

use octavo_model::catalog::{Placement, ProfileCatalog};
use octavo_model::inventory::{MigMode, MigState};

use super::arrange::ArrangementQuery;
use super::profile_table::ProfileTable;
use super::search::Arrangement;
use super::usage::PartsInUse;
use super::work_budget::{BudgetExceeded, WorkBudget};
use super::{Infeasible, alternatives};
use crate::layout::InstanceTarget;

/// Work units for comparing two devices.
const COMPARISON_WORK: usize = 64;

/// Key of equal devices in the search.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeviceKey<'q> {
    pub(super) state: &'q MigState,
    pub(super) instances: &'q [InstanceTarget],
    pub(super) parts_in_use: Vec<PartsInUse>,
    /// Profile and placement of each refusal.
    pub(super) refused: Vec<(u32, Placement)>,
}

/// Key of equal devices without instances.
type EmptyDeviceKey<'q> = (&'q ProfileCatalog, MigMode, &'q [InstanceTarget]);

/// Remaining work budget of a question, and its results so far.
pub(super) struct PlanCache<'q> {
    pub(super) work: WorkBudget,
    forbidden: Vec<(EmptyDeviceKey<'q>, Result<(), Infeasible>)>,
    found: Vec<(DeviceKey<'q>, Option<Arrangement<'q>>)>,
}

impl<'q> PlanCache<'q> {
    pub(super) fn new() -> Self {
        Self { work: WorkBudget::new(), forbidden: Vec::new(), found: Vec::new() }
    }

    /// Returns the hardware rule that forbids `instances` on the empty device, if there is one.
    pub(super) fn check_feasible(
        &mut self,
        state: &'q MigState,
        table: &ProfileTable<'_>,
        instances: &'q [InstanceTarget],
    ) -> Result<Result<(), Infeasible>, BudgetExceeded> {
        let empty = (&state.catalog, state.current, instances);
        self.work.spend(self.forbidden.len().saturating_mul(COMPARISON_WORK))?;
        if let Some((_, known)) = self.forbidden.iter().find(|(of, _)| *of == empty) {
            return Ok(known.clone());
        }
        let rule = alternatives::violated_rule(table, instances, &mut self.work)?;
        let answer = rule.map_or(Ok(()), |rule| {
            let nearest =
                |work: &mut WorkBudget| alternatives::find_alternatives(table, instances, work);
            Err(Infeasible { rule, alternatives: self.work.with_reduced_budget(nearest) })
        });
        self.forbidden.push((empty, answer.clone()));
        Ok(answer)
    }

    /// Returns the best arrangement; `None` if there is none.
    pub(super) fn best(
        &mut self,
        alike: DeviceKey<'q>,
        query: &ArrangementQuery<'_, 'q>,
    ) -> Result<Option<Arrangement<'q>>, BudgetExceeded> {
        self.work.spend(self.found.len().saturating_mul(COMPARISON_WORK))?;
        if let Some((_, known)) = self.found.iter().find(|(of, _)| *of == alike) {
            return Ok(known.clone());
        }
        let found = query.best(&mut self.work)?;
        self.found.push((alike, found.clone()));
        Ok(found)
    }
}
