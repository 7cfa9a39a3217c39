//! Parsing of an administrator's catalog into an [`Overlay`], with the same strictness and source positions as for
//! layouts.

use std::collections::BTreeMap;

use octavo_model::accelerators::{Field, Overlay, OverlayEntry, Value};
use octavo_model::id::{IdError, Sku, TypeName};
use octavo_model::source_position::SourcePosition;

use super::error::{LayoutError, LayoutProblem};
use super::findings::{Findings, MappingShape, value_of};
use super::node::{Entry, Node, Value as Tree, quoted};
use super::{expect_header, scalar, tree};

/// `kind` of the file.
const KIND: &str = "Catalogue";

const FILE: MappingShape = MappingShape {
    what: "a catalogue",
    keys: &["apiVersion", "kind", "sources", "accelerators"],
};

/// Keys of a product that are not facts.
const NON_FACT_KEYS: [&str; 7] = [
    "sku", "type", "vendor", "name", "notes", "aliases", "sources",
];

const KEYS: [&str; NON_FACT_KEYS.len() + Field::ALL.len()] = keys();

const PRODUCT: MappingShape = MappingShape {
    what: "an accelerator",
    keys: &KEYS,
};

const EXAMPLE: &str = "\"accelerators: [{sku: nvidia-h100-sxm5-80gb, aliases: [hall 7]}]\"";

/// Maximum number of products in a file.
const MAX_PRODUCTS: usize = 1000;

/// Maximum length of a word, in bytes.
const MAX_WORD_BYTES: usize = 200;

const fn keys() -> [&'static str; NON_FACT_KEYS.len() + Field::ALL.len()] {
    let mut keys = [""; NON_FACT_KEYS.len() + Field::ALL.len()];
    let mut at = 0;
    #[expect(
        clippy::indexing_slicing,
        reason = "evaluated when this is compiled, where an index past the end is an error"
    )]
    while at < keys.len() {
        keys[at] = if at < NON_FACT_KEYS.len() {
            NON_FACT_KEYS[at]
        } else {
            Field::ALL[at - NON_FACT_KEYS.len()].key()
        };
        at += 1;
    }
    keys
}

/// Parses a catalog.
///
/// # Errors
/// Returns all errors in the order of the file.
pub fn parse(text: &str) -> Result<Overlay, Vec<LayoutError>> {
    let mut findings = Findings::default();
    if text.trim().is_empty() {
        let start = SourcePosition { line: 1, column: 1 };
        findings.error(start, LayoutProblem::NotACatalog);
        return findings.into_result(None);
    }
    let overlay = tree::read(text, &mut findings).and_then(|root| file(&root, &mut findings));
    findings.into_result(overlay)
}

fn file(root: &Node, findings: &mut Findings) -> Option<Overlay> {
    let Tree::Map(entries) = &root.value else {
        findings.error(root.place, LayoutProblem::NotACatalog);
        return None;
    };
    findings.check_keys(entries, FILE);
    let whole = (root.place, entries.as_slice());
    expect_header(whole, FILE.what, ("\"kind: Catalogue\"", KIND), findings);
    let sources = value_of(entries, "sources").map(|node| citations(node, findings));
    let node = findings.required(whole, FILE.what, ("accelerators", EXAMPLE))?;
    let Tree::List(items) = &node.value else {
        findings.wrong_kind(node, "accelerators", "a list of accelerators");
        return None;
    };
    let products = items.iter().take(MAX_PRODUCTS);
    let entries = products.filter_map(|item| product(item, findings));
    let overlay = Overlay {
        entries: entries.collect(),
        sources: sources.unwrap_or_default(),
    };
    if let Some(item) = items.get(MAX_PRODUCTS) {
        let most = MAX_PRODUCTS;
        findings.error(item.place, LayoutProblem::TooManyValues { most });
    }
    Some(overlay)
}

fn citations(node: &Node, findings: &mut Findings) -> BTreeMap<String, String> {
    let Tree::Map(entries) = &node.value else {
        findings.wrong_kind(node, "sources", "a mapping of keys to citations");
        return BTreeMap::new();
    };
    let read = entries.iter().filter_map(|entry| {
        let citation = word(&entry.value, "a citation", findings)?;
        Some((entry.key.to_string(), citation))
    });
    read.collect()
}

fn product(node: &Node, findings: &mut Findings) -> Option<OverlayEntry> {
    let entries = findings.mapping(node, PRODUCT)?;
    let example = "\"sku: nvidia-h100-sxm5-80gb\"";
    let sku = findings
        .required((node.place, entries), PRODUCT.what, ("sku", example))
        .and_then(|node| id::<Sku>(node, "sku", findings));
    let facts = facts(entries, findings);
    let of = |key| value_of(entries, key);
    let type_name = of("type").and_then(|node| {
        let name = id::<TypeName>(node, "type", findings)?;
        Some((node.place, name))
    });
    let vendor = of("vendor").and_then(|node| word_with_place(node, "vendor", findings));
    let name = of("name").and_then(|node| word_with_place(node, "name", findings));
    let notes = of("notes").and_then(|node| word(node, "notes", findings));
    let aliases = of("aliases").map(|node| words(node, "aliases", findings));
    let sources = of("sources").map(|node| words(node, "sources", findings));
    Some(OverlayEntry {
        place: node.place,
        sku: sku?,
        type_name,
        vendor,
        name,
        notes,
        facts,
        aliases: aliases.unwrap_or_default(),
        sources: sources.unwrap_or_default(),
    })
}

fn facts(entries: &[Entry], findings: &mut Findings) -> Vec<(SourcePosition, Field, Value)> {
    let known = Field::ALL.iter().filter_map(|field| {
        let node = value_of(entries, field.key())?;
        Some((node.place, *field, fact(*field, node, findings)?))
    });
    known.collect()
}

fn fact(field: Field, node: &Node, findings: &mut Findings) -> Option<Value> {
    match field {
        Field::Architecture
        | Field::FormFactor
        | Field::MemoryType
        | Field::ComputeCapability
        | Field::Link
        | Field::GfxTarget
        | Field::NeuronDeviceName
        | Field::NeuronDeviceArchitecture
        | Field::NeuronCoreArchitecture => word(node, field.key(), findings).map(Value::Text),
        Field::PciIds => {
            let ids = words(node, field.key(), findings);
            Some(Value::List(ids.into_iter().map(|(_, id)| id).collect()))
        }
        Field::MemoryGb
        | Field::MemoryGib
        | Field::MemoryMib
        | Field::MemoryBandwidth
        | Field::Bf16
        | Field::Fp16
        | Field::Fp8
        | Field::Power
        | Field::MigInstances
        | Field::LinkGeneration
        | Field::LinkBandwidth
        | Field::Cores
        | Field::LogicalCores
        | Field::NeuronCoreVersion => {
            let number = scalar::decimal_number(node);
            if number.is_none() {
                findings.wrong_kind(node, field.key(), "a number from 0, without its unit");
            }
            number.map(Value::Number)
        }
    }
}

fn id<T: std::str::FromStr<Err = IdError>>(
    node: &Node,
    what: &'static str,
    findings: &mut Findings,
) -> Option<T> {
    match word(node, what, findings)?.parse() {
        Ok(id) => Some(id),
        Err(error) => {
            findings.error(node.place, LayoutProblem::Id(error));
            None
        }
    }
}

fn word_with_place(
    node: &Node,
    what: &'static str,
    findings: &mut Findings,
) -> Option<(SourcePosition, String)> {
    word(node, what, findings).map(|word| (node.place, word))
}

fn words(
    node: &Node,
    what: &'static str,
    findings: &mut Findings,
) -> Vec<(SourcePosition, String)> {
    let Tree::List(items) = &node.value else {
        findings.wrong_kind(node, what, "a list of texts");
        return Vec::new();
    };
    let mut read: Vec<(SourcePosition, String)> = Vec::new();
    for item in items {
        let Some(text) = word(item, what, findings) else {
            continue;
        };
        match read.iter().find(|(_, known)| *known == text) {
            Some((first, _)) => {
                let (value, first) = (quoted(&text), *first);
                findings.error(item.place, LayoutProblem::DuplicateValue { value, first });
            }
            None => read.push((item.place, text)),
        }
    }
    read
}

/// Validates a non-empty text on a single line.
fn word(node: &Node, what: &'static str, findings: &mut Findings) -> Option<String> {
    let text = scalar::text(node).filter(|text| {
        !node.is_null()
            && !text.trim().is_empty()
            && text.len() <= MAX_WORD_BYTES
            && !text.chars().any(char::is_control)
    });
    if text.is_none() {
        findings.wrong_kind(node, what, "a text on one line of at most 200 bytes");
    }
    text.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let errors = parse(text).unwrap_err();
        let told = errors
            .iter()
            .map(|error| format!("{}: {error}", error.place()));
        told.collect()
    }

    const HEAD: &str = "apiVersion: octavo.dev/v1\nkind: Catalogue\n";

    #[test]
    fn catalog_file_is_parsed() {
        let overlay = parse(&format!(
            "{HEAD}sources: {{U1: our own bench}}\naccelerators:\n- sku: acme-x1\n  vendor: acme\n  name: Acme X1\n  \
             memoryGB: 80\n  bf16Tflops: 835.5\n  pciIds: ['1234:5678']\n  aliases: [big one]\n  sources: [U1]\n"
        ))
        .unwrap();
        assert_eq!(
            overlay.sources.get("U1").map(String::as_str),
            Some("our own bench")
        );
        let [entry] = overlay.entries.as_slice() else {
            panic!("another count");
        };
        assert_eq!(entry.sku.as_str(), "acme-x1");
        let facts = entry.facts.iter().cloned();
        let facts: Vec<(Field, Value)> = facts.map(|(_, field, value)| (field, value)).collect();
        assert_eq!(
            facts,
            [
                (Field::MemoryGb, Value::Number(80.0)),
                (Field::Bf16, Value::Number(835.5)),
                (Field::PciIds, Value::List(vec!["1234:5678".to_owned()])),
            ]
        );
        let texts: Vec<&str> = entry.aliases.iter().map(|(_, text)| &**text).collect();
        assert_eq!(texts, ["big one"]);
    }

    #[test]
    fn all_errors_are_reported_with_their_position() {
        assert_eq!(
            complaints(&format!(
                "{HEAD}acelerators: []\naccelerators:\n- sku: acme x1\n  memoryGb: 80\n- sku: acme-x2\n  powerW: 80 W\n  \
                 aliases: [a, a]\n- name: x\n"
            )),
            [
                "3:1: unknown key \"acelerators\" in a catalogue; did you mean \"accelerators\"?",
                "5:8: \"acme x1\" is not a SKU like nvidia-a100-sxm4-80gb",
                "6:3: unknown key \"memoryGb\" in an accelerator; did you mean \"memoryGB\"?",
                "8:11: powerW must be a number from 0, without its unit, not \"80 W\"",
                "9:16: \"a\" is there twice, first at 9:13",
                "10:3: an accelerator needs \"sku\": \"sku: nvidia-h100-sxm5-80gb\"",
            ]
        );
        for (text, expected) in [
            ("", "this is no catalogue"),
            ("- a\n", "this is no catalogue"),
            (
                "apiVersion: octavo.dev/v1\nkind: Layouts\naccelerators: []\n",
                "kind must be \"Catalogue\", not Layouts",
            ),
            ("accelerators: {\n", "this is not YAML"),
        ] {
            assert!(
                complaints(text).iter().any(|told| told.contains(expected)),
                "{text}"
            );
        }
    }
}
