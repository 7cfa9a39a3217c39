//! Plain text for terminals and logs: tables, folded lines, colors, and frames of memory slices.

pub mod box_drawing;
pub mod devices;
pub mod inventory;
pub mod output;
pub mod slice_frame;
pub mod style;
pub mod text;

#[cfg(test)]
#[path = "../../../tests/support/inventories/mod.rs"]
mod inventories;
