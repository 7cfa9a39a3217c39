//! The boards of scenarios.
//!
//! [`Board::find`] accepts the SKUs of `data/mig-profiles.json` (`H100_80GB_SXM`) and short names of boards without MIG
//! (`T4`). `derive` computes facts that the file lacks by the rules of the board's family, marked as
//! [`Provenance::Derived`](crate::model::Provenance).

mod derive;
mod plain;
mod profile_row;
mod table;

use crate::model::{Architecture, Brand, GiProfile};

pub use table::skus;

/// A board model.
#[derive(Debug, Clone, PartialEq)]
pub struct Board {
    /// Name in scenarios.
    pub sku: String,
    /// The answer of `nvmlDeviceGetName`: the first marketing name.
    pub name: String,
    /// Brand.
    pub brand: Brand,
    /// Architecture.
    pub architecture: Architecture,
    /// Compute capability.
    pub compute_capability: (u32, u32),
    /// Framebuffer, MiB.
    pub memory_mib: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// PCI device id.
    pub pci_device: u16,
    /// PCI class code.
    pub pci_class: u32,
    /// Power limit, watts.
    pub power_w: u32,
    /// Number of `NVLink`s.
    pub links: u32,
    /// Whether it has ECC memory.
    pub ecc: bool,
    /// MIG profiles; empty without MIG.
    pub profiles: Vec<GiProfile>,
}

impl Board {
    /// The board with that name. Case is ignored, and `-` equals `_`.
    pub fn find(name: &str) -> Option<Self> {
        let sku = name.to_uppercase().replace('-', "_");
        table::board(&sku).or_else(|| plain::board(&sku))
    }

    /// All names for scenarios: boards with MIG first.
    pub fn names() -> Vec<String> {
        let mut names: Vec<String> = skus();
        names.extend(plain::NAMES.iter().map(|name| (*name).to_owned()));
        names
    }
}

/// The number in a profile name that the go-nvlib library computes for boards whose driver reports no name: the share
/// of the memory in eighths, rounded up, of the whole memory in GiB, rounded up; then rounded half up.
pub fn memory_in_name(memory_mib: u64, total_mib: u64) -> u64 {
    let eighths = memory_mib.saturating_mul(8).div_ceil(total_mib.max(1));
    let gib = total_mib.div_ceil(1024);
    // Half up in integers: (eighths * gib) / 8 + 1/2.
    eighths.saturating_mul(gib).saturating_mul(2).saturating_add(8) / 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Placement, Provenance};

    fn gigabytes(name: &str) -> u64 {
        let (before, _) = name.split_once("gb").unwrap();
        before.rsplit('.').next().unwrap().parse().unwrap()
    }

    /// Compares a board with the file, for all fields that the file has.
    #[track_caller]
    fn agrees_with_the_file(sku: &str) {
        let board = Board::find(sku).unwrap_or_else(|| panic!("{sku} cannot be built"));
        let row = table::row(sku).unwrap();
        assert_eq!(board.profiles.len(), row.gpu_instance_profiles.len(), "{sku}");
        for (profile, row) in board.profiles.iter().zip(row.gpu_instance_profiles) {
            let at = format!("{sku} {}", profile.name);
            let engines = profile.engines;
            let made = (
                profile.id,
                profile.index,
                profile.name.as_str(),
                profile.slices,
                profile.max_count,
            );
            let read = (
                row.id.unwrap_or(profile.id),
                row.nvml_profile_index,
                row.name.as_str(),
                row.slices,
                row.max_count,
            );
            assert_eq!(made, read, "{at}");
            let numbers = [
                (row.sms, profile.multiprocessors),
                (row.ce, engines.copy),
                (row.dec, engines.decoder),
                (row.enc, engines.encoder),
                (row.jpeg, engines.jpeg),
                (row.ofa, engines.ofa),
            ];
            for (read, made) in numbers {
                assert_eq!(read.unwrap_or(made), made, "{at}");
            }
            assert_eq!(
                row.placements.unwrap_or_else(|| profile.placements.clone()),
                profile.placements,
                "{at}"
            );
            for ci in row.compute_instance_profiles.iter().flatten() {
                let found = profile.compute_profile(ci.id).unwrap();
                let made = (&found.name, found.slices, found.max_count, found.multiprocessors);
                assert_eq!(made, (&ci.name, ci.slices, ci.max_count, ci.sms), "{at}");
                let places = profile.compute_profile(ci.id).unwrap().placements(row.slices);
                assert_eq!(u32::try_from(places.len()), Ok(ci.max_count), "{at} {}", ci.name);
            }
        }
    }

    #[test]
    fn every_sku_of_the_file_can_be_built_and_agrees_with_it() {
        assert_eq!(skus().len(), 20);
        for sku in skus() {
            agrees_with_the_file(&sku);
        }
    }

    #[test]
    fn memory_of_every_profile_gives_its_name_by_client_rule() {
        for sku in skus() {
            let board = Board::find(&sku).unwrap();
            for profile in &board.profiles {
                let computed = memory_in_name(profile.memory_mib, board.memory_mib);
                assert_eq!(computed, gigabytes(&profile.name), "{sku} {}", profile.name);
            }
        }
    }

    #[test]
    fn only_one_figure_of_the_file_is_overridden() {
        let mut overruled = Vec::new();
        for sku in skus() {
            let board = Board::find(&sku).unwrap();
            let rows = table::row(&sku).unwrap().gpu_instance_profiles;
            for (profile, row) in board.profiles.iter().zip(rows) {
                if row.memory_mb.is_some_and(|memory| memory != profile.memory_mib) {
                    overruled.push((sku.clone(), profile.name.clone()));
                }
            }
        }
        assert_eq!(overruled, [("B300_269GB".to_owned(), "1g.34gb".to_owned())]);
    }

    #[test]
    fn every_profile_is_complete_and_its_counts_are_possible() {
        for sku in skus() {
            let board = Board::find(&sku).unwrap();
            let mut ids: Vec<u32> = board.profiles.iter().map(|profile| profile.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), board.profiles.len(), "{sku}: ids are unique");
            for profile in &board.profiles {
                let at = format!("{sku} {}", profile.name);
                assert!(profile.multiprocessors > 0, "{at}");
                assert!(profile.multiprocessors <= board.multiprocessors, "{at}");
                let places = u32::try_from(profile.placements.len()).unwrap();
                assert!(profile.max_count <= places, "{at}");
                assert!(profile.full_compute_profile().is_some(), "{at}");
                assert!(profile.memory_mib < board.memory_mib, "{at}");
            }
        }
    }

    #[test]
    fn double_memory_instance_of_hopper_is_filled_by_compute_profile_7() {
        let board = Board::find("H100_80GB_SXM").unwrap();
        let profile = board.profiles.iter().find(|profile| profile.id == 15).unwrap();
        assert_eq!(profile.full_compute_profile().unwrap().id, 7);
        assert_eq!(profile.compute_profile(0).unwrap().multiprocessors, 16);
    }

    #[test]
    fn computed_figures_are_marked() {
        let provenance = |sku: &str, id: u32| {
            let board = Board::find(sku).unwrap();
            let found = board.profiles.iter().find(|profile| profile.id == id);
            found.unwrap().provenance
        };
        assert_eq!(provenance("A100_80GB", 9), Provenance::Sourced);
        assert_eq!(provenance("B200_180GB", 9), Provenance::Derived);
        assert_eq!(provenance("H20_96GB", 0), Provenance::Derived);
    }

    #[test]
    fn small_rtx_board_is_split_in_halves() {
        let board = Board::find("rtx-pro-5000-blackwell-48gb").unwrap();
        let one = board.profiles.iter().find(|profile| profile.id == 14).unwrap();
        let places = [Placement { start: 0, size: 6 }, Placement { start: 6, size: 6 }];
        assert_eq!((one.placements.as_slice(), one.multiprocessors), (&places[..], 54));
    }
}
