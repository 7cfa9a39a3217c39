//! Technical data of a device type, for users who select by it.

use octavo_model::accelerators::{Catalog, Field, Product, Value};
use octavo_model::id::TypeName;

/// Properties that all products of a type share, or the minimum of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Specs {
    /// Display name, derived from the type.
    pub name: String,
    /// Memory of one device, in MiB.
    pub memory_mib: Option<u64>,
    /// Chip family.
    pub architecture: Option<String>,
    /// CUDA compute capability, such as `9.0`.
    pub compute_capability: Option<String>,
    /// Memory bandwidth in 10^9 bytes per second, of the slowest product of the type.
    pub memory_bandwidth_gbs: Option<f64>,
}

impl Specs {
    /// Looks up a type in the catalog.
    pub fn for_type(type_name: &TypeName, catalog: &Catalog) -> Self {
        let products: Vec<&Product> =
            catalog.products().iter().filter(|product| product.type_name == *type_name).collect();
        Self {
            name: format_type(type_name),
            memory_mib: agreed(&products, memory),
            architecture: agreed(&products, |product| text(product, Field::Architecture)),
            compute_capability: agreed(&products, |product| {
                text(product, Field::ComputeCapability)
            }),
            memory_bandwidth_gbs: least(&products),
        }
    }
}

/// Formats `nvidia-h200-141gb` as `NVIDIA H200 141GB`.
fn format_type(name: &TypeName) -> String {
    name.as_str().replace('-', " ").to_uppercase()
}

fn agreed<T: PartialEq>(products: &[&Product], of: impl Fn(&Product) -> Option<T>) -> Option<T> {
    let mut all = products.iter().map(|product| of(product));
    let first = all.next()??;
    all.all(|other| other.as_ref() == Some(&first)).then_some(first)
}

fn memory(product: &Product) -> Option<u64> {
    let shown = number(product, Field::MemoryMib);
    // Most parts sold in gigabytes in fact have that many gibibytes.
    let sold = || {
        let sold = number(product, Field::MemoryGib).or_else(|| number(product, Field::MemoryGb));
        sold.map(|size| size * 1024.0)
    };
    let text = format!("{:.0}", shown.or_else(sold)?);
    text.parse().ok()
}

fn number(product: &Product, field: Field) -> Option<f64> {
    match product.value(field)? {
        Value::Number(number) => Some(number),
        Value::Text(_) | Value::List(_) => None,
    }
}

fn text(product: &Product, field: Field) -> Option<String> {
    match product.value(field)? {
        Value::Text(text) => Some(text.to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::List(_) => None,
    }
}

fn least(products: &[&Product]) -> Option<f64> {
    let all: Option<Vec<f64>> =
        products.iter().map(|product| number(product, Field::MemoryBandwidth)).collect();
    all?.into_iter().reduce(f64::min)
}
