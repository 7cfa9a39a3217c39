//! Tests of the rules with an H100.

mod allocation;
mod defragmentation;
mod geometry;
mod order;
mod preference;
mod proposal;
mod reservation;
mod simulation;
mod trace_file;

use octavo_model::examples::h100;

use crate::geometry::Geometry;

/// The geometry of an H100 with the five profiles of the published comparisons.
fn five_profiles() -> Geometry {
    Geometry::new(&h100(), |profile| ![15, 20].contains(&profile.id)).unwrap()
}
