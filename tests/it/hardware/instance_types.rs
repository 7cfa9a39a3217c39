//! `docs/reference/instance-types.md`: the accelerators of cloud instance types, from the data of the catalog.

use std::collections::BTreeSet;
use std::fmt::Write;

use octavo_model::accelerators::{self, Facts, MarketedMemory, MemoryUnit};
use serde_json::Value;

use crate::golden::golden;

const HEAD: &str = "\
# Instance types

This page lists cloud instance types with accelerators, and the accelerator type that Octavo assigns to their devices. Use it to choose
node pools for a value of the label `octavo.dev/type`.

The page is generated from `crates/model/data/accelerators.json` by `make golden`. `octavo catalog search INSTANCE-TYPE` finds the same data.

## Limitations

- The lists are snapshots of public sources, named below each list. They are not complete, and clouds add instance types.
- The type on a node depends on what the driver reports, which takes precedence over this list.
- Memory is the memory of one device as the cloud publishes it, otherwise the marketed memory of the product. A fractional GPU has a share
  of the memory of one device.
- `-` means that no source states the value.
";

fn facts(sku: &str) -> &'static Facts {
    let mut all = accelerators::products().iter();
    all.find(|facts| facts.sku == sku).unwrap_or_else(|| panic!("{sku} is not in the catalog"))
}

/// `15 GiB`, with one decimal if not whole.
fn gib(mebibytes: u64) -> String {
    let tenths = (mebibytes * 10 + 512) / 1024;
    match tenths % 10 {
        0 => format!("{} GiB", tenths / 10),
        tenth => format!("{}.{tenth} GiB", tenths / 10),
    }
}

fn memory(instance: &Value, facts: &Facts) -> String {
    if let Some(mebibytes) = instance["accelerator_memory_mib"].as_u64() {
        return gib(mebibytes);
    }
    match facts.memory {
        Some(MarketedMemory { size, unit: MemoryUnit::Gigabytes }) => format!("{size} GB"),
        Some(MarketedMemory { size, unit: MemoryUnit::Gibibytes }) => format!("{size} GiB"),
        None => "-".to_owned(),
    }
}

fn count(instance: &Value) -> String {
    match instance["accelerator_count"].as_u64() {
        Some(0) => "fraction of 1".to_owned(),
        Some(count) => count.to_string(),
        None => "-".to_owned(),
    }
}

#[test]
fn instance_types_page_matches_catalog() {
    let data = include_str!("../../../crates/model/data/accelerators.json");
    let data: Value = serde_json::from_str(data).unwrap();
    let mut page = HEAD.to_owned();
    for (cloud, name) in [("aws", "AWS"), ("azure", "Azure"), ("gcp", "Google Cloud")] {
        let mut instances: Vec<&Value> =
            data["cloud_instances"][cloud].as_array().unwrap().iter().collect();
        assert!(instances.len() > 10, "{cloud}");
        let key = |instance: &&Value| {
            let name = instance["instance_type"].as_str().unwrap();
            let family = name.split(['.', '-']).next().unwrap().to_owned();
            (
                family,
                instance["accelerator_count"].as_u64(),
                instance["vcpu"].as_u64(),
                name.to_owned(),
            )
        };
        instances.sort_by_key(key);
        let head =
            "| instance type | accelerator type | count | memory of each |\n|---|---|---|---|";
        write!(page, "\n## {name}\n\n{head}\n").unwrap();
        let mut sources = BTreeSet::new();
        for instance in instances {
            let facts = facts(instance["accelerator"].as_str().unwrap());
            let name = instance["instance_type"].as_str().unwrap();
            let (count, memory) = (count(instance), memory(instance, facts));
            writeln!(page, "| `{name}` | `{}` | {count} | {memory} |", facts.type_name).unwrap();
            let own = instance["sources"].as_array().unwrap().iter();
            sources.extend(own.map(|source| source.as_str().unwrap()));
        }
        page.push_str("\nSources:\n\n");
        for source in sources {
            writeln!(page, "- {}", data["sources"][source].as_str().unwrap()).unwrap();
        }
    }
    golden("../../docs/reference/instance-types.md", &page);
}
