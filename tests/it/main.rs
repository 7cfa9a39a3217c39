//! The integration tests, as one program: what ships, against the simulated driver at the C ABI.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed, and says where"
)]

mod driver_contract;
mod driver_life;
mod machine;
