//! Current values of a device: utilization, memory, temperature and power. A value that is not reported is never shown as zero.

use octavo_history::Metric;
use octavo_model::inventory::{Condition, Device};
use octavo_model::quantity::Mebibytes;
use octavo_node::sharing::usage::DeviceUsage;

use super::badges::format_memory;
use super::chart::{format_value, metric_name};

/// Value as shown on a device card.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LiveValue {
    pub(super) metric: Metric,
    pub(super) name: &'static str,
    /// Value with its unit; `None` if it is not reported.
    pub(super) value: Option<String>,
    /// Value and maximum of its bar.
    pub(super) bar: Option<(u64, u64)>,
}

/// Values of a working device; empty for any other.
pub(super) fn live_values(device: &Device, usage: Option<&DeviceUsage>) -> Vec<LiveValue> {
    if device.condition != Condition::Working {
        return Vec::new();
    }
    let utilization = usage.and_then(|usage| usage.utilization).map(|percent| percent.0.into());
    let amd = device.amd.as_ref().and_then(|amd| amd.memory_used).zip(device.memory);
    let memory = usage.and_then(|usage| usage.memory).map(|memory| (memory.used, memory.total));
    vec![
        LiveValue {
            bar: utilization.map(|percent: u32| (percent.into(), 100)),
            ..plain(Metric::Utilization, utilization)
        },
        memory_value(memory.or(amd)),
        plain(Metric::Temperature, usage.and_then(|usage| usage.temperature_celsius)),
        plain(Metric::Power, usage.and_then(|usage| usage.power_watts)),
    ]
}

fn plain(metric: Metric, value: Option<u32>) -> LiveValue {
    let value = value.map(|value| format_value(metric, value));
    LiveValue { metric, name: metric_name(metric), value, bar: None }
}

fn memory_value(memory: Option<(Mebibytes, Mebibytes)>) -> LiveValue {
    LiveValue {
        metric: Metric::Memory,
        name: "Used memory",
        value: memory
            .map(|(used, all)| format!("{} of {}", format_memory(used), format_memory(all))),
        bar: memory.map(|(used, all)| (used.get().min(all.get()), all.get())),
    }
}

#[cfg(test)]
mod tests {
    use octavo_model::reading::{MemoryUse, Percent};

    use super::*;

    fn usage() -> DeviceUsage {
        let text = r#"{"pci":"0000:07:00.0","name":"GPU 0","units":[]}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn values_are_shown_with_unit_and_missing_ones_are_named() {
        let device = octavo_model::examples::gpu();
        let texts = |usage: Option<&DeviceUsage>| {
            let values = live_values(&device, usage).into_iter();
            let text = |value: LiveValue| value.value.unwrap_or_else(|| "not reported".to_owned());
            values.map(text).collect::<Vec<_>>()
        };
        assert_eq!(texts(None), ["not reported"; 4]);
        let mut used = usage();
        assert_eq!(texts(Some(&used)), ["not reported"; 4]);
        used.utilization = Some(Percent(0));
        let memory = |mib| Mebibytes::new(mib);
        used.memory =
            Some(MemoryUse { total: memory(81_920), used: memory(20_480), reserved: memory(0) });
        (used.temperature_celsius, used.power_watts) = (Some(34), Some(0));
        assert_eq!(texts(Some(&used)), ["0 %", "20 GiB of 80 GiB", "34 °C", "0 W"]);
    }

    #[test]
    fn failing_device_has_no_values() {
        let mut device = octavo_model::examples::gpu();
        device.condition = Condition::Failing { reason: "lost".to_owned() };
        assert_eq!(live_values(&device, Some(&usage())), []);
    }
}
