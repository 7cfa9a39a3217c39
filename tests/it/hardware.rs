//! `docs/reference/hardware.md` lists the products and Neuron chips of the catalog.

mod instance_types;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use octavo_model::accelerators::{self, Facts};

const PRODUCTS: &str = "<!-- products -->\n";
const END: &str = "<!-- end of products -->\n";

fn page() -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/hardware.md");
    let text = fs::read_to_string(&path).unwrap();
    (path, text)
}

/// `10de:25b6`, and with a subsystem `10de:25b6 (10de:157e)`.
fn ids(facts: &Facts) -> String {
    let id = |(vendor, device): (u16, u16)| format!("{vendor:04x}:{device:04x}");
    let ids = facts.pci_ids.iter().map(|pattern| {
        let device = id(pattern.device);
        match pattern.subsystem {
            Some(subsystem) => format!("`{device}` ({})", id(subsystem)),
            None => format!("`{device}`"),
        }
    });
    ids.collect::<Vec<String>>().join(", ")
}

fn products() -> String {
    let mut table = "| type | SKU | product | PCI ids |\n|---|---|---|---|\n".to_owned();
    for facts in accelerators::products() {
        if !facts.pci_ids.is_empty() {
            let ids = ids(facts);
            let (kind, sku, name) = (facts.type_name, facts.sku, facts.name);
            writeln!(table, "| `{kind}` | `{sku}` | {name} | {ids} |").unwrap();
        }
    }
    table
}

#[test]
fn hardware_page_lists_catalog_products() {
    let (path, text) = page();
    let (before, rest) = text.split_once(PRODUCTS).unwrap();
    let (listed, after) = rest.split_once(END).unwrap();
    let products = products();
    if std::env::var_os("OCTAVO_GOLDEN").is_some_and(|mode| mode == "rewrite") {
        fs::write(&path, format!("{before}{PRODUCTS}{products}{END}{after}")).unwrap();
        return;
    }
    assert!(
        listed == products,
        "{} differs; `make golden` rewrites it.\n{products}",
        path.display()
    );
}

#[test]
fn neuron_chips_on_hardware_page_match_catalog() {
    let (_, text) = page();
    let (_, rest) = text.split_once("<!-- chips -->\n").unwrap();
    let rows = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut seen = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let facts = accelerators::neuron_chip(cells[1]).unwrap();
        assert_eq!(cells[4], format!("`{}`", facts.type_name), "{row}");
        let memory = facts.memory.unwrap();
        assert_eq!(cells[6], format!("{} GiB", memory.size), "{row}");
        let first = facts.pci_ids[0].device.1;
        let last = facts.pci_ids[facts.pci_ids.len() - 1].device.1;
        for id in [first, last] {
            assert!(cells[3].contains(&format!("{id:04x}")), "{row}");
        }
        seen += 1;
    }
    let chips = accelerators::products().iter();
    assert_eq!(seen, chips.filter(|facts| facts.sku.starts_with("aws-")).count());
}
