//! Accelerator policies: the real aggregator rolls them out on a real API server. The test takes the part of the nodes' agents,
//! except in `agents` and `demand`.

mod admission;
mod agents;
mod commands;
mod crashes;
mod demand;
pub(super) mod rig;
mod rollout;
mod scale;
