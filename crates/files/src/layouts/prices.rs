//! Parsing of an administrator's price book into a [`PriceBook`], with the same strictness and source positions as for
//! layouts.

use jiff::Timestamp;
use octavo_fleet::price::{
    Currency, PriceBook, PriceEntry, PriceKey, PurchaseOption, Validity, parse_time,
};

use super::error::{LayoutError, LayoutProblem};
use super::fields::{label_text, optional, text, value};
use super::findings::{Findings, Mapping, MappingShape};
use super::node::YamlNode;
use super::output::{OutputValue, map};
use super::{API_VERSION, expect_header, parse_file, scalar};

/// `kind` of the file.
const KIND: &str = "PriceBook";

const FILE: MappingShape =
    MappingShape { what: "a price book", keys: &["apiVersion", "kind", "currency", "prices"] };

const PRICE: MappingShape = MappingShape {
    what: "a price",
    keys: &["type", "option", "instanceType", "region", "from", "until", "perHour", "currency"],
};

const EXAMPLE: &str =
    "\"prices: [{type: nvidia-h100-80gb, option: on-demand, perHour: \\\"12.34\\\"}]\"";

/// Maximum number of prices in a file: a few for each type, instance type and region.
pub(crate) const MAX_PRICES: usize = 2000;

/// ISO 4217 code for tests: stands for an invalid currency while the prices are checked for further errors.
const ASSUMED_CURRENCY: &str = "XTS";

/// Levels written in block style: the file and its prices.
const BLOCK_LEVELS: usize = 2;

/// Parses a price book.
///
/// # Errors
/// Returns all errors in the order of the file.
pub fn parse(text: &str) -> Result<PriceBook, Vec<LayoutError>> {
    parse_file(text, FILE, LayoutProblem::NotAPriceBook, read)
}

/// Writes a price book as YAML that parses to the same prices.
pub fn write(book: &PriceBook) -> String {
    let prices = book.entries().map(|entry| written(entry, book.currency()));
    let file = map([
        ("apiVersion", OutputValue::text(API_VERSION)),
        ("kind", OutputValue::text(KIND)),
        ("currency", OutputValue::text(book.currency())),
        ("prices", OutputValue::List(prices.collect())),
    ]);
    file.yaml(BLOCK_LEVELS)
}

fn written(entry: &PriceEntry, book_currency: &Currency) -> OutputValue {
    let PriceEntry { key, validity, per_hour, currency, .. } = entry;
    let text = |value: Option<&String>| value.map(OutputValue::text);
    let time = |value: Option<Timestamp>| value.map(|at| OutputValue::text(&at));
    let entries = [
        ("type", Some(OutputValue::text(&key.type_name))),
        ("option", Some(OutputValue::text(&key.option))),
        ("instanceType", text(key.instance_type.as_ref())),
        ("region", text(key.region.as_ref())),
        ("from", time(validity.from)),
        ("until", time(validity.until)),
        ("perHour", Some(OutputValue::text(per_hour))),
        ("currency", Some(OutputValue::text(currency)).filter(|_| currency != book_currency)),
    ];
    map(entries.into_iter().filter_map(|(key, value)| Some((key, value?))))
}

fn read(file: Mapping<'_>, findings: &mut Findings) -> Option<PriceBook> {
    expect_header(file, KIND, "\"kind: PriceBook\"", findings);
    let currency = findings
        .required(file, "currency", "\"currency: USD\"")
        .and_then(|node| value::<Currency>(node, "currency", findings));
    let node = findings.required(file, "prices", EXAMPLE)?;
    let items = findings.expect(node.items(), node, "prices", "a list of prices")?;
    let assumed = currency.clone().or_else(|| ASSUMED_CURRENCY.parse().ok())?;
    let mut book = PriceBook::new(assumed);
    for item in items.iter().take(MAX_PRICES) {
        let Some(entry) = read_price(item, book.currency(), findings) else {
            continue;
        };
        let (key, position) = (entry.key.to_string(), entry.position);
        if let Some(first) = book.add(entry) {
            findings.error(position, LayoutProblem::OverlappingPrice { key, first });
        }
    }
    if let Some(item) = items.get(MAX_PRICES) {
        findings.error(item.position, LayoutProblem::TooManyValues { most: MAX_PRICES });
    }
    currency.and(Some(book))
}

fn read_price(
    node: &YamlNode,
    book_currency: &Currency,
    findings: &mut Findings,
) -> Option<PriceEntry> {
    let price = findings.mapping(node, PRICE)?;
    let type_name = findings
        .required(price, "type", "\"type: nvidia-h100-80gb\"")
        .and_then(|node| findings.accept(scalar::text(node)?.parse(), node.position));
    let option = optional(price, "option", findings, value::<PurchaseOption>);
    let instance_type = optional(price, "instanceType", findings, label_value);
    let region = optional(price, "region", findings, label_value);
    let validity = read_validity(price, findings);
    let currency = optional(price, "currency", findings, value::<Currency>);
    let per_hour = findings
        .required(price, "perHour", "\"perHour: \\\"12.34\\\"\"")
        .and_then(|node| value(node, "perHour", findings));
    Some(PriceEntry {
        key: PriceKey {
            type_name: type_name?,
            option: option.ok()?.unwrap_or_default(),
            instance_type: instance_type.ok()?,
            region: region.ok()?,
        },
        validity: validity?,
        per_hour: per_hour?,
        currency: currency.ok()?.unwrap_or_else(|| book_currency.clone()),
        position: node.position,
    })
}

fn read_validity(price: Mapping<'_>, findings: &mut Findings) -> Option<Validity> {
    let from = optional(price, "from", findings, time);
    let until = optional(price, "until", findings, time);
    let (from, until) = (from.ok()?, until.ok()?);
    if let (Some(start), Some(end), Some(node)) = (from, until, price.get("until"))
        && end <= start
    {
        let problem = LayoutProblem::EmptyValidity { from: start.to_string() };
        findings.error(node.position, problem);
        return None;
    }
    Some(Validity { from, until })
}

fn time(node: &YamlNode, what: &'static str, findings: &mut Findings) -> Option<Timestamp> {
    let text = text(node, what, findings)?;
    findings.accept(parse_time(text), node.position)
}

fn label_value(node: &YamlNode, what: &'static str, findings: &mut Findings) -> Option<String> {
    label_text(node, what, "a value of a node label", findings)
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
        let price = |option| {
            let key = PriceKey::new("nvidia-h100-80gb".parse().unwrap(), option);
            let price = prices.price(&key, Timestamp::UNIX_EPOCH);
            price.map(|price| price.per_hour.to_string())
        };
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
                "10:3: a-b on-demand already has a price for this time, at 9:3; remove one, or set \"from\" and \
                 \"until\" so that they do not overlap",
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

    #[test]
    fn scope_validity_and_currency_are_read_and_written() {
        let text = format!(
            "{HEAD}currency: USD\nprices:\n\
             - {{type: a-b, option: on-demand, until: \"2026-01-01T00:00:00Z\", perHour: \"3\"}}\n\
             - {{type: a-b, option: on-demand, from: \"2026-01-01T00:00:00Z\", perHour: \"2\"}}\n\
             - {{type: a-b, option: on-demand, region: eu-west-1, perHour: \"1.50\", currency: EUR}}\n\
             - {{type: a-b, option: on-demand, instanceType: p5.48xlarge, perHour: \"1.8\"}}\n"
        );
        let book = parse(&text).unwrap();
        let entries: Vec<String> = book
            .entries()
            .map(|one| format!("{} {}: {} {}", one.key, one.validity, one.per_hour, one.currency))
            .collect();
        assert_eq!(
            entries,
            [
                "a-b on-demand until 2026-01-01T00:00:00Z: 3 USD",
                "a-b on-demand from 2026-01-01T00:00:00Z: 2 USD",
                "a-b on-demand eu-west-1 always: 1.50 EUR",
                "a-b on-demand p5.48xlarge always: 1.8 USD",
            ]
        );
        assert_eq!(write(&book), text);
        let dates = text.replace("T00:00:00Z", "");
        assert_eq!(write(&parse(&dates).unwrap()), text);
    }

    #[test]
    fn overlap_names_both_prices_and_empty_validity_is_an_error() {
        assert_eq!(
            complaints(&format!(
                "{HEAD}currency: USD\nprices:\n\
                 - {{type: a-b, from: 2026-01-01, until: 2026-07-01, perHour: 1}}\n\
                 - {{type: a-b, from: 2026-06-30, perHour: 2, currency: EUR}}\n\
                 - {{type: a-b, region: eu, from: 2026-06-30, perHour: 2}}\n\
                 - {{type: a-b, from: 2026-08-01, until: 2026-08-01, perHour: 1}}\n\
                 - {{type: a-b, from: tomorrow, until: [], region: \"\", perHour: 1}}\n\
                 - {{type: a-b, instanceType: p5 large, currency: euro, perHour: 1}}\n"
            )),
            [
                "6:3: a-b on-demand already has a price for this time, at 5:3; remove one, or set \"from\" and \
                 \"until\" so that they do not overlap",
                "8:40: until must be later than from, which is 2026-08-01T00:00:00Z",
                "9:21: \"tomorrow\" is not a time: use a date in UTC, such as 2026-01-01, or RFC 3339, such as \
                 2026-01-01T09:00:00Z",
                "9:38: until must be a string, not a list",
                "9:50: region must be a value of a node label, not the string \"\"",
                "10:29: instanceType must be a value of a node label, not \"p5 large\"",
                "10:49: \"euro\" is not a currency: use three capital letters, such as USD",
            ]
        );
    }
}
