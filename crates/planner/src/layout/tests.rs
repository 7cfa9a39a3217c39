//! Layouts on real boards.

mod names;
mod roundtrip;
mod select;
mod unverified;
