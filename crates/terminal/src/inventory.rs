//! An inventory as text: a table, and pictures of the slices of its devices.
//!
//! ```text
//! summary    driver, or why there is none              summary.rs
//! table      one row per device                        table.rs
//! neuron     information from Neuron's driver          neuron.rs
//! pictures   slices of MIG-capable GPUs                picture.rs
//! AMD        information from AMD's driver             amd.rs
//! problems   failures, and what could not be read      problems.rs
//! ```

mod amd;
mod format;
mod neuron;
mod picture;
mod problems;
mod summary;
mod table;

use octavo_model::inventory::Inventory;

pub use self::format::Columns;
use crate::style::Colors;
use crate::text::Headers;

/// Formats the inventory as text.
pub fn format_inventory(
    inventory: &Inventory,
    columns: Columns,
    headers: Headers,
    colors: Colors,
) -> String {
    let rows = table::table(inventory, columns, headers, colors);
    if headers == Headers::Hidden {
        return rows;
    }
    let parts = [
        summary::summary(inventory, colors),
        rows,
        neuron::devices(inventory, columns, colors),
        picture::pictures(inventory, colors),
        amd::devices(inventory, columns, colors),
        problems::problems(inventory, colors),
    ];
    let shown: Vec<&str> =
        parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use octavo_model::catalog::Placement;
    use octavo_model::inventory::Mig;
    use proptest::prelude::*;

    use super::*;
    use crate::inventories::inventory;

    /// Moves any placement into the first slices, where it is drawn and overlaps.
    fn near(placement: &mut Placement) {
        placement.start %= 16;
        placement.size %= 9;
    }

    fn squeezed(mut inventory: Inventory) -> Inventory {
        for device in &mut inventory.devices {
            if let Mig::Capable(state) = &mut device.mig {
                let mut profiles = state.catalog.profiles().to_vec();
                let offered = profiles.iter_mut().flat_map(|profile| &mut profile.placements);
                let taken = state.gpu_instances.iter_mut().map(|gi| &mut gi.placement);
                offered.chain(taken).for_each(near);
                state.catalog = octavo_model::catalog::ProfileCatalog::new(profiles);
            }
        }
        inventory
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn any_inventory_can_be_formatted(inventory in inventory()) {
            for inventory in [inventory.clone(), squeezed(inventory)] {
                for columns in [Columns::Default, Columns::All] {
                    let text = format_inventory(&inventory, columns, Headers::Shown, Colors::Off);
                    let steers = text.contains(char::from(27));
                    prop_assert!(!steers);
                    let rows = format_inventory(&inventory, columns, Headers::Hidden, Colors::Off);
                    prop_assert_eq!(rows.lines().count(), inventory.devices.len());
                }
                let framed = picture::pictures(&inventory, Colors::Off);
                let frames = framed.lines().filter(|line| line.starts_with("  |") || line.starts_with("  +"));
                for line in frames {
                    prop_assert!((50..=75).contains(&line.chars().count()), "{}", framed);
                }
            }
        }
    }
}
