//! Estimate of the time until the first of several holders ends, from observed holding times.
//!
//! Uses the Nelson–Aalen estimator of the cumulative hazard, which assumes no distribution. A holding that already
//! existed when observation began counts from its age at that time (delayed entry); one that continues counts up to
//! its current age (right-censoring). Neither is treated as a complete holding. There is no estimate for ages that no
//! holding has reached. Ties are handled as by Fleming and Harrington. Sources: Nelson, "Theory and Applications of
//! Hazard Plotting for Censored Failure Data", 1972; Aalen, Borgan, Gjessing, "Survival and Event History Analysis",
//! 2008, 3.1.

use std::collections::BTreeMap;

/// Observed part of one holding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HoldingInterval {
    /// Age in seconds when first observed.
    entered: u64,
    /// Age in seconds when last observed; greater than `entered`.
    left: u64,
    ended: bool,
}

/// Minimum number of holdings at risk at an age: with fewer, one or two long holdings would dominate the estimate.
const MIN_AT_RISK: u32 = 3;

impl HoldingInterval {
    /// Holding observed between two ages in seconds, and whether it ended then. Its length is at least one second.
    pub(super) fn new(entered: u64, left: u64, ended: bool) -> Self {
        Self { entered, left: left.max(entered.saturating_add(1)), ended }
    }
}

/// Probability that the first holder has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantile {
    /// One half.
    Median,
    /// Nine tenths.
    Ninetieth,
}

impl Quantile {
    /// Cumulative hazard at this probability.
    fn hazard(self) -> f64 {
        match self {
            Self::Median => std::f64::consts::LN_2,
            Self::Ninetieth => std::f64::consts::LN_10,
        }
    }
}

/// Cumulative hazard of holding times.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct CumulativeHazard {
    /// Ages in seconds with ends, ascending, and the cumulative hazard up to and including each.
    steps: Vec<(u64, f64)>,
}

impl CumulativeHazard {
    /// Estimates the hazard from observed holdings.
    pub(super) fn estimate(intervals: &[HoldingInterval]) -> Self {
        let mut entered: Vec<u64> = intervals.iter().map(|interval| interval.entered).collect();
        let mut left: Vec<u64> = intervals.iter().map(|interval| interval.left).collect();
        entered.sort_unstable();
        left.sort_unstable();
        let mut ends: BTreeMap<u64, u32> = BTreeMap::new();
        for interval in intervals.iter().filter(|interval| interval.ended) {
            let count = ends.entry(interval.left).or_default();
            *count = count.saturating_add(1);
        }
        let mut sum = 0.0;
        let mut steps = Vec::with_capacity(ends.len());
        for (age, count) in ends {
            // A holding that ends at an age entered before it; one last observed at that age has reached it.
            let came = entered.partition_point(|entered| *entered < age);
            let gone = left.partition_point(|left| *left < age);
            let there = u32::try_from(came.saturating_sub(gone)).unwrap_or(u32::MAX);
            // Ends within one second are treated as consecutive.
            let least = there.saturating_sub(count).saturating_add(1).max(MIN_AT_RISK);
            sum += (least..=there).map(|left| f64::from(left).recip()).sum::<f64>();
            steps.push((age, sum));
        }
        Self { steps }
    }

    /// Cumulative hazard up to and including an age.
    fn at(&self, age: u64) -> f64 {
        let known = self.steps.partition_point(|(step, _)| *step <= age);
        let known = self.steps.get(..known).and_then(<[_]>::last);
        known.map_or(0.0, |(_, sum)| *sum)
    }

    /// Seconds until the first of independent holders with these ages has ended, with the given probability; `None`
    /// if the observed ages do not reach that far.
    pub(super) fn time_to_first_end(&self, ages: &[u64], chance: Quantile) -> Option<u64> {
        let before: f64 = ages.iter().map(|age| self.at(*age)).sum();
        let is_over = |seconds: u64| {
            let after: f64 = ages.iter().map(|age| self.at(age.saturating_add(seconds))).sum();
            after - before >= chance.hazard()
        };
        let (mut short, mut long) = (0, self.steps.last()?.0);
        if !is_over(long) {
            return None;
        }
        // Invariant: the condition holds at `long` and does not hold at `short`.
        while long.saturating_sub(short) > 1 {
            let middle = short.midpoint(long);
            if is_over(middle) {
                long = middle;
            } else {
                short = middle;
            }
        }
        Some(long)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(lasted: impl IntoIterator<Item = u64>) -> Vec<HoldingInterval> {
        let lasted = lasted.into_iter();
        lasted.map(|left| HoldingInterval::new(0, left, true)).collect()
    }

    fn even(hazard: &CumulativeHazard, ages: &[u64]) -> Option<u64> {
        hazard.time_to_first_end(ages, Quantile::Median)
    }

    #[test]
    fn first_of_several_ends_sooner() {
        // All last about an hour, plus or minus ten minutes.
        let hazard = CumulativeHazard::estimate(&whole((3000..4200).step_by(20)));
        let alone = even(&hazard, &[0]).unwrap();
        assert!((3500..3700).contains(&alone), "{alone}");
        assert!(even(&hazard, &[0; 8]).unwrap() < alone);
        let old = even(&hazard, &[2800]).unwrap();
        assert!((700..900).contains(&old), "{old}");
        assert!(hazard.time_to_first_end(&[0], Quantile::Ninetieth).unwrap() > alone);
    }

    #[test]
    fn ages_beyond_observation_have_no_estimate() {
        let hazard = CumulativeHazard::estimate(&whole((100..200).step_by(2)));
        assert_eq!(even(&hazard, &[200]), None);
        assert_eq!(even(&hazard, &[]), None);
        assert_eq!(even(&CumulativeHazard::default(), &[0, 0]), None);
        // Most continue, so that fewer than half are known to end at all.
        let mut intervals = whole([10, 20, 30]);
        intervals.extend([HoldingInterval::new(0, 1000, false); 20]);
        assert_eq!(even(&CumulativeHazard::estimate(&intervals), &[0]), None);
    }

    #[test]
    fn delayed_entry_is_not_a_complete_holding() {
        // Half are short and half last a day; the long ones were nearly over when first observed.
        let mut intervals = whole((0..40).map(|number| 60 + number));
        intervals.extend((0..40).map(|number| HoldingInterval::new(86_000, 86_400 + number, true)));
        let hazard = CumulativeHazard::estimate(&intervals);
        let old = even(&hazard, &[86_100]).unwrap();
        assert!((300..340).contains(&old), "{old}");
        // If treated as complete, the short remainders of the long ones would distort the estimate.
        let short = even(&hazard, &[0]).unwrap();
        assert!((60..100).contains(&short), "{short}");
    }

    /// Deterministic random numbers from 0 to 1.
    struct TestRandom(u64);

    impl TestRandom {
        fn roll(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
            self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
            f64::from(u32::try_from(self.0 >> 32).unwrap()) / f64::from(u32::MAX)
        }

        /// Mixture of short and long holding times.
        fn lasts(&mut self) -> u64 {
            let scale = if self.roll() < 0.7 { 1800.0 } else { 40_000.0 };
            // Weibull with shape 2.
            let seconds = scale * (-self.roll().max(1e-9).ln()).sqrt();
            format!("{seconds:.0}").parse::<u64>().unwrap().max(1)
        }
    }

    #[test]
    fn ac_008_estimates_are_calibrated() {
        let mut dice = TestRandom(7);
        let (mut by_first, mut by_second, mut estimates) = (0_u32, 0_u32, 0_u32);
        for _ in 0..400 {
            let past: Vec<u64> = (0..200).map(|_| dice.lasts()).collect();
            let hazard = CumulativeHazard::estimate(&whole(past));
            // Holders of different ages, each conditioned on having lasted that long.
            let mut holders = Vec::new();
            while holders.len() < 4 {
                let (lasts, age) = (dice.lasts(), dice.lasts() / 2);
                if lasts > age {
                    holders.push((age, lasts - age));
                }
            }
            let ages: Vec<u64> = holders.iter().map(|(age, _)| *age).collect();
            let first = holders.iter().map(|(_, rest)| *rest).min().unwrap();
            let likely = [Quantile::Median, Quantile::Ninetieth];
            let [Some(from), Some(to)] =
                likely.map(|chance| hazard.time_to_first_end(&ages, chance))
            else {
                continue;
            };
            estimates += 1;
            by_first += u32::from(first <= from);
            by_second += u32::from(first <= to);
        }
        let share = |count: u32| f64::from(count) / f64::from(estimates);
        assert!(estimates > 380, "{estimates}");
        assert!((0.43..0.57).contains(&share(by_first)), "{by_first}");
        assert!((0.86..0.94).contains(&share(by_second)), "{by_second}");
    }

    fn intervals() -> impl Strategy<Value = Vec<HoldingInterval>> {
        let one = (0..1000_u64, 0..1000_u64, any::<bool>());
        let one = one.prop_map(|(entered, lasted, ended)| {
            HoldingInterval::new(entered, entered.saturating_add(lasted), ended)
        });
        prop::collection::vec(one, 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn estimates_are_monotonic(
            intervals in intervals(),
            ages in prop::collection::vec(0..1500_u64, 0..8),
            another in 0..1500_u64,
        ) {
            let hazard = CumulativeHazard::estimate(&intervals);
            let (even, sure) = (hazard.time_to_first_end(&ages, Quantile::Median), hazard.time_to_first_end(&ages, Quantile::Ninetieth));
            // `None` sorts after every estimate.
            let late = |estimate: Option<u64>| estimate.unwrap_or(u64::MAX);
            prop_assert!(late(even) <= late(sure));
            let mut more = ages.clone();
            more.push(another);
            prop_assert!(late(hazard.time_to_first_end(&more, Quantile::Median)) <= late(even));
            let mut turned = ages;
            turned.reverse();
            prop_assert_eq!(hazard.time_to_first_end(&turned, Quantile::Median).is_some(), even.is_some());
            let going_on: Vec<HoldingInterval> = intervals.iter().map(|interval| HoldingInterval { ended: false, ..*interval }).collect();
            prop_assert_eq!(CumulativeHazard::estimate(&going_on).time_to_first_end(&more, Quantile::Median), None);
            // The estimate lies within the observed range.
            let longest = intervals.iter().map(|interval| interval.left).max().unwrap_or(0);
            prop_assert!(even.is_none_or(|even| (1..=longest).contains(&even)));
        }
    }
}
