//! Generation of the tables behind `octavo catalog`: the facts about each product with their sources, and the product's
//! aliases. A fact without a source, or an unknown source, fails the build with its name.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write;

use serde::Deserialize;
use serde_json::Value;

/// Facts: key in the data file and variant name in the program.
const FACTS: &[(&str, &str)] = &[
    ("architecture", "Architecture"),
    ("form_factor", "FormFactor"),
    ("memory_gb", "MemoryGb"),
    ("memory_mib", "MemoryMib"),
    ("memory_type", "MemoryType"),
    ("memory_bandwidth_gbs", "MemoryBandwidth"),
    ("bf16_tflops_dense", "Bf16"),
    ("fp16_tflops_dense", "Fp16"),
    ("fp8_tflops_dense", "Fp8"),
    ("tdp_w", "Power"),
    ("compute_capability", "ComputeCapability"),
    ("mig_instances", "MigInstances"),
    ("link", "Link"),
    ("link_generation", "LinkGeneration"),
    ("link_gbs", "LinkBandwidth"),
    ("gfx_target", "GfxTarget"),
    ("cores_per_device", "Cores"),
    ("default_logical_cores_per_device", "LogicalCores"),
    ("neuroncore_version", "NeuronCoreVersion"),
    ("neuron_sysfs_device_name", "NeuronDeviceName"),
    ("neuron_sysfs_device_arch", "NeuronDeviceArchitecture"),
    ("neuron_sysfs_core_arch", "NeuronCoreArchitecture"),
    ("pci_ids", "PciIds"),
];

/// Kinds of aliases: key in the data file and variant name in the program.
const KINDS: &[(&str, &str)] = &[
    ("driver", "Driver"),
    ("gfd", "Gfd"),
    ("amd-labeller", "AmdLabeller"),
    ("karpenter", "Karpenter"),
    ("karpenter-azure", "KarpenterAzure"),
    ("gke", "Gke"),
    ("instance", "Instance"),
    ("pci", "Pci"),
    ("text", "Text"),
];

/// Sources of driver names, best first.
const DRIVER_NAME_SOURCES: &[&str] = &["S18", "S28", "S19", "S14", "S15", "S5"];

#[derive(Deserialize)]
struct Catalog {
    sources: BTreeMap<String, String>,
    accelerators: Vec<BTreeMap<String, Value>>,
    cloud_instances: BTreeMap<String, Vec<Instance>>,
    shared_names: Vec<SharedAlias>,
}

#[derive(Deserialize)]
struct Instance {
    #[serde(rename = "instance_type")]
    called: String,
    accelerator: String,
    accelerator_count: Option<f64>,
    #[serde(default, rename = "vcpu")]
    vcpus: Option<u32>,
    #[serde(default)]
    usd_per_hour: Option<f64>,
    #[serde(default)]
    price_region: Option<String>,
    sources: Vec<String>,
    karpenter_gpu_name: Option<String>,
    karpenter_accelerator_name: Option<String>,
    gke_accelerator_label: Option<String>,
}

#[derive(Deserialize)]
struct SharedAlias {
    text: String,
    kind: String,
    skus: Vec<String>,
    sources: Vec<String>,
}

#[derive(Deserialize)]
struct Alias {
    text: String,
    kind: String,
    sources: Vec<String>,
}

/// Maps the kind and the text of an alias to the SKUs that it refers to, each with its sources.
type AliasIndex = BTreeMap<(String, String), BTreeMap<String, BTreeSet<String>>>;

/// Adds that the alias `text` refers to `sku` according to `sources`.
fn add(names: &mut AliasIndex, (kind, text): (&str, &str), sku: &str, sources: &[String]) {
    let whom = names.entry((kind.to_owned(), text.to_owned())).or_default();
    whom.entry(sku.to_owned()).or_default().extend(sources.iter().cloned());
}

/// Generates the Rust source of the tables in `json`.
pub(crate) fn tables(json: &str) -> Result<String, Box<dyn Error>> {
    let catalog: Catalog = serde_json::from_str(json)?;
    let mut names = AliasIndex::new();
    for product in &catalog.accelerators {
        names_of(product, &mut names)?;
    }
    for instance in catalog.cloud_instances.values().flatten() {
        names_by_cloud(instance, &mut names);
    }
    for shared in &catalog.shared_names {
        for sku in &shared.skus {
            add(&mut names, (&shared.kind, &shared.text), sku, &shared.sources);
        }
    }
    check_references(&catalog, &names)?;
    let mut text = String::from(
        "/// All products, in catalog order.\npub(super) const PRODUCTS: &[ProductEntry] = &[\n",
    );
    for product in &catalog.accelerators {
        let sku = word(product, "id")?;
        let entry =
            product_entry(&catalog, product, &names).map_err(|error| format!("{sku}: {error}"))?;
        text.push_str(&entry);
    }
    text.push_str("];\n\n/// All aliases shared by several products.\npub(super) const SHARED: &[SharedAlias] = &[\n");
    for ((kind, name), whom) in names.iter().filter(|(_, whom)| whom.len() > 1) {
        let skus: Vec<&String> = whom.keys().collect();
        let sources: BTreeSet<&String> = whom.values().flatten().collect();
        writeln!(
            text,
            "    SharedAlias {{ text: {name:?}, kind: AliasKind::{}, skus: &{skus:?}, sources: &{:?} }},",
            kind_of(kind)?,
            Vec::from_iter(sources),
        )?;
    }
    text.push_str("];\n");
    Ok(text)
}

/// Checks that all cited sources and referenced SKUs exist.
fn check_references(catalog: &Catalog, names: &AliasIndex) -> Result<(), Box<dyn Error>> {
    let ids: Result<BTreeSet<&str>, String> =
        catalog.accelerators.iter().map(|product| word(product, "id")).collect();
    let ids = ids?;
    for ((_, name), whom) in names {
        for (sku, sources) in whom {
            if !ids.contains(sku.as_str()) {
                return Err(format!("{name:?}: there is no {sku}").into());
            }
            cited(catalog, sources.iter().map(String::as_str))
                .map_err(|error| format!("{name:?}: {error}"))?;
        }
    }
    Ok(())
}

fn cited<'a>(catalog: &Catalog, sources: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
    let mut any = false;
    for key in sources {
        any = true;
        if !catalog.sources.contains_key(key) {
            return Err(format!("there is no source {key}"));
        }
    }
    if any { Ok(()) } else { Err("no source".to_owned()) }
}

fn names_of(
    product: &BTreeMap<String, Value>,
    names: &mut AliasIndex,
) -> Result<(), Box<dyn Error>> {
    let sku = word(product, "id")?;
    let sources: Vec<String> = part(product, "sources")?;
    let by_driver = product.get("name_from").is_none();
    // Amazon's driver omits the vendor.
    let name = match product.get("neuron_sysfs_device_name") {
        Some(_) => word(product, "neuron_sysfs_device_name")?,
        None => word(product, "name")?,
    };
    if by_driver {
        let best = DRIVER_NAME_SOURCES.iter().find(|key| sources.iter().any(|own| own == *key));
        let best = best.map(|key| vec![(*key).to_owned()]).unwrap_or_default();
        add(names, ("driver", name), sku, &best);
    }
    let aliases: Vec<Alias> = match product.get("aliases") {
        Some(_) => part(product, "aliases")?,
        None => Vec::new(),
    };
    for alias in aliases {
        add(names, (&alias.kind, &alias.text), sku, &alias.sources);
    }
    if word(product, "vendor")? == "nvidia" {
        // gpu-feature-discovery replaces each space in the driver's name with a hyphen.
        let of_driver: Vec<(String, Vec<String>)> = names
            .iter()
            .filter(|((kind, _), whom)| kind == "driver" && whom.contains_key(sku))
            .map(|((_, text), whom)| {
                let sources = whom.get(sku).into_iter().flatten().cloned();
                (text.replace(' ', "-"), sources.collect())
            })
            .collect();
        for (text, sources) in of_driver {
            add(names, ("gfd", &text), sku, &sources);
        }
    }
    let ids: Vec<String> = part(product, "pci_ids")?;
    let cited_sources: BTreeMap<String, Vec<String>> = part(product, "said_by")?;
    let of_ids = cited_sources.get("pci_ids").cloned().unwrap_or_default();
    for id in ids.iter().filter(|id| id.matches(':').count() == 1) {
        add(names, ("pci", id), sku, &of_ids);
    }
    Ok(())
}

fn names_by_cloud(instance: &Instance, names: &mut AliasIndex) {
    let words = [
        ("instance", Some(&instance.called)),
        ("karpenter", instance.karpenter_gpu_name.as_ref()),
        ("karpenter", instance.karpenter_accelerator_name.as_ref()),
        ("gke", instance.gke_accelerator_label.as_ref()),
    ];
    for (kind, text) in words {
        if let Some(text) = text {
            add(names, (kind, text), &instance.accelerator, &instance.sources);
        }
    }
}

fn product_entry(
    catalog: &Catalog,
    product: &BTreeMap<String, Value>,
    names: &AliasIndex,
) -> Result<String, Box<dyn Error>> {
    let sku = word(product, "id")?;
    let own: BTreeSet<String> = part(product, "sources")?;
    let by: BTreeMap<String, Vec<String>> = part(product, "said_by")?;
    let notes = product.get("notes").and_then(Value::as_str);
    let mut text = format!("    ProductEntry {{ sku: {sku:?}, notes: {notes:?}, facts: &[\n");
    for (key, field) in FACTS {
        let Some(value) = value(product, key) else {
            continue;
        };
        let sources = by.get(*key).cloned().unwrap_or_default();
        cited(catalog, sources.iter().map(String::as_str))
            .map_err(|error| format!("{key}: {error}"))?;
        if let Some(foreign) = sources.iter().find(|source| !own.contains(*source)) {
            return Err(format!("{key}: {foreign} is not among its sources").into());
        }
        let in_gib = product.get("memory_unit").and_then(Value::as_str) == Some("GiB");
        let field = match *field {
            "MemoryGb" if in_gib => "MemoryGib",
            field => field,
        };
        writeln!(
            text,
            "        Fact {{ field: Field::{field}, value: {}, sources: &{sources:?} }},",
            value_expression(value)?
        )?;
    }
    if let Some(key) = by.keys().find(|key| !FACTS.iter().any(|(known, _)| known == key)) {
        return Err(format!("said_by: no fact is called {key}").into());
    }
    text.push_str("    ], aliases: &[\n");
    for ((kind, name), whom) in names {
        if let (Some(sources), 1) = (whom.get(sku), whom.len()) {
            writeln!(
                text,
                "        Alias {{ text: {name:?}, kind: AliasKind::{}, sources: &{:?} }},",
                kind_of(kind)?,
                Vec::from_iter(sources),
            )?;
        }
    }
    text.push_str(&instance_entries(catalog, sku)?);
    text.push_str("    ] },\n");
    Ok(text)
}

/// Cloud instance types with the product.
fn instance_entries(catalog: &Catalog, sku: &str) -> Result<String, Box<dyn Error>> {
    let mut text = String::from("    ], offers: &[\n");
    for (cloud, instance) in catalog
        .cloud_instances
        .iter()
        .flat_map(|(cloud, all)| all.iter().map(move |instance| (cloud, instance)))
        .filter(|(_, instance)| instance.accelerator == sku)
    {
        writeln!(
            text,
            "        CloudOffer {{ cloud: {cloud:?}, instance: {:?}, count: {:?}, vcpus: {:?}, usd_per_hour: {:?}, region: {:?}, sources: &{:?} }},",
            instance.called,
            instance.accelerator_count,
            instance.vcpus,
            instance.usd_per_hour,
            instance.price_region,
            instance.sources,
        )?;
    }
    Ok(text)
}

/// Value of a fact. The attributes of the interconnect are separate facts.
fn value<'a>(product: &'a BTreeMap<String, Value>, key: &str) -> Option<&'a Value> {
    let link = product.get("interconnect");
    let found = match key {
        "link" => link.and_then(|link| link.get("kind")),
        "link_generation" => link.and_then(|link| link.get("generation")),
        "link_gbs" => link.and_then(|link| link.get("gbs_per_device")),
        key => product.get(key),
    };
    found.filter(|value| !value.is_null())
}

fn value_expression(value: &Value) -> Result<String, Box<dyn Error>> {
    Ok(match value {
        Value::Number(number) => {
            let number = number.as_f64().ok_or("a number is out of range")?;
            format!("Value::Number({number:?})")
        }
        Value::String(text) => format!("Value::Text({text:?})"),
        Value::Array(_) => {
            let texts: Vec<String> = serde_json::from_value(value.clone())?;
            format!("Value::List(&{texts:?})")
        }
        Value::Null | Value::Bool(_) | Value::Object(_) => {
            return Err("a value of no known kind".into());
        }
    })
}

fn kind_of(kind: &str) -> Result<&'static str, String> {
    let found = KINDS.iter().find(|(key, _)| *key == kind);
    found.map(|(_, name)| *name).ok_or_else(|| format!("no kind of name is called {kind:?}"))
}

fn word<'a>(product: &'a BTreeMap<String, Value>, key: &str) -> Result<&'a str, String> {
    let found = product.get(key).and_then(Value::as_str);
    found.ok_or_else(|| format!("an entry has no {key}"))
}

fn part<T: serde::de::DeserializeOwned>(
    product: &BTreeMap<String, Value>,
    key: &str,
) -> Result<T, Box<dyn Error>> {
    let value = product.get(key).ok_or_else(|| format!("there is no {key}"))?;
    serde_json::from_value(value.clone()).map_err(|error| format!("{key}: {error}").into())
}
