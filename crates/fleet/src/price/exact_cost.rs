//! Exact costs of parts of a device for whole seconds. A third of an hour has no exact decimal form, so that a sum of
//! rounded costs differs from the cost of the sum.

use rust_decimal::Decimal;

use super::{Amount, MAX_DECIMALS};

/// Parts per million of a whole device.
const WHOLE_DEVICE: u128 = 1_000_000;
/// Units of an [`ExactCost`] per unit of the currency: millionths of a price, millionths of a device, seconds per hour.
const UNITS: u128 = 10_u128.pow(MAX_DECIMALS) * WHOLE_DEVICE * 3600;
/// Maximum number of decimals of a rounded cost.
const MAX_ROUNDED_DECIMALS: u32 = 12;

/// A cost, or a sum of costs in one currency, without rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ExactCost(u128);

impl Amount {
    /// The cost of `parts_per_million` millionths of a device for `seconds` seconds at this hourly price. `None` if it
    /// cannot be represented: the price has more than six decimals, or the cost is too large.
    pub fn cost_of(self, seconds: u64, parts_per_million: u32) -> Option<ExactCost> {
        let price = self.0.normalize();
        let missing = MAX_DECIMALS.checked_sub(price.scale())?;
        let millionths = u128::try_from(price.mantissa()).ok()?;
        let millionths = millionths.checked_mul(10_u128.checked_pow(missing)?)?;
        let cost = millionths.checked_mul(seconds.into())?;
        cost.checked_mul(parts_per_million.into()).map(ExactCost)
    }
}

impl ExactCost {
    /// Adds a cost in the same currency; `None` if the sum is too large.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Rounds to this number of decimals, at most 12, and half to even. `None` if the amount is too large.
    pub fn rounded(self, decimals: u32) -> Option<Amount> {
        let scale = decimals.min(MAX_ROUNDED_DECIMALS);
        let factor = 10_u128.pow(scale);
        let parts = (self.0 % UNITS).checked_mul(factor)?;
        let floor = (self.0 / UNITS).checked_mul(factor)?.checked_add(parts / UNITS)?;
        let rest = parts % UNITS;
        let is_odd = !floor.is_multiple_of(2);
        let is_up = rest > UNITS / 2 || (rest == UNITS / 2 && is_odd);
        let rounded = i128::try_from(floor).ok()?.checked_add(is_up.into())?;
        Decimal::try_from_i128_with_scale(rounded, scale).ok().map(Amount)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn price(text: &str) -> Amount {
        text.parse().unwrap()
    }

    fn rounded(cost: ExactCost, decimals: u32) -> String {
        cost.rounded(decimals).unwrap().to_string()
    }

    #[test]
    fn sum_of_parts_is_the_cost_of_the_whole() {
        let hour = price("10").cost_of(3600, 1_000_000).unwrap();
        let seconds = (0..3600).map(|_| price("10").cost_of(1, 1_000_000).unwrap());
        assert_eq!(
            seconds.fold(ExactCost::default(), |all, one| all.checked_add(one).unwrap()),
            hour
        );
        let eighth = price("10").cost_of(3600, 125_000).unwrap();
        assert_eq!((rounded(hour, 2), rounded(eighth, 4)), ("10.00".into(), "1.2500".into()));
    }

    #[test]
    fn cost_is_rounded_half_to_even_and_only_at_the_end() {
        let second = price("1").cost_of(1, 1_000_000).unwrap();
        assert_eq!(rounded(second, 12), "0.000277777778");
        for (hours, text) in
            [("0.005", "0.00"), ("0.015", "0.02"), ("0.025", "0.02"), ("0.0251", "0.03")]
        {
            assert_eq!(rounded(price(hours).cost_of(3600, 1_000_000).unwrap(), 2), text);
        }
        assert_eq!(price("1").cost_of(0, 1_000_000), Some(ExactCost::default()));
        // A century of the most expensive device.
        let century = price("1000000").cost_of(100 * 366 * 86_400, 1_000_000).unwrap();
        assert_eq!(rounded(century, 2), "878400000000.00");
        assert_eq!(price("1000000").cost_of(u64::MAX, u32::MAX), None);
    }

    proptest! {
        #[test]
        fn rounding_error_is_at_most_half_a_unit(
            millionths in 0_u64..=1_000_000_000_000,
            seconds in 0_u64..100_000_000,
            parts in 0_u32..=1_000_000,
            decimals in 0_u32..=6,
        ) {
            let price = Amount(Decimal::from_i128_with_scale(millionths.into(), 6));
            let exact = price.cost_of(seconds, parts).unwrap();
            let units = u128::try_from(exact.rounded(decimals).unwrap().0.mantissa()).unwrap();
            let scale = 10_u128.pow(decimals);
            let error = (units * UNITS).abs_diff(exact.0 * scale);
            prop_assert!(error * 2 <= UNITS, "{error}");
        }
    }
}
