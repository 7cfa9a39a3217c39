//! The one integration binary: every test that runs the programs or crosses modules.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and the panic says where"
)]

mod cli;
