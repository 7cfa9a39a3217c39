//! Parsing of an administrator's budgets, with the same strictness and source positions as for price books.

use std::collections::BTreeMap;

use octavo_fleet::budget::{Budget, BudgetScope};
use octavo_fleet::price::{Amount, Currency};
use octavo_model::source_position::SourcePosition;

use super::error::{LayoutError, LayoutProblem};
use super::fields::{label_text, optional, text, value};
use super::findings::{Findings, Mapping, MappingShape};
use super::node::YamlNode;
use super::{expect_header, parse_file};

const FILE: MappingShape =
    MappingShape { what: "a budget file", keys: &["apiVersion", "kind", "currency", "budgets"] };

const BUDGET: MappingShape =
    MappingShape { what: "a budget", keys: &["namespace", "team", "amount", "currency"] };

const EXAMPLE: &str = "\"budgets: [{namespace: team-a, amount: \\\"5000\\\"}]\"";

/// Maximum number of budgets in a file.
const MAX_BUDGETS: usize = 2000;

/// Maximum length of an amount in characters.
const MAX_AMOUNT_CHARACTERS: usize = 15;

/// Parses a budget file.
///
/// # Errors
/// Returns all errors in the order of the file.
pub fn parse(text: &str) -> Result<Vec<Budget>, Vec<LayoutError>> {
    parse_file(text, FILE, LayoutProblem::NotABudgetFile, read)
}

fn read(file: Mapping<'_>, findings: &mut Findings) -> Option<Vec<Budget>> {
    expect_header(file, "Budgets", "\"kind: Budgets\"", findings);
    let currency = findings
        .required(file, "currency", "\"currency: USD\"")
        .and_then(|node| value::<Currency>(node, "currency", findings));
    let node = findings.required(file, "budgets", EXAMPLE)?;
    let items = findings.expect(node.items(), node, "budgets", "a list of budgets")?;
    let mut seen = BTreeMap::new();
    let mut budgets = Vec::new();
    for item in items.iter().take(MAX_BUDGETS) {
        budgets.extend(read_budget(item, currency.as_ref(), &mut seen, findings));
    }
    if let Some(item) = items.get(MAX_BUDGETS) {
        findings.error(item.position, LayoutProblem::TooManyValues { most: MAX_BUDGETS });
    }
    Some(budgets)
}

fn read_budget(
    node: &YamlNode,
    file_currency: Option<&Currency>,
    seen: &mut BTreeMap<BudgetScope, SourcePosition>,
    findings: &mut Findings,
) -> Option<Budget> {
    let budget = findings.mapping(node, BUDGET)?;
    let scope = scope(budget, findings);
    if let Some(scope) = &scope {
        findings.unique(seen, scope.clone(), node.position);
    }
    let currency = optional(budget, "currency", findings, value::<Currency>);
    let amount = findings
        .required(budget, "amount", "\"amount: \\\"5000\\\"\"")
        .and_then(|node| amount(node, findings));
    let currency = currency.ok()?.or_else(|| file_currency.cloned())?;
    Some(Budget { scope: scope?, amount: amount?, currency })
}

fn scope(budget: Mapping<'_>, findings: &mut Findings) -> Option<BudgetScope> {
    let namespace = optional(budget, "namespace", findings, |node, what, findings| {
        label_text(node, what, "the name of a namespace", findings)
    });
    let namespace = namespace.ok()?;
    let team = optional(budget, "team", findings, |node, what, findings| {
        label_text(node, what, "a value of a pod label", findings)
    });
    let team = team.ok()?;
    match (namespace, team) {
        (Some(namespace), None) => Some(BudgetScope::Namespace(namespace)),
        (None, Some(team)) => Some(BudgetScope::Team(team)),
        (None, None) | (Some(_), Some(_)) => {
            findings.error(budget.position, LayoutProblem::BudgetScope);
            None
        }
    }
}

fn amount(node: &YamlNode, findings: &mut Findings) -> Option<Amount> {
    let text = text(node, "amount", findings)?;
    let is_plain = |text: &&str| {
        text.len() <= MAX_AMOUNT_CHARACTERS && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    };
    let amount = Some(text).filter(is_plain).and_then(|text| text.to_owned().try_into().ok());
    let amount = amount.filter(|amount| *amount > Amount::ZERO);
    findings.expect(
        amount,
        node,
        "amount",
        "a number greater than 0 with at most 15 characters, such as \"5000\"",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: octavo.dev/v1\nkind: Budgets\n";

    fn complaints(text: &str) -> Vec<String> {
        let errors = parse(text).unwrap_err();
        errors.iter().map(|error| format!("{}: {error}", error.position())).collect()
    }

    #[test]
    fn budgets_have_a_scope_an_amount_and_a_currency() {
        let text = format!(
            "{HEAD}currency: USD\nbudgets:\n- {{namespace: team-a, amount: \"12000.50\"}}\n\
             - {{team: vision, amount: 3000000, currency: EUR}}\n"
        );
        let shown = parse(&text).unwrap().into_iter();
        let shown: Vec<String> =
            shown.map(|one| format!("{}: {} {}", one.scope, one.amount, one.currency)).collect();
        assert_eq!(shown, ["namespace team-a: 12000.50 USD", "team vision: 3000000 EUR"]);
    }

    #[test]
    fn all_errors_have_a_position_and_a_remedy() {
        let text = format!(
            "{HEAD}currency: USD\nbudgets:\n- {{namespace: a, amount: 1}}\n- {{namespace: a, amount: 2}}\n\
             - {{namespace: a, team: b, amount: 1}}\n- {{amount: 0}}\n- {{team: b, amuont: 1}}\n\
             - {{team: c, amount: -5}}\n- {{team: d, amount: 1e5, currency: euro}}\n- {{team: [], amount: 1}}\n\
             - {{namespace: a/b, amount: 1}}\n- {{team: a/b, amount: 1}}\n- {{team: e, amount: \"1000000000000000\"}}\n"
        );
        assert_eq!(
            complaints(&text),
            [
                "6:3: duplicate value namespace a, first at 5:3",
                "7:3: a budget is for either a namespace or a team: set one of \"namespace\" and \"team\"",
                "8:3: a budget is for either a namespace or a team: set one of \"namespace\" and \"team\"",
                "8:12: amount must be a number greater than 0 with at most 15 characters, such as \"5000\", not 0",
                "9:3: a budget needs \"amount\": \"amount: \\\"5000\\\"\"",
                "9:13: unknown key \"amuont\" in a budget; did you mean \"amount\"?",
                "10:21: amount must be a number greater than 0 with at most 15 characters, such as \"5000\", not -5",
                "11:21: amount must be a number greater than 0 with at most 15 characters, such as \"5000\", not 1e5",
                "11:36: \"euro\" is not a currency: use three capital letters, such as USD",
                "12:10: team must be a string, not a list",
                "13:15: namespace must be the name of a namespace, not a/b",
                "14:10: team must be a value of a pod label, not a/b",
                "15:21: amount must be a number greater than 0 with at most 15 characters, such as \"5000\", not the string \"1000000000000000\"",
            ]
        );
        assert!(complaints("")[0].contains("this is not a budget file"));
        assert!(complaints(&format!("{HEAD}budgets: []\n"))[0].contains("currency"));
    }
}
