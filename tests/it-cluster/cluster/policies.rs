//! Accelerator policies: the real aggregator rolls them out on a real API server. The test takes the part of the nodes' agents.

mod admission;
mod agents;
mod commands;
mod crashes;
pub(super) mod rig;
mod rollout;
mod scale;
