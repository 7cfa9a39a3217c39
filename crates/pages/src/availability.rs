//! The availability page: a section per type, with a bar per resource and the reasons for unavailable units.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use octavo_fleet::access::Visibility;
use octavo_fleet::availability::{
    CountBasis, FragmentedDevice, Row, RowKey as Of, Shape, UnitType, Wait,
};
use octavo_fleet::summary::DeviceUse;
use octavo_model::quantity::Mebibytes;
use octavo_store::availability::{Age, AvailabilityCount, CLUSTER_UNREADABLE, Counter};
use octavo_toolkit::error::chain;

use super::badges::{
    capitalize, count_noun as number_of, format_age, format_memory, millis, starting,
};
use super::bar::{Bar, LegendCount, LegendEntry, legend_entry, legend_of};
use super::frame::Frame;
use super::history::HistorySection;
use super::layouts::dry_run;

#[derive(Template)]
#[template(path = "availability.html")]
pub(super) struct AvailabilityPage {
    frame: Frame,
    basis: &'static str,
    age: String,
    age_ms: u64,
    stale: bool,
    error: Option<String>,
    starting: Option<String>,
    left_out: Option<String>,
    /// Message about an invalid parameter.
    pub(super) wrong: Option<String>,
    profiles: Vec<ProfileRow>,
    types: Vec<TypePart>,
    origin: String,
}

/// Partitions of one MIG profile, of all types that have it.
#[derive(Debug, Default)]
struct ProfileRow {
    /// HTML ID of the row.
    id: String,
    /// ID and title of the section of each type.
    types: Vec<(String, String)>,
    profile: String,
    /// Free partitions; `None` if the use of any is unknown.
    free: Option<u64>,
    /// Free partitions, and those that fit into unused slices.
    with_unused: u64,
    /// Free partitions if all idle GPUs were repartitioned to this profile.
    with_idle: u64,
}

#[derive(Debug)]
struct TypePart {
    id: String,
    title: String,
    name: String,
    history: Option<HistorySection>,
    resources: Vec<ResourcePart>,
    placements: Vec<Placement>,
    fragmented: Vec<FragmentedRow>,
    /// Fragmented devices that are not listed.
    more_fragmented: usize,
    /// Dry run of a layout on all nodes of the type, if the reader may list nodes and another layout could help.
    dry_run: Option<String>,
}

/// Numbers of available and of possible units of one shape. Rows are alternatives.
#[derive(Debug)]
struct Placement {
    shape: String,
    free: String,
    could_add: u64,
    could_become: u64,
}

/// A device whose idle instances prevent a larger one.
#[derive(Debug)]
struct FragmentedRow {
    node: String,
    device: String,
    now: String,
    rearranged: String,
}

/// Maximum number of listed fragmented devices per type.
const MAX_FRAGMENTED: usize = 10;

#[derive(Debug)]
struct ResourcePart {
    free: String,
    /// Shape of one unit: `as whole devices`.
    shape: String,
    resource: String,
    bar: Bar,
    legend: Vec<LegendEntry>,
    facts: Vec<String>,
    reasons: Vec<String>,
}

impl TypePart {
    /// Summary of the folded part; `None` if there is nothing to fold.
    fn details(&self) -> Option<String> {
        let fragmented = self.fragmented.len().saturating_add(self.more_fragmented);
        let all = [
            self.history.as_ref().map(|_| "Last 24 hours".to_owned()),
            (!self.placements.is_empty()).then(|| "repartitioning of idle GPUs".to_owned()),
            (fragmented > 0).then(|| number_of(fragmented, "fragmented GPU", "fragmented GPUs")),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| capitalize(&all.join(", ")))
    }
}

/// Builds the page of a count, limited by `visibility`, for a reader who reached this server at `origin`.
pub(super) fn page(
    counter: &Counter,
    made: &AvailabilityCount,
    visibility: &Visibility,
    origin: &str,
) -> AvailabilityPage {
    let Age { age: since, is_stale, error } = counter.age(made);
    let availability = &made.availability;
    let history = counter.view().history();
    let mut types: Vec<TypePart> = Vec::new();
    let rows = availability.rows.iter();
    let rows = rows.filter(|row| visibility.shows_type(row.key.kind.as_str()));
    // Resources without nodes or pending pods are shown only as possible results of repartitioning.
    for row in rows.filter(|row| row.is_shown()) {
        let name = row.key.kind.as_str();
        let part = resource(row, availability.basis);
        match types.last_mut() {
            Some(last) if last.name == name => last.resources.push(part),
            Some(_) | None => types.push(TypePart {
                id: type_anchor(&row.key.kind),
                title: row.key.kind.display_name(),
                name: name.to_owned(),
                history: name
                    .parse()
                    .ok()
                    .and_then(|name| HistorySection::of_type(&history, &name)),
                resources: vec![part],
                placements: placements(name, &availability.rows),
                fragmented: Vec::new(),
                more_fragmented: 0,
                dry_run: None,
            }),
        }
    }
    if visibility.nodes {
        for part in &mut types {
            list_fragmented(part, &availability.fragmented);
            let is_useful = !part.fragmented.is_empty() || !part.placements.is_empty();
            part.dry_run = is_useful.then(|| dry_run::link_of_type(&part.name));
        }
    }
    AvailabilityPage {
        frame: Frame::new(counter.view()),
        basis: match availability.basis {
            CountBasis::Cluster => {
                "Calculated from the nodes and pods of the cluster and the reports of agents."
            }
            CountBasis::Agents => {
                "Calculated from the reports of agents: devices and partitions without a process are free. Pod resource requests are unknown."
            }
        },
        age: format_age(since),
        age_ms: millis(since),
        stale: is_stale,
        starting: starting(counter.view(), visibility),
        error: error.map(|why| visibility.disclose(why, CLUSTER_UNREADABLE)),
        left_out: (availability.omitted_rows > 0).then(|| {
            let rows = counted_rows(availability.omitted_rows);
            format!("{rows} omitted: there are too many types or resources.")
        }),
        wrong: None,
        profiles: profiles(&availability.rows, visibility),
        types,
        origin: origin.to_owned(),
    }
}

/// Sums the partitions of each MIG profile over all types.
fn profiles(rows: &[Row], visibility: &Visibility) -> Vec<ProfileRow> {
    let mut all: BTreeMap<&str, ProfileRow> = BTreeMap::new();
    for row in rows.iter().filter(|row| visibility.shows_type(row.key.kind.as_str())) {
        let Shape::Mig(profile) = &row.key.shape else {
            continue;
        };
        let found = all.entry(profile).or_insert_with(|| ProfileRow {
            id: profile_anchor(profile),
            profile: profile.clone(),
            free: Some(0),
            ..ProfileRow::default()
        });
        let free = found.free.zip(row.known_free());
        found.free = free.map(|(sum, free)| sum.saturating_add(free));
        // A type has a row for each resource that offers the profile.
        let anchor = type_anchor(&row.key.kind);
        if found.types.last().is_none_or(|(last, _)| *last != anchor) {
            found.types.push((anchor, row.key.kind.display_name()));
        }
        let add = |sum: u64, more: u64| sum.saturating_add(row.free).saturating_add(more);
        found.with_unused = add(found.with_unused, row.could_add);
        found.with_idle = add(found.with_idle, row.potential);
    }
    all.into_values().collect()
}

/// HTML ID of the section of a type.
pub(super) fn type_anchor(kind: &UnitType) -> String {
    format!("of-{}", kind.as_str())
}

/// HTML ID of the row of a MIG profile.
pub(super) fn profile_anchor(profile: &str) -> String {
    format!("profile-{profile}")
}

fn counted_rows(count: usize) -> String {
    number_of(count, "row is", "rows are")
}

fn resource(row: &Row, basis: CountBasis) -> ResourcePart {
    let Of { resource, shape, .. } = &row.key;
    let pending = ("partitioned", Some("stripes"), "pending", row.pending.units);
    let keys = legend_of(use_of(row, basis).into_iter().chain([pending]));
    let reasons = row.unavailable.iter();
    ResourcePart {
        free: row.known_free().map_or_else(|| "-".to_owned(), |free| free.to_string()),
        shape: shape_of_units(shape),
        resource: resource.clone(),
        bar: Bar::from_legend(&keys, 15),
        legend: keys,
        facts: facts(row),
        reasons: reasons
            .map(|(why, of)| {
                let nodes = number_of(usize::try_from(of.nodes).unwrap_or(0), "node", "nodes");
                format!("{} on {nodes}: {}", of.count, why.description())
            })
            .collect(),
    }
}

/// Units of a row by use, as entries of a legend.
pub(super) fn use_of(row: &Row, basis: CountBasis) -> [LegendCount; 5] {
    let taken = match basis {
        CountBasis::Cluster => "requested",
        CountBasis::Agents => DeviceUse::InUse.title(),
    };
    let not_free = |of| legend_entry(of, row.units_with_use(of));
    [
        (DeviceUse::InUse.as_str(), None, taken, row.taken),
        legend_entry(DeviceUse::Free, row.free),
        not_free(DeviceUse::Unavailable),
        not_free(DeviceUse::Passthrough),
        not_free(DeviceUse::Unknown),
    ]
}

fn shape_of_units(shape: &Shape) -> String {
    match shape {
        Shape::Device => "as whole devices".to_owned(),
        Shape::Mig(profile) | Shape::AmdPartition(profile) => format!("as {profile} partitions"),
        Shape::TimeSlice => "as time slices of devices".to_owned(),
        Shape::MigTimeSlice(profile) => format!("as time slices of {profile} partitions"),
        Shape::NeuronCore => "as NeuronCores".to_owned(),
    }
}

/// Returns what has the memory of a row: time slices share that of their device or partition.
fn memory_owner(shape: &Shape) -> &'static str {
    match shape {
        Shape::Device | Shape::TimeSlice => "device",
        Shape::Mig(_) | Shape::MigTimeSlice(_) | Shape::AmdPartition(_) => "partition",
        Shape::NeuronCore => "core",
    }
}

fn facts(row: &Row) -> Vec<String> {
    let mut facts = Vec::new();
    let nodes = number_of(usize::try_from(row.nodes).unwrap_or(0), "node", "nodes");
    let each = row.memory.filter(|memory| *memory > Mebibytes::default());
    let owner = memory_owner(&row.key.shape);
    facts.push(match each {
        // For a node with several types, this is the minimum.
        Some(each) if row.key.kind == UnitType::Mixed => {
            format!("{} on {nodes}; at least {} per {owner}", row.capacity, format_memory(each))
        }
        Some(each) => format!("{} on {nodes}; {} per {owner}", row.capacity, format_memory(each)),
        None => format!("{} on {nodes}", row.capacity),
    });
    facts.extend(wait(row.wait));
    let sources: Vec<&str> = row.sources.iter().map(|source| source.as_str()).collect();
    if !sources.is_empty() {
        facts.push(format!("Type source: {}", sources.join(", ")));
    }
    facts
}

/// Estimated wait for a free unit and the basis of the estimate; `None` if one is free.
pub(super) fn wait(wait: Wait) -> Option<String> {
    let at = |seconds: i64| {
        let time = jiff::Timestamp::from_second(seconds);
        time.map_or_else(|error| chain(&error), super::badges::format_time)
    };
    match wait {
        Wait::Now => None,
        Wait::Unknown(why) => {
            let since = why.observations().map(|(_, since)| at(since));
            let since = since.map_or_else(String::new, |since| format!(" (since {since})"));
            Some(format!("Wait time unknown: {why}{since}"))
        }
        Wait::Deadlines { earliest, latest, of, holders } => {
            let [from, to] = [earliest, latest].map(at);
            Some(format!(
                "{of} of {holders} pods have a deadline: the earliest is {from}, the latest {to}"
            ))
        }
        Wait::Likely { from, to, samples, since, of, holders } => {
            let from = at(from);
            let to = to.map_or_else(
                || " (50 % probability)".to_owned(),
                |to| format!(" (50 % probability) or {} (90 %)", at(to)),
            );
            let also = match of {
                0 => String::new(),
                _ => format!("; {of} of {holders} pods have a deadline"),
            };
            let since = at(since);
            Some(format!(
                "Next free unit expected by {from}{to}, based on {samples} pods that ended since {since}{also}"
            ))
        }
    }
}

/// The shapes that idle devices of a type could be repartitioned into.
fn placements(type_name: &str, rows: &[Row]) -> Vec<Placement> {
    let of_type = rows.iter().filter(|row| row.key.kind.as_str() == type_name);
    let could = of_type.filter(|row| row.potential > 0);
    let all = could.map(|row| Placement {
        shape: row.key.shape.to_string(),
        free: row.known_free().map_or_else(|| "-".to_owned(), |free| free.to_string()),
        could_add: row.could_add,
        could_become: row.potential,
    });
    all.collect()
}

/// Adds the devices of a type whose idle instances prevent a larger one.
fn list_fragmented(part: &mut TypePart, all: &[(Arc<str>, Arc<FragmentedDevice>)]) {
    let is_of_type = |device: &FragmentedDevice| {
        device.type_name.as_ref().is_some_and(|name| name.as_str() == part.name)
    };
    let mut of_type = all.iter().filter(|(_, device)| is_of_type(device));
    let listed = of_type.by_ref().take(MAX_FRAGMENTED).map(|(node, device)| FragmentedRow {
        node: node.to_string(),
        device: device.device.clone(),
        now: device.fragmentation.now.clone().unwrap_or_else(|| "none".to_owned()),
        rearranged: device.fragmentation.rearranged.clone(),
    });
    part.fragmented = listed.collect();
    part.more_fragmented = of_type.count();
}
