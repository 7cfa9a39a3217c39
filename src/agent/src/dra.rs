//! Dynamic Resource Allocation: publication of the GPUs of which no layout determines the partitions, the kubelet's claims,
//! and the changes of devices that they need.
//!
//! ```text
//!   kubelet --Prepare--> plugin --claim--> claim_store --targets--> partitioning: a round of the engine
//!                          |                 ^     |                      |
//!                          |                 +-----|------ result --------+
//!                          |                       +-----> publish: ResourceSlices
//!                          +--> claim_specs: the CDI specification of the claim
//! ```

mod backend;
pub mod claim_problems;
pub mod claim_specs;
pub mod claim_store;
pub mod plugin;
mod publish;

pub use self::backend::ClaimBackend;
pub use self::publish::DraPublisher;
