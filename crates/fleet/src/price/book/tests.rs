//! Tests of price books.

use proptest::prelude::*;

use super::*;
use crate::price::parse_time;

fn time(text: &str) -> Timestamp {
    parse_time(text).unwrap()
}

fn validity(from: &str, until: &str) -> Validity {
    let bound = |text: &str| (!text.is_empty()).then(|| time(text));
    Validity { from: bound(from), until: bound(until) }
}

fn h100(instance_type: &str, region: &str) -> PriceKey {
    let scope = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    PriceKey {
        instance_type: scope(instance_type),
        region: scope(region),
        ..PriceKey::new("nvidia-h100-80gb".parse().unwrap(), PurchaseOption::OnDemand)
    }
}

fn entry(key: &PriceKey, validity: Validity, per_hour: &str) -> PriceEntry {
    PriceEntry {
        key: key.clone(),
        validity,
        per_hour: per_hour.parse().unwrap(),
        currency: "USD".parse().unwrap(),
        position: SourcePosition { line: 1, column: 3 },
    }
}

fn book(entries: impl IntoIterator<Item = PriceEntry>) -> PriceBook {
    let mut book = PriceBook::new("USD".parse().unwrap());
    for entry in entries {
        assert_eq!(book.add(entry), None);
    }
    book
}

fn price(book: &PriceBook, key: &PriceKey, at: &str) -> Option<String> {
    book.price(key, time(at)).map(|price| price.per_hour.to_string())
}

#[test]
fn most_specific_valid_entry_wins() {
    let always = Validity::default();
    let book = book([
        entry(&h100("", ""), always, "4"),
        entry(&h100("", "eu-west-1"), always, "3"),
        entry(&h100("p5.48xlarge", ""), always, "2"),
        entry(&h100("p5.48xlarge", "eu-west-1"), validity("2026-01-01", ""), "1"),
    ]);
    let at = "2026-06-01";
    for (instance_type, region, expected) in [
        ("", "", "4"),
        ("", "us-east-1", "4"),
        ("", "eu-west-1", "3"),
        ("other", "eu-west-1", "3"),
        ("p5.48xlarge", "", "2"),
        ("p5.48xlarge", "us-east-1", "2"),
        ("p5.48xlarge", "eu-west-1", "1"),
    ] {
        assert_eq!(price(&book, &h100(instance_type, region), at).as_deref(), Some(expected));
    }
    let most_specific = h100("p5.48xlarge", "eu-west-1");
    assert_eq!(price(&book, &most_specific, "2025-12-31").as_deref(), Some("2"));
    let found = book.price(&most_specific, time(at)).unwrap();
    assert_eq!(
        found.source.to_string(),
        "instance type p5.48xlarge, region eu-west-1, from 2026-01-01T00:00:00Z"
    );
    let spot = PriceKey { option: PurchaseOption::Spot, ..most_specific };
    assert_eq!(price(&book, &spot, at), None);
}

#[test]
fn validity_is_half_open_and_must_not_overlap() {
    let key = h100("", "");
    let mut book = book([
        entry(&key, validity("2026-01-01", "2026-07-01"), "1"),
        entry(&key, validity("2026-07-01", ""), "2"),
    ]);
    assert_eq!(price(&book, &key, "2025-12-31T23:59:59Z"), None);
    assert_eq!(price(&book, &key, "2026-01-01").as_deref(), Some("1"));
    assert_eq!(price(&book, &key, "2026-06-30T23:59:59Z").as_deref(), Some("1"));
    assert_eq!(price(&book, &key, "2026-07-01").as_deref(), Some("2"));
    let before = book.clone();
    for overlapping in [
        validity("", ""),
        validity("", "2026-01-02"),
        validity("2026-06-30", "2026-07-01"),
        validity("2027-01-01", "2027-01-02"),
    ] {
        let first = SourcePosition { line: 1, column: 3 };
        assert_eq!(book.add(entry(&key, overlapping, "3")), Some(first), "{overlapping}");
    }
    assert_eq!(book, before);
    assert_eq!(book.add(entry(&key, validity("", "2026-01-01"), "0")), None);
    let order: Vec<String> = book.entries().map(|entry| entry.per_hour.to_string()).collect();
    assert_eq!(order, ["0", "1", "2"]);
}

#[test]
fn changes_are_the_instants_at_which_another_price_applies() {
    let (general, special) = (h100("", ""), h100("p5.48xlarge", ""));
    let book = book([
        entry(&general, validity("", "2026-03-01"), "4"),
        entry(&general, validity("2026-03-01", ""), "5"),
        entry(&special, validity("2026-02-01", "2026-04-01"), "3"),
        entry(&special, validity("2026-04-01", "2026-05-01"), "3.0"),
        entry(&h100("other", ""), validity("2026-02-15", ""), "9"),
    ]);
    let changes = |key: &PriceKey, from: &str, until: &str| -> Vec<String> {
        let changes = book.changes(key, time(from)..time(until)).into_iter();
        changes.map(|at| at.strftime("%F").to_string()).collect()
    };
    assert_eq!(changes(&general, "2026-01-01", "2027-01-01"), ["2026-03-01"]);
    // The special price covers the change of the general one, and stays the same in April.
    assert_eq!(changes(&special, "2026-01-01", "2027-01-01"), ["2026-02-01", "2026-05-01"]);
    assert_eq!(changes(&special, "2026-02-01", "2026-05-01"), Vec::<String>::new());
    let spot = PriceKey { option: PurchaseOption::Spot, ..general };
    assert_eq!(changes(&spot, "2026-01-01", "2027-01-01"), Vec::<String>::new());
}

#[test]
fn key_of_a_node_follows_its_labels() {
    let labels = [
        ("node.kubernetes.io/instance-type", "p5.48xlarge"),
        ("topology.kubernetes.io/region", "us-east-1"),
        ("karpenter.sh/capacity-type", "spot"),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let type_name: TypeName = "nvidia-h100-80gb".parse().unwrap();
    let key = PriceKey::on_node(type_name.clone(), &labels.into());
    assert_eq!(key.to_string(), "nvidia-h100-80gb spot p5.48xlarge us-east-1");
    let bare = PriceKey::on_node(type_name.clone(), &BTreeMap::new());
    assert_eq!(bare, PriceKey::new(type_name, PurchaseOption::OnDemand));
}

proptest! {
    /// Between two changes, the price stays the same.
    #[test]
    fn price_is_constant_between_changes(
        entries in prop::collection::vec((0..4_usize, 0_i64..40, 1_i64..20, 1_u32..4), 0..12),
        start in 0_i64..30,
        length in 1_i64..40,
    ) {
        let scopes = [h100("", ""), h100("", "r"), h100("i", ""), h100("i", "r")];
        let second = |second| Timestamp::from_second(second).unwrap();
        let mut book = PriceBook::new("USD".parse().unwrap());
        for (scope, from, length, per_hour) in entries {
            let validity = Validity { from: Some(second(from)), until: Some(second(from + length)) };
            let overlap = book.add(entry(&scopes[scope], validity, &per_hour.to_string()));
            prop_assert!(overlap.is_none_or(|first| first.line == 1));
        }
        let key = h100("i", "r");
        let price = |at| book.price(&key, second(at)).map(|price| price.per_hour);
        let end = start + length;
        let changes = book.changes(&key, second(start)..second(end));
        let expected = (start + 1..end).filter(|at| price(*at) != price(at - 1));
        prop_assert_eq!(changes, expected.map(second).collect::<Vec<_>>());
    }
}
