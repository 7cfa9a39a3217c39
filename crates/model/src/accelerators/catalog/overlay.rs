//! Administrator's catalog overlay: additional products, in-house names for products, and facts that the built-in
//! catalog lacks.
//!
//! An overlay never changes the meaning of an existing name or makes it ambiguous; such an entry is an error that
//! names both products.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;

use thiserror::Error;

use super::super::product_names::{RESERVED_TYPE_NAMES, format_skus};
use super::lookup::normalized;
use super::{Alias, AliasKind, Catalog, Fact, Field, Lookup, Product, Value};
use crate::accelerators::facts::{self, MarketedMemory, MemoryUnit, PciPattern};
use crate::accelerators::overlay_products::OverlayProduct;
use crate::id::{Sku, TypeName};
use crate::source_position::SourcePosition;

/// Content of an overlay file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overlay {
    /// Citations by key.
    pub sources: BTreeMap<String, String>,
    /// Products, in file order.
    pub entries: Vec<OverlayEntry>,
}

/// Overlay entry of one product.
#[derive(Debug, Clone, PartialEq)]
pub struct OverlayEntry {
    /// Position of the entry in the file.
    pub place: SourcePosition,
    /// Catalog id of a known or new product.
    pub sku: Sku,
    /// Type of a new product; defaults to its id.
    pub type_name: Option<(SourcePosition, TypeName)>,
    /// Vendor of a new product.
    pub vendor: Option<(SourcePosition, String)>,
    /// Name of a new product.
    pub name: Option<(SourcePosition, String)>,
    /// Additional notes.
    pub notes: Option<String>,
    /// Facts, each with its position.
    pub facts: Vec<(SourcePosition, Field, Value)>,
    /// Aliases.
    pub aliases: Vec<(SourcePosition, String)>,
    /// Keys of the sources of this entry; empty if the file itself is the source.
    pub sources: Vec<(SourcePosition, String)>,
}

/// Reason why an overlay is rejected, with its position in the file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct OverlayError {
    place: SourcePosition,
    problem: OverlayProblem,
}

/// Kind of overlay error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OverlayProblem {
    /// A new product lacks a mandatory key.
    #[error("{sku} is not in the catalog; a new product needs {key:?}")]
    MissingKey {
        /// Catalog id of the product.
        sku: Sku,
        /// Missing key.
        key: &'static str,
    },
    /// An immutable property of a known product is overridden.
    #[error("{sku} is in the catalog, and its {key} cannot be changed; add names with \"aliases\"")]
    ImmutableKey {
        /// Catalog id of the product.
        sku: Sku,
        /// Immutable key.
        key: &'static str,
    },
    /// A source key is not defined.
    #[error("source {key:?} is not defined; add it to \"sources\" with a citation")]
    UnknownSource {
        /// Undefined key.
        key: String,
    },
    /// A source key exists already.
    #[error("the catalog already has a source {key:?}; use another key")]
    DuplicateSource {
        /// Duplicate key.
        key: String,
    },
    /// A product occurs twice in one file.
    #[error("{sku} is listed twice, first at {first}")]
    DuplicateProduct {
        /// Catalog id of the product.
        sku: Sku,
        /// Position of the first occurrence.
        first: SourcePosition,
    },
    /// A name has no significant words.
    #[error("{text:?} is not a name: vendors, spaces and punctuation are ignored")]
    EmptyName {
        /// Rejected name.
        text: String,
    },
    /// A name is reserved for labels without a single type.
    #[error("{text:?} cannot name a product: labels use this word for nodes without a single type")]
    ReservedName {
        /// Reserved word.
        text: String,
    },
    /// A fact contradicts the built-in catalog.
    #[error(
        "the catalog has {known} for {key} of {sku}; facts of the built-in catalog cannot be changed, only added"
    )]
    ContradictsFact {
        /// Catalog id of the product.
        sku: Sku,
        /// Key of the fact.
        key: &'static str,
        /// Value in the catalog.
        known: String,
    },
    /// PCI ids are malformed.
    #[error(
        "{text:?} is not vendor:device, or vendor:device:subsystem vendor:subsystem device, with four hexadecimal \
         digits each"
    )]
    InvalidPciId {
        /// Rejected text.
        text: String,
    },
    /// PCI ids belong to a device that is known not to be an accelerator.
    #[error(
        "{text} cannot identify {sku}: according to the catalog, it is not an accelerator ({what})"
    )]
    NoAccelerator {
        /// Rejected ids.
        text: String,
        /// Product that the entry assigns them to.
        sku: Sku,
        /// Description of the device.
        what: &'static str,
    },
    /// A name or PCI id belongs to another product.
    #[error("{text:?} cannot identify {sku}: it already identifies {}", format_skus(.taken))]
    NameInUse {
        /// Rejected name.
        text: String,
        /// Product that the entry assigns it to.
        sku: Sku,
        /// Products it belongs to.
        taken: Vec<Sku>,
    },
}

impl OverlayError {
    /// Position in the file.
    pub fn place(&self) -> SourcePosition {
        self.place
    }

    /// Kind of the error.
    pub fn problem(&self) -> &OverlayProblem {
        &self.problem
    }
}

impl Catalog {
    /// Applies `overlay` to this catalog. `file` is the name of the overlay file, which is the source of facts that
    /// cite no other.
    ///
    /// # Errors
    /// All errors, in file order.
    pub fn with_overlay(mut self, overlay: Overlay, file: &str) -> Result<Self, Vec<OverlayError>> {
        let mut errors = Vec::new();
        let start = SourcePosition { line: 1, column: 1 };
        for (key, citation) in overlay.sources {
            match self.sources.entry(key) {
                MapEntry::Vacant(free) => {
                    free.insert(citation);
                }
                MapEntry::Occupied(taken) => {
                    let key = taken.key().clone();
                    let problem = OverlayProblem::DuplicateSource { key };
                    errors.push(OverlayError { place: start, problem });
                }
            }
        }
        let mut seen: BTreeMap<Sku, SourcePosition> = BTreeMap::new();
        for entry in overlay.entries {
            if let Some(first) = seen.get(&entry.sku).copied() {
                let sku = entry.sku;
                let problem = OverlayProblem::DuplicateProduct { sku, first };
                errors.push(OverlayError { place: entry.place, problem });
                continue;
            }
            seen.insert(entry.sku.clone(), entry.place);
            self.apply_entry(&entry, file, &mut errors);
        }
        errors.sort_by_key(OverlayError::place);
        if errors.is_empty() { Ok(self) } else { Err(errors) }
    }

    fn apply_entry(&mut self, entry: &OverlayEntry, file: &str, errors: &mut Vec<OverlayError>) {
        let at = self.products.iter().position(|one| one.sku == entry.sku);
        let known = at.map(|at| self.products.remove(at));
        let mut problems = self.unknown_sources(entry);
        problems.extend(invalid_keys(entry, known.is_some()));
        problems.extend(self.invalid_ids(entry));
        problems.extend(known.iter().flat_map(|known| contradictions(entry, known)));
        // The product itself was removed above, so any product that has one of the names is another one.
        problems.extend(self.taken_names(entry, known.is_none()));
        let problems = problems.into_iter();
        errors.extend(problems.map(|(place, problem)| OverlayError { place, problem }));
        let mut sources: Vec<String> = entry.sources.iter().map(|(_, key)| key.clone()).collect();
        if sources.is_empty() {
            sources.push(file.to_owned());
            let note = "this file, which cites no source";
            self.sources.entry(file.to_owned()).or_insert_with(|| note.to_owned());
        }
        let Some(product) = known.or_else(|| Product::new(entry)) else {
            return;
        };
        let product = product.with_entry(entry, &sources);
        self.own.add(entry.identified_product(&product));
        self.products.insert(at.unwrap_or(self.products.len()), product);
    }

    fn unknown_sources(&self, entry: &OverlayEntry) -> Vec<(SourcePosition, OverlayProblem)> {
        let unknown = entry.sources.iter().filter(|(_, key)| !self.sources.contains_key(key));
        unknown
            .map(|(place, key)| (*place, OverlayProblem::UnknownSource { key: key.clone() }))
            .collect()
    }

    fn taken_names(
        &self,
        entry: &OverlayEntry,
        is_new: bool,
    ) -> Vec<(SourcePosition, OverlayProblem)> {
        let mut names: Vec<(SourcePosition, String)> = entry.aliases.clone();
        if is_new {
            names.push((entry.place, entry.sku.to_string()));
            names.extend(entry.name.clone());
            let type_name = entry.type_name.iter();
            names.extend(type_name.map(|(place, name)| (*place, name.to_string())));
        }
        let wrong = names.into_iter().filter_map(|(place, text)| {
            let taken = match self.lookup(&text) {
                Lookup::Found(other) => vec![other],
                Lookup::Ambiguous(others) => others,
                Lookup::Unknown(_) => Vec::new(),
            };
            let sku = entry.sku.clone();
            if RESERVED_TYPE_NAMES.contains(&normalized(&text).as_str()) {
                Some((place, OverlayProblem::ReservedName { text }))
            } else if normalized(&text).is_empty() {
                Some((place, OverlayProblem::EmptyName { text }))
            } else if taken.is_empty() {
                None
            } else {
                Some((place, OverlayProblem::NameInUse { text, sku, taken }))
            }
        });
        wrong.collect()
    }
}

impl Product {
    /// Creates a product that is not in the built-in catalog; `None` if the entry lacks mandatory keys.
    fn new(entry: &OverlayEntry) -> Option<Self> {
        let given = entry.type_name.as_ref().map(|(_, name)| name.clone());
        let (_, vendor) = entry.vendor.as_ref()?;
        let (_, name) = entry.name.as_ref()?;
        Some(Self {
            sku: entry.sku.clone(),
            type_name: given.or_else(|| entry.sku.as_str().parse().ok())?,
            vendor: vendor.clone(),
            name: name.clone(),
            notes: None,
            facts: BTreeMap::new(),
            aliases: Vec::new(),
            offers: &[],
            model: entry.sku.to_string(),
        })
    }

    fn with_entry(mut self, entry: &OverlayEntry, sources: &[String]) -> Self {
        self.notes = entry.notes.clone().or(self.notes);
        for (_, field, value) in &entry.facts {
            match self.facts.entry(*field) {
                MapEntry::Vacant(free) => {
                    let (value, sources) = (value.clone(), sources.to_vec());
                    free.insert(Fact { value, sources });
                }
                // Equal values need no update; different ones were rejected above.
                MapEntry::Occupied(mut known) => known.get_mut().extend(value, sources),
            }
        }
        let alias =
            |text: &str, kind| Alias { text: text.to_owned(), kind, sources: sources.to_vec() };
        let ids = entry.patterns().filter(|(_, id)| id.subsystem.is_none());
        let ids = ids.map(|(text, _)| alias(&text.to_ascii_lowercase(), AliasKind::Pci));
        let names = entry.aliases.iter();
        let names = names.map(|(_, text)| alias(text, AliasKind::Text));
        let new: Vec<Alias> = ids.chain(names).collect();
        for alias in new {
            let is_known = |own: &Alias| own.kind == alias.kind && own.text == alias.text;
            if !self.aliases.iter().any(is_known) {
                self.aliases.push(alias);
            }
        }
        self
    }

    /// PCI ids of the product.
    fn pci_ids(&self) -> impl Iterator<Item = PciPattern> {
        let texts = match self.facts.get(&Field::PciIds).map(|fact| &fact.value) {
            Some(Value::List(texts)) => texts.as_slice(),
            Some(Value::Number(_) | Value::Text(_)) | None => &[],
        };
        texts.iter().filter_map(|text| PciPattern::parse(text))
    }
}

impl Fact {
    /// Appends the list items that are missing.
    fn extend(&mut self, more: &Value, sources: &[String]) {
        let (Value::List(known), Value::List(more)) = (&mut self.value, more) else {
            return;
        };
        let has =
            |known: &[String], text: &str| known.iter().any(|one| one.eq_ignore_ascii_case(text));
        let new: Vec<String> = more.iter().filter(|text| !has(known, text)).cloned().collect();
        if new.is_empty() {
            return;
        }
        known.extend(new);
        for source in sources {
            if !self.sources.contains(source) {
                self.sources.push(source.clone());
            }
        }
    }
}

impl OverlayEntry {
    /// The product by which devices are identified. `product` is this entry applied to the catalog.
    fn identified_product(&self, product: &Product) -> OverlayProduct {
        let size = |field| match product.facts.get(&field).map(|fact| &fact.value) {
            Some(Value::Number(number)) => parse_whole_number(*number),
            Some(Value::Text(_) | Value::List(_)) | None => None,
        };
        let sold = size(Field::MemoryGb).map(|size| (size, MemoryUnit::Gigabytes));
        let sold =
            sold.or_else(|| size(Field::MemoryGib).map(|size| (size, MemoryUnit::Gibibytes)));
        let names = self.name.iter().chain(&self.aliases);
        OverlayProduct {
            sku: product.sku.clone(),
            type_name: product.type_name.clone(),
            vendor: product.vendor.parse().ok(),
            architecture: product.text(Field::Architecture).map(str::to_owned),
            memory: sold.map(|(size, unit)| MarketedMemory { size, unit }),
            visible_memory_mib: size(Field::MemoryMib),
            patterns: self.patterns().map(|(_, pattern)| pattern).collect(),
            names: names.map(|(_, text)| text.clone()).collect(),
        }
    }

    /// PCI ids of this entry, each with its text; invalid ones are omitted.
    fn patterns(&self) -> impl Iterator<Item = (&str, PciPattern)> {
        let lists = self.facts.iter().filter_map(|(_, field, value)| match value {
            Value::List(texts) if *field == Field::PciIds => Some(texts),
            Value::List(_) | Value::Number(_) | Value::Text(_) => None,
        });
        let texts = lists.flatten();
        texts.filter_map(|text| Some((text.as_str(), PciPattern::parse(text)?)))
    }
}

fn parse_whole_number(number: f64) -> Option<u32> {
    let text = format!("{number}");
    text.parse().ok()
}

impl Catalog {
    /// PCI ids that are malformed, belong to another product, or to a device that is not an accelerator.
    fn invalid_ids(&self, entry: &OverlayEntry) -> Vec<(SourcePosition, OverlayProblem)> {
        let mut wrong = Vec::new();
        for (place, _, value) in entry.facts.iter().filter(|(_, field, _)| *field == Field::PciIds)
        {
            let Value::List(texts) = value else { continue };
            for text in texts {
                let (text, sku) = (text.clone(), entry.sku.clone());
                let Some(pattern) = PciPattern::parse(&text) else {
                    wrong.push((*place, OverlayProblem::InvalidPciId { text }));
                    continue;
                };
                let taken: Vec<Sku> = self
                    .products
                    .iter()
                    .filter(|other| other.pci_ids().any(|id| id.device == pattern.device))
                    .map(|other| other.sku.clone())
                    .collect();
                if let Some(other) = facts::non_accelerator_with_ids(pattern.ids()) {
                    let what = other.description;
                    wrong.push((*place, OverlayProblem::NoAccelerator { text, sku, what }));
                } else if !taken.is_empty() {
                    wrong.push((*place, OverlayProblem::NameInUse { text, sku, taken }));
                }
            }
        }
        wrong
    }
}

/// Facts that contradict those of a known product. Lists are extended instead.
fn contradictions(entry: &OverlayEntry, known: &Product) -> Vec<(SourcePosition, OverlayProblem)> {
    let wrong = entry.facts.iter().filter_map(|(place, field, value)| {
        // A product has its marketed memory in one unit only.
        let other = [Field::MemoryGb, Field::MemoryGib];
        let mut units = other.iter().filter(|_| other.contains(field));
        let has = units.find_map(|unit| known.facts.get_key_value(unit));
        let (key, fact) = has.or_else(|| known.facts.get_key_value(field))?;
        let known = match &fact.value {
            same if same == value && key == field => return None,
            Value::List(_) => return None,
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text.clone(),
        };
        let (sku, key) = (entry.sku.clone(), key.key());
        Some((*place, OverlayProblem::ContradictsFact { sku, key, known }))
    });
    wrong.collect()
}

/// Missing keys of a new product, and immutable keys of a known one.
fn invalid_keys(entry: &OverlayEntry, is_known: bool) -> Vec<(SourcePosition, OverlayProblem)> {
    let given = [
        ("type", entry.type_name.as_ref().map(|(place, _)| *place)),
        ("vendor", entry.vendor.as_ref().map(|(place, _)| *place)),
        ("name", entry.name.as_ref().map(|(place, _)| *place)),
    ];
    let wrong = given.into_iter().filter_map(|(key, given)| {
        let sku = entry.sku.clone();
        match given {
            Some(place) if is_known => Some((place, OverlayProblem::ImmutableKey { sku, key })),
            None if !is_known && key != "type" => {
                Some((entry.place, OverlayProblem::MissingKey { sku, key }))
            }
            Some(_) | None => None,
        }
    });
    wrong.collect()
}

#[cfg(test)]
mod tests;
