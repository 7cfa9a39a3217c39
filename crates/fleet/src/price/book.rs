//! Price books: entries with the nodes and the time that they apply to.
//!
//! Several entries can apply to one device. The most specific one that is valid wins: with instance type and region, then
//! with instance type, then with region, then with neither. Purchase options never replace each other.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use jiff::Timestamp;
use octavo_model::id::TypeName;
use octavo_model::source_position::SourcePosition;

use super::{Amount, Currency, Price, PurchaseOption};

/// Label with the instance type of a node. Source: Kubernetes, "Well-Known Labels".
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Label with the region of a node. Source: as above.
pub const REGION: &str = "topology.kubernetes.io/region";

/// Devices that one price applies to, or a device whose price is wanted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PriceKey {
    /// Type of the device.
    pub type_name: TypeName,
    /// Purchase option of the node.
    pub option: PurchaseOption,
    /// Instance type of the node. `None` in an entry means any, and for a device that it is unknown.
    pub instance_type: Option<String>,
    /// Region of the node; `None` as for the instance type.
    pub region: Option<String>,
}

/// Time in which a price is valid: from its start up to, and without, its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Validity {
    /// Start; `None` if it has always been valid.
    pub from: Option<Timestamp>,
    /// End; `None` if it has none.
    pub until: Option<Timestamp>,
}

/// An entry of a price book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceEntry {
    /// Devices that the price applies to.
    pub key: PriceKey,
    /// Time in which the price is valid.
    pub validity: Validity,
    /// Price of one whole device for one hour.
    pub per_hour: Amount,
    /// Currency of the price.
    pub currency: Currency,
    /// Position in the file.
    pub position: SourcePosition,
}

/// Prices of types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceBook {
    currency: Currency,
    /// Entries of a key do not overlap and are in the order of time.
    entries: BTreeMap<PriceKey, Vec<PriceEntry>>,
}

/// Price of one whole device for one hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitPrice {
    /// The price.
    pub per_hour: Amount,
    /// Its currency.
    pub currency: Currency,
    /// The entry that it comes from.
    pub source: PriceSource,
}

/// Scope and validity of the entry that a price comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceSource {
    /// Instance type of the entry; `None` if it applies to any.
    pub instance_type: Option<String>,
    /// Region of the entry; `None` if it applies to any.
    pub region: Option<String>,
    /// Validity of the entry.
    pub validity: Validity,
}

/// Prices that are valid at one instant.
#[derive(Debug, Clone)]
pub struct CurrentPrices {
    book: Arc<PriceBook>,
    at: Timestamp,
}

impl PriceKey {
    /// Devices of a type with this purchase option, on any node.
    pub fn new(type_name: TypeName, option: PurchaseOption) -> Self {
        Self { type_name, option, instance_type: None, region: None }
    }

    /// Devices of a type on the node with these labels. Without a label for it, the purchase option is on demand.
    pub fn on_node(type_name: TypeName, labels: &BTreeMap<String, String>) -> Self {
        Self {
            type_name,
            option: PurchaseOption::from_labels(labels).unwrap_or_default(),
            instance_type: labels.get(INSTANCE_TYPE).cloned(),
            region: labels.get(REGION).cloned(),
        }
    }

    /// Returns the keys of entries that apply to this device, the most specific one first.
    fn applicable(&self) -> impl Iterator<Item = Self> {
        let scopes = [(true, true), (true, false), (false, true), (false, false)].into_iter();
        let scopes = scopes.filter(|(by_instance_type, by_region)| {
            (!by_instance_type || self.instance_type.is_some())
                && (!by_region || self.region.is_some())
        });
        scopes.map(|(by_instance_type, by_region)| Self {
            instance_type: self.instance_type.clone().filter(|_| by_instance_type),
            region: self.region.clone().filter(|_| by_region),
            ..self.clone()
        })
    }
}

/// Formats the key: `nvidia-h100-80gb spot p5.48xlarge us-east-1`.
impl fmt::Display for PriceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.type_name, self.option)?;
        for scope in self.instance_type.iter().chain(&self.region) {
            write!(f, " {scope}")?;
        }
        Ok(())
    }
}

impl Validity {
    /// Returns whether the price is valid at this instant.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at) && self.until.is_none_or(|until| at < until)
    }

    /// Returns whether an instant belongs to both.
    fn overlaps(&self, other: &Self) -> bool {
        let starts_before_end = |one: &Self, other: &Self| {
            one.from.zip(other.until).is_none_or(|(from, until)| from < until)
        };
        starts_before_end(self, other) && starts_before_end(other, self)
    }
}

/// Formats the validity: `from 2026-01-01T00:00:00Z until 2026-07-01T00:00:00Z`.
impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from, self.until) {
            (Some(from), Some(until)) => write!(f, "from {from} until {until}"),
            (Some(from), None) => write!(f, "from {from}"),
            (None, Some(until)) => write!(f, "until {until}"),
            (None, None) => f.write_str("always"),
        }
    }
}

impl PriceBook {
    /// Creates an empty price book.
    pub fn new(currency: Currency) -> Self {
        Self { currency, entries: BTreeMap::new() }
    }

    /// Adds an entry. If one with the same key is valid at the same time, nothing changes and its position is returned.
    pub fn add(&mut self, entry: PriceEntry) -> Option<SourcePosition> {
        let entries = self.entries.entry(entry.key.clone()).or_default();
        let other = entries.iter().find(|other| other.validity.overlaps(&entry.validity));
        if let Some(other) = other {
            return Some(other.position);
        }
        let place = entries.partition_point(|other| other.validity < entry.validity);
        entries.insert(place, entry);
        None
    }

    /// The price of one whole device at this instant, from the most specific entry that is valid then.
    pub fn price(&self, key: &PriceKey, at: Timestamp) -> Option<UnitPrice> {
        let entry = key.applicable().find_map(|key| {
            let mut entries = self.entries.get(&key)?.iter();
            entries.find(|entry| entry.validity.contains(at))
        })?;
        Some(UnitPrice {
            per_hour: entry.per_hour,
            currency: entry.currency.clone(),
            source: PriceSource {
                instance_type: entry.key.instance_type.clone(),
                region: entry.key.region.clone(),
                validity: entry.validity,
            },
        })
    }

    /// Instants after the start of the range and before its end at which the price of a device changes, in order. A
    /// change from or to no price counts.
    pub fn changes(&self, key: &PriceKey, range: Range<Timestamp>) -> Vec<Timestamp> {
        let applicable: Vec<PriceKey> = key.applicable().collect();
        let entries = applicable.iter().filter_map(|key| self.entries.get(key)).flatten();
        let bounds = entries.flat_map(|entry| [entry.validity.from, entry.validity.until]);
        let mut bounds: Vec<Timestamp> = bounds.flatten().collect();
        bounds.retain(|at| range.start < *at && *at < range.end);
        bounds.sort_unstable();
        bounds.dedup();
        let price = |at| self.price(key, at).map(|price| (price.per_hour, price.currency));
        let mut last = price(range.start);
        bounds.retain(|at| {
            let next = price(*at);
            let is_change = next != last;
            last = next;
            is_change
        });
        bounds
    }

    /// All entries, ordered by key and time.
    pub fn entries(&self) -> impl Iterator<Item = &PriceEntry> {
        self.entries.values().flatten()
    }

    /// Currency of the entries that state no other.
    pub fn currency(&self) -> &Currency {
        &self.currency
    }
}

/// Formats the source: `instance type p5.48xlarge, region us-east-1, from 2026-01-01T00:00:00Z`.
impl fmt::Display for PriceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(instance_type) = &self.instance_type {
            write!(f, "instance type {instance_type}, ")?;
        }
        if let Some(region) = &self.region {
            write!(f, "region {region}, ")?;
        }
        self.validity.fmt(f)
    }
}

impl CurrentPrices {
    /// Prices of the book at this instant.
    pub fn new(book: Arc<PriceBook>, at: Timestamp) -> Self {
        Self { book, at }
    }

    /// The price of one whole device of a type with this purchase option, on a node of which nothing else is known.
    pub fn price(&self, of: &TypeName, option: PurchaseOption) -> Option<Price> {
        let price = self.book.price(&PriceKey::new(of.clone(), option), self.at)?;
        let (per_hour, currency) = (price.per_hour, price.currency);
        Some(Price { per_hour, currency, purchase_option: option.into() })
    }

    /// The price of one whole device.
    pub fn price_of(&self, key: &PriceKey) -> Option<UnitPrice> {
        self.book.price(key, self.at)
    }

    /// The book.
    pub fn book(&self) -> &Arc<PriceBook> {
        &self.book
    }

    /// Currency of the book, which limits of prices refer to.
    pub fn currency(&self) -> &Currency {
        self.book.currency()
    }
}

#[cfg(test)]
mod tests;
