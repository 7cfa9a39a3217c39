//! Worst-case time or speed and cost over all types of a profile.

use octavo_fleet::estimate::{CostRange, EstimateRow, Interval, format};
use octavo_fleet::price::Amount;

/// Seconds per day.
const DAY: f64 = 86_400.0;
/// Service objectives.
#[derive(Debug, Default)]
pub(super) struct ServiceLimits {
    /// Days, or tokens per second.
    limit: Option<f64>,
    /// Maximum cost.
    budget: Option<Amount>,
}

impl ServiceLimits {
    /// Parses the values of the form. The error is a message for the user.
    pub(super) fn of(limit: &str, budget: &str) -> Result<Self, String> {
        let number = |text: &str| -> Result<f64, String> {
            let number = text.parse::<f64>().ok();
            let number = number.filter(|number| number.is_finite() && *number > 0.0);
            number.ok_or_else(|| format!("invalid number {text:?}: must be greater than 0"))
        };
        let limit = (!limit.is_empty()).then(|| number(limit)).transpose()?;
        let budget = (!budget.is_empty()).then(|| budget.parse::<Amount>());
        let budget = budget.transpose().map_err(|error| format!("maximum cost: {error}"))?;
        Ok(Self { limit, budget })
    }

    /// Describes the objectives that a figure or a cost misses.
    pub(super) fn misses(
        &self,
        figure: Option<&WorstCase>,
        cost: Option<(Amount, Amount)>,
    ) -> Vec<String> {
        let mut misses = Vec::new();
        if let Some((limit, worst)) = self.limit.zip(figure) {
            let (low, high, what) = match worst {
                WorstCase::Seconds(time) => (time.low(), time.high(), format!("{limit} days")),
                WorstCase::Speed(speed) => {
                    (1.0 / speed.high(), 1.0 / speed.low(), format!("{limit} tokens/s"))
                }
            };
            let limit = match worst {
                WorstCase::Seconds(_) => limit * DAY,
                WorstCase::Speed(_) => 1.0 / limit,
            };
            let slower = match worst {
                WorstCase::Seconds(_) => "longer than",
                WorstCase::Speed(_) => "slower than",
            };
            if low > limit {
                misses.push(format!("{slower} {what}"));
            } else if high > limit {
                misses.push(format!("possibly {slower} {what}"));
            }
        }
        if let Some((budget, (low, high))) = self.budget.zip(cost) {
            if low > budget {
                misses.push(format!("costs more than {budget}"));
            } else if high > budget {
                misses.push(format!("possibly costs more than {budget}"));
            }
        }
        misses
    }
}

/// Interval that covers the times or speeds of all types of a profile.
#[derive(Debug, Clone, Copy)]
pub(super) enum WorstCase {
    /// Training time in seconds.
    Seconds(Interval),
    /// Tokens per second.
    Speed(Interval),
}

impl WorstCase {
    /// Covers all rows; `None` if a row has no estimate.
    pub(super) fn of(rows: &[&EstimateRow]) -> Option<Self> {
        let span = |all: Vec<Option<Interval>>| -> Option<Interval> {
            let all: Option<Vec<Interval>> = all.into_iter().collect();
            all?.into_iter().reduce(Interval::union)
        };
        let seconds = span(rows.iter().map(|row| row.seconds).collect());
        let speed = || span(rows.iter().map(|row| row.tokens_per_second).collect());
        seconds.map(Self::Seconds).or_else(|| speed().map(Self::Speed))
    }

    /// Formats the interval.
    pub(super) fn words(self) -> String {
        match self {
            Self::Seconds(time) => format::time(time),
            Self::Speed(speed) => format::format_speed(speed),
        }
    }

    /// Worst-case seconds of the training or per token.
    pub(super) fn time(self) -> f64 {
        match self {
            Self::Seconds(time) => time.high(),
            Self::Speed(speed) => 1.0 / speed.low(),
        }
    }
}

/// Cost range over all types; `None` if a row has no cost.
pub(super) fn cost(rows: &[&EstimateRow]) -> Option<CostRange> {
    let all: Option<Vec<&CostRange>> = rows.iter().map(|row| row.cost.as_ref()).collect();
    let mut all = all?.into_iter();
    let mut range = all.next()?.clone();
    for one in all {
        range.low = range.low.min(one.low);
        range.high = range.high.max(one.high);
    }
    Some(range)
}

#[cfg(test)]
mod tests {
    use octavo_fleet::estimate::{CostUnit, DeviceGroup};
    use octavo_fleet::price::PurchaseOption;

    use super::*;

    fn row(seconds: Option<(f64, f64)>, cost: Option<(&str, &str)>) -> EstimateRow {
        let devices = DeviceGroup { type_name: "a".parse().unwrap(), count: 1 };
        EstimateRow {
            seconds: seconds.map(|(low, high)| Interval::new(low, high).unwrap()),
            cost: cost.map(|(low, high)| CostRange {
                low: low.parse().unwrap(),
                high: high.parse().unwrap(),
                currency: "USD".parse().unwrap(),
                per: CostUnit::Run.into(),
                purchase_option: PurchaseOption::OnDemand.into(),
            }),
            ..EstimateRow::new(&devices)
        }
    }

    #[test]
    fn estimates_of_several_types_are_merged_to_the_widest_interval() {
        let (fast, slow) = (
            row(Some((1.0, 2.0)), Some(("9", "10.5"))),
            row(Some((1.5, 9.0)), Some(("2.50", "4"))),
        );
        let worst = WorstCase::of(&[&fast, &slow]).unwrap();
        assert_eq!(worst.words(), "1.0 to 9.0 s");
        assert!((worst.time() - 9.0).abs() < 1e-9);
        let range = cost(&[&fast, &slow]).unwrap();
        assert_eq!(
            (range.low.to_string(), range.high.to_string()),
            ("2.50".to_owned(), "10.5".to_owned())
        );
        let none = row(None, None);
        assert!(WorstCase::of(&[&fast, &none]).is_none() && cost(&[&fast, &none]).is_none());
        assert!(WorstCase::of(&[]).is_none() && cost(&[]).is_none());
    }

    #[test]
    fn missed_and_possibly_missed_limits_are_described() {
        let limits = ServiceLimits::of("2", "10").unwrap();
        let day =
            |low: f64, high: f64| WorstCase::Seconds(Interval::new(low * DAY, high * DAY).unwrap());
        let cost = |low: &str, high: &str| Some((low.parse().unwrap(), high.parse().unwrap()));
        assert_eq!(
            limits.misses(Some(&day(3.0, 4.0)), cost("11", "12")),
            ["longer than 2 days", "costs more than 10"]
        );
        assert_eq!(
            limits.misses(Some(&day(1.0, 4.0)), cost("1", "12")),
            ["possibly longer than 2 days", "possibly costs more than 10"]
        );
        assert_eq!(limits.misses(Some(&day(1.0, 2.0)), cost("1", "10")), Vec::<String>::new());
        let speed = WorstCase::Speed(Interval::new(1.0, 3.0).unwrap());
        assert_eq!(limits.misses(Some(&speed), None), ["possibly slower than 2 tokens/s"]);
        for (limit, budget) in [("soon", ""), ("-1", ""), ("inf", ""), ("", "much")] {
            assert!(ServiceLimits::of(limit, budget).is_err(), "{limit} {budget}");
        }
    }
}
