//! Parameters of the map's address.

use octavo_model::id::TypeName;
use octavo_store::query::Query;
use octavo_toolkit::error::chain;

use super::scale::Metric;
use crate::address::{ListAddress, moved};

/// Maximum number of cells.
pub(super) const MAX_CELLS: usize = 10_000;

/// Parameters besides the filter of the nodes.
pub(super) const BY: &str = "by";
pub(super) const GROUP: &str = "group";
pub(super) const CELLS: &str = "cells";
pub(super) const VIEW: &str = "view";

/// Parameters of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) metric: Metric,
    pub(super) by_type: bool,
    /// True if cells are devices; `None` if the number of devices decides.
    pub(super) by_device: Option<bool>,
    pub(super) is_table: bool,
    pub(super) query: Query,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            metric: Metric::State,
            by_type: false,
            by_device: None,
            is_table: false,
            query: Query { limit: usize::MAX, ..Query::default() },
        }
    }
}

impl Request {
    /// Parses the parameters of the map and the filter of the nodes.
    pub(super) fn parse(address: &ListAddress) -> Result<Self, String> {
        let by = Metric::ALL.map(Metric::as_str);
        let by = choice(address, BY, &by)?;
        let group = choice(address, GROUP, &["node", "type"])?;
        let cells = choice(address, CELLS, &["device", "node"])?;
        let view = choice(address, VIEW, &["cells", "table"])?;
        let query = Query::parse(node_filter(address).pairs()).map_err(|error| chain(&error))?;
        let metric = Metric::ALL.into_iter().find(|metric| metric.as_str() == by);
        Ok(Self {
            metric: metric.unwrap_or(Metric::State),
            by_type: group == "type",
            by_device: (!cells.is_empty()).then_some(cells == "device"),
            is_table: view == "table",
            query: Query { limit: usize::MAX, after: None, ..query },
        })
    }
}

/// The parameters that filter nodes, as in the API.
pub(super) fn node_filter(address: &ListAddress) -> ListAddress {
    let own = [BY, GROUP, CELLS, VIEW].into_iter();
    own.fold(address.clone(), |address, name| address.without(name))
}

/// Returns `true` if devices of this type are shown. A node of several types can have others.
pub(super) fn is_wanted(query: &Query, type_name: Option<&TypeName>) -> bool {
    query.types.is_empty() || query.types.iter().any(|wanted| wanted.as_ref() == type_name)
}

/// Value of a parameter, which is empty or one of `all`.
fn choice<'a>(address: &'a ListAddress, name: &str, all: &[&str]) -> Result<&'a str, String> {
    let value = address.get(name);
    if value.is_empty() || all.contains(&value) {
        return Ok(value);
    }
    let start: String = value.chars().take(64).collect();
    Err(format!("invalid value {start:?} for parameter {name}: must be {}", all.join(", ")))
}

/// Address of the map with one parameter changed.
pub(super) fn link(address: &ListAddress, name: &str, value: &str) -> String {
    moved(&address.with(name, value), "/map")
}
