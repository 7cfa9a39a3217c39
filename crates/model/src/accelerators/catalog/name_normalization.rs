//! Normalization of product names: drops case, blanks, hyphens, vendors and brands.

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
