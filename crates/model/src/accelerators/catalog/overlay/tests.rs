//! Tests of an administrator's catalog overlay.

use super::*;

const AT: SourcePosition = SourcePosition { line: 7, column: 3 };

fn found(sku: &str) -> Lookup {
    Lookup::Found(sku.parse().unwrap())
}

fn entry(sku: &str, aliases: &[&str]) -> OverlayEntry {
    let place = SourcePosition { line: 5, column: 3 };
    OverlayEntry {
        place,
        sku: sku.parse().unwrap(),
        type_name: None,
        vendor: None,
        name: None,
        notes: None,
        facts: Vec::new(),
        aliases: aliases.iter().map(|text| (place, (*text).to_owned())).collect(),
        sources: Vec::new(),
    }
}

fn new_one(sku: &str, aliases: &[&str]) -> OverlayEntry {
    let place = SourcePosition { line: 5, column: 3 };
    OverlayEntry {
        vendor: Some((place, "acme".to_owned())),
        name: Some((place, format!("Acme {sku}"))),
        ..entry(sku, aliases)
    }
}

fn over(entries: Vec<OverlayEntry>) -> Result<Catalog, Vec<String>> {
    let overlay = Overlay { entries, ..Overlay::default() };
    let laid = Catalog::built_in().with_overlay(overlay, "own.yaml");
    laid.map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[test]
fn overlay_adds_products_names_and_facts_and_reports_it() {
    let known = entry("nvidia-h100-sxm5-80gb", &["hall 7", "H100 SXM 80GB"]);
    let mut t4g = entry("nvidia-t4g", &[]);
    t4g.facts.push((AT, Field::Power, Value::Number(68.0)));
    let catalog = over(vec![known, t4g, new_one("acme-x1", &["big one"])]).unwrap();
    assert_eq!(catalog.lookup("Hall-7"), found("nvidia-h100-sxm5-80gb"));
    assert_eq!(catalog.lookup("BIG ONE"), found("acme-x1"));
    assert_eq!(catalog.lookup("acme x1"), found("acme-x1"));
    let h100 = catalog.product(&"nvidia-h100-sxm5-80gb".parse().unwrap());
    let t4g = catalog.product(&"nvidia-t4g".parse().unwrap()).unwrap();
    let power = t4g.facts.get(&Field::Power).unwrap();
    assert_eq!(power.value, Value::Number(68.0));
    assert_eq!(power.sources, ["own.yaml"]);
    assert!(catalog.source("own.yaml").is_some());
    let memory = h100.unwrap().facts.get(&Field::MemoryGb).unwrap();
    assert_eq!(memory.value, Value::Number(80.0));
    assert_eq!(catalog.products().len(), Catalog::built_in().products().len() + 1);
}

#[test]
fn overlay_never_changes_meaning_of_names() {
    for (entries, expected) in [
        (
            vec![entry("nvidia-h100-sxm5-80gb", &["A100 SXM 80GB"])],
            "\"A100 SXM 80GB\" cannot identify nvidia-h100-sxm5-80gb: it already identifies nvidia-a100-sxm4-80gb",
        ),
        (
            vec![entry("nvidia-h200-sxm5-141gb", &["H200"])],
            "\"H200\" cannot identify nvidia-h200-sxm5-141gb: it already identifies nvidia-h200-nvl-141gb",
        ),
        (
            vec![new_one("acme-x1", &["hall 7"]), new_one("acme-x2", &["Hall7"])],
            "\"Hall7\" cannot identify acme-x2: it already identifies acme-x1",
        ),
        (
            vec![new_one("nvidia-t4-tensor", &[])],
            "\"nvidia-t4-tensor\" cannot identify nvidia-t4-tensor: it already identifies nvidia-t4",
        ),
        (
            vec![new_one("acme-x1", &["NVIDIA"])],
            "\"NVIDIA\" is not a name: vendors, spaces and punctuation are ignored",
        ),
        (
            vec![new_one("acme-x1", &["Mixed"])],
            "\"Mixed\" cannot name a product: labels use this word for nodes without a single type",
        ),
        (
            vec![entry("acme-x1", &[])],
            "acme-x1 is not in the catalog; a new product needs \"vendor\"",
        ),
        (
            vec![new_one("nvidia-t4", &[])],
            "nvidia-t4 is in the catalog, and its vendor cannot be changed; add names with \"aliases\"",
        ),
        (
            vec![new_one("acme-x1", &[]), entry("acme-x1", &["b"])],
            "acme-x1 is listed twice, first at 5:3",
        ),
    ] {
        let errors = over(entries).unwrap_err();
        assert!(errors.iter().any(|error| error == expected), "{errors:?}");
    }
    let mut foreign = entry("nvidia-t4", &[]);
    foreign.sources.push((SourcePosition::default(), "U9".to_owned()));
    assert_eq!(
        over(vec![foreign]).unwrap_err(),
        ["source \"U9\" is not defined; add it to \"sources\" with a citation"]
    );
}

fn with_ids(mut entry: OverlayEntry, ids: &[&str]) -> OverlayEntry {
    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
    entry.facts.push((AT, Field::PciIds, Value::List(ids)));
    entry
}

#[test]
fn overlay_extends_but_never_contradicts_built_in_facts() {
    let mut h100 = entry("nvidia-h100-sxm5-80gb", &[]);
    h100.facts.push((AT, Field::Power, Value::Number(650.0)));
    h100.facts.push((AT, Field::MemoryGib, Value::Number(80.0)));
    // Repeating the same value is no contradiction.
    h100.facts.push((AT, Field::Architecture, Value::Text("Hopper".to_owned())));
    assert_eq!(
        over(vec![h100]).unwrap_err(),
        [
            "the catalog has 700 for powerW of nvidia-h100-sxm5-80gb; facts of the built-in catalog cannot be changed, only added",
            "the catalog has 80 for memoryGB of nvidia-h100-sxm5-80gb; facts of the built-in catalog cannot be changed, only added",
        ]
    );
    let h100 = with_ids(entry("nvidia-h100-sxm5-80gb", &[]), &["10DE:2330", "10de:23fe"]);
    let catalog = over(vec![h100]).unwrap();
    assert_eq!(catalog.lookup("10de:23fe"), found("nvidia-h100-sxm5-80gb"));
    assert_eq!(catalog.lookup("10de:2330"), found("nvidia-h100-sxm5-80gb"));
    let h100 = catalog.product(&"nvidia-h100-sxm5-80gb".parse().unwrap());
    let ids = h100.unwrap().facts.get(&Field::PciIds).unwrap();
    let both = ["10de:2330", "10de:23fe"].map(str::to_owned).to_vec();
    assert_eq!(ids.value, Value::List(both));
    assert_eq!(ids.sources, ["S5", "own.yaml"]);
}

#[test]
fn foreign_non_accelerator_and_invalid_ids_are_rejected() {
    for (ids, expected) in [
        (
            "10de:2330",
            "\"10de:2330\" cannot identify acme-x1: it already identifies nvidia-h100-sxm5-80gb",
        ),
        (
            "10de:25b6:10de:0001",
            "\"10de:25b6:10de:0001\" cannot identify acme-x1: it already identifies nvidia-a2, nvidia-a16",
        ),
        (
            "10de:22a3",
            "10de:22a3 cannot identify acme-x1: according to the catalog, it is not an accelerator (NVSwitch of an H100 board)",
        ),
        (
            "0x10de:0x2330",
            "\"0x10de:0x2330\" is not vendor:device, or vendor:device:subsystem vendor:subsystem device, with four hexadecimal digits each",
        ),
    ] {
        let errors = over(vec![with_ids(new_one("acme-x1", &[]), &[ids])]).unwrap_err();
        assert_eq!(errors, [expected]);
    }
    let twice = vec![
        with_ids(new_one("acme-x1", &[]), &["1acc:0001"]),
        with_ids(new_one("acme-x2", &[]), &["1ACC:0001"]),
    ];
    assert_eq!(
        over(twice).unwrap_err(),
        ["\"1ACC:0001\" cannot identify acme-x2: it already identifies acme-x1"]
    );
}
