//! Comparison of marketed memory sizes with the memory that drivers report.
//!
//! | part | sold as | reported | share of the GiB |
//! |---|---|---|---|
//! | A100, H100, H200, B200, RTX PRO 6000 | 80, 80, 141, 180, 96 GB | 81920, 81559, 143771, 183359, 97887 MiB | 99 % and more |
//! | A10G, L4, L40S, T4 | 24, 24, 48, 16 GB | 22888, 22888, 45776, 15360 MiB | 93 %: inline ECC takes a sixteenth |
//! | B300 | 288 GB | 275040 MiB | 93 %: true (decimal) gigabytes |
//!
//! Hence the rule: a part of up to 48 GB may report up to 10 % less than its marketed size, a larger one (HBM, or
//! GDDR7 with its own ECC) up to 3 % less, and none more than 0.5 % above. No rule distinguishes the B300 from a 269
//! GB part, so the catalog states the memory it reports. The rule prevents a B200 of 168 GB from being identified as
//! one of 180 GB. Sources: the catalog's entries, and EC2's figures quoted there.

use crate::accelerators::facts::Facts;
use crate::quantity::Mebibytes;

/// Common marketed sizes in GB.
const MARKETED_SIZES_GB: &[u64] = &[
    1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 72, 80, 94, 96, 128, 141, 144,
    180, 186, 192, 256, 288,
];

/// Largest marketed size in GB with inline ECC.
const MAX_INLINE_ECC_GB: u64 = 48;

/// Returns `true` if a device that reports `seen` can be this product. A product of unknown size matches any memory.
pub(super) fn is_consistent_with(facts: &Facts, seen: Mebibytes) -> bool {
    let is_stated = facts
        .visible_memory_mib
        .is_some_and(|mebibytes| within(seen.get(), u64::from(mebibytes), 970..=1030));
    is_stated || facts.memory.is_none_or(|memory| is_sold_as(seen, u64::from(memory.size)))
}

/// Marketed size in GB of a device that reports `seen`; if no common size is near, whole GiB, rounded up.
pub(super) fn marketed_gb(seen: Mebibytes) -> u64 {
    MARKETED_SIZES_GB
        .iter()
        .copied()
        .find(|size| is_sold_as(seen, *size))
        .unwrap_or_else(|| seen.get().div_ceil(1024))
}

fn is_sold_as(seen: Mebibytes, gigabytes: u64) -> bool {
    let least = if gigabytes <= MAX_INLINE_ECC_GB { 900 } else { 970 };
    within(seen.get(), gigabytes * 1024, least..=1005)
}

/// Returns `true` if `value` is within this range of thousandths of `whole`.
fn within(value: u64, whole: u64, thousandths: std::ops::RangeInclusive<u64>) -> bool {
    let scaled = value.saturating_mul(1000);
    scaled >= whole.saturating_mul(*thousandths.start())
        && scaled <= whole.saturating_mul(*thousandths.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_memory_matches_marketed_size() {
        for (seen, sold) in [
            (24_564, 24),
            (22_888, 24),
            (45_776, 48),
            (49_140, 48),
            (15_360, 16),
            (11_264, 11),
            (11_441, 12),
            (81_559, 80),
            (95_830, 94),
            (97_871, 96),
            (97_887, 96),
            (143_771, 141),
            (183_359, 180),
            (189_471, 186),
            (172_032, 168),
            (275_040, 269),
            (14_336, 14),
            (600, 1),
        ] {
            assert_eq!(marketed_gb(Mebibytes::new(seen)), sold, "{seen} MiB");
        }
    }
}
