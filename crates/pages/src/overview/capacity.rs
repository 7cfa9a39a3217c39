//! Capacity by type: free units of whole devices, of partitions by profile, and of shared devices.

use std::cmp::Reverse;

use octavo_fleet::access::Visibility;
use octavo_fleet::availability::{Availability, CountBasis, Row, Shape, UnitType};
use octavo_model::quantity::Mebibytes;

use crate::availability::{type_anchor, use_of};
use crate::bar::{Bar, legend_of};

/// Capacity of a type.
#[derive(Debug)]
pub(super) struct CapacityRow {
    pub(super) id: String,
    pub(super) href: String,
    pub(super) product: String,
    /// Canonical name.
    pub(super) name: String,
    /// Whole devices, partitions and cores, shared units.
    pub(super) columns: [CapacityColumn; 3],
    /// Pods that wait for units of the type.
    pub(super) pending: u64,
    /// Free memory, by which the rows are ordered; units without known memory count as one MiB.
    free: u64,
}

/// Units of one column.
#[derive(Debug)]
pub(super) struct CapacityColumn {
    pub(super) label: &'static str,
    pub(super) cells: Vec<CapacityCell>,
}

/// Units of one shape.
#[derive(Debug)]
pub(super) struct CapacityCell {
    /// Name of the shape, unless the column is of this shape only.
    pub(super) shape: Option<String>,
    /// Number of free units, or `-` if it is unknown.
    pub(super) free: String,
    pub(super) total: u64,
    pub(super) bar: Bar,
}

/// Rows of the types that `visibility` shows, those with the most free capacity first.
pub(super) fn rows(availability: &Availability, visibility: &Visibility) -> Vec<CapacityRow> {
    let types = availability.rows.chunk_by(|one, other| one.key.kind == other.key.kind);
    let seen = types.filter_map(|rows| {
        let kind = &rows.first()?.key.kind;
        visibility
            .shows_type(kind.as_str())
            .then(|| CapacityRow::of(kind, rows, availability.basis))
    });
    // A type that no node has is shown with the pending pods only.
    let mut rows: Vec<CapacityRow> = seen.filter(CapacityRow::has_units).collect();
    rows.sort_by_key(|row| Reverse(row.free));
    rows
}

impl CapacityRow {
    fn of(kind: &UnitType, rows: &[Row], basis: CountBasis) -> Self {
        let column = |label| CapacityColumn { label, cells: Vec::new() };
        let mut all = Self {
            id: format!("capacity-{}", kind.as_str()),
            href: format!("/availability#{}", type_anchor(kind)),
            product: kind.product_name(),
            name: kind.as_str().to_owned(),
            columns: [column("Whole"), column("Partitions"), column("Shared")],
            pending: pending(rows),
            free: 0,
        };
        for row in rows.iter().filter(|row| row.nodes > 0) {
            all.add(row, basis);
        }
        all
    }

    fn has_units(&self) -> bool {
        self.columns.iter().any(|column| !column.cells.is_empty())
    }

    fn add(&mut self, row: &Row, basis: CountBasis) {
        let memory = row.memory.map_or(1, Mebibytes::get);
        let is_shared = !row.key.shape.is_exclusive();
        // A shared unit has only a part of the memory.
        let free = if is_shared { row.free } else { row.free.saturating_mul(memory) };
        self.free = self.free.saturating_add(free);
        let [whole, partitions, shared] = &mut self.columns;
        let (column, shape) = match &row.key.shape {
            Shape::Device => (whole, None),
            Shape::Mig(name) | Shape::AmdPartition(name) => (partitions, Some(name.clone())),
            Shape::NeuronCore => (partitions, Some("core".to_owned())),
            Shape::TimeSlice => (shared, None),
            Shape::MigTimeSlice(name) => (shared, Some(name.clone())),
        };
        column.cells.push(cell(row, shape, basis));
    }
}

/// Number of pods that wait for units of a type with these rows. A pod counts in each row of the resource that it
/// requests.
fn pending(rows: &[Row]) -> u64 {
    let resources = rows.chunk_by(|one, other| one.key.resource == other.key.resource);
    let most = resources.filter_map(|rows| rows.iter().map(|row| row.pending.pods).max());
    most.fold(0, u64::saturating_add)
}

fn cell(row: &Row, shape: Option<String>, basis: CountBasis) -> CapacityCell {
    let keys = legend_of(use_of(row, basis));
    CapacityCell {
        shape,
        free: row.known_free().map_or_else(|| "-".to_owned(), |free| free.to_string()),
        total: row.capacity,
        bar: Bar::from_legend(&keys, 9),
    }
}
