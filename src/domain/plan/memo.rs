//! Reuses results for equal devices: sixteen equal devices need one search.

use super::arrange::Wish;
use super::board::Board;
use super::infeasible::Infeasible;
use super::offers;
use super::pins::Pin;
use super::search::Found;
use super::work::{TooMuch, Work};
use crate::domain::catalog::{Placement, ProfileCatalog};
use crate::domain::inventory::{MigMode, MigState};
use crate::domain::layout::InstanceTarget;

/// Work units for comparing two devices.
const COMPARISON: usize = 64;

/// Key of equal devices in the search.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Alike<'q> {
    pub(super) state: &'q MigState,
    pub(super) instances: &'q [InstanceTarget],
    pub(super) pins: Vec<Pin>,
    /// Profile and placement of each refusal.
    pub(super) refused: Vec<(u32, Placement)>,
}

/// Key of equal devices without instances.
type Empty<'q> = (&'q ProfileCatalog, MigMode, &'q [InstanceTarget]);

/// Remaining work budget of a question, and its results so far.
pub(super) struct Memo<'q> {
    pub(super) work: Work,
    forbidden: Vec<(Empty<'q>, Result<(), Infeasible>)>,
    found: Vec<(Alike<'q>, Option<Found<'q>>)>,
}

impl<'q> Memo<'q> {
    pub(super) fn new() -> Self {
        Self {
            work: Work::new(),
            forbidden: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Returns the hardware rule that forbids `instances` on the empty device, if there is one.
    pub(super) fn forbidden(
        &mut self,
        state: &'q MigState,
        board: &Board<'_>,
        instances: &'q [InstanceTarget],
    ) -> Result<Result<(), Infeasible>, TooMuch> {
        let empty = (&state.catalog, state.current, instances);
        self.work
            .spend(self.forbidden.len().saturating_mul(COMPARISON))?;
        if let Some((_, known)) = self.forbidden.iter().find(|(of, _)| *of == empty) {
            return Ok(known.clone());
        }
        let rule = offers::forbids(board, instances, &mut self.work)?;
        let answer = rule.map_or(Ok(()), |rule| {
            let nearest = |work: &mut Work| offers::nearest(board, instances, work);
            Err(Infeasible {
                rule,
                nearest: self.work.besides(nearest),
            })
        });
        self.forbidden.push((empty, answer.clone()));
        Ok(answer)
    }

    /// Returns the best arrangement; `None` if there is none.
    pub(super) fn best(
        &mut self,
        alike: Alike<'q>,
        wish: &Wish<'_, 'q>,
    ) -> Result<Option<Found<'q>>, TooMuch> {
        self.work
            .spend(self.found.len().saturating_mul(COMPARISON))?;
        if let Some((_, known)) = self.found.iter().find(|(of, _)| *of == alike) {
            return Ok(known.clone());
        }
        let found = wish.best(&mut self.work)?;
        self.found.push((alike, found.clone()));
        Ok(found)
    }
}
