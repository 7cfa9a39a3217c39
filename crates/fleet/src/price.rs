//! Prices of devices, as configured by the administrator for each type and purchase option. Nothing is guessed: a
//! type that is not in the price book has no price, and a device without a price has no cost.
//!
//! Created by the parser of price books; used by matching, estimates and objectives. Money is decimal: a tenth has no
//! exact binary form, and a bill that is wrong by a cent is wrong.
//!
//! ```text
//! book.rs              entries of a price book, with scope and validity
//! exact_cost.rs        cost of seconds and parts of a device
//! purchase_option.rs   purchase options, from node labels
//! ```

mod book;
mod exact_cost;
mod purchase_option;

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use octavo_model::reported::Reported;
use octavo_model::text::group_thousands;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use thiserror::Error;
use utoipa::ToSchema;

pub use self::book::{
    CurrentPrices, INSTANCE_TYPE, PriceBook, PriceEntry, PriceKey, PriceSource, REGION, UnitPrice,
    Validity,
};
pub use self::exact_cost::ExactCost;
pub use self::purchase_option::PurchaseOption;

/// A non-negative amount of money. Its text is a decimal; the text of a price or of a limit is parsed by [`FromStr`], a
/// sum in a document may be larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, Deserialize)]
#[serde(try_from = "String")]
pub struct Amount(Decimal);

/// A three-letter ISO 4217 currency code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct Currency(String);

/// A price per hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Cost)]
pub struct Price {
    /// Price for one hour, a decimal.
    #[schema(value_type = String)]
    pub per_hour: Amount,
    /// Three-letter code of the currency.
    #[schema(value_type = String)]
    pub currency: Currency,
    /// `on-demand`, `spot` or `reserved`.
    #[schema(value_type = String)]
    pub purchase_option: Reported<PurchaseOption>,
}

/// A text that is not a valid price.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PriceError {
    /// Not an amount.
    #[error(
        "{0:?} is not a price: use a number with at most {MAX_DECIMALS} decimals, such as 12.34, up to {MAX_AMOUNT}"
    )]
    Amount(String),
    /// Not a currency.
    #[error("{0:?} is not a currency: use three capital letters, such as USD")]
    Currency(String),
    /// Not a purchase option.
    #[error("{0:?} is not a purchase option: use on-demand, spot or reserved")]
    Option(String),
    /// Not a time.
    #[error(
        "{0:?} is not a time: use a date in UTC, such as 2026-01-01, or RFC 3339, such as 2026-01-01T09:00:00Z"
    )]
    Time(String),
}

/// The amount with at least this many decimals.
fn with_decimals(amount: Decimal, least: u32) -> String {
    let mut amount = amount.normalize();
    amount.rescale(amount.scale().max(least));
    amount.to_string()
}

/// Maximum number of decimals. Cloud providers state hundredths of a cent.
const MAX_DECIMALS: u32 = 6;
/// Maximum price of one device for one hour, and maximum cost limit: sums over a fleet cannot overflow.
const MAX_AMOUNT: u32 = 1_000_000;

impl TryFrom<String> for Amount {
    type Error = PriceError;

    fn try_from(text: String) -> Result<Self, PriceError> {
        let amount = Decimal::from_str_exact(&text).ok();
        let amount = amount.filter(|amount| !amount.is_sign_negative());
        amount.map(Self).ok_or_else(|| PriceError::Amount(truncate(&text)))
    }
}

impl FromStr for Amount {
    type Err = PriceError;

    fn from_str(text: &str) -> Result<Self, PriceError> {
        let wrong = || PriceError::Amount(truncate(text));
        let parts: Vec<&str> = text.split('.').collect();
        let digits = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if text.len() > 16 || parts.len() > 2 || !parts.iter().all(digits) {
            return Err(wrong());
        }
        let amount = Decimal::from_str_exact(text).map_err(|_| wrong())?;
        if amount.scale() > MAX_DECIMALS || amount > Decimal::from(MAX_AMOUNT) {
            return Err(wrong());
        }
        Ok(Self(amount))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string())
    }
}

impl Amount {
    /// Formats the amount with at least two decimals and a comma between thousands, as in `1,234.50`.
    pub fn shown(self) -> String {
        group_thousands(&with_decimals(self.0, 2))
    }

    /// Formats the amount like [`Self::shown`], rounded to hundredths.
    pub fn shown_in_hundredths(self) -> String {
        Self(self.0.round_dp(2)).shown()
    }

    /// Formats the amount in hundredths with its currency, as in `1,234.50 USD`.
    pub fn shown_with(self, currency: &Currency) -> String {
        format!("{} {currency}", self.shown_in_hundredths())
    }

    /// Formats the bounds of an estimate like [`Self::shown`]. From a thousand on, they are rounded to three significant
    /// digits, because the estimate is not more precise.
    pub fn format_estimate(low: Self, high: Self) -> (String, String) {
        if high.0 < Decimal::ONE_THOUSAND {
            return (low.shown(), high.shown());
        }
        let whole = |amount: Decimal| {
            let rounded = amount.round_sf(3).unwrap_or(amount);
            group_thousands(&with_decimals(rounded.round(), 0))
        };
        (whole(low.0), whole(high.0))
    }

    /// No money.
    pub const ZERO: Self = Self(Decimal::ZERO);

    /// Multiplies the amount by a quantity, without rounding; `None` if the quantity is negative or the product is too large.
    pub fn checked_mul(self, quantity: Decimal) -> Option<Self> {
        let product = self.0.checked_mul(quantity)?.normalize();
        (!product.is_sign_negative()).then_some(Self(product))
    }

    /// Adds an amount in the same currency; `None` if the sum is too large.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Rounds the amount to this number of decimals, half to even.
    #[must_use]
    pub fn rounded(self, decimals: u32) -> Self {
        let mut rounded = self.0.round_dp(decimals);
        // Always this number of decimals, including trailing zeros.
        rounded.rescale(decimals);
        Self(rounded)
    }

    /// The amount divided by another one in the same currency; `None` if that is zero.
    pub fn ratio(self, divisor: Self) -> Option<f64> {
        self.0.checked_div(divisor.0)?.to_f64()
    }

    /// The amount as a number, for metrics; `None` if it is too large.
    pub fn to_f64(self) -> Option<f64> {
        self.0.to_f64()
    }

    /// Multiplies the amount by `count`.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        Self(self.0.saturating_mul(Decimal::from(count)))
    }

    /// The cost of `seconds` seconds at this hourly price, rounded to hundredths; `None` if it cannot be represented.
    pub fn for_seconds(self, seconds: f64) -> Option<Self> {
        if seconds.is_nan() || seconds < 0.0 {
            return None;
        }
        let hours = Decimal::try_from(seconds).ok()? / Decimal::from(3600);
        let mut cost = self.0.checked_mul(hours)?.round_dp(2);
        // Always two decimals, including trailing zeros.
        cost.rescale(2);
        Some(Self(cost))
    }
}

impl FromStr for Currency {
    type Err = PriceError;

    fn from_str(text: &str) -> Result<Self, PriceError> {
        let is_one = text.len() == 3 && text.bytes().all(|b| b.is_ascii_uppercase());
        if is_one { Ok(Self(text.to_owned())) } else { Err(PriceError::Currency(truncate(text))) }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Parses an RFC 3339 time. A date without a time is its first instant in UTC.
pub fn parse_time(text: &str) -> Result<Timestamp, PriceError> {
    let wrong = || PriceError::Time(truncate(text));
    let is_date = text.len() == "2026-01-01".len();
    if is_date {
        let date = text.parse::<Date>().and_then(|date| date.to_zoned(TimeZone::UTC));
        return date.map(|start| start.timestamp()).map_err(|_| wrong());
    }
    // The library also accepts other formats of ISO 8601.
    let is_rfc_3339 = text.get(10..11) == Some("T") && !text.contains('[');
    let time = text.parse().ok().filter(|_| is_rfc_3339);
    time.ok_or_else(wrong)
}

fn truncate(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_keeps_all_digits_and_invalid_price_is_rejected() {
        for text in ["0", "12.34", "0.000001", "1000000", "3.10"] {
            assert_eq!(text.parse::<Amount>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "-1",
            "+1",
            "1e3",
            "1_000",
            ".5",
            "5.",
            "1.2.3",
            "NaN",
            "0.0000001",
            "1000000.1",
            " 1",
            "12,34",
            "99999999999999999999",
        ] {
            assert_eq!(text.parse::<Amount>(), Err(PriceError::Amount(truncate(text))), "{text}");
        }
        assert!("usd".parse::<Currency>().is_err());
        assert!("preemptible".parse::<PurchaseOption>().is_err());
    }

    #[test]
    fn decimal_amounts_are_exact() {
        let tenth: Amount = "0.1".parse().unwrap();
        assert_eq!(tenth.times(3).to_string(), "0.3");
        assert_eq!(
            tenth.for_seconds(36_000.0).map(|cost| cost.to_string()).as_deref(),
            Some("1.00")
        );
        assert_eq!(tenth.for_seconds(f64::NAN), None);
        assert_eq!(tenth.for_seconds(-1.0), None);
    }

    #[test]
    fn amounts_have_two_decimals_and_thousands_separators() {
        for (amount, text) in [
            ("5", "5.00"),
            ("4.9", "4.90"),
            ("21.00", "21.00"),
            ("0.0125", "0.0125"),
            ("999", "999.00"),
            ("1000", "1,000.00"),
            ("123456.5", "123,456.50"),
        ] {
            assert_eq!(amount.parse::<Amount>().unwrap().shown(), text);
        }
    }

    #[test]
    fn large_estimates_have_three_significant_digits() {
        let pair = |low: &str, high: &str| {
            let (low, high) = (low.parse().unwrap(), high.parse().unwrap());
            let (low, high) = Amount::format_estimate(low, high);
            format!("{low} to {high}")
        };
        assert_eq!(pair("233707.26", "560897.44"), "234,000 to 561,000");
        assert_eq!(pair("4000.00", "9600.50"), "4,000 to 9,600");
        assert_eq!(pair("850.49", "1234.5"), "850 to 1,230");
        assert_eq!(pair("0.00", "12.3"), "0.00 to 12.30");
    }

    #[test]
    fn times_are_dates_or_rfc_3339() {
        for (text, instant) in [
            ("2026-01-01", "2026-01-01T00:00:00Z"),
            ("2026-01-01T09:00:00Z", "2026-01-01T09:00:00Z"),
            ("2026-01-01T09:00:00+02:00", "2026-01-01T07:00:00Z"),
        ] {
            assert_eq!(parse_time(text).unwrap().to_string(), instant);
        }
        for text in
            ["", "2026", "2026-13-01", "01.01.2026", "2026-01-01 09:00:00Z", "2026-01-01T09:00:00"]
        {
            assert_eq!(parse_time(text), Err(PriceError::Time(text.to_owned())), "{text}");
        }
    }
}
