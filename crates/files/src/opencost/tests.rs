//! Tests of the CSV format.

use octavo_fleet::price::parse_time;
use proptest::prelude::*;

use super::*;
use crate::layouts::prices;

const BOOK: &str = "apiVersion: octavo.dev/v1
kind: PriceBook
currency: USD
prices:
- {type: nvidia-h100-80gb, perHour: '4.00'}
- {type: nvidia-h100-80gb, option: spot, perHour: '1.50'}
- {type: nvidia-h100-80gb, instanceType: p5.48xlarge, perHour: '3.80'}
- {type: nvidia-a100-80gb, until: 2026-01-01, perHour: '2.5'}
- {type: nvidia-a100-80gb, from: 2026-01-01, until: 2027-01-01, perHour: '2'}
- {type: nvidia-l4-24gb, perHour: '0.7', currency: EUR}
- {type: amd-mi300x-192gb, perHour: '3'}
";

const HEADER: &str = "EndTimestamp,InstanceID,Region,AssetClass,InstanceIDField,InstanceType,MarketPriceHourly,Version\n";

fn usd() -> Currency {
    "USD".parse().unwrap()
}

fn imported(text: &str) -> Result<CsvImport, Vec<String>> {
    import(text, &usd(), PurchaseOption::OnDemand)
        .map_err(|errors| errors.iter().map(|one| format!("{}: {one}", one.line)).collect())
}

#[test]
fn export_has_one_row_per_type_and_lists_the_rest() {
    let book = prices::parse(BOOK).unwrap();
    let exported = export(&book, PurchaseOption::OnDemand, parse_time("2026-06-01").unwrap());
    assert_eq!(
        exported.csv,
        format!(
            "{HEADER}\
             ,amd-mi300x-192gb,,gpu,octavo.dev/type,,3,\n\
             ,nvidia-a100-80gb,,gpu,octavo.dev/type,,2,\n\
             ,nvidia-h100-80gb,,gpu,octavo.dev/type,,4.00,\n"
        )
    );
    let omissions: Vec<String> = exported.omissions.iter().map(ToString::to_string).collect();
    assert_eq!(
        omissions,
        [
            "amd-mi300x-192gb on-demand: exported, but OpenCost counts only devices that pods request as \
             nvidia.com/gpu",
            "nvidia-a100-80gb on-demand until 2026-01-01T00:00:00Z: not exported: it is not valid at \
             2026-06-01T00:00:00Z",
            "nvidia-a100-80gb on-demand from 2026-01-01T00:00:00Z until 2027-01-01T00:00:00Z: exported without its \
             end: export the prices again at that time",
            "nvidia-h100-80gb on-demand p5.48xlarge: not exported: OpenCost cannot limit the price of a GPU to an \
             instance type or a region",
            "nvidia-h100-80gb spot: not exported: OpenCost has one price per type, and this export is for on-demand",
            "nvidia-l4-24gb on-demand: not exported: its currency is EUR, and this export is in USD",
        ]
    );
}

#[test]
fn rows_of_gpus_are_imported_and_others_counted() {
    let text = format!(
        "{HEADER}\
         # prices of 2026, in USD\n\
         2028-01-06 23:34:45 UTC,Reserved,,node,metadata.labels.usage,,0.65,\n\
         2028-01-06 23:34:45 UTC,NVIDIA-H100-80GB-HBM3,,gpu,nvidia.com/gpu.product,,4.5,v1\n\
         \n\
         ,nvidia-h100-80gb,,gpu,octavo.dev/type,,4.50,\n\
         ,NVIDIA-L4-24GB,eu-west-1,gpu,octavo.dev/type,g6.xlarge,\"0.70\",\n\
         ,pvc-1,,pv,metadata.name,,0.1,\n"
    );
    let found = imported(&text).unwrap();
    assert_eq!(found.skipped, 2);
    assert_eq!(
        prices::write(&found.book),
        "apiVersion: octavo.dev/v1\nkind: PriceBook\ncurrency: USD\nprices:\n\
         - {type: nvidia-h100-80gb, option: on-demand, perHour: \"4.5\"}\n\
         - {type: nvidia-l4-24gb, option: on-demand, instanceType: g6.xlarge, region: eu-west-1, perHour: \"0.70\"}\n"
    );
    let rows = |count: usize| {
        let rows = (0..count).map(|at| format!(",a-{at},,gpu,octavo.dev/type,,1,\n"));
        rows.collect::<String>()
    };
    assert!(imported(&rows(2000)).is_ok());
    assert_eq!(
        imported(&rows(2001)).unwrap_err(),
        ["2001: a price book can have at most 2000 prices"]
    );
    assert_eq!(imported("").unwrap(), CsvImport { book: PriceBook::new(usd()), skipped: 0 });
}

#[test]
fn invalid_rows_are_errors_with_their_lines() {
    let text = format!(
        "{HEADER}\r\n\
         a,b\r\n\
         \r\n\
         ,a100-ondemand,,gpu,nvidia.com/gpu_type,,0.5,\r\n\
         ,H100,,gpu,label,,0.5,\r\n\
         ,nvidia-h100-80gb,,gpu,octavo.dev/type,,1e3,\r\n\
         ,nvidia-h100-80gb,a b,gpu,octavo.dev/type,,1,\r\n\
         ,nvidia-h100-80gb,,gpu,octavo.dev/type,,1,\r\n\
         ,nvidia-h100-80gb,,gpu,octavo.dev/type,,2,\r\n"
    );
    let errors = imported(&text).unwrap_err();
    let ambiguous = errors[2].clone();
    assert!(ambiguous.starts_with("6: \"H100\" can be nvidia-h100-"), "{ambiguous}");
    assert_eq!(
        errors,
        [
            "3: a row needs 8 fields (EndTimestamp, InstanceID, Region, AssetClass, InstanceIDField, InstanceType, \
             MarketPriceHourly, Version), not 2",
            "5: \"a100-ondemand\" is not the name of an accelerator: use the label octavo.dev/type and a type",
            &ambiguous,
            "7: \"1e3\" is not a price: use a number with at most 6 decimals, such as 12.34, up to 1000000",
            "8: \"a b\" is not a value of a node label",
            "10: nvidia-h100-80gb on-demand has another price in line 9; remove one",
        ]
    );
}

fn entries() -> impl Strategy<Value = Vec<PriceEntry>> {
    let time = || {
        prop::option::of(0_i64..8).prop_map(|at| at.map(|at| Timestamp::from_second(at).unwrap()))
    };
    let types = prop::sample::select(vec!["nvidia-a-1gb", "nvidia-b-1gb", "amd-c-1gb"]);
    let options = prop::sample::select(vec![PurchaseOption::OnDemand, PurchaseOption::Spot]);
    let scope = || prop::option::of(Just("x".to_owned()));
    let currency = prop::sample::select(vec!["USD", "EUR"]);
    let key = (types, options, scope(), scope());
    let entry = (key, time(), time(), 0_u32..1_000_000, currency);
    let entry = entry.prop_map(
        |((type_name, option, instance_type, region), from, until, price, currency)| {
            let until = until.filter(|until| from.is_none_or(|from| from < *until));
            let type_name = type_name.parse().unwrap();
            PriceEntry {
                key: PriceKey { type_name, option, instance_type, region },
                validity: Validity { from, until },
                per_hour: format!("{}.{:03}", price / 1000, price % 1000).parse().unwrap(),
                currency: currency.parse().unwrap(),
                position: SourcePosition::default(),
            }
        },
    );
    prop::collection::vec(entry, 0..12)
}

proptest! {
    #[test]
    fn imported_prices_are_those_of_the_exported_book(
        entries in entries(),
        at in 0_i64..8,
    ) {
        let mut book = PriceBook::new(usd());
        for entry in entries {
            // An overlapping entry is left out.
            let _first = book.add(entry);
        }
        let (option, at) = (PurchaseOption::OnDemand, Timestamp::from_second(at).unwrap());
        let exported = export(&book, option, at);
        let found = import(&exported.csv, &usd(), option).unwrap();
        prop_assert_eq!(found.skipped, 0);
        let is_omitted = |entry: &PriceEntry| {
            exported.omissions.iter().any(|one| {
                let is_exported = matches!(one.reason, OmissionReason::End | OmissionReason::NotCounted);
                !is_exported && one.entry == (entry.key.clone(), entry.validity)
            })
        };
        let mut expressed = 0;
        for entry in book.entries().filter(|entry| !is_omitted(entry)) {
            let price = found.book.price(&entry.key, at).unwrap();
            prop_assert_eq!(
                (price.per_hour, &price.currency),
                (entry.per_hour, &entry.currency)
            );
            prop_assert_eq!(book.price(&entry.key, at).map(|own| own.per_hour), Some(price.per_hour));
            expressed += 1;
        }
        prop_assert_eq!(found.book.entries().count(), expressed);
        // The written book has the same prices.
        let read = prices::parse(&prices::write(&book)).unwrap();
        let same = |one: &PriceEntry, other: &PriceEntry| {
            let position = one.position;
            *one == PriceEntry { position, ..other.clone() }
        };
        prop_assert!(read.entries().count() == book.entries().count());
        prop_assert!(read.entries().zip(book.entries()).all(|(one, other)| same(one, other)));
    }
}
