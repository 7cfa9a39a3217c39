//! The one integration binary: linking it once is cheaper than linking a dozen.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what went wrong by panicking; clippy's own exception does not reach helper functions"
)]

mod agent;
mod cli;
mod driver_contract;
mod driver_life;
mod golden;
mod hw_smoke;
mod machine;
mod process;
mod supply_chain;
mod tidy;
