//! Lookup of products by name. An ambiguous name returns all matching products, an unknown one returns similar ones;
//! nothing is guessed.
//!
//! A name is first matched exactly, then normalized, then as a model with narrowing words (`H100 SXM 80GB`).
//! `KEY=VALUE` of a label set by a cloud provider or a node labeler is matched only against the names of that label's
//! owner: for Karpenter on AWS `h200` is one product, in free text it is two.

use super::{AliasKind, Catalog, Product};
use crate::id::Sku;
use crate::similar_names;

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// Exactly one product.
    Found(Sku),
    /// Several products, at least two, in catalog order.
    Ambiguous(Vec<Sku>),
    /// No product; these have similar names, nearest first.
    Unknown(Vec<Sku>),
}

/// Maximum length of a query in bytes.
const MAX_QUERY_BYTES: usize = 256;

/// Maximum number of similar products.
const MAX_SUGGESTIONS: usize = 5;

/// Minimum letters of a family name whose products differ by generation number: `h` alone is too short.
const MIN_FAMILY_LETTERS: usize = 4;

/// Words of a SKU that distinguish products of one model, besides form factor and memory. A user who names only the
/// model omits them.
const EDITION_WORDS: &[&str] = &["workstation", "q", "3e"];

/// Octavo's own labels, whose values are names of this catalog.
const OWN_LABELS: &[&str] = &["octavo.dev/sku", "octavo.dev/type"];

impl Catalog {
    /// Finds the product that `text` refers to: its id, type, name, alias of a driver, node labeler or cloud, or a
    /// model with narrowing words. Ignores case, blanks, hyphens and vendors.
    pub fn lookup(&self, text: &str) -> Lookup {
        let text = text.trim();
        if text.len() > MAX_QUERY_BYTES {
            return Lookup::Unknown(Vec::new());
        }
        let text = match text.split_once('=') {
            Some((key, value)) => match AliasKind::from_label(key.trim()) {
                Some(kind) => return self.lookup_as(kind, value.trim()),
                None if OWN_LABELS.contains(&key.trim()) => value.trim(),
                None => text,
            },
            None => text,
        };
        // Exact match first: names that this catalog itself emits are always found.
        let own = |product: &&Product| product.sku.as_str() == text;
        if let Some(product) = self.products.iter().find(own) {
            return Lookup::Found(product.sku.clone());
        }
        let of_type = self.skus_where(|product| product.type_name.as_str() == text);
        if !of_type.is_empty() {
            return self.lookup_result(of_type, text);
        }
        let query = significant_words(text);
        if query.is_empty() {
            return Lookup::Unknown(Vec::new());
        }
        let key = query.concat();
        let named = self.skus_named(&key);
        // A family name without a generation matches all generations.
        let family = self.skus_where(|product| {
            named.contains(&product.sku) || is_generation(&key, &product.model_words().concat())
        });
        if !family.is_empty() {
            return self.lookup_result(family, text);
        }
        self.lookup_result(self.skus_where(|product| matches_words(&query, product)), text)
    }

    /// Finds the product that `text` refers to among the names of one kind.
    pub fn lookup_as(&self, kind: AliasKind, text: &str) -> Lookup {
        let key = normalized(text);
        if key.is_empty() || text.len() > MAX_QUERY_BYTES {
            return Lookup::Unknown(Vec::new());
        }
        let is_named = |product: &Product| {
            let mut own = product.aliases.iter().filter(|alias| alias.kind == kind);
            let shared = self.shared().iter().filter(|shared| shared.kind == kind);
            own.any(|alias| normalized(alias.text) == key)
                || shared
                    .filter(|shared| shared.skus.contains(&product.sku.as_str()))
                    .any(|shared| normalized(shared.text) == key)
        };
        self.lookup_result(self.skus_where(is_named), text)
    }

    /// Products with this name, where the origin of the name is unknown.
    fn skus_named(&self, key: &str) -> Vec<Sku> {
        self.skus_where(|product| {
            let shared = self.shared().iter().filter(|shared| {
                // A label value shared by several products means no more than its model outside that label.
                shared.kind.labels().is_empty() && shared.skus.contains(&product.sku.as_str())
            });
            product.keys().any(|own| own == key)
                || shared.map(|shared| normalized(shared.text)).any(|own| own == key)
        })
    }

    fn skus_where(&self, which: impl Fn(&Product) -> bool) -> Vec<Sku> {
        let found = self.products.iter().filter(|product| which(product));
        found.map(|product| product.sku.clone()).collect()
    }

    fn lookup_result(&self, found: Vec<Sku>, text: &str) -> Lookup {
        match found.as_slice() {
            [] => Lookup::Unknown(self.similar(text)),
            [one] => Lookup::Found(one.clone()),
            _ => Lookup::Ambiguous(found),
        }
    }

    /// Products with similar names: at most a third of the letters differ, or `text` is a part of the name.
    fn similar(&self, text: &str) -> Vec<Sku> {
        let query = normalized(text);
        if query.is_empty() {
            return Vec::new();
        }
        let mut near: Vec<(usize, &Sku)> = Vec::new();
        for product in &self.products {
            let keys: Vec<String> = product.keys().filter(|key| !key.is_empty()).collect();
            let alike = similar_names::rank_by_similarity(&query, keys.iter().map(String::as_str));
            let nearest = alike.iter().find(|(distance, key)| *distance <= (key.len() / 3).max(1));
            let part = || keys.iter().any(|key| query.len() > 1 && key.contains(&query));
            match nearest {
                Some((distance, _)) => near.push((*distance, &product.sku)),
                None if part() => near.push((query.len(), &product.sku)),
                None => {}
            }
        }
        near.sort_by_key(|(distance, _)| *distance);
        let nearest = near.into_iter().take(MAX_SUGGESTIONS);
        nearest.map(|(_, sku)| sku.clone()).collect()
    }
}

impl Product {
    /// All normalized names of the product, including its model.
    fn keys(&self) -> impl Iterator<Item = String> {
        let whole = [self.sku.as_str(), self.type_name.as_str(), self.name];
        // Text in parentheses is an explanation, such as "(per GPU)".
        let bare = self.name.split('(').next().unwrap_or_default();
        let aliases = self.aliases.iter().map(|alias| alias.text);
        let texts = whole.into_iter().chain([bare]).chain(aliases);
        texts.map(normalized).chain([self.model_words().concat()])
    }

    /// Words of the model only.
    fn model_words(&self) -> Vec<String> {
        let mut words = significant_words(self.model);
        // `Max-Q` is an edition, whereas `Max` alone is part of a model name.
        let is_max_q = words.iter().any(|word| word == "q");
        let is_edition = |word: &str| EDITION_WORDS.contains(&word) || (is_max_q && word == "max");
        words.retain(|word| !is_edition(word));
        words
    }

    /// Words that narrow a model down to this product.
    fn narrowing_words(&self) -> Vec<String> {
        let form = self.text(super::Field::FormFactor).unwrap_or_default();
        [self.sku.as_str(), self.type_name.as_str(), self.name, form]
            .into_iter()
            .flat_map(significant_words)
            .collect()
    }
}

/// Returns `true` if `query` contains all words of the model and no word that does not apply to the product.
fn matches_words(query: &[String], product: &Product) -> bool {
    let model = product.model_words();
    let narrowing = product.narrowing_words();
    let is_true = |word: &String| {
        narrowing.contains(word)
            || is_memory_kind(word)
            // `sxm` alone matches `sxm2` to `sxm6`; the chip determines which.
            || (word == "sxm" && narrowing.iter().any(|own| own.starts_with("sxm")))
    };
    !model.is_empty()
        && model.iter().all(|word| query.contains(word))
        && query.iter().all(|word| model.contains(word) || is_true(word))
}

/// Returns `true` if a model is a generation of the named family: `trainium2` is one of `trainium`.
fn is_generation(name: &str, model: &str) -> bool {
    let is_word = name.len() >= MIN_FAMILY_LETTERS && name.bytes().all(|b| b.is_ascii_lowercase());
    let number = model.strip_prefix(name).filter(|_| is_word);
    number.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Memory kinds narrow nothing down: the catalog does not state them for every product.
fn is_memory_kind(word: &str) -> bool {
    word.starts_with("hbm") || word.starts_with("gddr")
}

/// Words that name a vendor or the kind of device, but not the product.
const INSIGNIFICANT_WORDS: &[&str] = &[
    "nvidia",
    "tesla",
    "amd",
    "instinct",
    "aws",
    "amazon",
    "intel",
    "habana",
    "labs",
    "corporation",
    "corp",
    "inc",
    "tm",
    "gpu",
    "gpus",
    "tensor",
    "core",
    "accelerator",
    "card",
];

/// Significant words of a name. A size may be written `80GB`, `80 GB`, `80G` or `80GiB`; the suffixes that
/// gpu-feature-discovery appends for replicas and partitions are dropped.
pub(super) fn significant_words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let mut words: Vec<String> = Vec::new();
    let raw: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    // `-MIG-1g.10gb` names a partition of the product before it.
    let end = raw.iter().skip(1).position(|word| *word == "mig");
    let raw = raw.get(..end.map_or(raw.len(), |at| at + 1)).unwrap_or_default();
    for (number, word) in raw.iter().enumerate() {
        let is_last = number + 1 == raw.len();
        if INSIGNIFICANT_WORDS.contains(word) || (is_last && number > 0 && *word == "shared") {
            continue;
        }
        if let ("gb" | "gib" | "g", Some(size)) = (*word, words.last_mut())
            && is_number(size)
        {
            size.push_str("gb");
            continue;
        }
        words.push(normalized_size(word));
    }
    words
}

/// Significant words of a name, concatenated.
pub(super) fn normalized(text: &str) -> String {
    significant_words(text).concat()
}

fn normalized_size(word: &str) -> String {
    let number = ["gib", "gb", "g"]
        .iter()
        .find_map(|unit| word.strip_suffix(unit).filter(|rest| is_number(rest)));
    number.map_or_else(|| word.to_owned(), |number| format!("{number}gb"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn irrelevant_parts_are_ignored() {
        for (text, expected) in [
            ("NVIDIA A100-SXM4-80GB", "a100sxm480gb"),
            ("a100 sxm4 80 GB", "a100sxm480gb"),
            ("Tesla T4", "t4"),
            ("AMD Instinct MI300X", "mi300x"),
            ("Instinct_MI300X", "mi300x"),
            ("NVIDIA H100 Tensor Core GPU", "h100"),
            ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "a100sxm480gb"),
            ("NVIDIA-A100-SXM4-80GB-SHARED", "a100sxm480gb"),
            ("NVIDIA GH200 144G HBM3e", "gh200144gbhbm3e"),
            ("g5g.16xlarge", "g5g16xlarge"),
            ("NVIDIA", ""),
            ("shared", "shared"),
            ("mig", "mig"),
            ("", ""),
        ] {
            assert_eq!(normalized(text), expected, "{text}");
        }
    }
}
