//! Which product a name means. A name that several products may have is answered with all of them, and one that nobody has with
//! those that look like it: nothing is guessed.
//!
//! A name is looked up word for word first, then without what does not matter, and then as a model with what narrows it down
//! (`H100 SXM 80GB`). `KEY=VALUE` of a label that a cloud or a labeller sets is looked up among its owner's names only: to
//! Karpenter on AWS `h200` is one product, to a person it is two.

use super::words::{joined, words};
use super::{AliasKind, Catalogue, Product};
use crate::domain::id::Sku;
use crate::domain::near;

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// This one.
    Found(Sku),
    /// Any of these, two at least, in the catalogue's order.
    Ambiguous(Vec<Sku>),
    /// None; these have names that look like it, the nearest first.
    Unknown(Vec<Sku>),
}

/// The longest text that is looked at.
const LONGEST: usize = 256;

/// How many are named that look like it.
const MOST_NEAR: usize = 5;

/// Letters of a name that generations of a product have in common: `h` alone is none.
const SHORTEST_FAMILY: usize = 4;

/// Words of a SKU that tell products of one model apart, beside form factor and memory: who names the model leaves them out.
const EDITIONS: &[&str] = &["workstation", "q", "3e"];

/// Labels of ours, whose values are this catalogue's own words.
const OWN_LABELS: &[&str] = &["octavo.dev/sku", "octavo.dev/type"];

impl Catalogue {
    /// The product that `text` means: its id, its type, its name, what a driver, a labeller or a cloud calls it, or a model
    /// with what narrows it down. Case, blanks, hyphens and makers do not matter.
    pub fn lookup(&self, text: &str) -> Lookup {
        let text = text.trim();
        if text.len() > LONGEST {
            return Lookup::Unknown(Vec::new());
        }
        let text = match text.split_once('=') {
            Some((key, value)) => match AliasKind::of_label(key.trim()) {
                Some(kind) => return self.lookup_as(kind, value.trim()),
                None if OWN_LABELS.contains(&key.trim()) => value.trim(),
                None => text,
            },
            None => text,
        };
        // Word for word: what this catalogue itself writes is always found.
        let own = |product: &&Product| product.sku.as_str() == text;
        if let Some(product) = self.products.iter().find(own) {
            return Lookup::Found(product.sku.clone());
        }
        let of_type = self.those(|product| product.type_name.as_str() == text);
        if !of_type.is_empty() {
            return self.answer(of_type, text);
        }
        let asked = words(text);
        if asked.is_empty() {
            return Lookup::Unknown(Vec::new());
        }
        let key = asked.concat();
        let named = self.named(&key);
        // Who leaves the generation out may mean any.
        let family = self.those(|product| {
            named.contains(&product.sku) || is_generation(&key, &product.model_words().concat())
        });
        if !family.is_empty() {
            return self.answer(family, text);
        }
        self.answer(self.those(|product| describes(&asked, product)), text)
    }

    /// The product that `text` means among the names of one kind.
    pub fn lookup_as(&self, kind: AliasKind, text: &str) -> Lookup {
        let key = joined(text);
        if key.is_empty() || text.len() > LONGEST {
            return Lookup::Unknown(Vec::new());
        }
        let is_named = |product: &Product| {
            let mut own = product.aliases.iter().filter(|alias| alias.kind == kind);
            let shared = self.shared.iter().filter(|shared| shared.kind == kind);
            own.any(|alias| joined(&alias.text) == key)
                || shared
                    .filter(|shared| shared.skus.contains(&product.sku))
                    .any(|shared| joined(&shared.text) == key)
        };
        self.answer(self.those(is_named), text)
    }

    /// The products that have this name, as whoever reads it without knowing whose word it is must take it.
    fn named(&self, key: &str) -> Vec<Sku> {
        self.those(|product| {
            let shared = self.shared.iter().filter(|shared| {
                // A label's value that several products share means nothing more than its model where it is no label's value.
                shared.kind.labels().is_empty() && shared.skus.contains(&product.sku)
            });
            product.keys().any(|own| own == key)
                || shared
                    .map(|shared| joined(&shared.text))
                    .any(|own| own == key)
        })
    }

    fn those(&self, which: impl Fn(&Product) -> bool) -> Vec<Sku> {
        let found = self.products.iter().filter(|product| which(product));
        found.map(|product| product.sku.clone()).collect()
    }

    fn answer(&self, found: Vec<Sku>, text: &str) -> Lookup {
        match found.as_slice() {
            [] => Lookup::Unknown(self.near(text)),
            [one] => Lookup::Found(one.clone()),
            _ => Lookup::Ambiguous(found),
        }
    }

    /// Those with names that look like it: a third of their letters may differ, or it is a part of them.
    fn near(&self, text: &str) -> Vec<Sku> {
        let asked = joined(text);
        if asked.is_empty() {
            return Vec::new();
        }
        let mut near: Vec<(usize, &Sku)> = Vec::new();
        for product in &self.products {
            let keys: Vec<String> = product.keys().filter(|key| !key.is_empty()).collect();
            let alike = near::ranked(&asked, keys.iter().map(String::as_str));
            let nearest = alike
                .iter()
                .find(|(distance, key)| *distance <= (key.len() / 3).max(1));
            let part = || {
                keys.iter()
                    .any(|key| asked.len() > 1 && key.contains(&asked))
            };
            match nearest {
                Some((distance, _)) => near.push((*distance, &product.sku)),
                None if part() => near.push((asked.len(), &product.sku)),
                None => {}
            }
        }
        near.sort_by_key(|(distance, _)| *distance);
        let nearest = near.into_iter().take(MOST_NEAR);
        nearest.map(|(_, sku)| sku.clone()).collect()
    }
}

impl Product {
    /// All its names without what does not matter, its model among them.
    fn keys(&self) -> impl Iterator<Item = String> {
        let whole = [self.sku.as_str(), self.type_name.as_str(), &self.name];
        // What stands in parentheses was added for people: "(per GPU)".
        let bare = self.name.split('(').next().unwrap_or_default();
        let aliases = self.aliases.iter().map(|alias| alias.text.as_str());
        let texts = whole.into_iter().chain([bare]).chain(aliases);
        texts.map(joined).chain([self.model_words().concat()])
    }

    /// The words of its model alone.
    fn model_words(&self) -> Vec<String> {
        let mut words = words(&self.model);
        // `Max-Q` is an edition, and `Max` alone a part of a model's name.
        let is_max_q = words.iter().any(|word| word == "q");
        let is_edition = |word: &str| EDITIONS.contains(&word) || (is_max_q && word == "max");
        words.retain(|word| !is_edition(word));
        words
    }

    /// Words that narrow a model down to it.
    fn narrowing_words(&self) -> Vec<String> {
        let form = self.facts.get(&super::Field::FormFactor);
        let form = match form.map(|fact| &fact.value) {
            Some(super::Value::Text(text)) => text.as_str(),
            Some(_) | None => "",
        };
        [self.sku.as_str(), self.type_name.as_str(), &self.name, form]
            .into_iter()
            .flat_map(words)
            .collect()
    }
}

/// Whether all words of the model were said, and nothing that is not true of the product.
fn describes(asked: &[String], product: &Product) -> bool {
    let model = product.model_words();
    let narrowing = product.narrowing_words();
    let is_true = |word: &String| {
        narrowing.contains(word)
            || is_memory_kind(word)
            // Any of `sxm2` to `sxm6`: which one goes with the chip.
            || (word == "sxm" && narrowing.iter().any(|own| own.starts_with("sxm")))
    };
    !model.is_empty()
        && model.iter().all(|word| asked.contains(word))
        && asked
            .iter()
            .all(|word| model.contains(word) || is_true(word))
}

/// Whether a model is a generation of what this name names: `trainium2` is one of `trainium`.
fn is_generation(name: &str, model: &str) -> bool {
    let is_word = name.len() >= SHORTEST_FAMILY && name.bytes().all(|b| b.is_ascii_lowercase());
    let number = model.strip_prefix(name).filter(|_| is_word);
    number.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Kinds of memory narrow nothing down: not for all products it is known which they have.
fn is_memory_kind(word: &str) -> bool {
    word.starts_with("hbm") || word.starts_with("gddr")
}
