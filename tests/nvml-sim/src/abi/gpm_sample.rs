//! GPM samples of clients.

use crate::model::{Code, Slot};

/// Buffer of a client; empty until a sample is read into it.
pub(super) type SampleBuffer = Option<Sample>;

/// Load of a GPU or GPU instance at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) slot: Slot,
    /// Serial number of the GPU instance; `None` for the whole GPU.
    pub(super) instance: Option<u64>,
    pub(super) taken_ns: u64,
    /// Compute and memory, percent.
    pub(super) load: (u32, u32),
}

impl Sample {
    /// Mean load until a later sample of the same GPU or GPU instance.
    pub(super) fn mean_with(&self, later: &Self) -> Result<(f64, f64), Code> {
        let is_same = (self.slot, self.instance) == (later.slot, later.instance);
        if !is_same || self.taken_ns >= later.taken_ns {
            return Err(Code::InvalidArgument);
        }
        let mean = |one: u32, other: u32| f64::midpoint(one.into(), other.into());
        Ok((mean(self.load.0, later.load.0), mean(self.load.1, later.load.1)))
    }
}
