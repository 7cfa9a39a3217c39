//! Reads the built-in `data/mig-profiles.json`.
//!
//! The file is read for each board lookup, that is, when a machine is created and never during a client's call.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::profile_row::GiRow;
use super::{Board, derive};
use crate::model::{Architecture, Brand};

const FILE: &str = include_str!("../../data/mig-profiles.json");

/// A SKU of the file. `None` means that there is no source; [`derive`] computes it.
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

/// The SKUs of the file, in alphabetical order.
pub fn skus() -> Vec<String> {
    raw().into_keys().filter(|key| !key.starts_with('_')).collect()
}

pub(super) fn board(sku: &str) -> Option<Board> {
    let row = row(sku)?;
    let architecture = architecture(&row.architecture)?;
    let rtx = row.architecture.contains("GB20");
    let memory_mib = row.memory_mib.or_else(|| derive::total_memory(&row.gpu_instance_profiles))?;
    let multiprocessors = row.multiprocessors.or_else(|| derive::multiprocessors(sku))?;
    let board = derive::BoardTotals {
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
    // The file is compiled in; a test reads every SKU.
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
