//! Work budget of a question.
//!
//! Catalogs and states also arrive over the network, from any client that reports as a node, and any client may request
//! a plan. Therefore all work is counted, and one question has one budget: for all devices, searches, alternatives and
//! feasibility checks.

/// Total budget: about ten to twenty milliseconds (`docs/performance.md`). No existing board comes close to it.
const MOST: u32 = 4_000_000;

/// Budget for alternatives, which are computed after the answer is already known.
const MOST_BESIDES: u32 = 500_000;

/// The work exceeds the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMuch;

/// The remaining budget. One unit is about one comparison of a placement with a set of slices.
#[derive(Debug)]
pub(super) struct Work {
    left: u32,
}

impl Work {
    pub(super) fn new() -> Self {
        Self { left: MOST }
    }

    /// Deducts the cost of the next work.
    pub(super) fn spend(&mut self, amount: usize) -> Result<(), TooMuch> {
        let amount = u32::try_from(amount).unwrap_or(u32::MAX);
        let left = self.left.checked_sub(amount);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(TooMuch)
    }

    /// Runs `part` with a smaller budget, and deducts what it used.
    pub(super) fn besides<T>(&mut self, part: impl FnOnce(&mut Self) -> T) -> T {
        let mut own = Self {
            left: self.left.min(MOST_BESIDES),
        };
        let given = own.left;
        let done = part(&mut own);
        self.left = self.left.saturating_sub(given.saturating_sub(own.left));
        done
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> u32 {
        MOST.saturating_sub(self.left)
    }
}
