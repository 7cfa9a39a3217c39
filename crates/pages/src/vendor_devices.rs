//! Diagrams of Neuron devices by core and of AMD devices by partition.
//!
//! Usage of these devices is not reported, so the diagrams do not show whether a part is free or in use.

use octavo_model::accelerators;
use octavo_model::inventory::{
    Amd, AmdPartition, Inventory, LogicalCores, LogicalSource, Neuron, NeuronDevice,
    NeuronIdentity, PartitioningMode,
};
use octavo_model::quantity::Mebibytes;

use super::badges::{Badge, count_noun, device_state, format_memory, printable};
use super::card_lines::{Fact, IssueLine, issue_lines, known_facts};
use super::slice_diagram::{Region, SliceDiagram};

/// Maximum number of parts drawn for a device: the number of columns in the style sheet.
const MAX_PARTS: u32 = 24;

/// Neuron devices of a node.
#[derive(Debug)]
pub(super) struct NeuronSection {
    pub(super) summary: String,
    pub(super) complaints: Vec<IssueLine>,
    /// PCI addresses; the driver does not report which device has which.
    pub(super) functions: Vec<String>,
    pub(super) devices: Vec<NeuronCard>,
}

/// A Neuron device.
#[derive(Debug)]
pub(super) struct NeuronCard {
    pub(super) number: u32,
    pub(super) title: String,
    /// Type, named as for all other devices.
    pub(super) kind: String,
    /// Name of the chip according to the driver.
    pub(super) product: String,
    pub(super) state: Badge,
    pub(super) complaints: Vec<IssueLine>,
    pub(super) picture: Option<SliceDiagram>,
    pub(super) facts: Vec<Fact>,
}

impl NeuronSection {
    /// Converts the driver's data; `None` if the driver is not loaded.
    pub(super) fn of(inventory: &Inventory) -> Option<Self> {
        let neuron = inventory.neuron.as_ref()?;
        let functions = inventory.devices.iter();
        let functions = functions.filter(|device| inventory.is_reported_by_neuron(device));
        let devices = neuron.devices.iter();
        Some(Self {
            summary: summary(neuron),
            complaints: issue_lines(neuron.issues()),
            functions: functions.map(|device| device.pci.to_string()).collect(),
            devices: devices.map(|one| NeuronCard::of(one, neuron)).collect(),
        })
    }
}

/// `Driver 2.30.7.0. 16 devices. A logical core is 2 physical cores (default of the chip).`
fn summary(neuron: &Neuron) -> String {
    let version = neuron.driver_version.as_deref();
    let driver = version.map_or_else(
        || "Driver version unknown".to_owned(),
        |version| format!("Driver {}", printable(version)),
    );
    let devices = count_noun(neuron.devices.len(), "device", "devices");
    let logical = match neuron.logical {
        None => "The size of a logical core is not reported".to_owned(),
        Some(LogicalCores { size, source }) => {
            let origin = match source {
                LogicalSource::File => "configured on the node",
                LogicalSource::Default => "default of the chip",
            };
            format!("A logical core is {} ({origin})", physical(size))
        }
    };
    let mut parts = vec![driver, devices, logical];
    if let Some(mode) = neuron.ultraserver.get("ultraserver_mode") {
        parts.push(format!("UltraServer mode {}", printable(mode)));
    }
    format!("{}.", parts.join(". "))
}

fn physical(cores: u32) -> String {
    let count = usize::try_from(cores).unwrap_or(usize::MAX);
    count_noun(count, "physical core", "physical cores")
}

impl NeuronCard {
    fn of(device: &NeuronDevice, neuron: &Neuron) -> Self {
        let logical = neuron.logical;
        let name = device.device_name.as_deref();
        let facts = name.and_then(accelerators::neuron_chip);
        let state = device.state();
        let links = device.connected.as_ref().map(|numbers| {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            match numbers.as_slice() {
                [] => "none".to_owned(),
                _ => format!("to {}", numbers.join(", ")),
            }
        });
        let figures = known_facts([
            ("Memory", neuron_memory(device)),
            ("Cores", device.core_architecture.as_deref().map(printable)),
            ("Links", links),
            ("Errors", error_summary(device)),
            ("Power", device.power_percent.map(|percent| format!("{percent} % of the maximum"))),
            ("Serial", device.serial.as_deref().map(printable)),
            ("Identified by", Some(identity_note(neuron.identity(device)))),
        ]);
        Self {
            number: device.number,
            title: format!("Neuron {}", device.number),
            kind: facts
                .map_or_else(|| "type unknown".to_owned(), |facts| facts.type_name.to_owned()),
            product: name.map(printable).unwrap_or_default(),
            state: device_state(state.as_str(), state.tone()),
            complaints: issue_lines(device.issues()),
            picture: device.cores.map(|cores| core_diagram(cores, logical)),
            facts: figures,
        }
    }
}

/// Attribute that identifies the device, and how long it is stable.
fn identity_note(identity: NeuronIdentity) -> String {
    match identity {
        NeuronIdentity::Serial => "serial number".to_owned(),
        NeuronIdentity::Number => "device number, until the next reboot".to_owned(),
    }
}

/// The driver reports the used memory; the total comes from the catalog.
fn neuron_memory(device: &NeuronDevice) -> Option<String> {
    let name = device.device_name.as_deref();
    let all = name.and_then(accelerators::neuron_memory).map(format_memory);
    match (device.memory_used.map(format_memory), all) {
        (Some(used), Some(all)) => Some(format!("{used} used of {all}")),
        (Some(used), None) => Some(format!("{used} used")),
        (None, Some(all)) => Some(all),
        (None, None) => None,
    }
}

/// `0` or the nonzero counters; `None` if no counter is reported.
fn error_summary(device: &NeuronDevice) -> Option<String> {
    let counts = [
        (
            device.errors.memory_uncorrected,
            ("uncorrected memory error", "uncorrected memory errors"),
        ),
        (device.errors.memory_repairable, ("repairable memory error", "repairable memory errors")),
        (
            device.errors.sram_uncorrected,
            ("uncorrected on-chip error", "uncorrected on-chip errors"),
        ),
        (device.errors.memory_corrected, ("corrected memory error", "corrected memory errors")),
        (device.errors.sram_corrected, ("corrected on-chip error", "corrected on-chip errors")),
    ];
    let known = || counts.iter().filter_map(|(count, what)| Some(((*count)?, what)));
    known().next()?;
    let found = known().filter(|(count, _)| *count > 0);
    let found: Vec<String> = found
        .map(|(count, (one, many))| {
            count_noun(usize::try_from(count).unwrap_or(usize::MAX), one, many)
        })
        .collect();
    Some(match found.as_slice() {
        [] => "0".to_owned(),
        _ => found.join(", "),
    })
}

/// A mark is a physical core; a region is a logical core, if their size is known.
fn core_diagram(cores: u32, logical: Option<LogicalCores>) -> SliceDiagram {
    let size = logical.map_or(1, |logical| logical.size);
    let divides = cores.checked_rem(size) == Some(0);
    let drawn = divides && cores <= MAX_PARTS;
    let count = if drawn { cores.checked_div(size).unwrap_or_default() } else { 0 };
    let regions = (0..count).map(|number| {
        let first = number.saturating_mul(size);
        let place = match size {
            1 => format!("physical core {first}"),
            _ => format!("physical cores {first}-{}", first.saturating_add(size).saturating_sub(1)),
        };
        region(size, format!("core {number}"), Vec::new(), place)
    });
    let caption = match logical.filter(|_| drawn) {
        // If both are the same, the distinction is not explained.
        Some(LogicalCores { size: 1, .. }) => {
            let count = usize::try_from(cores).unwrap_or(usize::MAX);
            format!("{} (1 logical core per physical core)", count_noun(count, "core", "cores"))
        }
        Some(_) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let logical = count_noun(count, "logical core", "logical cores");
            format!("{logical} of {}", physical(cores))
        }
        None => physical(cores),
    };
    SliceDiagram {
        what: "Cores",
        caption,
        count: None,
        slices: if drawn { cores } else { 0 },
        regions: regions.collect(),
        hidden: Vec::new(),
    }
}

fn region(slices: u32, name: String, lines: Vec<String>, place: String) -> Region {
    Region { class: "is-open", slices, name, lines, place, instance: None }
}

/// Partitions of an AMD device as programs see them; `None` for a device that cannot be partitioned and appears as one.
pub(super) fn partition_diagram(amd: &Amd, all: Option<Mebibytes>) -> Option<SliceDiagram> {
    let modes = [("compute", &amd.compute), ("memory", &amd.memory)];
    let modes = modes.iter().filter_map(|(what, mode)| {
        let PartitioningMode { current, .. } = mode.as_ref()?;
        Some(format!("{what} {}", printable(current)))
    });
    let modes: Vec<String> = modes.collect();
    if modes.is_empty() && amd.partitions.len() < 2 {
        return None;
    }
    let count = u32::try_from(amd.partitions.len()).unwrap_or(u32::MAX);
    let drawn = count <= MAX_PARTS;
    let shown = amd.partitions.iter().filter(|_| drawn);
    Some(SliceDiagram {
        what: "Partitions",
        caption: modes.join(", "),
        count: Some(partition_range(&amd.partitions)),
        slices: if drawn { count } else { 0 },
        regions: shown.zip(0_u32..).map(partition).collect(),
        hidden: shared_memory_note(&amd.partitions, all).into_iter().collect(),
    })
}

/// Number of partitions, with the kernel's names of the first and the last.
fn partition_range(partitions: &[AmdPartition]) -> String {
    let count = count_noun(partitions.len(), "partition", "partitions");
    match partitions {
        [] => count,
        [one] => format!("{count}, renderD{}", one.render_minor),
        [first, .., last] => {
            format!("{count}, renderD{} to D{}", first.render_minor, last.render_minor)
        }
    }
}

/// Partitions that report more memory together than the device has share some of it.
fn shared_memory_note(partitions: &[AmdPartition], all: Option<Mebibytes>) -> Option<String> {
    let seen = partitions.iter().filter_map(|one| one.memory);
    let seen = seen.fold(0_u64, |sum, one| sum.saturating_add(one.get()));
    (seen > all?.get()).then(|| {
        "Partitions share memory: the device has less memory than the sum of its partitions."
            .to_owned()
    })
}

fn partition((one, number): (&AmdPartition, u32)) -> Region {
    let units = one.compute_units.map(|units| format!("{units} CUs"));
    let memory = one.memory.map(format_memory);
    // The full device name does not fit if there are eight.
    let name = format!("D{}", one.render_minor);
    let place = format!("partition {number}, /dev/dri/renderD{}", one.render_minor);
    region(1, name, units.into_iter().chain(memory).collect(), place)
}

/// Further attributes from AMD's driver.
pub(super) fn amd_facts(amd: &Amd) -> Vec<Fact> {
    known_facts([
        ("Memory used", amd.memory_used.map(format_memory)),
        ("Target", amd.gfx_target.as_deref().map(printable)),
        ("CUs", amd.compute_units.map(|units| units.to_string())),
        ("Hive", amd.hive.map(|hive| format!("{hive:016x}"))),
        ("Function", amd.is_virtual.then(|| "virtual".to_owned())),
        ("Driver", amd.driver_version.as_deref().map(printable)),
        ("Chip ID", amd.unique_id.as_deref().map(printable)),
        ("Serial", amd.serial.as_deref().map(printable)),
    ])
}

#[cfg(test)]
mod tests {
    use octavo_model::inventory::{DriverLayout, ReadProblem};

    use super::*;

    fn trn2(logical: Option<LogicalCores>) -> Neuron {
        Neuron {
            driver_version: Some("2.30.7.0".to_owned()),
            driver_layout: DriverLayout::Known,
            ultraserver: std::collections::BTreeMap::new(),
            logical,
            devices: vec![NeuronDevice {
                number: 3,
                device_name: Some("Trainium2".to_owned()),
                cores: Some(8),
                connected: Some(vec![2, 7]),
                memory_used: Some(Mebibytes::new(1024)),
                ..NeuronDevice::default()
            }],
            problems: Vec::new(),
        }
    }

    fn chips(neuron: &Neuron) -> NeuronSection {
        let inventory = Inventory { neuron: Some(neuron.clone()), ..Inventory::default() };
        NeuronSection::of(&inventory).unwrap()
    }

    fn lnc(size: u32, source: LogicalSource) -> LogicalCores {
        LogicalCores { size, source }
    }

    /// Caption, number of marks, and the regions with their widths.
    fn drawn(picture: &SliceDiagram) -> (String, u32, Vec<(String, u32)>) {
        let regions = picture.regions.iter();
        let regions = regions.map(|one| (one.name.clone(), one.slices)).collect();
        (picture.caption.clone(), picture.slices, regions)
    }

    fn text(facts: &[Fact]) -> String {
        let facts: Vec<String> =
            facts.iter().map(|fact| format!("{}: {}", fact.name, fact.value)).collect();
        facts.join("; ")
    }

    #[test]
    fn logical_core_is_drawn_as_a_run_of_physical_ones() {
        let chips = chips(&trn2(Some(lnc(2, LogicalSource::Default))));
        assert_eq!(
            chips.summary,
            "Driver 2.30.7.0. 1 device. A logical core is 2 physical cores (default of the chip)."
        );
        let chip = &chips.devices[0];
        assert_eq!((chip.title.as_str(), chip.kind.as_str()), ("Neuron 3", "aws-trainium2-96gb"));
        assert_eq!((chip.product.as_str(), chip.state.word), ("Trainium2", "unknown"));
        let (caption, marks, regions) = drawn(chip.picture.as_ref().unwrap());
        assert_eq!((caption.as_str(), marks), ("4 logical cores of 8 physical cores", 8));
        let expected = (0..4).map(|number| (format!("core {number}"), 2));
        assert_eq!(regions, expected.collect::<Vec<_>>());
        assert_eq!(chip.picture.as_ref().unwrap().regions[3].place, "physical cores 6-7");
        assert_eq!(
            text(&chip.facts),
            "Memory: 1 GiB used of 96 GiB; Links: to 2, 7; Identified by: device number, until the next reboot"
        );
    }

    #[test]
    fn physical_cores_are_drawn_without_logical_ones() {
        let chips = chips(&trn2(None));
        assert!(chips.summary.ends_with("The size of a logical core is not reported."));
        let (caption, marks, regions) = drawn(chips.devices[0].picture.as_ref().unwrap());
        assert_eq!((caption.as_str(), marks, regions.len()), ("8 physical cores", 8, 8));
    }

    #[test]
    fn implausible_core_counts_are_stated_but_not_drawn() {
        for (cores, size) in [(4_000_000_000, 1), (7, 2), (8, 0)] {
            let mut neuron = trn2(Some(lnc(size, LogicalSource::File)));
            neuron.devices[0].cores = Some(cores);
            let chips = chips(&neuron);
            let (caption, marks, regions) = drawn(chips.devices[0].picture.as_ref().unwrap());
            assert_eq!(caption, format!("{cores} physical cores"));
            assert_eq!((marks, regions.len()), (0, 0));
        }
        let mut unreported = trn2(None);
        unreported.devices[0] = NeuronDevice::default();
        let chips = chips(&unreported);
        assert!(chips.devices[0].picture.is_none());
        assert_eq!(chips.devices[0].kind, "type unknown");
        assert_eq!(
            text(&chips.devices[0].facts),
            "Identified by: device number, until the next reboot"
        );
    }

    #[test]
    fn neuron_issues_are_listed_by_severity() {
        let mut neuron = trn2(None);
        neuron.driver_layout = DriverLayout::Unknown;
        let problem = |what: &str| ReadProblem {
            source: what.to_owned(),
            error: "Permission denied".to_owned(),
        };
        neuron.problems = vec![problem("logical_nc_config")];
        let device = &mut neuron.devices[0];
        device.unhealthy = Some(vec!["hbm\u{202e}".to_owned()]);
        device.errors.sram_uncorrected = Some(2);
        device.errors.memory_uncorrected = Some(0);
        device.problems = vec![problem("core_count")];
        let chips = chips(&neuron);
        let parts = |lines: &[IssueLine]| -> Vec<(&str, String)> {
            lines.iter().map(|line| (line.tone, line.text.clone())).collect()
        };
        assert_eq!(
            parts(&chips.devices[0].complaints),
            [
                ("bad", "its driver reports it as unhealthy: hbm\u{fffd}".to_owned()),
                (
                    "warn",
                    "uncorrected errors of on-chip memory since the driver was loaded: 2"
                        .to_owned()
                ),
                ("soft", "core_count: Permission denied".to_owned()),
            ]
        );
        assert_eq!(chips.complaints.len(), 2);
        assert!(text(&chips.devices[0].facts).contains("Errors: 2 uncorrected on-chip errors"));
    }

    #[test]
    fn amd_device_is_drawn_as_its_partitions() {
        let part = |render_minor| AmdPartition {
            render_minor,
            compute_units: Some(38),
            memory: Some(Mebibytes::new(49_148)),
        };
        let mode = |current: &str| {
            Some(PartitioningMode { current: current.to_owned(), available: Vec::new() })
        };
        let mut amd = Amd {
            compute: mode("CPX"),
            memory: mode("NPS4"),
            partitions: (128..136).map(part).collect(),
            hive: Some(7),
            ..Amd::default()
        };
        let all = Some(Mebibytes::new(196_592));
        let picture = partition_diagram(&amd, all).unwrap();
        assert_eq!(picture.caption, "compute CPX, memory NPS4");
        assert_eq!(picture.count.as_deref(), Some("8 partitions, renderD128 to D135"));
        // Two partitions share each quarter.
        assert_eq!(picture.hidden.len(), 1);
        assert_eq!(picture.regions.len(), 8);
        let last = &picture.regions[7];
        assert_eq!(
            (last.name.as_str(), last.place.as_str()),
            ("D135", "partition 7, /dev/dri/renderD135")
        );
        assert_eq!(last.lines, ["38 CUs", "47.9 GiB"]);
        assert!(!picture.has_instances());
        assert_eq!(text(&amd_facts(&amd)), "Hive: 0000000000000007");
        // More partitions than any device has.
        amd.partitions = (128..328).map(part).collect();
        let many = partition_diagram(&amd, None).unwrap();
        assert_eq!((many.slices, many.regions.len()), (0, 0));
        assert_eq!(many.count.as_deref(), Some("200 partitions, renderD128 to D327"));
        assert_eq!(many.hidden.len(), 0);
        // A device that cannot be partitioned needs no diagram.
        (amd.compute, amd.memory) = (None, None);
        amd.partitions.truncate(1);
        assert_eq!(partition_diagram(&amd, None), None);
    }
}
