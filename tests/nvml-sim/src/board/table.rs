//! Reads the built-in `data/mig-profiles.json`.
//!
//! The file is read each time a board is wanted, which is when a machine is made and never in a call of a client.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Board, derive};
use crate::model::{Architecture, Brand, Placement};

const FILE: &str = include_str!("../../data/mig-profiles.json");

/// A SKU as the file has it. `None` is "no source", which [`derive`] fills.
#[derive(Debug, Deserialize)]
pub(super) struct SkuRow {
    pub(super) device_names: Vec<String>,
    pub(super) pci_device_ids: Vec<String>,
    pub(super) architecture: String,
    pub(super) compute_capability: String,
    pub(super) memory_mib: Option<u64>,
    pub(super) multiprocessors: Option<u32>,
    pub(super) memory_slice_units: Option<u32>,
    pub(super) gpu_instance_profiles: Vec<GiRow>,
}

/// A GPU instance profile as the file has it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct GiRow {
    pub(super) id: Option<u32>,
    pub(super) name: String,
    pub(super) nvml_profile_index: u32,
    pub(super) slices: u32,
    pub(super) max_count: u32,
    pub(super) memory_mb: Option<u64>,
    pub(super) sms: Option<u32>,
    pub(super) ce: Option<u32>,
    pub(super) dec: Option<u32>,
    pub(super) enc: Option<u32>,
    pub(super) jpeg: Option<u32>,
    pub(super) ofa: Option<u32>,
    pub(super) placements: Option<Vec<Placement>>,
    pub(super) compute_instance_profiles: Option<Vec<CiRow>>,
}

/// A compute instance profile as the file has it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct CiRow {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) slices: u32,
    pub(super) max_count: u32,
    pub(super) sms: u32,
}

/// The SKUs of the file, in alphabetical order.
pub fn skus() -> Vec<String> {
    raw()
        .into_keys()
        .filter(|key| !key.starts_with('_'))
        .collect()
}

pub(super) fn board(sku: &str) -> Option<Board> {
    let row = row(sku)?;
    let architecture = architecture(&row.architecture)?;
    let rtx = row.architecture.contains("GB20");
    let memory_mib = row
        .memory_mib
        .or_else(|| derive::total_memory(&row.gpu_instance_profiles))?;
    let multiprocessors = row
        .multiprocessors
        .or_else(|| derive::multiprocessors(sku))?;
    let board = derive::Whole {
        memory_mib,
        multiprocessors,
        units: row.memory_slice_units.unwrap_or(derive::RTX_UNITS),
        family: if rtx {
            derive::Family::Rtx
        } else if architecture == Architecture::Blackwell {
            derive::Family::BlackwellDataCentre
        } else {
            derive::Family::HopperOrAmpere
        },
    };
    let (major, minor) = row.compute_capability.split_once('.')?;
    let fallback = format!("NVIDIA {}", sku.replace('_', " "));
    Some(Board {
        sku: sku.to_owned(),
        name: row.device_names.into_iter().next().unwrap_or(fallback),
        brand: if rtx { Brand::NvidiaRtx } else { Brand::Nvidia },
        architecture,
        compute_capability: (major.parse().ok()?, minor.parse().ok()?),
        memory_mib,
        multiprocessors,
        pci_device: pci_id(row.pci_device_ids.first()?)?,
        pci_class: 0x0003_0200,
        power_w: derive::power_w(sku),
        links: derive::links(sku),
        ecc: true,
        profiles: derive::profiles(&board, &row.gpu_instance_profiles),
    })
}

pub(super) fn row(sku: &str) -> Option<SkuRow> {
    serde_json::from_value(raw().remove(sku)?).ok()
}

fn raw() -> BTreeMap<String, serde_json::Value> {
    // The file is part of the program; that it can be read is tested for every SKU.
    serde_json::from_str(FILE).unwrap_or_default()
}

fn architecture(text: &str) -> Option<Architecture> {
    match text.split_whitespace().next()? {
        "Ampere" => Some(Architecture::Ampere),
        "Hopper" => Some(Architecture::Hopper),
        "Blackwell" => Some(Architecture::Blackwell),
        _ => None,
    }
}

fn pci_id(text: &str) -> Option<u16> {
    u16::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}
