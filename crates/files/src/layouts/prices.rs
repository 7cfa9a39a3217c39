//! Parsing of an administrator's price book into a [`PriceBook`], with the same strictness and source positions as for
//! layouts.

use octavo_fleet::price::{Amount, Currency, PriceBook, PurchaseOption};
use octavo_model::source_position::SourcePosition;

use super::error::{LayoutError, LayoutProblem};
use super::findings::{Findings, MappingShape, value_of};
use super::node::{Node, Value as Tree, quoted};
use super::{expect_header, scalar, tree};

/// `kind` of the file.
const KIND: &str = "PriceBook";

const FILE: MappingShape = MappingShape {
    what: "a price book",
    keys: &["apiVersion", "kind", "currency", "prices"],
};

const PRICE: MappingShape = MappingShape {
    what: "a price",
    keys: &["type", "option", "perHour"],
};

const EXAMPLE: &str =
    "\"prices: [{type: nvidia-h100-80gb, option: on-demand, perHour: \\\"12.34\\\"}]\"";

/// Maximum number of prices in a file: a few for each existing type.
const MAX_PRICES: usize = 2000;

/// Parses a price book.
///
/// # Errors
/// Returns all errors in the order of the file.
pub fn parse(text: &str) -> Result<PriceBook, Vec<LayoutError>> {
    let mut findings = Findings::default();
    if text.trim().is_empty() {
        let start = SourcePosition { line: 1, column: 1 };
        findings.error(start, LayoutProblem::NotAPriceBook);
        return findings.into_result(None);
    }
    let book = tree::read(text, &mut findings).and_then(|root| file(&root, &mut findings));
    findings.into_result(book)
}

fn file(root: &Node, findings: &mut Findings) -> Option<PriceBook> {
    let Tree::Map(entries) = &root.value else {
        findings.error(root.place, LayoutProblem::NotAPriceBook);
        return None;
    };
    findings.check_keys(entries, FILE);
    let whole = (root.place, entries.as_slice());
    expect_header(whole, FILE.what, ("\"kind: PriceBook\"", KIND), findings);
    let currency = findings
        .required(whole, FILE.what, ("currency", "\"currency: USD\""))
        .and_then(|node| read::<Currency>(node, "currency", findings));
    let node = findings.required(whole, FILE.what, ("prices", EXAMPLE))?;
    let Tree::List(items) = &node.value else {
        findings.wrong_kind(node, "prices", "a list of prices");
        return None;
    };
    // Lines are checked for errors even if the currency is invalid.
    let mut book = currency.map(PriceBook::new);
    let mut seen: Vec<(String, PurchaseOption, SourcePosition)> = Vec::new();
    for item in items.iter().take(MAX_PRICES) {
        read_price(item, (&mut book, &mut seen), findings);
    }
    if let Some(item) = items.get(MAX_PRICES) {
        let most = MAX_PRICES;
        findings.error(item.place, LayoutProblem::TooManyValues { most });
    }
    book
}

fn read_price(
    node: &Node,
    (book, seen): (
        &mut Option<PriceBook>,
        &mut Vec<(String, PurchaseOption, SourcePosition)>,
    ),
    findings: &mut Findings,
) -> Option<()> {
    let entries = findings.mapping(node, PRICE)?;
    let place = (node.place, entries);
    let type_name = findings
        .required(place, PRICE.what, ("type", "\"type: nvidia-h100-80gb\""))
        .and_then(|node| match scalar::text(node)?.parse() {
            Ok(name) => Some(name),
            Err(error) => {
                findings.error(node.place, LayoutProblem::Id(error));
                None
            }
        });
    let option = match value_of(entries, "option") {
        Some(node) => read::<PurchaseOption>(node, "option", findings),
        None => Some(PurchaseOption::default()),
    };
    let price = findings
        .required(place, PRICE.what, ("perHour", "\"perHour: \\\"12.34\\\"\""))
        .and_then(|node| read::<Amount>(node, "perHour", findings));
    let (type_name, option, price): (octavo_model::id::TypeName, _, _) =
        (type_name?, option?, price?);
    let known = seen
        .iter()
        .find(|(name, known, _)| *name == type_name.as_str() && *known == option);
    if let Some((name, _, first)) = known {
        let value = quoted(&format!("{name} {option}"));
        let first = *first;
        findings.error(node.place, LayoutProblem::DuplicateValue { value, first });
        return None;
    }
    seen.push((type_name.to_string(), option, node.place));
    if let Some(book) = book {
        book.add(type_name, option, price);
    }
    Some(())
}

/// Parses a value whose error message is self-explanatory.
fn read<T: std::str::FromStr<Err = octavo_fleet::price::PriceError>>(
    node: &Node,
    what: &'static str,
    findings: &mut Findings,
) -> Option<T> {
    let Some(text) = scalar::text(node).filter(|_| !node.is_null()) else {
        findings.wrong_kind(node, what, "a text");
        return None;
    };
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            findings.error(node.place, LayoutProblem::Price(error));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: octavo.dev/v1\nkind: PriceBook\n";

    fn complaints(text: &str) -> Vec<String> {
        let errors = parse(text).unwrap_err();
        let told = errors
            .iter()
            .map(|error| format!("{}: {error}", error.place()));
        told.collect()
    }

    #[test]
    fn prices_keep_all_digits() {
        let book = parse(&format!(
            "{HEAD}currency: USD\nprices:\n- {{type: nvidia-h100-80gb, perHour: \"12.340\"}}\n\
             - {{type: nvidia-h100-80gb, option: spot, perHour: 0.1}}\n"
        ))
        .unwrap();
        let h100 = "nvidia-h100-80gb".parse().unwrap();
        let price = |option| {
            book.price(&h100, option)
                .map(|price| price.per_hour.to_string())
        };
        assert_eq!(price(PurchaseOption::OnDemand).as_deref(), Some("12.340"));
        assert_eq!(price(PurchaseOption::Spot).as_deref(), Some("0.1"));
        assert_eq!(price(PurchaseOption::Reserved), None);
        assert_eq!(book.currency().to_string(), "USD");
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
                "3:11: \"Dollar\" is no currency: three capital letters, as USD",
                "5:10: \"nvidia h100\" is not an accelerator type like nvidia-a100-80gb",
                "6:3: a price needs \"perHour\": \"perHour: \\\"12.34\\\"\"",
                "6:15: unknown key \"perhour\" in a price; did you mean \"perHour\"?",
                "7:24: \"-1\" is no price: digits, a point and at most 6 digits behind it, as 12.34, and at most 1000000",
                "8:35: \"sometimes\" is no way of buying; there are on-demand, spot and reserved",
                "10:3: \"a-b on-demand\" is there twice, first at 9:3",
                "11:3: a price must be a mapping, not 7",
            ]
        );
        for (text, expected) in [
            ("", "this is no price book"),
            ("- a\n", "this is no price book"),
            (
                "apiVersion: octavo.dev/v1\nkind: Catalogue\ncurrency: USD\nprices: []\n",
                "kind must be \"PriceBook\"",
            ),
            ("prices: {\n", "this is not YAML"),
        ] {
            let said = complaints(text);
            assert!(said.iter().any(|told| told.contains(expected)), "{said:?}");
        }
    }
}
