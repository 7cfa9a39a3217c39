//! Order of the groups of a report.

use octavo_fleet::price::{Amount, Currency};

use super::{Cost, CostItem, CostReport};

/// Order of groups; always descending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostOrder {
    /// By cost, then by device hours.
    Cost,
    /// By device hours.
    Hours,
    /// By cost of idle device hours, then by idle device hours.
    Idle,
}

impl CostOrder {
    /// All orders.
    pub const ALL: [Self; 3] = [Self::Cost, Self::Hours, Self::Idle];

    /// The order in an address; the minus sign means descending.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cost => "-cost",
            Self::Hours => "-hours",
            Self::Idle => "-idle",
        }
    }

    /// Sorts groups of a report.
    pub fn sort(self, report: &CostReport, items: &mut [&CostItem]) {
        items.sort_by(|one, two| {
            let amounts = self.amounts(report, two).cmp(&self.amounts(report, one));
            amounts.then_with(|| self.hours(two).total_cmp(&self.hours(one)))
        });
    }

    /// All groups of a report in this order.
    pub fn sorted(self, report: &CostReport) -> Vec<&CostItem> {
        let mut items: Vec<&CostItem> = report.items.iter().collect();
        self.sort(report, &mut items);
        items
    }

    /// Amounts above zero in the currencies of the report. A group without idle cost must not precede groups in other currencies or
    /// without a price.
    fn amounts(self, report: &CostReport, item: &CostItem) -> Vec<Option<Amount>> {
        let amount = |cost: &Cost| match self {
            Self::Cost => Some(cost.total),
            Self::Idle => Some(cost.idle),
            Self::Hours => None,
        };
        let currencies = report.total.costs.iter().map(|cost| &cost.currency);
        let costs =
            |currency: &Currency| item.usage.costs.iter().find(|cost| cost.currency == *currency);
        let amounts = currencies.map(|currency| costs(currency).and_then(amount));
        amounts.map(|amount| amount.filter(|amount| *amount > Amount::ZERO)).collect()
    }

    fn hours(self, item: &CostItem) -> f64 {
        match self {
            Self::Cost | Self::Hours => item.usage.device_hours.total,
            Self::Idle => item.usage.device_hours.idle,
        }
    }
}
