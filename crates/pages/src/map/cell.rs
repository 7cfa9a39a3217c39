//! Cells of the map: what each shows of a device, or of all devices of a node.

use octavo_fleet::summary::{DeviceSummary, DeviceUse, NodeState};
use octavo_model::id::{PciAddress, TypeName};
use octavo_model::inventory::{Inventory, NeuronDevice, Severity};
use octavo_model::quantity::Mebibytes;
use octavo_model::text::join;
use octavo_model::tone::Tone;
use octavo_node::sharing::usage::DeviceUsage;
use octavo_store::clock::Moment;
use octavo_store::fleet::Node;
use octavo_store::query::Query;

use super::request::is_wanted;
use super::scale::Metric;
use crate::badges::{count_noun, format_memory, node_state, type_name};
use crate::device_card::title;
use crate::sharing::device_usage;
use crate::slice_diagram::SliceDiagram;
use crate::vendor_devices::partition_diagram;

/// Device, or node, as a cell of the map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Cell {
    /// Name of the node.
    pub(super) node: String,
    /// Fragment of the device on the page of its node: `#device-0000:1b:00.0`; empty for a whole node.
    pub(super) fragment: String,
    /// Name of the device: `GPU 3`; empty for a whole node.
    pub(super) title: String,
    /// Type; `None` if it is unknown, or for nodes of several types.
    pub(super) type_name: Option<TypeName>,
    /// Current use, or state of the node.
    pub(super) state: CellState,
    /// True if the user has to act.
    pub(super) needs_attention: bool,
    /// Number of devices that the cell stands for.
    pub(super) devices: u32,
    /// Measured values.
    pub(super) values: Values,
    /// Partitions, from left to right.
    pub(super) slices: Vec<Slice>,
}

/// State that a cell shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CellState {
    /// Of a device.
    Device(DeviceUse),
    /// Of a node.
    Node(NodeState),
}

/// Measured values. `None`: not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Values {
    /// Utilization in percent.
    pub(super) utilization: Option<u32>,
    /// Used and total memory.
    pub(super) memory: Option<(Mebibytes, Mebibytes)>,
    /// Temperature in degrees Celsius; the highest of the devices of a node.
    pub(super) temperature: Option<u32>,
    /// Power draw in watts.
    pub(super) power: Option<u32>,
}

/// Run of adjacent memory slices, or a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    /// CSS class of its use.
    pub(super) class: &'static str,
    /// Number of slices.
    pub(super) width: u32,
    /// Measured values of a partition, if its node reports usage.
    pub(super) values: Option<Values>,
}

impl Default for CellState {
    fn default() -> Self {
        Self::Device(DeviceUse::Unknown)
    }
}

/// One cell for each device of `node`. Nothing is known about the devices of a stale node, of a node without an agent,
/// or of a node whose status cannot be decoded.
pub(super) fn device_cells(node: &Node, now: Moment) -> Vec<Cell> {
    let status = node.has_agent().then(|| node.status().ok()).flatten();
    let Some(status) = status else {
        let unread = node.types(now).map(|one| Cell {
            node: node.name.to_string(),
            type_name: one.type_name.clone(),
            devices: one.counts.total,
            ..Cell::default()
        });
        return unread.filter(|cell| cell.devices > 0).collect();
    };
    let is_stale = node.freshness.is_stale(now);
    let inventory = &status.inventory;
    let function = inventory.devices.iter();
    let function =
        function.filter(|device| !inventory.is_reported_by_neuron(device)).map(|device| {
            let summary = DeviceSummary::new(device, &inventory.nvml);
            let used = device_usage(status.usage.as_ref(), device.pci);
            let amd = device.amd.as_ref().and_then(|amd| amd.memory_used.zip(device.memory));
            let picture = SliceDiagram::of(device)
                .filter(|picture| picture.count.is_some())
                .or_else(|| partition_diagram(device.amd.as_ref()?, device.memory));
            Cell {
                fragment: fragment(device.pci),
                title: title(device),
                state: CellState::Device(summary.occupancy.device_use()),
                needs_attention: summary.node_state.needs_attention(),
                type_name: summary.type_name,
                values: Values { memory: amd, ..Values::default() }.or(used),
                slices: picture.map(|picture| slices(&picture, used)).unwrap_or_default(),
                ..Cell::default()
            }
        });
    let neuron = inventory.neuron.iter().flat_map(|neuron| &neuron.devices);
    let neuron = neuron.map(|chip| neuron_cell(chip, inventory));
    let cells = function.chain(neuron).map(|cell| Cell {
        node: node.name.to_string(),
        devices: 1,
        ..if is_stale { cell.outdated() } else { cell }
    });
    cells.collect()
}

/// One cell for the devices of `node` that match the query; `None` if it has none.
pub(super) fn node_cell(node: &Node, query: &Query, now: Moment) -> Option<Cell> {
    let state = node.state(now);
    let (wanted, others): (Vec<_>, Vec<_>) =
        node.types(now).partition(|one| is_wanted(query, one.type_name.as_ref()));
    let devices = wanted.iter().fold(0_u32, |sum, one| sum.saturating_add(one.counts.total));
    if devices == 0 {
        return None;
    }
    let values = if node.freshness.is_stale(now) {
        Values::default()
    } else {
        // The usage names no types and lacks the memory of AMD and Neuron devices, and the whole status takes longer.
        let usage = node.usage_by_pod().filter(|_| others.is_empty());
        let usage = usage.filter(|usage| usage.devices.iter().any(|one| one.memory.is_some()));
        if let Some(usage) = usage {
            let all = usage.devices.iter().map(|one| Values::default().or(Some(one)));
            Values::mean(all.collect::<Vec<_>>().iter())
        } else {
            let cells = device_cells(node, now);
            let cells = cells.iter().filter(|cell| is_wanted(query, cell.type_name.as_ref()));
            Values::mean(cells.map(|cell| &cell.values))
        }
    };
    Some(Cell {
        node: node.name.to_string(),
        type_name: match wanted.as_slice() {
            [only] => only.type_name.clone(),
            _ => None,
        },
        state: CellState::Node(state),
        needs_attention: state.needs_attention(),
        devices,
        values,
        ..Cell::default()
    })
}

/// Fragment of a device on the page of its node.
pub(super) fn fragment(pci: PciAddress) -> String {
    format!("#device-{pci}")
}

fn neuron_cell(chip: &NeuronDevice, inventory: &Inventory) -> Cell {
    let severity = chip.state().severity();
    let name = chip.device_name.as_deref();
    let is_failing = severity == Some(Severity::Critical);
    let total = name.and_then(octavo_model::accelerators::neuron_memory);
    let facts = name.and_then(octavo_model::accelerators::neuron_chip);
    let function = inventory.devices.iter().find(|device| inventory.is_reported_by_neuron(device));
    let of_bus = function.and_then(|device| device.identity.type_name().cloned());
    Cell {
        fragment: format!("#neuron-{}", chip.number),
        title: format!("Neuron {}", chip.number),
        type_name: of_bus.or_else(|| facts.and_then(|facts| facts.type_name.parse().ok())),
        // The driver does not report users of a device.
        state: CellState::Device(if is_failing {
            DeviceUse::Unavailable
        } else {
            DeviceUse::Unknown
        }),
        needs_attention: severity.is_some(),
        values: Values { memory: chip.memory_used.zip(total), ..Values::default() },
        ..Cell::default()
    }
}

fn slices(picture: &SliceDiagram, usage: Option<&DeviceUsage>) -> Vec<Slice> {
    let values = |instance: u32| {
        let mut units = usage.iter().flat_map(|usage| &usage.units);
        let unit = units.find(|unit| unit.gpu_instance == Some(instance));
        unit.map_or_else(Values::default, |unit| Values {
            utilization: unit.utilization.map(|percent| percent.0.into()),
            memory: unit.memory.map(|memory| (memory.used, memory.total)),
            ..Values::default()
        })
    };
    let regions = picture.regions.iter();
    let slice = regions.map(|one| Slice {
        class: one.class,
        width: one.slices,
        values: one.instance.map(values),
    });
    slice.collect()
}

impl Slice {
    /// The slice with its CSS class for this metric. Partitions have neither a temperature nor a power draw of their own.
    pub(super) fn colored(self, metric: Metric) -> Self {
        let class = match (metric, self.values) {
            (Metric::Utilization | Metric::Memory, Some(values)) => {
                metric.class(values.get(metric))
            }
            (Metric::State | Metric::Temperature | Metric::Power, _) | (_, None) => self.class,
        };
        Self { class, ..self }
    }
}

impl Cell {
    /// The cell without what was only true at the last report.
    fn outdated(self) -> Self {
        Self {
            state: CellState::default(),
            needs_attention: true,
            values: Values::default(),
            slices: Vec::new(),
            ..self
        }
    }

    /// Address of the device on the page of its node.
    pub(super) fn href(&self) -> String {
        format!("/nodes/{}{}", self.node, self.fragment)
    }

    /// CSS class for this metric.
    pub(super) fn class(&self, metric: Metric) -> &'static str {
        match metric {
            Metric::State => self.state.class(),
            Metric::Utilization | Metric::Memory | Metric::Temperature | Metric::Power => {
                metric.class(self.values.get(metric))
            }
        }
    }

    /// Text inside the cell: the value. States are shown by a pattern and, if a user has to act, by a mark.
    pub(super) fn text(&self, metric: Metric) -> String {
        match metric {
            Metric::State => {
                let mark = if self.is_marked() { "!" } else { "" };
                match self.devices {
                    1 => mark.to_owned(),
                    several => format!("{mark}{several}"),
                }
            }
            Metric::Utilization | Metric::Memory | Metric::Temperature | Metric::Power => {
                let value = self.values.get(metric);
                value.map_or_else(|| "-".to_owned(), |value| value.to_string())
            }
        }
    }

    /// Returns `true` if an exclamation mark shows that the user has to act. A cross has the same meaning.
    pub(super) fn is_marked(&self) -> bool {
        self.needs_attention && self.state != CellState::Device(DeviceUse::Unavailable)
    }

    /// Utilization of the partitions from left to right: `40 %, not reported`; `None` if none reports it.
    pub(super) fn partition_utilization(&self) -> Option<String> {
        let values = self.slices.iter().filter_map(|slice| slice.values);
        let known = values.clone().filter(|values| values.utilization.is_some());
        let text = |values: Values| match values.utilization {
            Some(percent) => format!("{percent} %"),
            None => "not reported".to_owned(),
        };
        (known.count() > 0).then(|| join(values.map(text), ", "))
    }

    /// Number of partitions, with their utilization if it is reported; `None` without partitions.
    fn partitions(&self) -> Option<String> {
        let count = self.slices.iter().filter(|slice| slice.values.is_some()).count();
        let utilization = self.partition_utilization();
        let utilization = utilization.map(|text| format!(" with utilization {text}"));
        let count = (count > 0).then(|| count_noun(count, "partition", "partitions"))?;
        Some(format!("{count}{}", utilization.unwrap_or_default()))
    }

    /// Name of the link and text of the tooltip: everything known about the device.
    pub(super) fn label(&self) -> String {
        let mut parts = vec![type_name(self.type_name.as_ref()), self.state.word().to_owned()];
        if self.title.is_empty() {
            let devices = usize::try_from(self.devices).unwrap_or(usize::MAX);
            parts.insert(0, count_noun(devices, "device", "devices"));
            if self.type_name.is_none() {
                parts.remove(1);
            }
        }
        if self.needs_attention && matches!(self.state, CellState::Device(_)) {
            parts.push("needs attention".to_owned());
        }
        parts.extend(self.values.words());
        parts.extend(self.partitions());
        let title = [self.node.as_str(), self.title.as_str()].join(" ");
        format!("{}: {}", title.trim_end(), parts.join(", "))
    }
}

impl CellState {
    /// CSS class of the state.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Device(of) => of.as_str(),
            Self::Node(NodeState::Stale | NodeState::NoAgent) => DeviceUse::Unknown.as_str(),
            Self::Node(state) => match state.tone() {
                Tone::Good => "is-good",
                Tone::Neutral => DeviceUse::Passthrough.as_str(),
                Tone::Warning => "is-warning",
                Tone::Bad => DeviceUse::Unavailable.as_str(),
            },
        }
    }

    /// Returns `true` if all cells in this state are marked.
    pub(super) fn is_marked(self) -> bool {
        matches!(self, Self::Node(state) if state.needs_attention())
    }

    /// State as text.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Device(of) => of.title(),
            Self::Node(state) => node_state(state).word,
        }
    }
}

impl Values {
    /// Values of a usage report, or else these.
    fn or(self, usage: Option<&DeviceUsage>) -> Self {
        let memory = usage.and_then(|usage| usage.memory).map(|memory| (memory.used, memory.total));
        Self {
            utilization: usage.and_then(|usage| usage.utilization).map(|one| one.0.into()),
            memory: memory.or(self.memory),
            temperature: usage.and_then(|usage| usage.temperature_celsius),
            power: usage.and_then(|usage| usage.power_watts),
        }
    }

    /// Mean of the devices that report a value; sum of their memory, and highest of their temperatures.
    fn mean<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let sum = |(used, total): (u64, u64), (more_used, more): (Mebibytes, Mebibytes)| {
            (used.saturating_add(more_used.get()), total.saturating_add(more.get()))
        };
        let memory = all.clone().filter_map(|values| values.memory).fold((0, 0), sum);
        let (used, total) = (Mebibytes::new(memory.0), Mebibytes::new(memory.1));
        Self {
            utilization: mean(all.clone().filter_map(|values| values.utilization)),
            memory: (total.get() > 0).then_some((used, total)),
            temperature: all.clone().filter_map(|values| values.temperature).max(),
            power: mean(all.filter_map(|values| values.power)),
        }
    }

    /// Value in the unit of the metric; `None` if it is not reported.
    pub(super) fn get(self, metric: Metric) -> Option<u32> {
        match metric {
            Metric::State => None,
            Metric::Utilization => self.utilization,
            Metric::Temperature => self.temperature,
            Metric::Power => self.power,
            Metric::Memory => {
                let (used, total) = self.memory?;
                let percent = used.get().saturating_mul(100).checked_div(total.get())?;
                u32::try_from(percent.min(100)).ok()
            }
        }
    }

    /// Known values: `utilization 42 %`, `memory 20 GiB of 80 GiB`.
    fn words(self) -> impl Iterator<Item = String> {
        let utilization = self.utilization.map(|percent| format!("utilization {percent} %"));
        let memory = self.memory.map(|(used, total)| {
            format!("memory {} of {}", format_memory(used), format_memory(total))
        });
        let temperature = self.temperature.map(|celsius| format!("{celsius} °C"));
        let power = self.power.map(|watts| format!("{watts} W"));
        [utilization, memory, temperature, power].into_iter().flatten()
    }
}

fn mean(values: impl Iterator<Item = u32>) -> Option<u32> {
    let (sum, count) = values.fold((0_u64, 0_u64), |(sum, count), value| {
        (sum.saturating_add(value.into()), count.saturating_add(1))
    });
    u32::try_from(sum.checked_div(count)?).ok()
}

#[cfg(test)]
mod tests {
    use octavo_model::reading::{MemoryUse, Percent};
    use octavo_node::sharing::usage::UnitUsage;

    use super::*;
    use crate::map::scale::NO_DATA;
    use crate::slice_diagram::{Region, SLICES};

    fn partition(instance: u32, utilization: Option<u8>) -> UnitUsage {
        let text = format!(r#"{{"uuid":"MIG-{instance}","gpuInstance":{instance},"tenants":[]}}"#);
        let mebibytes = |mib| Mebibytes::new(mib);
        UnitUsage {
            utilization: utilization.map(Percent),
            memory: Some(MemoryUse {
                total: mebibytes(9728),
                used: mebibytes(4864),
                reserved: mebibytes(0),
            }),
            ..serde_json::from_str(&text).unwrap()
        }
    }

    /// A GPU with three partitions, of which the last is not in the usage report, and a free slice.
    fn partitioned() -> Cell {
        let usage = DeviceUsage {
            units: vec![partition(7, Some(0)), partition(8, None)],
            ..serde_json::from_str(r#"{"pci":"0000:07:00.0","name":"GPU 0","units":[]}"#).unwrap()
        };
        let region = |instance: Option<u32>| Region {
            class: if instance.is_some() { "is-used" } else { "is-free" },
            slices: 2,
            name: String::new(),
            lines: Vec::new(),
            place: String::new(),
            instance,
        };
        let picture = SliceDiagram {
            what: SLICES,
            caption: String::new(),
            count: None,
            slices: 8,
            regions: [Some(7), Some(8), Some(9), None].map(region).into(),
            hidden: Vec::new(),
        };
        Cell { slices: slices(&picture, Some(&usage)), ..Cell::default() }
    }

    #[test]
    fn partitions_are_colored_by_their_own_values() {
        let cell = partitioned();
        let classes = |metric| {
            cell.slices.iter().map(|slice| slice.colored(metric).class).collect::<Vec<_>>()
        };
        let by_use = ["is-used", "is-used", "is-used", "is-free"];
        assert_eq!(classes(Metric::Utilization), ["step-1", NO_DATA, NO_DATA, "is-free"]);
        assert_eq!(classes(Metric::Memory), ["step-3", "step-3", NO_DATA, "is-free"]);
        for metric in [Metric::State, Metric::Temperature, Metric::Power] {
            assert_eq!(classes(metric), by_use);
        }
    }

    #[test]
    fn name_of_a_cell_has_all_partitions_and_their_utilization() {
        let mut cell = partitioned();
        let label = cell.label();
        let partitions = "3 partitions with utilization 0 %, not reported, not reported";
        assert!(label.ends_with(partitions), "{label}");
        cell.slices.remove(0);
        assert_eq!(cell.partition_utilization(), None);
        assert!(cell.label().ends_with(", 2 partitions"), "{}", cell.label());
        cell.slices.clear();
        assert!(!cell.label().contains("partition"), "{}", cell.label());
    }
}
