//! Parameters of a request for series.

use octavo_history::{Metric, Span, Step};
use octavo_model::id::{NodeName, PciAddress, TypeName};
use strum::IntoStaticStr;

use crate::query::parse::{add, parse_word, set_each, type_name};
use crate::query::{QueryError, Selector};

/// Metric, time range and filters. A device must satisfy all filters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// Metric.
    pub metric: Metric,
    /// Time range.
    pub window: Span,
    /// Time between two values; `None` for that of a chart.
    pub step: Option<Step>,
    /// Grouping of devices into series.
    pub group_by: Grouping,
    /// Node.
    pub node: Option<NodeName>,
    /// Address of the device.
    pub device: Option<PciAddress>,
    /// Types; `None` is an unknown type. Empty accepts all.
    pub types: Vec<Option<TypeName>>,
    /// Label selector of the nodes.
    pub selector: Selector,
}

/// Grouping of devices into series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Grouping {
    /// A device or partition.
    Device,
    /// The devices of a node.
    Node,
    /// The devices of a type.
    #[default]
    Type,
    /// All devices.
    All,
}

const PARAMETERS: &str = "metric, window, step, groupBy, node, device, type, selector";

impl Query {
    /// Parses the parameters in `pairs`. A parameter without a value counts as absent.
    pub fn parse(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, QueryError> {
        let mut query = Self::default();
        set_each(pairs, &["type"], |name, value| query.set(name, value))?;
        let steps = query.window.steps();
        match query.step.filter(|step| !steps.contains(step)) {
            Some(step) => {
                let valid: Vec<&str> = steps.iter().copied().map(Step::as_str).collect();
                let valid = format!("{} with window={}", valid.join(", "), query.window);
                Err(QueryError::value("step", step.as_str(), valid))
            }
            None => Ok(query),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), QueryError> {
        let is_there = !value.is_empty();
        match name {
            "metric" if is_there => {
                self.metric = parse_word("metric", value, Metric::ALL, Metric::as_str)?;
            }
            "window" if is_there => {
                self.window = parse_word("window", value, Span::ALL, Span::as_str)?;
            }
            "step" if is_there => {
                self.step = Some(parse_word("step", value, Step::ALL, Step::as_str)?);
            }
            "groupBy" if is_there => {
                self.group_by = parse_word("groupBy", value, Grouping::ALL, Grouping::as_str)?;
            }
            "node" if is_there => {
                let node = value.parse();
                let wrong = |_| QueryError::value("node", value, "the name of a node");
                self.node = Some(node.map_err(wrong)?);
            }
            "device" if is_there => {
                let device = value.parse();
                let wrong =
                    |_| QueryError::value("device", value, "a PCI address such as 0000:1b:00.0");
                self.device = Some(device.map_err(wrong)?);
            }
            "type" => add(&mut self.types, value, type_name)?,
            "selector" => self.selector = value.parse().map_err(QueryError::Selector)?,
            "metric" | "window" | "step" | "groupBy" | "node" | "device" => {}
            _ => return Err(QueryError::unknown(name, PARAMETERS)),
        }
        Ok(())
    }
}

impl Grouping {
    /// All groupings.
    pub const ALL: [Self; 4] = [Self::Device, Self::Node, Self::Type, Self::All];

    /// Value in the parameter.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Result<Query, QueryError> {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Query::parse(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    #[test]
    fn absent_parameters_have_defaults() {
        for query in ["", "metric=&window=&step=&groupBy=&node=&device=&type=&selector="] {
            assert_eq!(parsed(query), Ok(Query::default()));
        }
        let query = parsed(
            "metric=power&window=24h&step=1h&groupBy=device&node=gpu-1&device=0000:1b:00.0&type=nvidia-l4,unknown&type=nvidia-t4",
        );
        let query = query.unwrap();
        assert_eq!(
            (query.metric, query.window, query.step),
            (Metric::Power, Span::Day, Some(Step::Hour))
        );
        assert_eq!((query.types.len(), query.types[1].clone()), (3, None));
        assert_eq!(query.device, "0000:1b:00.0".parse().ok());
    }

    #[test]
    fn i12_invalid_parameter_is_named_with_valid_values() {
        for (query, parameter, expected) in [
            ("metric=load", "metric", "utilization, memory, power, temperature, allocation"),
            ("window=7d", "window", "1h, 24h"),
            ("step=15s&window=24h", "step", "1m, 5m, 15m, 1h with window=24h"),
            ("step=1h", "step", "15s, 1m, 5m, 15m with window=1h"),
            ("step=2m", "step", "15s, 1m, 5m, 15m, 1h"),
            ("groupBy=pod", "groupBy", "device, node, type, all"),
            ("node=A_b", "node", "the name of a node"),
            ("device=GPU-1", "device", "a PCI address"),
            ("type=%", "type", "nvidia-h200-141gb"),
            ("selector=a b", "selector", "invalid"),
            ("node=a&node=b", "node", "only once"),
            ("pool=a", "pool", "metric, window"),
        ] {
            let error = parsed(query).unwrap_err();
            assert_eq!(error.parameter(), parameter, "{query}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
