//! Form fields for counts of resources and for tolerated taints.

use super::asked::{Asked, tolerated};
use crate::aggregator::pages::words::printable;
use crate::domain::hardware_profile::{Draft, Identifier, Part};

/// Fields of a resource's counts.
#[derive(Debug)]
pub(super) struct CountFields {
    pub(super) resource: String,
    pub(super) shown: String,
    pub(super) fields: Vec<Field>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) label: String,
    pub(super) value: String,
    pub(super) wrong: bool,
}

/// Check box for tolerating a taint of the nodes.
#[derive(Debug)]
pub(super) struct TaintBox {
    pub(super) id: String,
    pub(super) text: String,
    pub(super) checked: bool,
}

impl CountFields {
    pub(super) fn of(one: &Identifier, asked: &Asked, wrong: Option<&(String, Part)>) -> Self {
        let parts = [
            (Part::Min, "Least"),
            (Part::Default, "Usual"),
            (Part::Max, "Most"),
        ];
        let field = |(part, label): (Part, &str)| Field {
            name: format!("{}:{}", part.word(), one.resource),
            label: format!("{label} {}", printable(&one.display_name)),
            value: asked.said(one, part),
            wrong: wrong.is_some_and(|(resource, at)| *resource == one.resource && *at == part),
        };
        Self {
            resource: printable(&one.resource),
            shown: printable(&one.display_name),
            fields: parts.map(field).into(),
        }
    }
}

impl TaintBox {
    pub(super) fn all(plain: &Draft, asked: &Asked) -> Vec<Self> {
        let own = tolerated(plain);
        let chosen = asked.tolerate.as_ref().unwrap_or(&own);
        let texts = plain.taints.iter().map(ToString::to_string);
        let one = |(number, text): (usize, String)| Self {
            id: format!("taint-{number}"),
            checked: chosen.contains(&text),
            text,
        };
        texts.enumerate().map(one).collect()
    }
}
