//! The resulting resources, IDs and labels.

use octavo_files::node_resources::{document, id};
use octavo_model::inventory::Inventory;
use octavo_model::text::format_memory;
use octavo_node::sharing::{Offer, Unit};
use octavo_planner::layout::DeviceRef;

use super::SharingPreview;
use crate::settings::sharing::SharingFormat;
use crate::settings::{Colors, Headers};
use crate::style::Style;
use crate::text::{self, Cell, lines, printable};
use crate::{CliError, Exit, Report, devices, json, yaml};

const HEADERS: [&str; 6] = ["RESOURCE", "COUNT", "UNITS", "SHARED BY", "FAIR SHARE", "REQUESTS"];

/// Placeholder for a value that differs between units.
const DIFFERS: &str = "differs";

/// Number of units per resource whose IDs are shown.
const MAX_SHOWN_UNITS: usize = 4;

pub(super) fn report(
    outlook: SharingPreview,
    format: SharingFormat,
    colors: Colors,
) -> Result<Report, CliError> {
    let written = || {
        document(
            &outlook.layout,
            &outlook.compiled.offers,
            &outlook.labels,
            &outlook.compiled.warnings,
        )
    };
    let output = match format {
        SharingFormat::Table => people(&outlook, false, colors),
        SharingFormat::Wide => people(&outlook, true, colors),
        SharingFormat::Json => json(&written())?,
        SharingFormat::Yaml => yaml(&written())?,
    };
    let warnings = outlook.compiled.warnings.iter();
    let warnings = lines(warnings.map(|text| printable(&format!("warning: {text}"))));
    Ok(Report { output, notes: outlook.notes + &warnings, exit: Exit::Done })
}

fn people(outlook: &SharingPreview, all: bool, colors: Colors) -> String {
    let offers = &outlook.compiled.offers;
    if offers.resources.is_empty() {
        return "no resources are offered\n".to_owned();
    }
    let rows = offers.resources.iter().map(row);
    let mut text = text::table(&[&HEADERS], rows, Headers::Shown, colors);
    for offer in &offers.resources {
        let head = Style::Strong.paint(offer.name.as_str(), colors);
        let ids = ids(offer, &outlook.inventory, all);
        text.extend(["\n", &head, "\n", &ids]);
    }
    let head = Style::Strong.paint("labels", colors);
    let labels = outlook.labels.iter();
    let labels = labels.filter(|(key, _)| all || is_about_sharing(key));
    let labels = lines(labels.map(|(key, value)| format!("  {key}={value}")));
    text.extend(["\n", &head, "\n", &labels]);
    text
}

fn row(offer: &Offer) -> Vec<Cell> {
    let units = offer.units.iter();
    let replicas = same(units.map(|unit| unit.replicas));
    let shared = match replicas {
        Some(Some(replicas)) => replicas.to_string(),
        Some(None) => "-".to_owned(),
        None => DIFFERS.to_owned(),
    };
    let share = match same(offer.units.iter().map(Unit::fair_share)) {
        Some(Some(memory)) => format_memory(memory),
        Some(None) => "-".to_owned(),
        None => DIFFERS.to_owned(),
    };
    let requests = if offer.fail_requests_greater_than_one { "one each" } else { "any number" };
    let cells = [
        offer.name.to_string(),
        offer.count().to_string(),
        offer.units.len().to_string(),
        shared,
        share,
        requests.to_owned(),
    ];
    cells.iter().map(Cell::plain).collect()
}

/// Returns the common value; `None` if they differ.
fn same<T: PartialEq>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

fn ids(offer: &Offer, inventory: &Inventory, all: bool) -> String {
    let shown = if all { usize::MAX } else { MAX_SHOWN_UNITS };
    let mut text = String::new();
    for unit in offer.units.iter().take(shown) {
        let ids: Vec<String> = unit.ids().iter().map(id).collect();
        let ids = match ids.as_slice() {
            [first, .., last] if !all => vec![format!("{first} to {}", behind(last))],
            _ => ids,
        };
        let name = called(unit, inventory);
        text.push_str(&lines(ids.into_iter().map(|id| format!("  {name}  {id}"))));
    }
    match offer.units.len().checked_sub(shown) {
        Some(more) if more > 0 => text + &format!("  and {more} more, with -o wide\n"),
        Some(_) | None => text,
    }
}

/// Returns the part of an ID after the UUID.
fn behind(id: &str) -> &str {
    id.rfind("::").and_then(|at| id.get(at..)).unwrap_or(id)
}

fn called(unit: &Unit, inventory: &Inventory) -> String {
    let device = devices::find(inventory, unit.pci);
    let device = match device.and_then(|device| DeviceRef::from_device(device).index) {
        Some(index) => format!("GPU {index}"),
        None => unit.pci.to_string(),
    };
    match &unit.partition {
        Some(partition) => format!("{device} {}", partition.profile),
        None => device,
    }
}

/// Returns whether selectors and quotas use the label.
fn is_about_sharing(key: &str) -> bool {
    let resource = key.starts_with("nvidia.com/gpu.") || key.starts_with("nvidia.com/mig-");
    let ends = [".product", ".count", ".replicas", ".sharing-strategy"];
    key == "octavo.dev/sharing" || (resource && ends.iter().any(|end| key.ends_with(end)))
}
