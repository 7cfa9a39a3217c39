//! Parsing of an administrator's catalog into an [`Overlay`], with the same strictness and source positions as for
//! layouts.

use std::collections::BTreeMap;
use std::str::FromStr;

use octavo_model::accelerators::{Field, Overlay, OverlayEntry, Value};
use octavo_model::id::ParseError;
use octavo_model::source_position::SourcePosition;

use super::error::{LayoutError, LayoutProblem};
use super::findings::{Findings, Mapping, MappingShape};
use super::node::{Node, quoted};
use super::{expect_header, parse_file, scalar};

/// `kind` of the file.
const KIND: &str = "Catalogue";

const FILE: MappingShape =
    MappingShape { what: "a catalog", keys: &["apiVersion", "kind", "sources", "accelerators"] };

/// Keys of a product that are not facts.
const NON_FACT_KEYS: [&str; 7] = ["sku", "type", "vendor", "name", "notes", "aliases", "sources"];

const KEYS: [&str; NON_FACT_KEYS.len() + Field::ALL.len()] = keys();

const PRODUCT: MappingShape = MappingShape { what: "an accelerator", keys: &KEYS };

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
    parse_file(text, FILE, LayoutProblem::NotACatalog, read)
}

fn read(file: Mapping<'_>, findings: &mut Findings) -> Option<Overlay> {
    expect_header(file, KIND, "\"kind: Catalogue\"", findings);
    let sources = file.get("sources").map(|node| citations(node, findings));
    let node = findings.required(file, "accelerators", EXAMPLE)?;
    let items = findings.expect(node.items(), node, "accelerators", "a list of accelerators")?;
    let products = items.iter().take(MAX_PRODUCTS);
    let entries = products.filter_map(|item| product(item, findings));
    let overlay = Overlay { entries: entries.collect(), sources: sources.unwrap_or_default() };
    if let Some(item) = items.get(MAX_PRODUCTS) {
        findings.error(item.place, LayoutProblem::TooManyValues { most: MAX_PRODUCTS });
    }
    Some(overlay)
}

fn citations(node: &Node, findings: &mut Findings) -> BTreeMap<String, String> {
    let entries =
        findings.expect(node.entries(), node, "sources", "a mapping of keys to citations");
    let citations = entries.unwrap_or_default().iter().filter_map(|entry| {
        let citation = word(&entry.value, "a citation", findings)?;
        Some((entry.key.to_string(), citation))
    });
    citations.collect()
}

fn product(node: &Node, findings: &mut Findings) -> Option<OverlayEntry> {
    let product = findings.mapping(node, PRODUCT)?;
    let sku = findings
        .required(product, "sku", "\"sku: nvidia-h100-sxm5-80gb\"")
        .and_then(|node| id(node, "sku", findings));
    let facts = facts(product, findings);
    let type_name = product.get("type").and_then(|node| {
        let name = id(node, "type", findings)?;
        Some((node.place, name))
    });
    let mut placed = |key| {
        let node = product.get(key)?;
        word(node, key, findings).map(|word| (node.place, word))
    };
    let (vendor, name) = (placed("vendor"), placed("name"));
    let notes = product.get("notes").and_then(|node| word(node, "notes", findings));
    let aliases = product.get("aliases").map(|node| words(node, "aliases", findings));
    let sources = product.get("sources").map(|node| words(node, "sources", findings));
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

fn facts(product: Mapping<'_>, findings: &mut Findings) -> Vec<(SourcePosition, Field, Value)> {
    let facts = Field::ALL.iter().filter_map(|field| {
        let node = product.get(field.key())?;
        Some((node.place, *field, fact(*field, node, findings)?))
    });
    facts.collect()
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
            let expected = "a non-negative number without a unit";
            findings.expect(number, node, field.key(), expected).map(Value::Number)
        }
    }
}

fn id<T: FromStr<Err = ParseError>>(
    node: &Node,
    what: &'static str,
    findings: &mut Findings,
) -> Option<T> {
    let id = word(node, what, findings)?.parse();
    findings.accept(id, node.place)
}

fn words(
    node: &Node,
    what: &'static str,
    findings: &mut Findings,
) -> Vec<(SourcePosition, String)> {
    let items = findings.expect(node.items(), node, what, "a list of strings");
    let mut words: Vec<(SourcePosition, String)> = Vec::new();
    for item in items.unwrap_or_default() {
        let Some(text) = word(item, what, findings) else {
            continue;
        };
        match words.iter().find(|(_, known)| *known == text) {
            Some((first, _)) => {
                let (value, first) = (quoted(&text), *first);
                findings.error(item.place, LayoutProblem::DuplicateValue { value, first });
            }
            None => words.push((item.place, text)),
        }
    }
    words
}

/// Validates a non-empty text on a single line.
fn word(node: &Node, what: &'static str, findings: &mut Findings) -> Option<String> {
    let text = scalar::text(node).filter(|text| {
        !node.is_null()
            && !text.trim().is_empty()
            && text.len() <= MAX_WORD_BYTES
            && !text.chars().any(char::is_control)
    });
    let expected = "a string on one line of at most 200 bytes";
    findings.expect(text, node, what, expected).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let errors = parse(text).unwrap_err();
        let errors = errors.iter().map(|error| format!("{}: {error}", error.place()));
        errors.collect()
    }

    const HEAD: &str = "apiVersion: octavo.dev/v1\nkind: Catalogue\n";

    #[test]
    fn catalog_file_is_parsed() {
        let overlay = parse(&format!(
            "{HEAD}sources: {{U1: our own bench}}\naccelerators:\n- sku: acme-x1\n  vendor: acme\n  name: Acme X1\n  \
             memoryGB: 80\n  bf16Tflops: 835.5\n  pciIds: ['1234:5678']\n  aliases: [big one]\n  sources: [U1]\n"
        ))
        .unwrap();
        assert_eq!(overlay.sources.get("U1").map(String::as_str), Some("our own bench"));
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
                "3:1: unknown key \"acelerators\" in a catalog; did you mean \"accelerators\"?",
                "5:8: \"acme x1\" is not a SKU like nvidia-a100-sxm4-80gb",
                "6:3: unknown key \"memoryGb\" in an accelerator; did you mean \"memoryGB\"?",
                "8:11: powerW must be a non-negative number without a unit, not \"80 W\"",
                "9:16: duplicate value \"a\", first at 9:13",
                "10:3: an accelerator needs \"sku\": \"sku: nvidia-h100-sxm5-80gb\"",
            ]
        );
        for (text, expected) in [
            ("", "this is not a catalog"),
            ("- a\n", "this is not a catalog"),
            (
                "apiVersion: octavo.dev/v1\nkind: Layouts\naccelerators: []\n",
                "kind must be \"Catalogue\", not Layouts",
            ),
            ("accelerators: {\n", "this is not YAML"),
        ] {
            assert!(
                complaints(text).iter().any(|complaint| complaint.contains(expected)),
                "{text}"
            );
        }
    }
}
