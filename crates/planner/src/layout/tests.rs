//! Layouts on real boards.

mod claims;
mod names;
mod roundtrip;
mod select;
mod unverified;
