//! The memory guard: detects tenants that exceed their fair share of a shared unit, and units that are nearly full.
//! It only reports.
//!
//! * A container is over its share when it uses more than the fair share of all its replicas, and within it again
//!   below `WITHIN_SHARE_PERCENT` percent. The hysteresis makes fluctuation around the limit a single event.
//! * A shared unit is nearly exhausted when less than 5 % or 1 GiB of its memory is free, whichever is less. A CUDA
//!   context and its first libraries take about 1 GiB, so below it no program can start; for a small partition 1 GiB
//!   would be too much, so there the 5 % applies. The condition ends when twice that is free.
//! * Compute instances of one GPU instance share its memory. Here they count as one unit with common tenants.
//! * A unit that is not shared may be full: many programs allocate all memory at startup.
//! * The time until exhaustion is reported if it can be estimated (`GrowthRate`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use octavo_model::quantity::Mebibytes;
use octavo_model::reading::MemoryUse;
use octavo_model::reason::Reason;
use octavo_model::text::format_memory;

use super::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
use crate::node_object::drain::PodId;
use crate::node_object::rate_limit::{EventBudget, truncate_message};

/// Percentage of its share below which a container is within it again.
const WITHIN_SHARE_PERCENT: u64 = 95;
/// Minimum interval between two identical alarms.
const ALARM_REPEAT_INTERVAL: Duration = Duration::from_mins(5);

/// The state of earlier checks, for the tenants and units that still exist.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    over: BTreeSet<TenantKey>,
    /// UUIDs of units that are nearly exhausted.
    nearly_exhausted: BTreeSet<String>,
    slopes: BTreeMap<String, GrowthRate>,
    /// Conditions that were reported and whose end was not reported yet.
    reported: BTreeSet<Condition>,
    /// Time of each recent alarm, until it may be repeated.
    last_alarms: BTreeMap<(Reason, Condition), Duration>,
    budget: EventBudget,
}

/// An alarm about memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// The reason.
    pub reason: Reason,
    /// The pods concerned; empty if no UID is known.
    pub pods: Vec<PodId>,
    /// Human-readable message.
    pub message: String,
}

/// A container on a unit.
type TenantKey = (String, Option<String>, Option<String>, Option<String>, Option<String>);

/// The condition that an alarm reports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    /// A container is over its share.
    OverShare(TenantKey),
    /// The units that share this memory are nearly exhausted; the UUID of the first.
    NearlyExhausted(String),
}

/// A condition that has begun or ended since it was reported.
struct ConditionChange {
    subject: Condition,
    is_so: bool,
    /// The alarm; `None` if the change is not reported.
    alarm: Option<Alarm>,
}

impl Guard {
    /// Marks tenants over their share, estimates how long memory lasts, and returns new alarms. `now` is the time
    /// since the program started.
    pub fn check(&mut self, now: Duration, usage: &mut Usage) -> Vec<Alarm> {
        let mut changes = Vec::new();
        let mut over = BTreeSet::new();
        let mut full = BTreeSet::new();
        let mut slopes = BTreeMap::new();
        for device in &mut usage.devices {
            let name = device.name.clone();
            let is_whole = device.units.iter().all(|unit| unit.gpu_instance.is_none());
            for unit in &mut device.units {
                let place = if is_whole { name.clone() } else { place(&name, unit) };
                changes.extend(self.check_shares(&place, unit, &mut over));
                let mut slope = self.slopes.remove(&unit.uuid).unwrap_or_default();
                if let Some(memory) = unit.memory {
                    slope.add(now, memory.used);
                    unit.exhausted_in = slope.seconds_until_exhausted(memory.free());
                }
                slopes.insert(unit.uuid.clone(), slope);
            }
            changes.extend(self.check_memories(device, &mut full));
        }
        (self.over, self.nearly_exhausted, self.slopes) = (over, full, slopes);
        self.limit_alarms(now, changes)
    }

    /// Applies the marks of the last check if there is no new reading.
    pub fn apply_marks(&self, usage: &mut Usage) {
        for unit in usage.devices.iter_mut().flat_map(|one| &mut one.units) {
            unit.is_nearly_exhausted = self.nearly_exhausted.contains(&unit.uuid);
            for tenant in &mut unit.tenants {
                tenant.is_over_share = self.over.contains(&tenant_key(&unit.uuid, tenant));
            }
        }
    }

    /// Marks tenants over their share and returns changes since the last report. A tenant with unknown usage retains
    /// its mark.
    fn check_shares(
        &self,
        place: &str,
        unit: &mut UnitUsage,
        over: &mut BTreeSet<TenantKey>,
    ) -> Vec<ConditionChange> {
        let mut changes = Vec::new();
        let Some(share) = unit.fair_share else {
            return changes;
        };
        let (uuid, replicas) = (unit.uuid.clone(), unit.replicas.unwrap_or(1));
        for tenant in &mut unit.tenants {
            let who = tenant_key(&uuid, tenant);
            let was = self.over.contains(&who);
            tenant.is_over_share = was;
            let known = tenant.memory.filter(|_| !tenant.ids.is_empty());
            if let Some(used) = known {
                let share = share_of(tenant, share);
                let hundredths = if was { WITHIN_SHARE_PERCENT } else { 100 };
                tenant.is_over_share = used.get() > share.get().saturating_mul(hundredths) / 100;
                let subject = Condition::OverShare(who.clone());
                if tenant.is_over_share != self.reported.contains(&subject) {
                    let message = format!(
                        "{} uses {} of {} shared by {replicas}; fair share {} ({place})",
                        container(tenant),
                        format_memory(used),
                        describe_size(unit.memory, unit.gpu_instance.is_some()),
                        format_memory(share)
                    );
                    changes.push(ConditionChange {
                        subject,
                        is_so: tenant.is_over_share,
                        alarm: Some(share_alarm(tenant, message)),
                    });
                }
            }
            if tenant.is_over_share {
                over.insert(who);
            }
        }
        changes
    }

    /// Marks nearly exhausted units and returns changes since the last report, one for each memory.
    fn check_memories(
        &self,
        device: &mut DeviceUsage,
        full: &mut BTreeSet<String>,
    ) -> Vec<ConditionChange> {
        let mut changes = Vec::new();
        let instance = |unit: &UnitUsage| unit.gpu_instance;
        let all: BTreeSet<Option<u32>> = device.units.iter().map(instance).collect();
        for one in all {
            let units = device.units.iter().filter(|unit| instance(unit) == one);
            let units: Vec<&UnitUsage> = units.collect();
            let was = units.iter().any(|unit| self.nearly_exhausted.contains(&unit.uuid));
            let is_so = is_nearly_exhausted(&units, was);
            let first = units.iter().map(|unit| &unit.uuid).min();
            let subject = Condition::NearlyExhausted(first.cloned().unwrap_or_default());
            if is_so != self.reported.contains(&subject) {
                let alarm = alarm(&device.name, &units).filter(|_| is_so);
                changes.push(ConditionChange { subject, is_so, alarm });
            }
            if is_so {
                full.extend(units.iter().map(|unit| unit.uuid.clone()));
            }
            let units = device.units.iter_mut();
            for unit in units.filter(|unit| instance(unit) == one) {
                unit.is_nearly_exhausted = is_so;
            }
        }
        changes
    }

    /// Limits the alarms by repetition and by the event budget. A suppressed alarm is reported later if its condition
    /// persists.
    fn limit_alarms(&mut self, now: Duration, changes: Vec<ConditionChange>) -> Vec<Alarm> {
        self.last_alarms.retain(|_, at| now.saturating_sub(*at) < ALARM_REPEAT_INTERVAL);
        let available = self.budget.available(now);
        let mut alarms = Vec::new();
        let mut waiting = BTreeSet::new();
        for one in changes {
            if let Some(mut alarm) = one.alarm {
                let key = (alarm.reason, one.subject.clone());
                if alarms.len() >= available || self.last_alarms.contains_key(&key) {
                    waiting.insert(one.subject);
                    continue;
                }
                self.last_alarms.insert(key, now);
                truncate_message(&mut alarm.message);
                alarms.push(alarm);
            }
            if one.is_so {
                self.reported.insert(one.subject);
            } else {
                self.reported.remove(&one.subject);
            }
        }
        // Drop conditions whose tenant or unit is gone.
        let (over, full) = (&self.over, &self.nearly_exhausted);
        self.reported.retain(|subject| match subject {
            _ if waiting.contains(subject) => true,
            Condition::OverShare(who) => over.contains(who),
            Condition::NearlyExhausted(uuid) => full.contains(uuid),
        });
        self.budget.take(now, alarms.len());
        alarms
    }
}

/// The fair share of a container for all its replicas.
fn share_of(tenant: &Tenant, share: Mebibytes) -> Mebibytes {
    let replicas = u64::try_from(tenant.ids.len()).unwrap_or(u64::MAX);
    Mebibytes::new(share.get().saturating_mul(replicas))
}

fn share_alarm(tenant: &Tenant, message: String) -> Alarm {
    Alarm {
        reason: if tenant.is_over_share {
            Reason::MemoryOverShare
        } else {
            Reason::MemoryWithinShare
        },
        pods: pod(tenant).into_iter().collect(),
        message,
    }
}

/// Total number of replicas of these units, which share their memory.
fn replica_count(units: &[&UnitUsage]) -> u32 {
    let each = units.iter().map(|unit| unit.replicas.unwrap_or(1));
    each.fold(0, u32::saturating_add)
}

fn is_nearly_exhausted(units: &[&UnitUsage], was: bool) -> bool {
    let Some(memory) = units.iter().find_map(|unit| unit.memory) else {
        return was;
    };
    let times = if was { 2 } else { 1 };
    replica_count(units) > 1
        && memory.free().get() < low_memory_threshold(memory).saturating_mul(times)
}

/// One alarm for a shared memory that became nearly exhausted. It names all tenants, the largest first.
fn alarm(device: &str, units: &[&UnitUsage]) -> Option<Alarm> {
    let memory = units.iter().find_map(|unit| unit.memory)?;
    let mut tenants: Vec<&Tenant> = units.iter().flat_map(|unit| &unit.tenants).collect();
    tenants.sort_by_key(|tenant| Reverse(tenant.memory));
    let named = tenants.iter().filter(|tenant| {
        // A tenant with unknown usage is named too.
        tenant.memory.is_none_or(|memory| memory.get() > 0)
    });
    let all: Vec<String> = named
        .map(|tenant| match tenant.memory {
            Some(memory) => format!("{} {}", full_name(tenant), format_memory(memory)),
            None => full_name(tenant),
        })
        .collect();
    let rest = units.iter().find_map(|unit| unit.unattributed);
    let rest = rest.filter(|rest| rest.get() > 0);
    let rest = rest.map(|rest| format!("; {} not attributed to any pod", format_memory(rest)));
    let mut pods: Vec<PodId> = Vec::new();
    for pod in tenants.iter().filter_map(|tenant| pod(tenant)) {
        if !pods.contains(&pod) {
            pods.push(pod);
        }
    }
    let place = match units {
        [one] if one.gpu_instance.is_some() => place(device, one),
        [one, ..] => one
            .partition()
            .map_or_else(|| device.to_owned(), |(gi, _)| format!("GPU instance {gi} of {device}")),
        [] => device.to_owned(),
    };
    Some(Alarm {
        reason: Reason::MemoryNearlyExhausted,
        pods,
        message: format!(
            "{} of {} free on {place}, shared by {}: {}{}",
            format_memory(memory.free()),
            format_memory(memory.total),
            replica_count(units),
            all.join(", "),
            rest.unwrap_or_default()
        ),
    })
}

/// Free memory below which a shared unit is nearly exhausted, in MiB.
fn low_memory_threshold(memory: MemoryUse) -> u64 {
    (memory.total.get() / 20).min(1024)
}

fn place(device: &str, unit: &UnitUsage) -> String {
    let profile = unit.profile.as_deref().unwrap_or("partition");
    match unit.partition() {
        Some((gi, ci)) => {
            format!("{profile} of {device} (GPU instance {gi}, compute instance {ci})")
        }
        None => device.to_owned(),
    }
}

fn tenant_key(uuid: &str, tenant: &Tenant) -> TenantKey {
    (
        uuid.to_owned(),
        tenant.namespace.clone(),
        tenant.pod.clone(),
        tenant.uid.clone(),
        tenant.container.clone(),
    )
}

fn pod(tenant: &Tenant) -> Option<PodId> {
    Some(PodId {
        namespace: tenant.namespace.clone()?,
        name: tenant.pod.clone()?,
        uid: tenant.uid.clone()?,
    })
}

/// Name of a container within its own pod.
fn container(tenant: &Tenant) -> String {
    match &tenant.container {
        Some(container) => format!("container {container}"),
        None => full_name(tenant),
    }
}

/// Full name of a tenant.
fn full_name(tenant: &Tenant) -> String {
    match (&tenant.namespace, &tenant.pod, &tenant.uid) {
        (Some(namespace), Some(pod), _) => match &tenant.container {
            Some(container) => format!("{namespace}/{pod} ({container})"),
            None => format!("{namespace}/{pod}"),
        },
        (.., Some(uid)) => format!("the pod with UID {uid}"),
        _ => match tenant.processes.first() {
            Some(pid) => format!("process {pid} outside any pod"),
            None => "an unknown process".to_owned(),
        },
    }
}

/// Size of the shared unit, with its article: `an 80 GiB GPU`.
fn describe_size(memory: Option<MemoryUse>, is_partition: bool) -> String {
    let kind = if is_partition { "partition" } else { "GPU" };
    let Some(memory) = memory else {
        return format!("a {kind}");
    };
    let size = format_memory(memory.total);
    let whole = size.split(['.', ' ']).next().unwrap_or_default();
    let article = match whole {
        "11" | "18" => "an",
        other if other.starts_with('8') => "an",
        _ => "a",
    };
    format!("{article} {size} {kind}")
}

/// Readings older than this are dropped.
const WINDOW: Duration = Duration::from_mins(10);
/// Maximum number of readings.
const MAX_READINGS: usize = 60;
/// Minimum number of readings; fewer do not give a meaningful line.
const MIN_READINGS: usize = 6;
/// Minimum time that the readings must cover.
const MIN_SPAN: Duration = Duration::from_secs(30);
/// Minimum coefficient of determination. A single step, as at program start, reaches three quarters.
const MIN_R_SQUARED: f64 = 0.8;
/// Exhaustion later than this is not reported.
const HORIZON: Duration = Duration::from_hours(1);

/// Used memory at each reading.
#[derive(Debug, Clone, Default)]
struct GrowthRate(VecDeque<(Duration, u64)>);

impl GrowthRate {
    /// Adds a reading.
    fn add(&mut self, now: Duration, used: Mebibytes) {
        self.0.push_back((now, used.get()));
        while self.0.len() > MAX_READINGS
            || self.0.front().is_some_and(|(at, _)| now.saturating_sub(*at) > WINDOW)
        {
            self.0.pop_front();
        }
    }

    /// Seconds until `free` is exhausted; `None` if usage does not rise, does not rise steadily, was not observed for
    /// long enough, or lasts for more than an hour.
    fn seconds_until_exhausted(&self, free: Mebibytes) -> Option<u64> {
        let (first, last) = self.0.front().zip(self.0.back())?;
        let span = last.0.saturating_sub(first.0);
        if self.0.len() < MIN_READINGS || span < MIN_SPAN {
            return None;
        }
        let points = self.0.iter().map(|(at, used)| {
            let x = at.saturating_sub(first.0).as_secs_f64();
            (x, difference(*used, first.1))
        });
        let count = f64::from(u32::try_from(self.0.len()).ok()?);
        let (x_sum, y_sum) =
            points.clone().fold((0.0, 0.0), |(x_sum, y_sum), (x, y)| (x_sum + x, y_sum + y));
        let (x_mean, y_mean) = (x_sum / count, y_sum / count);
        let (xx, xy, yy) = points.fold((0.0, 0.0, 0.0), |(xx, xy, yy), (x, y)| {
            let (x, y) = (x - x_mean, y - y_mean);
            (xx + x * x, xy + x * y, yy + y * y)
        });
        let slope = xy / xx;
        let fit = xy * xy / (xx * yy);
        if !(slope > 0.0 && fit >= MIN_R_SQUARED) {
            return None;
        }
        let seconds = difference(free.get(), 0) / slope;
        let lasts = Duration::try_from_secs_f64(seconds).ok()?;
        (lasts <= HORIZON).then_some(lasts.as_secs())
    }
}

/// Difference in MiB. No device has more than 32 bits can express.
fn difference(one: u64, other: u64) -> f64 {
    let number = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    number(one) - number(other)
}

#[cfg(test)]
mod tests;
