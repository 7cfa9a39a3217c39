//! Parser of query parameters.

use octavo_fleet::fleet::{MAX_WORD_BYTES, NodeState, Sharing};
use octavo_model::id::TypeName;
use octavo_planner::reconcile::ApplyState;

use super::error::{Parameter, QueryError};
use super::token::ContinueToken;
use super::{MAX_LIMIT, Query, Sort, SortKey};

/// Value for devices of unknown type.
const UNKNOWN_TYPE: &str = "unknown";
/// Value for nodes whose layout does not affect any device.
pub const NO_STATE: &str = "none";

impl Query {
    /// Parses the parameters in `pairs`. A parameter without a value counts as absent, because forms send empty fields
    /// that way. `type`, `state`, `sharing`, `layout` and `layoutState` can be repeated and accept comma-separated
    /// values.
    pub fn parse(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, QueryError> {
        let mut query = Self::default();
        let mut seen: Vec<Parameter> = Vec::new();
        for (name, value) in pairs {
            let mut all = Parameter::ALL.into_iter();
            let parameter = all
                .find(|known| known.as_str() == name)
                .ok_or_else(|| QueryError::unknown(&name))?;
            let value = value.trim();
            if value.is_empty() {
                continue;
            }
            let repeats = matches!(
                parameter,
                Parameter::Type
                    | Parameter::State
                    | Parameter::Sharing
                    | Parameter::Layout
                    | Parameter::LayoutState
            );
            if !repeats && seen.contains(&parameter) {
                return Err(QueryError::Repeated(parameter.as_str()));
            }
            seen.push(parameter);
            query.take(parameter, value)?;
        }
        if let Some(token) = &query.after {
            token.check(&query).map_err(QueryError::Continue)?;
        }
        Ok(query)
    }

    fn take(&mut self, parameter: Parameter, value: &str) -> Result<(), QueryError> {
        match parameter {
            Parameter::Search => self.search = Some(value.to_ascii_lowercase()),
            Parameter::Type => add(&mut self.types, value, type_name)?,
            Parameter::State => add(&mut self.states, value, state)?,
            Parameter::Sharing => add(&mut self.sharing, value, sharing)?,
            Parameter::Layout => add(&mut self.layouts, value, layout)?,
            Parameter::LayoutState => add(&mut self.layout_states, value, layout_state)?,
            Parameter::Selector => {
                self.selector = value.parse().map_err(QueryError::Selector)?;
            }
            Parameter::Sort => self.sort = sort(value)?,
            Parameter::Limit => self.limit = limit(value)?,
            Parameter::Continue => {
                self.after = Some(
                    value
                        .parse::<ContinueToken>()
                        .map_err(QueryError::Continue)?,
                );
            }
        }
        Ok(())
    }
}

/// Adds the values of `list` without duplicates.
fn add<T: PartialEq>(
    to: &mut Vec<T>,
    list: &str,
    parse: impl Fn(&str) -> Result<T, QueryError>,
) -> Result<(), QueryError> {
    for one in list.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let one = parse(one)?;
        if !to.contains(&one) {
            to.push(one);
        }
    }
    Ok(())
}

fn type_name(text: &str) -> Result<Option<TypeName>, QueryError> {
    if text == UNKNOWN_TYPE {
        return Ok(None);
    }
    let refused = |source| QueryError::Type {
        value: text.chars().take(super::error::MAX_ECHOED_CHARS).collect(),
        source,
    };
    text.parse().map(Some).map_err(refused)
}

fn state(text: &str) -> Result<NodeState, QueryError> {
    let mut all = NodeState::ALL.into_iter();
    all.find(|state| state.as_str() == text).ok_or_else(|| {
        let allowed = NodeState::ALL.map(NodeState::as_str).join(", ");
        QueryError::value(Parameter::State, text, allowed)
    })
}

fn sharing(text: &str) -> Result<Sharing, QueryError> {
    let mut all = Sharing::ALL.into_iter();
    all.find(|sharing| sharing.as_str() == text).ok_or_else(|| {
        let allowed = Sharing::ALL.map(Sharing::as_str).join(", ");
        QueryError::value(Parameter::Sharing, text, allowed)
    })
}

/// Layout names are user-defined, so an unknown one is not an error.
fn layout(text: &str) -> Result<String, QueryError> {
    if text.len() > MAX_WORD_BYTES {
        let allowed = format!("a name of at most {MAX_WORD_BYTES} bytes");
        return Err(QueryError::value(Parameter::Layout, text, allowed));
    }
    Ok(text.to_owned())
}

fn layout_state(text: &str) -> Result<Option<&'static str>, QueryError> {
    if text == NO_STATE {
        return Ok(None);
    }
    let mut all = ApplyState::WORDS.into_iter();
    all.find(|word| *word == text).map(Some).ok_or_else(|| {
        let allowed = format!("{NO_STATE}, {}", ApplyState::WORDS.join(", "));
        QueryError::value(Parameter::LayoutState, text, allowed)
    })
}

fn sort(text: &str) -> Result<Sort, QueryError> {
    let (key, descending) = text
        .strip_prefix('-')
        .map_or((text, false), |key| (key, true));
    let mut all = SortKey::ALL.into_iter();
    let key = all.find(|known| known.as_str() == key).ok_or_else(|| {
        let keys = SortKey::ALL.map(SortKey::as_str).join(", ");
        let allowed = format!("{keys}, each with - before it for the greatest first");
        QueryError::value(Parameter::Sort, text, allowed)
    })?;
    Ok(Sort { key, descending })
}

fn limit(text: &str) -> Result<usize, QueryError> {
    let number = text.parse().ok();
    number
        .filter(|limit| (1..=MAX_LIMIT).contains(limit))
        .ok_or_else(|| QueryError::value(Parameter::Limit, text, format!("1 to {MAX_LIMIT}")))
}
