//! Filter form of the list of nodes.

use octavo_fleet::summary::{NodeState, Sharing};
use octavo_model::reason::Reason;
use octavo_planner::reconcile::ApplyState;
use octavo_store::fleet::TypeTotals;
use octavo_store::query::{self, Query, SortKey};

use super::address::ListAddress;
use super::badges::{node_state, type_name};
use super::groups::{BY_TYPE, GROUP};
use super::rows::sort_parameter;

/// Parameters that filter nodes.
pub(super) const FILTERS: [&str; 8] =
    ["search", "type", "state", "problem", "sharing", "layout", "layoutState", "selector"];

#[derive(Debug)]
pub(super) struct FilterForm {
    pub(super) search: String,
    pub(super) selector: String,
    pub(super) selects: Vec<Select>,
    pub(super) active: bool,
    pub(super) clear: String,
}

/// Drop-down list.
#[derive(Debug)]
pub(super) struct Select {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) options: Vec<Choice>,
}

/// Option of a drop-down list.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) word: String,
    pub(super) chosen: bool,
}

/// Builds the form with the current parameters selected.
pub(super) fn filter_form(
    address: &ListAddress,
    types: &[TypeTotals],
    query: &Query,
    has_layouts: bool,
) -> FilterForm {
    let types = types.iter().map(|one| {
        let name = type_name(one.counts.type_name.as_ref());
        (type_value(one), name)
    });
    let states = NodeState::ALL.into_iter().rev();
    let states = states.map(|state| (state.as_str().to_owned(), node_state(state).word.to_owned()));
    let sharing =
        Sharing::ALL.into_iter().map(|one| (one.as_str().to_owned(), one.as_str().to_owned()));
    let sort = sort_parameter(query.sort.key, query.sort.descending);
    let orders = [
        (SortKey::Name, false, "name"),
        (SortKey::State, true, "state, most severe first"),
        (SortKey::Devices, true, "devices, most first"),
        (SortKey::Free, true, "free devices, most first"),
        (SortKey::Memory, true, "memory, most first"),
        (SortKey::Age, true, "last seen, oldest first"),
    ];
    let mut orders: Vec<(String, String)> = orders
        .map(|(key, descending, word)| (sort_parameter(key, descending), word.to_owned()))
        .to_vec();
    if !orders.iter().any(|(value, _)| *value == sort) {
        orders.push((sort.clone(), sort.trim_start_matches('-').to_owned()));
    }
    let mut selects = vec![
        select("type", "Type", address.get("type"), types),
        select("state", "State", address.get("state"), states),
        select("sharing", "Sharing", address.get("sharing"), sharing),
    ];
    // The overview links to the nodes with a problem; the words depend on the versions of the agents.
    if !address.get("problem").is_empty() {
        selects.push(select("problem", "Problem", address.get("problem"), []));
    }
    // A fleet without layouts needs no filter for them.
    if has_layouts || !address.get("layoutState").is_empty() {
        let words =
            ApplyState::REASONS.into_iter().rev().map(Reason::as_str).chain([query::NO_STATE]);
        let words = words.map(|word| (word.to_owned(), word.to_owned()));
        let now = address.get("layoutState");
        selects.push(select("layoutState", "Layout", now, words));
    }
    selects.push(Select {
        name: "sort",
        label: "Order",
        options: choices(orders, &sort).collect(),
    });
    let group = [("", "none"), (BY_TYPE, "by type")];
    let group = group.map(|(value, word)| (value.to_owned(), word.to_owned()));
    selects.push(Select {
        name: GROUP,
        label: "Group",
        options: choices(group.to_vec(), address.get(GROUP)).collect(),
    });
    FilterForm {
        search: address.get("search").to_owned(),
        selector: address.get("selector").to_owned(),
        selects,
        active: FILTERS.iter().any(|name| !address.get(name).is_empty()),
        clear: address.only(&["sort", GROUP]),
    }
}

/// Builds a drop-down list of these options and `any`.
fn select(
    name: &'static str,
    label: &'static str,
    now: &str,
    all: impl IntoIterator<Item = (String, String)>,
) -> Select {
    let any = (String::new(), "any".to_owned());
    let mut all: Vec<(String, String)> = std::iter::once(any).chain(all).collect();
    // The address may name a value that the fleet does not have; the form must still show it.
    if !all.iter().any(|(value, _)| value == now) {
        all.push((now.to_owned(), now.to_owned()));
    }
    Select { name, label, options: choices(all, now).collect() }
}

/// Options with these values and labels, of which `now` is chosen.
pub(super) fn choices(all: Vec<(String, String)>, now: &str) -> impl Iterator<Item = Choice> {
    all.into_iter().map(move |(value, word)| Choice { chosen: value == now, value, word })
}

/// Value of the parameter `type` for this type.
pub(super) fn type_value(one: &TypeTotals) -> String {
    let name = one.counts.type_name.as_ref();
    name.map_or_else(|| "unknown".to_owned(), ToString::to_string)
}
