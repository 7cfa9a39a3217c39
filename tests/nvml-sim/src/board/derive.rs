//! Derives missing facts by the rules of the board's family.
//!
//! Every rule was derived from boards with complete listings and is applied to related boards. A profile with at least
//! one computed field is marked ([`Provenance::Derived`]), so that a test never treats it as a fact.

use super::profile_row::{CiRow, GiRow};
use crate::model::{CiProfile, Engines, GiProfile, Placement, Provenance};

/// Units of the placement grid of RTX PRO boards if the file has none: those of the RTX PRO 6000.
pub(super) const RTX_UNITS: u32 = 12;

/// Part of the marketed memory that a driver reserves, MiB: the B300's marketed 269 GiB are reported as 275040 MiB.
const MISSING_MIB: u64 = 416;

/// Boards whose tables follow the same pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// GA100 and GH100.
    HopperOrAmpere,
    /// GB100 and GB110: as GH100 with twice the copy engines.
    BlackwellDataCentre,
    /// GB202 and GB203.
    Rtx,
}

/// Totals of a board.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoardTotals {
    pub(super) memory_mib: u64,
    pub(super) multiprocessors: u32,
    /// Memory slices.
    pub(super) units: u32,
    pub(super) family: Family,
}

/// Memory of the board from the name of its full profile: the largest number of gigabytes in any name.
pub(super) fn total_memory(rows: &[GiRow]) -> Option<u64> {
    let gigabytes = rows.iter().filter_map(|row| gigabytes(&row.name)).max()?;
    gigabytes.checked_mul(1024)?.checked_sub(MISSING_MIB)
}

/// Multiprocessors of boards for which the file has none: those of the closest relative, or the vendor's core count
/// divided by 128.
pub(super) fn multiprocessors(sku: &str) -> Option<u32> {
    Some(match sku {
        "H20_141GB" => 78,
        "B300_269GB" => 148,
        "GB200_186GB" | "GB300_278GB" => 152,
        "RTX_PRO_5000_BLACKWELL_48GB" => 110,
        "RTX_PRO_4500_BLACKWELL_32GB" => 82,
        _ => return None,
    })
}

/// Power limit in watts: vendor figures, or 400 (a superchip shares it with its processor).
pub(super) fn power_w(sku: &str) -> u32 {
    match sku {
        "A30_24GB" => 165,
        "H100_80GB_SXM" | "H200_141GB" | "H100_96GB" => 700,
        "H100_80GB_PCIE" => 350,
        "H20_96GB" | "H20_141GB" => 500,
        "H200_NVL_141GB" | "RTX_PRO_6000_BLACKWELL_96GB" => 600,
        "GH200_96GB" | "GH200_144GB" => 900,
        "B200_180GB" => 1000,
        "B300_269GB" => 1100,
        "GB200_186GB" => 1200,
        "GB300_278GB" => 1400,
        "RTX_PRO_5000_BLACKWELL_48GB" => 300,
        "RTX_PRO_4500_BLACKWELL_32GB" => 200,
        _ => 400,
    }
}

/// Number of `NVLink`s of the board: 12 on GA100, 18 on later SXM boards; PCIe boards have those of their bridges.
pub(super) fn links(sku: &str) -> u32 {
    match sku {
        "A100_40GB" | "A100_80GB" | "H100_80GB_PCIE" | "H100_NVL_94GB" => 12,
        "A30_24GB" => 4,
        _ if sku.starts_with("RTX") => 0,
        _ => 18,
    }
}

/// The complete profiles of a board.
pub(super) fn profiles(whole: &BoardTotals, rows: &[GiRow]) -> Vec<GiProfile> {
    let smallest = rows.iter().find(|row| row.nvml_profile_index == 0);
    let one_slice = smallest.map_or(0, |row| multiprocessors_of(whole, row, rows));
    rows.iter().filter_map(|row| profile(whole, row, rows, one_slice)).collect()
}

fn profile(whole: &BoardTotals, row: &GiRow, rows: &[GiRow], one_slice: u32) -> Option<GiProfile> {
    let placements = match &row.placements {
        Some(placements) => placements.clone(),
        None => placements(whole, row, rows),
    };
    let multiprocessors = multiprocessors_of(whole, row, rows);
    let size = placements.first()?.size;
    let engines = engines(whole.family, row);
    let sourced = row.id.is_some()
        && row.memory_mb.is_some()
        && row.sms.is_some()
        && row.placements.is_some()
        && row.ce.and(row.dec).and(row.enc).and(row.jpeg).and(row.ofa).is_some();
    Some(GiProfile {
        id: row.id.or_else(|| id(whole.family, row.nvml_profile_index))?,
        index: row.nvml_profile_index,
        name: row.name.clone(),
        slices: row.slices,
        max_count: row.max_count,
        memory_mib: row
            .memory_mb
            .filter(|memory| agrees_with_name(&row.name, *memory, whole.memory_mib))
            .unwrap_or_else(|| memory(whole, size)),
        multiprocessors,
        engines,
        placements,
        compute: compute(row, multiprocessors, one_slice),
        provenance: if sourced { Provenance::Sourced } else { Provenance::Derived },
    })
}

/// Ids follow the enum index within a family.
fn id(family: Family, index: u32) -> Option<u32> {
    let table: &[(u32, u32)] = match family {
        Family::HopperOrAmpere | Family::BlackwellDataCentre => {
            &[(0, 19), (7, 20), (9, 15), (1, 14), (2, 9), (3, 5), (4, 0)]
        }
        Family::Rtx => &[
            (0, 14),
            (7, 21),
            (10, 47),
            (15, 65),
            (13, 67),
            (1, 5),
            (11, 35),
            (16, 64),
            (14, 66),
            (3, 0),
            (12, 32),
        ],
    };
    let found = table.iter().find(|(from, _)| *from == index);
    found.map(|(_, id)| *id)
}

/// Placements of the eight-unit grid, as in every complete GA100 and GH100 listing; RTX boards are split evenly by the
/// slices of their largest profile.
fn placements(whole: &BoardTotals, row: &GiRow, rows: &[GiRow]) -> Vec<Placement> {
    let (starts, size): (&[u32], u32) = match (whole.family, row.nvml_profile_index) {
        (Family::Rtx, _) => {
            let slices = rows.iter().map(|row| row.slices).max().unwrap_or(1);
            let size = (whole.units / slices.max(1)).saturating_mul(row.slices).max(1);
            return (0..whole.units / size)
                .map(|nth| Placement { start: nth.saturating_mul(size), size })
                .collect();
        }
        (_, 0 | 7) => (&[0, 1, 2, 3, 4, 5, 6], 1),
        (_, 9) => (&[0, 2, 4, 6], 2),
        (_, 1) => (&[0, 2, 4], 2),
        (_, 2) => (&[0, 4], 4),
        (_, 3) => (&[0], 4),
        _ => (&[0], 8),
    };
    starts.iter().map(|&start| Placement { start, size }).collect()
}

/// The share of the memory by memory slices, less half a percent, in steps of 64 MiB as in listings. Values below the
/// exact share make the rounded-up eighths of the naming rule correct.
fn memory(whole: &BoardTotals, size: u32) -> u64 {
    let share = whole.memory_mib.saturating_mul(u64::from(size)) / u64::from(whole.units.max(1));
    let usable = share.saturating_mul(995) / 1000;
    usable / 64 * 64
}

/// Multiprocessors scale with the board as on the H100 SXM (16, 26, 32, 60, 64 of 132), never below the sum of the
/// slices of the smallest profile, in pairs because a TPC has two. RTX boards are split evenly.
fn multiprocessors_of(whole: &BoardTotals, row: &GiRow, rows: &[GiRow]) -> u32 {
    if let Some(sourced) = row.sms {
        return sourced;
    }
    let total = whole.multiprocessors;
    let most = rows.iter().map(|row| row.slices).max().unwrap_or(1);
    if row.slices == most {
        return total;
    }
    let pairs = |count: u32| count / 2 * 2;
    let of = |part: u32, all: u32| pairs(total.saturating_mul(part) / all.max(1));
    if whole.family == Family::Rtx {
        return of(row.slices, most);
    }
    let smallest = rows.iter().find(|row| row.nvml_profile_index == 0);
    let one = smallest.and_then(|row| row.sms).unwrap_or_else(|| of(16, 132));
    let scaled = match row.nvml_profile_index {
        9 => of(26, 132),
        1 => of(32, 132),
        2 => of(60, 132),
        3 => of(64, 132),
        _ => of(16, 132),
    };
    scaled.max(one.saturating_mul(row.slices))
}

/// Engines as on GH100: one decoder and JPEG unit per slice, the optical flow accelerator with `+me` and the full board.
fn engines(family: Family, row: &GiRow) -> Engines {
    let full = row.nvml_profile_index == 4;
    let copies = if full { 8 } else { row.slices };
    let copies = match family {
        Family::BlackwellDataCentre => copies.saturating_mul(2),
        Family::HopperOrAmpere | Family::Rtx => copies,
    };
    let extended = u32::from(matches!(row.nvml_profile_index, 7 | 8) || full);
    Engines {
        copy: row.ce.unwrap_or(copies),
        decoder: row.dec.unwrap_or(row.slices),
        encoder: row.enc.unwrap_or(0),
        jpeg: row.jpeg.unwrap_or(row.slices),
        ofa: row.ofa.unwrap_or(extended),
    }
}

/// The compute profiles of a GPU instance: those of the file, and derived ones.
fn compute(row: &GiRow, multiprocessors: u32, one_slice: u32) -> Vec<CiProfile> {
    let mut profiles: Vec<CiProfile> =
        row.compute_instance_profiles.iter().flatten().map(sourced_compute).collect();
    let derived = derived_compute(row, multiprocessors, one_slice);
    for profile in derived {
        if profiles.iter().all(|known| known.id != profile.id) {
            profiles.push(profile);
        }
    }
    profiles.sort_by_key(|profile| profile.id);
    profiles
}

fn sourced_compute(row: &CiRow) -> CiProfile {
    CiProfile {
        id: row.id,
        name: row.name.clone(),
        slices: row.slices,
        max_count: row.max_count,
        multiprocessors: row.sms,
        provenance: Provenance::Sourced,
    }
}

/// `C` compute slices fit `G` if `C` is `G` or at most half of it, rounded up; ids count the allowed sizes 1, 2, 3, 4,
/// 7.
///
/// A 1g instance with more multiprocessors than one slice (the double-memory one of GH100 and later) has both: CI 0
/// with the multiprocessors of one slice, and CI 7 (`1_SLICE_REV1`) with all of them.
fn derived_compute(row: &GiRow, multiprocessors: u32, one_slice: u32) -> Vec<CiProfile> {
    let wide = row.slices == 1 && multiprocessors > one_slice;
    let ids = [(1, 0), (2, 1), (3, 2), (4, 3), (7, 4)];
    let fitting = ids.into_iter().filter(|(slices, _)| {
        *slices == row.slices || slices.saturating_mul(2) <= row.slices.saturating_add(1)
    });
    let mut profiles: Vec<CiProfile> = fitting
        .filter(|(slices, _)| *slices <= row.slices)
        .map(|(slices, id)| {
            let full = slices == row.slices && !wide;
            CiProfile {
                id,
                name: if full { row.name.clone() } else { format!("{slices}c.{}", row.name) },
                slices,
                max_count: 0,
                multiprocessors: if full {
                    multiprocessors
                } else {
                    one_slice.saturating_mul(slices).min(multiprocessors)
                },
                provenance: Provenance::Derived,
            }
        })
        .collect();
    if wide {
        profiles.push(CiProfile {
            id: 7,
            name: row.name.clone(),
            slices: 1,
            max_count: 0,
            multiprocessors,
            provenance: Provenance::Derived,
        });
    }
    for profile in &mut profiles {
        let places = profile.placements(row.slices).len();
        profile.max_count = u32::try_from(places).unwrap_or(0);
    }
    profiles
}

/// True if clients that compute the name from the memory get this name. One figure of the file (a single report of a 1g
/// of the B300) is more than an eighth of its board and would get the name of the next size.
fn agrees_with_name(name: &str, memory_mib: u64, total_mib: u64) -> bool {
    gigabytes(name) == Some(super::memory_in_name(memory_mib, total_mib))
}

/// The `40` of `3g.40gb`.
fn gigabytes(name: &str) -> Option<u64> {
    let (before, _) = name.split_once("gb")?;
    before.rsplit('.').next()?.parse().ok()
}
