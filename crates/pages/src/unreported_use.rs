//! Vendors whose drivers do not report which programs use a device.

use octavo_model::id::TypeName;
use octavo_model::text::join;

/// Start of the types of a vendor, and its name.
const VENDORS: [(&str, &str); 2] = [("amd-", "AMD"), ("aws-", "AWS Neuron")];

/// Sentence about the vendors of these types; `None` if the drivers of all of them report the use.
pub(super) fn explanation(types: &[&TypeName]) -> Option<String> {
    let vendors = VENDORS
        .into_iter()
        .filter(|(start, _)| types.iter().any(|name| name.as_str().starts_with(start)));
    let names = join(vendors.map(|(_, name)| name), " and ");
    let is_any = !names.is_empty();
    is_any.then(|| format!("The drivers of {names} do not report which programs use a device."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_vendors_without_usage_are_named() {
        let text = |names: &[&str]| {
            let types: Vec<TypeName> = names.iter().map(|name| name.parse().unwrap()).collect();
            explanation(&types.iter().collect::<Vec<_>>())
        };
        assert_eq!(text(&["nvidia-h200-141gb"]), None);
        let both = text(&["aws-trainium2-96gb", "nvidia-l4-24gb", "amd-mi300x-192gb"]).unwrap();
        assert!(both.starts_with("The drivers of AMD and AWS Neuron do not report"), "{both}");
        let one = text(&["aws-trainium2-96gb"]).unwrap();
        assert!(one.starts_with("The drivers of AWS Neuron do not"), "{one}");
    }
}
