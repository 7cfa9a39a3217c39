//! Facts about an administrator's own catalogue.

use super::*;

fn found(sku: &str) -> Lookup {
    Lookup::Found(sku.parse().unwrap())
}

fn entry(sku: &str, aliases: &[&str]) -> OverlayEntry {
    let place = Place { line: 5, column: 3 };
    OverlayEntry {
        place,
        sku: sku.parse().unwrap(),
        type_name: None,
        vendor: None,
        name: None,
        notes: None,
        facts: Vec::new(),
        aliases: aliases
            .iter()
            .map(|text| (place, (*text).to_owned()))
            .collect(),
        sources: Vec::new(),
    }
}

fn new_one(sku: &str, aliases: &[&str]) -> OverlayEntry {
    let place = Place { line: 5, column: 3 };
    OverlayEntry {
        vendor: Some((place, "acme".to_owned())),
        name: Some((place, format!("Acme {sku}"))),
        ..entry(sku, aliases)
    }
}

fn over(entries: Vec<OverlayEntry>) -> Result<Catalogue, Vec<String>> {
    let overlay = Overlay {
        entries,
        ..Overlay::default()
    };
    let laid = Catalogue::built_in().with(overlay, "own.yaml");
    laid.map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[test]
fn an_overlay_adds_products_names_and_facts_and_says_that_it_does() {
    let mut known = entry("nvidia-h100-sxm5-80gb", &["hall 7", "H100 SXM 80GB"]);
    known.facts.push((Field::Power, Value::Number(650.0)));
    let catalogue = over(vec![known, new_one("acme-x1", &["big one"])]).unwrap();
    assert_eq!(catalogue.lookup("Hall-7"), found("nvidia-h100-sxm5-80gb"));
    assert_eq!(catalogue.lookup("BIG ONE"), found("acme-x1"));
    assert_eq!(catalogue.lookup("acme x1"), found("acme-x1"));
    let h100 = catalogue.product(&"nvidia-h100-sxm5-80gb".parse().unwrap());
    let power = h100.unwrap().facts.get(&Field::Power).unwrap();
    assert_eq!(power.value, Value::Number(650.0));
    assert_eq!(power.sources, ["own.yaml"]);
    assert!(catalogue.source("own.yaml").is_some());
    let memory = h100.unwrap().facts.get(&Field::MemoryGb).unwrap();
    assert_eq!(memory.value, Value::Number(80.0));
    assert_eq!(
        catalogue.products().len(),
        Catalogue::built_in().products().len() + 1
    );
}

#[test]
fn an_overlay_never_makes_a_name_mean_something_else_or_several_things() {
    for (entries, expected) in [
        (
            vec![entry("nvidia-h100-sxm5-80gb", &["A100 SXM 80GB"])],
            "\"A100 SXM 80GB\" cannot name nvidia-h100-sxm5-80gb: it is a name of nvidia-a100-sxm4-80gb",
        ),
        (
            vec![entry("nvidia-h200-sxm5-141gb", &["H200"])],
            "\"H200\" cannot name nvidia-h200-sxm5-141gb: it is a name of nvidia-h200-nvl-141gb",
        ),
        (
            vec![
                new_one("acme-x1", &["hall 7"]),
                new_one("acme-x2", &["Hall7"]),
            ],
            "\"Hall7\" cannot name acme-x2: it is a name of acme-x1",
        ),
        (
            vec![new_one("nvidia-t4-tensor", &[])],
            "\"nvidia-t4-tensor\" cannot name nvidia-t4-tensor: it is a name of nvidia-t4",
        ),
        (
            vec![new_one("acme-x1", &["NVIDIA"])],
            "\"NVIDIA\" names nothing: makers, blanks and signs do not count",
        ),
        (
            vec![entry("acme-x1", &[])],
            "acme-x1 is not in the catalogue; a new product needs \"vendor\"",
        ),
        (
            vec![new_one("nvidia-t4", &[])],
            "nvidia-t4 is in the catalogue, and its vendor cannot be changed; add names with \"aliases\"",
        ),
        (
            vec![new_one("acme-x1", &[]), entry("acme-x1", &["b"])],
            "acme-x1 is there twice, first at 5:3",
        ),
    ] {
        let errors = over(entries).unwrap_err();
        assert!(errors.iter().any(|error| error == expected), "{errors:?}");
    }
    let mut foreign = entry("nvidia-t4", &[]);
    foreign.sources.push((Place::default(), "U9".to_owned()));
    assert_eq!(
        over(vec![foreign]).unwrap_err(),
        ["there is no source \"U9\"; add it to \"sources\" with a citation"]
    );
}
