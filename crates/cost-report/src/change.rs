//! Change of usage and cost between two months.

use octavo_fleet::price::Amount;
use octavo_ledger::report::Usage;
use octavo_model::text::join;

use crate::text::hours;

/// Change against the previous month.
#[derive(Debug)]
pub(crate) struct CostChange {
    /// Currency and change of its cost, for each currency.
    pub(crate) costs: Vec<(String, Change)>,
    /// Change of the device hours.
    pub(crate) hours: Change,
}

/// Change of a figure.
#[derive(Debug)]
pub(crate) struct Change {
    /// Change in percent: `+12 %`.
    pub(crate) percent: String,
    /// Value in the previous month.
    pub(crate) previous: String,
}

impl CostChange {
    /// Change of usage.
    pub(crate) fn new(usage: &Usage, previous: &Usage) -> Self {
        let mut currencies: Vec<_> =
            usage.costs.iter().chain(&previous.costs).map(|cost| &cost.currency).collect();
        currencies.sort_unstable();
        currencies.dedup();
        let costs = currencies.into_iter().map(|currency| {
            let total = |usage: &Usage| {
                let cost = usage.costs.iter().find(|cost| cost.currency == *currency);
                cost.map_or(Amount::ZERO, |cost| cost.total)
            };
            let (now, before) = (total(usage), total(previous));
            let ratio = if now == before { Some(1.0) } else { now.ratio(before) };
            (currency.to_string(), Change::new(ratio, before.shown_with(currency)))
        });
        let (now, before) = (usage.device_hours.total, previous.device_hours.total);
        let ratio = if before > 0.0 { Some(now / before) } else { (now <= 0.0).then_some(1.0) };
        Self { costs: costs.collect(), hours: Change::new(ratio, hours(before)) }
    }

    /// Change of the cost, or of the device hours if there are no costs.
    pub(crate) fn summary(self) -> String {
        match self.costs.as_slice() {
            [] => self.hours.percent,
            [(_, change)] => change.percent.clone(),
            all => join(
                all.iter().map(|(currency, change)| format!("{} ({currency})", change.percent)),
                ", ",
            ),
        }
    }
}

impl Change {
    /// Change by a ratio; `None` if only the earlier value is zero.
    fn new(ratio: Option<f64>, previous: String) -> Self {
        let percent = match ratio.map(|ratio| (ratio - 1.0) * 100.0) {
            None => "new".to_owned(),
            Some(percent) if percent.abs() < 0.5 => "unchanged".to_owned(),
            Some(percent) => format!("{percent:+.0} %"),
        };
        Self { percent, previous }
    }

    /// The change and the value in the previous month, whose name is given: `+12 %; October 2026: 4.00 EUR`.
    pub(crate) fn since(&self, month: &str) -> String {
        format!("{}; {month}: {}", self.percent, self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_without_an_earlier_value_is_new() {
        let change = |now: f64, before: f64| {
            let usage = |hours: f64| {
                let mut usage = Usage::default();
                usage.device_hours.total = hours;
                usage
            };
            CostChange::new(&usage(now), &usage(before)).summary()
        };
        assert_eq!(change(5.0, 4.0), "+25 %");
        assert_eq!(change(5.0, 0.0), "new");
        assert_eq!(change(0.0, 0.0), "unchanged");
        assert_eq!(change(0.0, 4.0), "-100 %");
    }

    #[test]
    fn change_names_the_previous_month_and_its_value() {
        let mut previous = Usage::default();
        previous.device_hours.total = 80.0;
        let mut usage = previous.clone();
        usage.device_hours.total = 130.0;
        let change = CostChange::new(&usage, &previous).hours;
        assert_eq!((change.percent.as_str(), change.previous.as_str()), ("+62 %", "80.0"));
        assert_eq!(change.since("October 2026"), "+62 %; October 2026: 80.0");
    }
}
