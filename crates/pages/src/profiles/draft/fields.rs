//! Form fields for counts of resources and for tolerated taints.

use octavo_fleet::hardware_profile::{CountField, Draft, Identifier};

use super::draft_form::{DraftForm, tolerated};
use crate::badges::printable;

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
pub(super) struct TaintCheckbox {
    pub(super) id: String,
    pub(super) text: String,
    pub(super) checked: bool,
}

impl CountFields {
    pub(super) fn of(
        one: &Identifier,
        form: &DraftForm,
        wrong: Option<&(String, CountField)>,
    ) -> Self {
        let parts =
            [(CountField::Min, "Min"), (CountField::Default, "Default"), (CountField::Max, "Max")];
        let field = |(part, label): (CountField, &str)| Field {
            name: format!("{}:{}", part.word(), one.resource),
            label: format!("{label} {}", printable(&one.display_name)),
            value: form.count_value(one, part),
            wrong: wrong.is_some_and(|(resource, at)| *resource == one.resource && *at == part),
        };
        Self {
            resource: printable(&one.resource),
            shown: printable(&one.display_name),
            fields: parts.map(field).into(),
        }
    }
}

impl TaintCheckbox {
    pub(super) fn all(plain: &Draft, form: &DraftForm) -> Vec<Self> {
        let own = tolerated(plain);
        let chosen = form.tolerate.as_ref().unwrap_or(&own);
        let texts = plain.taints.iter().map(ToString::to_string);
        let one = |(number, text): (usize, String)| Self {
            id: format!("taint-{number}"),
            checked: chosen.contains(&text),
            text,
        };
        texts.enumerate().map(one).collect()
    }
}
