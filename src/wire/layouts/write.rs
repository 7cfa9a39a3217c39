//! Writing of layouts in either dialect.

use std::fmt;

use thiserror::Error;

use super::error::LayoutError;
use super::out::Out;
use super::slicing;
use super::{API_VERSION, KIND, parse};
use crate::domain::layout::{
    Criteria, Dialect, IndexRange, Layout, Layouts, MigWish, ProfileCount, Rule, Selector,
};

/// Maximum number of indices a range expands to in a dialect without ranges.
const MOST_INDICES: usize = 1024;

/// Levels written in block style: the file, its layouts, their rules, and the keys of a rule.
const LEVELS: usize = 4;

/// Error while writing layouts in a dialect.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CannotWrite {
    /// The dialect cannot express the layout.
    #[error("layout {layout:?}: {} cannot say {what}", name(*.dialect))]
    NoWords {
        /// Name of the layout.
        layout: String,
        /// The dialect.
        dialect: Dialect,
        /// The part that cannot be expressed.
        what: &'static str,
    },
    /// The layouts are not valid in the dialect.
    #[error("what would be written could not be read again: {0}")]
    Unreadable(LayoutError),
}

fn name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Octavo => "the dialect octavo.dev/v1",
        Dialect::MigParted => "mig-parted's dialect",
        Dialect::DevicePlugin => "the configuration of NVIDIA's device plugin",
    }
}

/// Writes layouts as YAML that parses to equal layouts, except for source positions.
///
/// # Errors
/// Fails if the dialect cannot express a layout, or if a file with these layouts would be rejected.
pub fn write(layouts: &Layouts, dialect: Dialect) -> Result<String, CannotWrite> {
    checked(file(layouts, dialect)?.yaml(LEVELS))
}

/// Writes layouts as JSON that parses to equal layouts, except for source positions.
///
/// # Errors
/// As for [`write()`].
pub fn write_json(layouts: &Layouts, dialect: Dialect) -> Result<String, CannotWrite> {
    checked(file(layouts, dialect)?.json())
}

fn checked(text: String) -> Result<String, CannotWrite> {
    match parse(&text) {
        Ok(_) => Ok(text),
        Err(errors) => match errors.into_iter().next() {
            Some(error) => Err(CannotWrite::Unreadable(error)),
            None => Ok(text),
        },
    }
}

fn file(layouts: &Layouts, dialect: Dialect) -> Result<Out, CannotWrite> {
    let named: Vec<(String, Out)> = layouts
        .layouts
        .iter()
        .map(|layout| Ok((layout.name.clone(), rules(layout, dialect)?)))
        .collect::<Result<_, CannotWrite>>()?;
    Ok(match dialect {
        Dialect::Octavo => map([
            ("apiVersion", Out::text(API_VERSION)),
            ("kind", Out::text(KIND)),
            ("layouts", Out::Map(named)),
        ]),
        Dialect::MigParted | Dialect::DevicePlugin => map([
            ("version", Out::text("v1")),
            ("mig-configs", Out::Map(named)),
        ]),
    })
}

fn rules(layout: &Layout, dialect: Dialect) -> Result<Out, CannotWrite> {
    let rule = |rule: &Rule| match dialect {
        Dialect::Octavo => octavo(rule),
        Dialect::MigParted => mig_parted(rule),
        // This dialect is only parsed. The hand-off to the device plugin writes its configuration.
        Dialect::DevicePlugin => Err("layouts"),
    };
    let rules = layout.rules.iter().map(|one| {
        rule(one).map_err(|what| CannotWrite::NoWords {
            layout: layout.name.clone(),
            dialect,
            what,
        })
    });
    Ok(Out::List(rules.collect::<Result<_, _>>()?))
}

fn octavo(rule: &Rule) -> Result<Out, &'static str> {
    let devices = match &rule.devices {
        Selector::All => Out::text("all"),
        Selector::Rest => Out::text("rest"),
        Selector::Matching(criteria) => criteria_out(criteria)?,
    };
    let mut entries = vec![("devices", devices)];
    match &rule.mig {
        None => {}
        Some(MigWish::Disabled) => entries.push(("mig", Out::text("disabled"))),
        Some(MigWish::Enabled(counts)) => entries.push(("mig", counts_out(counts))),
    }
    if let Some(sharing) = &rule.time_slicing {
        entries.push(("timeSlicing", slicing::written(sharing)?));
    }
    Ok(map(entries))
}

fn criteria_out(criteria: &Criteria) -> Result<Out, &'static str> {
    if criteria.device_filter.is_some() {
        return Err("a device filter by PCI ids");
    }
    let mut entries = Vec::new();
    let lists = [
        ("index", criteria.index.as_deref().map(ranges)),
        ("uuid", criteria.uuid.as_deref().map(texts)),
        ("pci", criteria.pci.as_deref().map(texts)),
        ("type", criteria.type_name.as_deref().map(texts)),
    ];
    for (key, list) in lists {
        entries.extend(list.map(|list| (key, list)));
    }
    if let Some(memory) = criteria.memory_at_least {
        entries.push(("memoryAtLeast", Out::Text(format!("{}Mi", memory.get()))));
    }
    if let Some(capable) = criteria.mig_capable {
        entries.push(("migCapable", Out::Bool(capable)));
    }
    Ok(map(entries))
}

fn ranges(ranges: &[IndexRange]) -> Out {
    let one = |range: &IndexRange| {
        if range.first == range.last {
            Out::Number(u64::from(range.first))
        } else {
            Out::text(range)
        }
    };
    single_or_list(ranges, one)
}

fn texts<T: fmt::Display>(texts: &[T]) -> Out {
    single_or_list(texts, |text| Out::text(text))
}

fn single_or_list<T>(items: &[T], one: impl Fn(&T) -> Out) -> Out {
    match items {
        [item] => one(item),
        [] | [_, _, ..] => Out::List(items.iter().map(one).collect()),
    }
}

fn counts_out(counts: &[ProfileCount]) -> Out {
    let entries = counts.iter().map(|count| {
        (
            count.profile.to_string(),
            Out::Number(u64::from(count.count)),
        )
    });
    Out::Map(entries.collect())
}

fn mig_parted(rule: &Rule) -> Result<Out, &'static str> {
    if rule.time_slicing.is_some() {
        return Err("how devices are shared by time slicing");
    }
    let mut entries = Vec::new();
    match &rule.devices {
        Selector::All => entries.push(("devices", Out::text("all"))),
        Selector::Rest => return Err("the rest of the devices"),
        Selector::Matching(criteria) => plain_criteria(criteria, &mut entries)?,
    }
    match &rule.mig {
        None => return Err("that partitioning stays as it is"),
        // mig-parted writes the empty mapping too, and scripts index it.
        Some(MigWish::Disabled) => {
            entries.push(("mig-enabled", Out::Bool(false)));
            entries.push(("mig-devices", counts_out(&[])));
        }
        Some(MigWish::Enabled(counts)) => {
            entries.push(("mig-enabled", Out::Bool(true)));
            entries.push(("mig-devices", counts_out(counts)));
        }
    }
    Ok(map(entries))
}

fn plain_criteria(
    criteria: &Criteria,
    entries: &mut Vec<(&'static str, Out)>,
) -> Result<(), &'static str> {
    let missing = [
        (criteria.uuid.is_some(), "devices by UUID"),
        (criteria.pci.is_some(), "devices by PCI address"),
        (criteria.type_name.is_some(), "devices by type"),
        (criteria.memory_at_least.is_some(), "devices by memory"),
        (criteria.mig_capable.is_some(), "devices by MIG capability"),
    ];
    if let Some((_, what)) = missing.iter().find(|(there, _)| *there) {
        return Err(what);
    }
    if let Some(filters) = &criteria.device_filter {
        entries.push(("device-filter", texts(filters)));
    }
    let devices = match &criteria.index {
        None => Out::text("all"),
        Some(ranges) => {
            let all = ranges.iter().flat_map(|range| range.first..=range.last);
            let some: Vec<u32> = all.take(MOST_INDICES + 1).collect();
            if some.len() > MOST_INDICES {
                return Err("a range of more than 1024 devices");
            }
            let numbers = some.into_iter().map(|index| Out::Number(u64::from(index)));
            Out::List(numbers.collect())
        }
    };
    entries.push(("devices", devices));
    Ok(())
}

pub(super) fn map<'k>(entries: impl IntoIterator<Item = (&'k str, Out)>) -> Out {
    let entries = entries.into_iter();
    Out::Map(
        entries
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
    )
}
