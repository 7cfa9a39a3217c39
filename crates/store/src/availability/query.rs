//! Filters of an availability query. Pure.

use octavo_fleet::availability::Row;

use crate::query::QueryError;
use crate::query::parse::parse_name;

/// Filters by type and resource. A row must satisfy all filters; within one filter, any value suffices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AvailabilityQuery {
    /// Names of types, including `mixed` and `unknown`. Empty accepts all.
    pub types: Vec<String>,
    /// Resource names. Empty accepts all.
    pub resources: Vec<String>,
    /// Minimum number of free devices.
    pub min_free: u64,
}

/// Maximum number of values per parameter.
const MAX_VALUES: usize = 100;

/// Maximum of the API's signed 64-bit integers.
const MAX_MIN_FREE: u64 = i64::MAX.unsigned_abs();

impl AvailabilityQuery {
    /// Parses query parameters. A parameter without a value counts as absent.
    pub fn parse(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, QueryError> {
        let mut query = Self::default();
        for (name, value) in pairs {
            match name.as_str() {
                "type" => parse_values("type", &value, &mut query.types)?,
                "resource" => parse_values("resource", &value, &mut query.resources)?,
                "minFree" if value.trim().is_empty() => {}
                "minFree" => {
                    let least = value.trim().parse().ok();
                    let least = least.filter(|least| *least <= MAX_MIN_FREE);
                    query.min_free = least.ok_or_else(|| {
                        let allowed = "a number from 0 to 9223372036854775807";
                        QueryError::value("minFree", &value, allowed)
                    })?;
                }
                _ => return Err(QueryError::unknown(&name, "type, resource, minFree")),
            }
        }
        Ok(query)
    }

    /// Returns whether the row satisfies all filters.
    pub fn matches(&self, row: &Row) -> bool {
        let is_among =
            |all: &[String], one: &str| all.is_empty() || all.iter().any(|value| value == one);
        is_among(&self.types, row.key.kind.as_str())
            && is_among(&self.resources, &row.key.resource)
            && row.free >= self.min_free
    }
}

fn parse_values(
    parameter: &'static str,
    value: &str,
    all: &mut Vec<String>,
) -> Result<(), QueryError> {
    for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let word = parse_name(parameter, word)?;
        if all.len() >= MAX_VALUES {
            return Err(QueryError::TooMany { parameter, most: MAX_VALUES });
        }
        all.push(word.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<AvailabilityQuery, QueryError> {
        let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        AvailabilityQuery::parse(owned)
    }

    #[test]
    fn values_can_be_repeated_or_comma_separated() {
        let query = parse(&[("type", "a,b"), ("type", "c"), ("minFree", "2"), ("resource", "")]);
        let query = query.unwrap();
        assert_eq!(query.types, ["a", "b", "c"]);
        assert_eq!((query.resources.len(), query.min_free), (0, 2));
    }

    #[test]
    fn i12_error_names_the_invalid_parameter() {
        for (pairs, parameter) in [
            (&[("minFree", "-1")][..], "minFree"),
            (&[("minFree", "many")], "minFree"),
            (&[("minFree", "9223372036854775808")], "minFree"),
            (&[("size", "1")], "size"),
            (&[("type", &"x".repeat(257))], "type"),
            (&[("resource", &"x,".repeat(101))], "resource"),
        ] {
            let error = parse(pairs).unwrap_err();
            assert_eq!(error.parameter(), parameter, "{pairs:?}");
            assert!(error.to_string().len() < 200);
        }
    }
}
