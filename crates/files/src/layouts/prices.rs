//! Parsing of an administrator's price book into a [`PriceBook`], with the same strictness and source positions as for
//! layouts.

use std::collections::BTreeMap;
use std::str::FromStr;

use octavo_fleet::price::{Amount, Currency, PriceBook, PriceError, PurchaseOption};
use octavo_model::id::TypeName;
use octavo_model::source_position::SourcePosition;

use super::error::{LayoutError, LayoutProblem};
use super::findings::{Findings, Mapping, MappingShape};
use super::node::{YamlNode, quoted};
use super::{expect_header, parse_file, scalar};

/// `kind` of the file.
const KIND: &str = "PriceBook";

const FILE: MappingShape =
    MappingShape { what: "a price book", keys: &["apiVersion", "kind", "currency", "prices"] };

const PRICE: MappingShape = MappingShape { what: "a price", keys: &["type", "option", "perHour"] };

const EXAMPLE: &str =
    "\"prices: [{type: nvidia-h100-80gb, option: on-demand, perHour: \\\"12.34\\\"}]\"";

/// Maximum number of prices in a file: a few for each existing type.
const MAX_PRICES: usize = 2000;

/// Parses a price book.
///
/// # Errors
/// Returns all errors in the order of the file.
pub fn parse(text: &str) -> Result<PriceBook, Vec<LayoutError>> {
    parse_file(text, FILE, LayoutProblem::NotAPriceBook, read)
}

fn read(file: Mapping<'_>, findings: &mut Findings) -> Option<PriceBook> {
    expect_header(file, KIND, "\"kind: PriceBook\"", findings);
    let currency = findings
        .required(file, "currency", "\"currency: USD\"")
        .and_then(|node| value::<Currency>(node, "currency", findings));
    let node = findings.required(file, "prices", EXAMPLE)?;
    let items = findings.expect(node.items(), node, "prices", "a list of prices")?;
    // Lines are checked for errors even if the currency is invalid.
    let mut prices = currency.map(PriceBook::new);
    let mut seen: BTreeMap<(TypeName, PurchaseOption), SourcePosition> = BTreeMap::new();
    for item in items.iter().take(MAX_PRICES) {
        let Some((type_name, option, price)) = read_price(item, findings) else {
            continue;
        };
        if let Some(first) = seen.get(&(type_name.clone(), option)).copied() {
            let value = quoted(&format!("{type_name} {option}"));
            findings.error(item.position, LayoutProblem::DuplicateValue { value, first });
            continue;
        }
        seen.insert((type_name.clone(), option), item.position);
        if let Some(prices) = &mut prices {
            prices.add(type_name, option, price);
        }
    }
    if let Some(item) = items.get(MAX_PRICES) {
        findings.error(item.position, LayoutProblem::TooManyValues { most: MAX_PRICES });
    }
    prices
}

fn read_price(
    node: &YamlNode,
    findings: &mut Findings,
) -> Option<(TypeName, PurchaseOption, Amount)> {
    let price = findings.mapping(node, PRICE)?;
    let type_name = findings
        .required(price, "type", "\"type: nvidia-h100-80gb\"")
        .and_then(|node| findings.accept(scalar::text(node)?.parse(), node.position));
    let option = match price.get("option") {
        Some(node) => value(node, "option", findings),
        None => Some(PurchaseOption::default()),
    };
    let per_hour = findings
        .required(price, "perHour", "\"perHour: \\\"12.34\\\"\"")
        .and_then(|node| value(node, "perHour", findings));
    Some((type_name?, option?, per_hour?))
}

/// Parses a value whose error message is self-explanatory.
fn value<T: FromStr<Err = PriceError>>(
    node: &YamlNode,
    what: &'static str,
    findings: &mut Findings,
) -> Option<T> {
    let text = scalar::text(node).filter(|_| !node.is_null());
    let text = findings.expect(text, node, what, "a string")?;
    findings.accept(text.parse(), node.position)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: octavo.dev/v1\nkind: PriceBook\n";

    fn complaints(text: &str) -> Vec<String> {
        let errors = parse(text).unwrap_err();
        let errors = errors.iter().map(|error| format!("{}: {error}", error.position()));
        errors.collect()
    }

    #[test]
    fn prices_keep_all_digits() {
        let prices = parse(&format!(
            "{HEAD}currency: USD\nprices:\n- {{type: nvidia-h100-80gb, perHour: \"12.340\"}}\n\
             - {{type: nvidia-h100-80gb, option: spot, perHour: 0.1}}\n"
        ))
        .unwrap();
        let h100 = "nvidia-h100-80gb".parse().unwrap();
        let price = |option| prices.price(&h100, option).map(|price| price.per_hour.to_string());
        assert_eq!(price(PurchaseOption::OnDemand).as_deref(), Some("12.340"));
        assert_eq!(price(PurchaseOption::Spot).as_deref(), Some("0.1"));
        assert_eq!(price(PurchaseOption::Reserved), None);
        assert_eq!(prices.currency().to_string(), "USD");
    }

    #[test]
    fn all_errors_are_reported_with_their_position() {
        assert_eq!(
            complaints(&format!(
                "{HEAD}currency: Dollar\nprices:\n- {{type: nvidia h100, perHour: 1}}\n- {{type: a-b, perhour: 1}}\n\
                 - {{type: a-b, perHour: -1}}\n- {{type: a-b, perHour: 1, option: sometimes}}\n\
                 - {{type: a-b, perHour: 1}}\n- {{type: a-b, perHour: 2}}\n- 7\n"
            )),
            [
                "3:11: \"Dollar\" is not a currency: use three capital letters, such as USD",
                "5:10: \"nvidia h100\" is not an accelerator type like nvidia-a100-80gb",
                "6:3: a price needs \"perHour\": \"perHour: \\\"12.34\\\"\"",
                "6:15: unknown key \"perhour\" in a price; did you mean \"perHour\"?",
                "7:24: \"-1\" is not a price: use a number with at most 6 decimals, such as 12.34, up to 1000000",
                "8:35: \"sometimes\" is not a purchase option: use on-demand, spot or reserved",
                "10:3: duplicate value \"a-b on-demand\", first at 9:3",
                "11:3: a price must be a mapping, not 7",
            ]
        );
        for (text, expected) in [
            ("", "this is not a price book"),
            ("- a\n", "this is not a price book"),
            (
                "apiVersion: octavo.dev/v1\nkind: Layouts\ncurrency: USD\nprices: []\n",
                "kind must be \"PriceBook\"",
            ),
            ("prices: {\n", "this is not YAML"),
        ] {
            let complaints = complaints(text);
            assert!(
                complaints.iter().any(|complaint| complaint.contains(expected)),
                "{complaints:?}"
            );
        }
    }
}
