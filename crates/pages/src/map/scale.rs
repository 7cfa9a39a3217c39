//! Values by which the cells of the map are colored, and their classes.

/// Value by which cells are colored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    /// Use of the device, or state of the node.
    State,
    /// Share of time in which a kernel ran.
    Utilization,
    /// Used share of the memory.
    Memory,
    /// Temperature in degrees Celsius.
    Temperature,
    /// Power draw in watts.
    Power,
}

/// CSS class of a cell without a value.
pub(super) const NO_DATA: &str = "no-data";

/// CSS classes of the five steps, lowest first.
pub(super) const STEPS: [&str; 5] = ["step-1", "step-2", "step-3", "step-4", "step-5"];

impl Metric {
    /// All metrics, in the order of the links.
    pub(super) const ALL: [Self; 5] =
        [Self::State, Self::Utilization, Self::Memory, Self::Temperature, Self::Power];

    /// Value of the parameter `by`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Utilization => "utilization",
            Self::Memory => "memory",
            Self::Temperature => "temperature",
            Self::Power => "power",
        }
    }

    /// Label of the link, and heading of the column.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::State => "State",
            Self::Utilization => "Utilization",
            Self::Memory => "Memory",
            Self::Temperature => "Temperature",
            Self::Power => "Power",
        }
    }

    /// Unit, with a space before it.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::State => "",
            Self::Utilization | Self::Memory => " %",
            Self::Temperature => " °C",
            Self::Power => " W",
        }
    }

    /// Lowest value of the second to the fifth step. Data center GPUs throttle at about 85 °C, and draw 70 to 1,000 W.
    fn bounds(self) -> [u32; 4] {
        match self {
            Self::State => [0; 4],
            Self::Utilization | Self::Memory => [20, 40, 60, 80],
            Self::Temperature => [40, 55, 70, 85],
            Self::Power => [100, 250, 400, 700],
        }
    }

    /// Step of a value, 0 to 4.
    pub(super) fn step(self, value: u32) -> usize {
        self.bounds().iter().filter(|bound| value >= **bound).count()
    }

    /// CSS class of a value; of no data if it is not known.
    pub(super) fn class(self, value: Option<u32>) -> &'static str {
        let step = value.and_then(|value| STEPS.get(self.step(value)));
        step.copied().unwrap_or(NO_DATA)
    }

    /// Values of each step: `below 20 %`, `20 to 39 %`, `80 % or more`.
    pub(super) fn ranges(self) -> [String; 5] {
        let unit = self.unit();
        let [second, third, fourth, fifth] = self.bounds();
        let between = |low: u32, high: u32| format!("{low} to {}{unit}", high.saturating_sub(1));
        [
            format!("below {second}{unit}"),
            between(second, third),
            between(third, fourth),
            between(fourth, fifth),
            format!("{fifth}{unit} or more"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_a_value_and_no_data_is_a_class_of_its_own() {
        let class = |value| Metric::Utilization.class(value);
        assert_eq!(class(None), NO_DATA);
        let values = [0, 19, 20, 39, 40, 79, 80, 100].map(|value| class(Some(value)));
        let expected = [0, 0, 1, 1, 2, 3, 4, 4].map(|step: usize| STEPS[step]);
        assert_eq!(values, expected);
    }

    #[test]
    fn ranges_of_the_steps_do_not_overlap() {
        let ranges = ["below 20 %", "20 to 39 %", "40 to 59 %", "60 to 79 %", "80 % or more"];
        assert_eq!(Metric::Memory.ranges(), ranges);
        assert_eq!(Metric::Temperature.ranges()[4], "85 °C or more");
        assert_eq!(Metric::Power.ranges()[1], "100 to 249 W");
    }
}
