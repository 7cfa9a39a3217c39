//! How much a question may be worked on.
//!
//! Catalogues and states also come over the wire, from whoever says that he is a node, and planning is done for whoever
//! asks. So all that is looked at is counted, and one question has one budget: for all its devices, and for searches, for
//! what would fit instead, and for whether anything does.

/// What one question may look at: about ten to twenty milliseconds' worth (`docs/performance.md`), which no board that exists
/// comes near.
const MOST: u32 = 4_000_000;

/// What may be looked at for the sake of an answer that has been found already: what would fit instead.
const MOST_BESIDES: u32 = 500_000;

/// There is more to look at than there is time for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMuch;

/// What is left of a budget. One unit is one place held against a set of slices, or about as much.
#[derive(Debug)]
pub(super) struct Work {
    left: u32,
}

impl Work {
    /// For one question.
    pub(super) fn new() -> Self {
        Self { left: MOST }
    }

    /// Takes off what the work costs that comes next.
    pub(super) fn spend(&mut self, amount: usize) -> Result<(), TooMuch> {
        let amount = u32::try_from(amount).unwrap_or(u32::MAX);
        let left = self.left.checked_sub(amount);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(TooMuch)
    }

    /// Has `part` done with a smaller budget, and takes off what it used.
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
