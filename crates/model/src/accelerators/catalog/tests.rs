//! Tests of catalog names and facts: each name is unambiguous or lists its candidates, and every figure has a source.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::accelerators::lookup;
use crate::label::LabelValue;

fn skus_of(text: &str) -> String {
    format_lookup(&lookup(text))
}

fn format_lookup(lookup: &Lookup) -> String {
    let names = |skus: &[Sku]| {
        let names: Vec<&str> = skus.iter().map(Sku::as_str).collect();
        names.join(" ")
    };
    match lookup {
        Lookup::Found(sku) => sku.to_string(),
        Lookup::Ambiguous(skus) => format!("any of {}", names(skus)),
        Lookup::Unknown(near) => format!("unknown, near {}", names(near)),
    }
}

/// Returns `true` if the result contains this product.
fn includes(lookup: &Lookup, sku: &Sku) -> bool {
    match lookup {
        Lookup::Found(found) => found == sku,
        Lookup::Ambiguous(skus) => skus.contains(sku),
        Lookup::Unknown(_) => false,
    }
}

#[test]
fn every_alias_resolves_to_one_product_and_back() {
    let catalog = Catalog::built_in();
    let mut seen = 0;
    for product in catalog.products() {
        for alias in product.aliases {
            let own = catalog.lookup_as(alias.kind, alias.text);
            assert_eq!(own, Lookup::Found(product.sku.clone()), "{alias:?}");
            let label = alias.kind.labels().first();
            if let Some(label) = label {
                let text = format!("{label}={}", alias.text);
                assert_eq!(catalog.lookup(&text), Lookup::Found(product.sku.clone()), "{text}");
            }
            let plain = catalog.lookup(alias.text);
            assert!(includes(&plain, &product.sku), "{alias:?}: {plain:?}");
            seen += 1;
        }
    }
    assert!(seen > 390, "{seen}");
}

#[test]
fn only_known_aliases_need_their_kind() {
    let catalog = Catalog::built_in();
    let mut open: Vec<String> = Vec::new();
    for product in catalog.products() {
        for alias in product.aliases {
            if catalog.lookup(alias.text) != Lookup::Found(product.sku.clone()) {
                open.push(format!("{} {}", alias.kind, alias.text));
            }
        }
    }
    open.sort();
    assert_eq!(
        open,
        [
            "driver Inferentia",
            "driver NVIDIA H100",
            "driver NVIDIA H20",
            "driver NVIDIA H200",
            "driver NVIDIA H800",
            "gfd NVIDIA-H100",
            "gfd NVIDIA-H20",
            "gfd NVIDIA-H200",
            "gfd NVIDIA-H800",
            "gke nvidia-a100-80gb",
            "gke nvidia-h100-80gb",
            "gke nvidia-h200-141gb",
            "gke nvidia-rtx-pro-6000",
            "karpenter b200",
            "karpenter h100",
            "karpenter h200",
            "karpenter rtx-pro-4500",
            "karpenter trainium",
        ]
    );
}

#[test]
fn shared_alias_matches_all_its_products() {
    let catalog = Catalog::built_in();
    assert!(catalog.shared().len() > 8);
    for shared in catalog.shared() {
        let found = catalog.lookup_as(shared.kind, shared.text);
        let Lookup::Ambiguous(skus) = found else {
            panic!("{shared:?}: {found:?}");
        };
        let found: BTreeSet<&str> = skus.iter().map(Sku::as_str).collect();
        assert_eq!(found, shared.skus.iter().copied().collect(), "{shared:?}");
    }
}

#[test]
fn shared_ids_have_a_type_and_names_have_products() {
    let catalog = Catalog::built_in();
    for product in catalog.products() {
        let sku = &product.sku;
        assert_eq!(catalog.lookup(sku.as_str()), Lookup::Found(sku.clone()));
        let of_type = catalog.lookup(product.type_name.as_str());
        assert!(includes(&of_type, sku), "{sku}: {of_type:?}");
        let alone =
            catalog.products().iter().filter(|other| other.type_name == product.type_name).count()
                == 1;
        assert_eq!(alone, of_type == Lookup::Found(sku.clone()), "{sku}");
        let named = catalog.lookup(product.name);
        assert!(includes(&named, sku), "{sku}: {named:?}");
    }
}

#[test]
fn every_fact_name_and_price_cites_a_source() {
    let catalog = Catalog::built_in();
    let cited = |keys: &[&str], what: &str| {
        assert!(!keys.is_empty(), "{what}");
        for key in keys {
            let citation = catalog.source(key);
            assert!(citation.is_some_and(|text| text.len() > 10), "{what} {key}");
        }
    };
    let (mut facts, mut prices) = (0, 0);
    for product in catalog.products() {
        for fact in product.facts {
            cited(fact.sources, &format!("{} {:?}", product.sku, fact.field));
            facts += 1;
        }
        for alias in product.aliases {
            cited(alias.sources, alias.text);
        }
        for offer in product.offers {
            cited(offer.sources, offer.instance);
            assert_eq!(offer.usd_per_hour.is_some(), offer.region.is_some(), "{offer:?}");
            prices += usize::from(offer.usd_per_hour.is_some());
        }
        assert!(product.value(Field::PciIds).is_some(), "{}", product.sku);
    }
    for shared in catalog.shared() {
        cited(shared.sources, shared.text);
    }
    assert!(facts > 700 && prices > 80, "{facts} {prices}");
}

#[test]
fn label_aliases_are_valid_label_values() {
    let catalog = Catalog::built_in();
    let aliases = catalog.products().iter().flat_map(|one| one.aliases);
    let texts = aliases.filter(|alias| !alias.kind.labels().is_empty()).map(|alias| alias.text);
    let shared = catalog.shared().iter();
    let shared = shared.filter(|shared| !shared.kind.labels().is_empty()).map(|shared| shared.text);
    for text in texts.chain(shared) {
        assert!(text.parse::<LabelValue>().is_ok(), "{text}");
    }
}

#[test]
fn lookup_ignores_case_blanks_hyphens_and_vendors() {
    for text in [
        "nvidia-a100-sxm4-80gb",
        "NVIDIA A100-SXM4-80GB",
        "a100 sxm4 80gb",
        "A100 SXM 80 GB",
        "A100-SXM4-80GB",
        "NVIDIA-A100-SXM4-80GB",
        "NVIDIA-A100-SXM4-80GB-SHARED",
        "nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB-MIG-3g.40gb",
        " octavo.dev/sku=nvidia-a100-sxm4-80gb ",
        "p4de.24xlarge",
        "Standard_ND96amsr_A100_v4",
        "10DE:20B2",
        "cloud.google.com/gke-accelerator=nvidia-a100-80gb",
    ] {
        assert_eq!(skus_of(text), "nvidia-a100-sxm4-80gb", "{text}");
    }
    for (text, sku) in [
        ("Tesla T4", "nvidia-t4"),
        ("t4", "nvidia-t4"),
        ("karpenter.k8s.aws/instance-gpu-name=h200", "nvidia-h200-sxm5-141gb"),
        ("H200 SXM", "nvidia-h200-sxm5-141gb"),
        ("H100 NVL", "nvidia-h100-nvl-94gb"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-sxm5-80gb"),
        ("B300", "nvidia-b300"),
        ("NVIDIA B300 SXM6 AC", "nvidia-b300"),
        ("NVIDIA GB200", "nvidia-gb200"),
        ("Instinct_MI300X", "amd-mi300x"),
        ("AMD Instinct MI300X OAM", "amd-mi300x"),
        ("mi250x", "amd-mi250x"),
        ("Trainium2", "aws-trainium2"),
        ("trainium 1", "aws-trainium1"),
        ("Inf2", "aws-inferentia2"),
        ("trn2.48xlarge", "aws-trainium2"),
        ("aws-inferentia", "aws-inferentia"),
        ("l4", "nvidia-l4"),
        ("NVIDIA A16 (per GPU)", "nvidia-a16"),
    ] {
        assert_eq!(skus_of(text), sku, "{text}");
    }
}

#[test]
fn ambiguous_name_returns_all_matches() {
    for (text, count) in [
        ("H100", 6),
        ("NVIDIA H100", 6),
        ("H100 SXM", 4),
        ("A100", 5),
        ("nvidia-tesla-a100", 5),
        ("nvidia-a100-80gb", 2),
        ("cloud.google.com/gke-accelerator=nvidia-tesla-a100", 2),
        ("karpenter.k8s.aws/instance-gpu-name=v100", 2),
        ("karpenter.k8s.aws/instance-accelerator-name=inferentia", 2),
        ("karpenter.azure.com/sku-gpu-name=A100", 3),
        ("H200", 2),
        ("B200", 2),
        ("RTX PRO 6000", 3),
        ("RTX PRO 6000 Blackwell 96GB", 3),
        ("H20", 2),
        ("MI300", 2),
        ("GH200", 2),
        ("10de:25b6", 2),
        ("trainium", 3),
        ("AWS Inferentia", 2),
    ] {
        let Lookup::Ambiguous(skus) = lookup(text) else {
            panic!("{text}: {}", skus_of(text));
        };
        assert_eq!(skus.len(), count, "{text}: {}", skus_of(text));
    }
}

#[test]
fn unknown_name_is_not_guessed() {
    for (text, near) in [
        ("H1000", "nvidia-h100"),
        ("MI3000", "amd-mi300"),
        ("A100 SXM4 81GB", "nvidia-a100-sxm4-80gb"),
        ("H200 SXM 80GB", ""),
        ("mi25", "amd-mi25"),
    ] {
        let Lookup::Unknown(skus) = lookup(text) else {
            panic!("{text}: {}", skus_of(text));
        };
        assert!(skus.len() <= 5);
        let first = skus.first().map_or("", Sku::as_str);
        assert!(first.starts_with(near), "{text}: {skus:?}");
    }
    for text in ["", "NVIDIA", "gpu", "-", "karpenter.k8s.aws/instance-gpu-name="] {
        assert_eq!(lookup(text), Lookup::Unknown(Vec::new()), "{text:?}");
    }
    assert_eq!(lookup(&"h100".repeat(1000)), Lookup::Unknown(Vec::new()));
}

proptest! {
    #[test]
    fn any_text_returns_products_of_the_catalog(text in ".{0,60}") {
        let catalog = Catalog::built_in();
        let skus = match catalog.lookup(&text) {
            Lookup::Found(sku) => vec![sku],
            Lookup::Ambiguous(skus) => {
                prop_assert!(skus.len() > 1);
                skus
            }
            Lookup::Unknown(near) => near,
        };
        prop_assert!(skus.iter().all(|sku| catalog.product(sku).is_some()));
    }

    #[test]
    fn mangled_product_name_is_still_recognized(at in any::<proptest::sample::Index>(), upper in any::<bool>()) {
        let catalog = Catalog::built_in();
        let product = at.get(catalog.products());
        let name = product.sku.as_str().replace('-', " ");
        let name = if upper { name.to_uppercase() } else { name };
        prop_assert!(includes(&catalog.lookup(&name), &product.sku), "{}", name);
    }
}
