//! The event loop of a simulation.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use octavo_model::profile::ProfileName;

use super::limits::{NodeChanges, NodeLimits};
use super::series::{Sample, Sampler, TimeSeries};
use super::strategy::Strategy;
use super::trace::Job;
use crate::choice::{self, Candidate, Fragmentation};
use crate::fleet::Fleet;

/// Handling of a request that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// It is lost.
    Loss,
    /// It waits. Requests are tried from the oldest to the newest.
    Queue {
        /// Waiting time after which a device is reserved for the oldest request.
        reserve_after: Option<Duration>,
        /// Limits of the strategy of this crate.
        limits: Option<NodeLimits>,
    },
}

/// Options of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Choice of devices and placements.
    pub strategy: Strategy,
    /// Requests that do not fit.
    pub discipline: Discipline,
    /// Number of requests that are simulated before the figures begin.
    pub warm_up: usize,
}

/// Figures of a simulation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Number of requests.
    pub requests: u32,
    /// Number of requests that got an instance.
    pub accepted: u32,
    /// Number of created and destroyed instances.
    pub operations: u32,
    /// Waiting times of the accepted requests by profile, in the order of acceptance.
    pub waits: BTreeMap<ProfileName, Vec<Duration>>,
    /// Slice-seconds in use until the last arrival, or until no request waits.
    pub used: f64,
    /// Slice-seconds that were free and that a random request could not use, until the last arrival, or until no request waits.
    pub fragmented: f64,
    /// Slice-seconds of the fleet until the last arrival, or until no request waits.
    pub total: f64,
    /// Slices of the fleet over the simulated time.
    pub series: TimeSeries,
}

impl Outcome {
    /// Share of the requests that got an instance.
    pub fn acceptance(&self) -> f64 {
        ratio(f64::from(self.accepted), f64::from(self.requests))
    }

    /// Created and destroyed instances per accepted request.
    pub fn operations_per_request(&self) -> f64 {
        ratio(f64::from(self.operations), f64::from(self.accepted))
    }

    /// Share of the slices that was in use.
    pub fn utilization(&self) -> f64 {
        ratio(self.used, self.total)
    }

    /// Share of the slices that was free and that a random request could not use.
    pub fn fragmentation(&self) -> f64 {
        ratio(self.fragmented, self.total)
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// End of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    time: Duration,
    job: usize,
    gpu: usize,
}

/// Instances that a job can get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instances {
    /// Idle ones, which need no change.
    Idle,
    /// Also those that can be created.
    Any,
}

/// Result of the placement of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// It has an instance.
    Placed,
    /// Its instance can be created later, because of the limits.
    Held,
    /// No candidate is possible now.
    Full,
}

impl Options {
    /// Limits of the changes of nodes. The strategies for comparison have none.
    fn limits(&self) -> Option<NodeLimits> {
        match self.discipline {
            Discipline::Queue { limits, .. } => {
                limits.filter(|_| self.strategy == Strategy::Octavo)
            }
            Discipline::Loss => None,
        }
    }
}

struct Simulation<'a> {
    fleet: Fleet,
    jobs: &'a [Job],
    options: Options,
    fragmentation: Fragmentation,
    ends: BinaryHeap<Reverse<End>>,
    /// Waiting jobs from the oldest to the newest.
    waiting: Vec<usize>,
    /// Changes of nodes, if they are limited.
    changes: Option<NodeChanges>,
    /// The fleet with the instances of the jobs that are held, while the waiting jobs are placed.
    planned: Option<Fleet>,
    now: Duration,
    slices: u32,
    used: u32,
    sampler: Sampler,
    outcome: Outcome,
}

/// Runs jobs, in the order of their arrival, on a fleet.
pub fn run(fleet: Fleet, jobs: &[Job], options: Options) -> Outcome {
    let mut simulation = Simulation {
        fragmentation: Fragmentation::new(&fleet),
        slices: fleet.slices(),
        fleet,
        jobs,
        options,
        ends: BinaryHeap::new(),
        waiting: Vec::new(),
        changes: options.limits().map(NodeChanges::new),
        planned: None,
        now: Duration::ZERO,
        used: 0,
        sampler: Sampler::new(jobs.last().map_or(Duration::ZERO, |job| job.arrival)),
        outcome: Outcome::default(),
    };
    for (number, job) in jobs.iter().enumerate() {
        simulation.end_until(job.arrival);
        simulation.elapse(job.arrival);
        simulation.reserve();
        if simulation.is_measured(number) {
            simulation.outcome.requests = simulation.outcome.requests.saturating_add(1);
        }
        // With limits, a change is slower than an idle instance.
        let mut result = Placement::Full;
        if simulation.changes.is_some() {
            result = simulation.place(number, Instances::Idle);
        }
        if result != Placement::Placed {
            result = simulation.place(number, Instances::Any);
        }
        if result != Placement::Placed && options.discipline != Discipline::Loss {
            simulation.waiting.push(number);
        }
    }
    simulation.finish();
    let measured_from = jobs.get(options.warm_up).map_or(Duration::ZERO, |job| job.arrival);
    let series = simulation.sampler.finish(measured_from, simulation.now);
    Outcome { series, ..simulation.outcome }
}

impl Simulation<'_> {
    /// Ends the allocations, and the limits of changes, that end until this time.
    fn end_until(&mut self, until: Duration) {
        while let Some(time) = self.next_end().filter(|next| *next <= until) {
            self.elapse(time);
            self.end_at(time);
        }
    }

    /// Ends all allocations after the last arrival. The time is measured while jobs wait.
    fn finish(&mut self) {
        while let Some(time) = self.next_end() {
            if !self.waiting.is_empty() {
                self.elapse(time);
            }
            self.end_at(time);
        }
    }

    /// Next time at which an allocation or a limit of changes ends.
    fn next_end(&self) -> Option<Duration> {
        let end = self.ends.peek().map(|Reverse(end)| end.time);
        let wake_up = self.changes.as_ref().and_then(NodeChanges::wake_up);
        end.into_iter().chain(wake_up).min()
    }

    fn end_at(&mut self, time: Duration) {
        match self.ends.peek().copied() {
            Some(Reverse(end)) if end.time <= time => self.end(end),
            Some(_) | None => {
                if let Some(changes) = &mut self.changes {
                    changes.wake(time);
                }
                self.place_waiting();
            }
        }
    }

    fn end(&mut self, end: End) {
        self.ends.pop();
        self.fleet.release(end.gpu, end.job);
        self.used = self.used.saturating_sub(self.slices_of(end.job));
        if !self.options.strategy.retains_idle() {
            let destroyed = self.fleet.destroy_idle(end.gpu);
            self.count_operations(end.job, destroyed);
        }
        self.place_waiting();
        self.reserve();
    }

    /// Tries the waiting jobs from the oldest to the newest: first with idle instances, because the scheduler needs no change for them.
    fn place_waiting(&mut self) {
        if self.options.strategy.retains_idle() {
            self.place_waiting_with(Instances::Idle);
        }
        self.place_waiting_with(Instances::Any);
    }

    /// Tries the waiting jobs from the oldest to the newest with these instances.
    fn place_waiting_with(&mut self, instances: Instances) {
        let jobs = self.jobs;
        if instances == Instances::Any && self.changes.is_some() && !self.waiting.is_empty() {
            self.planned = Some(self.fleet.clone());
        }
        // Allocations leave less room, so a profile that did not fit does not fit later either.
        let mut full: BTreeSet<&ProfileName> = BTreeSet::new();
        for number in std::mem::take(&mut self.waiting) {
            let Some(job) = jobs.get(number) else { continue };
            let has_reservation = self.fleet.reserved_for() == Some(number);
            let result = if full.contains(&job.profile) && !has_reservation {
                self.forget(number, instances);
                Placement::Full
            } else {
                self.place(number, instances)
            };
            match result {
                // Its device is open to all again.
                Placement::Placed if has_reservation => full.clear(),
                Placement::Placed => {}
                Placement::Held => self.waiting.push(number),
                Placement::Full => {
                    full.insert(&job.profile);
                    self.waiting.push(number);
                }
            }
        }
        self.planned = None;
    }

    /// Records that no instance for a job can be created now.
    fn forget(&mut self, number: usize, instances: Instances) {
        if let Some(changes) = self.changes.as_mut().filter(|_| instances == Instances::Any) {
            changes.forget(number);
        }
    }

    /// Reserves a device for the oldest job if it has waited for long enough.
    fn reserve(&mut self) {
        let Discipline::Queue { reserve_after: Some(after), .. } = self.options.discipline else {
            return;
        };
        let Some(oldest) = self.waiting.first().copied() else { return };
        let Some(job) = self.jobs.get(oldest) else { return };
        if self.now.saturating_sub(job.arrival) >= after {
            self.fleet.reserve(&job.profile, oldest);
        }
    }

    /// Lets the time pass.
    fn elapse(&mut self, now: Duration) {
        if self.sampler.is_due_before(now) {
            let fragmented = self.fragmentation.of_fleet(&self.fleet);
            let idle = f64::from(self.slices.saturating_sub(self.used));
            let free = (idle - fragmented).max(0.0);
            let sample = Sample { used: f64::from(self.used), fragmented, free };
            self.sampler.record_until(now, sample);
        }
        if self.outcome.requests > 0 {
            let seconds = now.saturating_sub(self.now).as_secs_f64();
            self.outcome.used += seconds * f64::from(self.used);
            self.outcome.fragmented += seconds * self.fragmentation.of_fleet(&self.fleet);
            self.outcome.total += seconds * f64::from(self.slices);
        }
        self.now = now;
    }

    fn is_measured(&self, number: usize) -> bool {
        number >= self.options.warm_up
    }

    fn slices_of(&self, number: usize) -> u32 {
        self.jobs.get(number).and_then(|job| self.fleet.slices_of(&job.profile)).unwrap_or(0)
    }

    fn count_operations(&mut self, number: usize, operations: u32) {
        if self.is_measured(number) {
            self.outcome.operations = self.outcome.operations.saturating_add(operations);
        }
    }

    /// Allocates an instance to a job with the best candidate that the limits of changes permit.
    fn place(&mut self, number: usize, instances: Instances) -> Placement {
        let Some(job) = self.jobs.get(number) else { return Placement::Full };
        let strategy = self.options.strategy;
        let is_allowed =
            |candidate: &Candidate<'_>| instances == Instances::Any || candidate.operations() == 0;
        let is_closed = |candidate: &Candidate<'_>| {
            let is_open = |changes: &NodeChanges| changes.is_open(candidate.gpu, self.now);
            candidate.operations() > 0 && !self.changes.as_ref().is_none_or(is_open)
        };
        let fleet = self.planned.as_ref().unwrap_or(&self.fleet);
        let best = choice::candidates(fleet, &job.profile, number)
            .filter(is_allowed)
            .min_by_key(|one| (is_closed(one), strategy.score(one, &self.fragmentation)))
            .map(|best| (best.gpu, best.addition.place, best.operations() > 0));
        let Some((gpu, place, is_change)) = best else {
            self.forget(number, instances);
            return Placement::Full;
        };
        if let Some(planned) = &mut self.planned {
            planned.allocate(gpu, place, number);
        }
        // The change of a reservation has begun already.
        let has_reservation = self.fleet.reserved_for() == Some(number);
        if let Some(changes) = &mut self.changes {
            if is_change && !has_reservation {
                if !changes.propose((number, gpu), job.arrival, self.now) {
                    return Placement::Held;
                }
                changes.record(gpu, self.now);
            }
            changes.forget(number);
        }
        let Some(operations) = self.fleet.allocate(gpu, place, number) else {
            return Placement::Full;
        };
        let time = self.now.saturating_add(job.duration);
        self.ends.push(Reverse(End { time, job: number, gpu }));
        self.used = self.used.saturating_add(self.slices_of(number));
        self.count_operations(number, operations.created.saturating_add(operations.destroyed));
        if self.is_measured(number) {
            self.outcome.accepted = self.outcome.accepted.saturating_add(1);
            let wait = self.now.saturating_sub(job.arrival);
            self.outcome.waits.entry(job.profile.clone()).or_default().push(wait);
        }
        Placement::Placed
    }
}

/// Share of the jobs that one pool with all slices of the fleet would accept, without devices and placements.
pub fn pool_acceptance(fleet: &Fleet, jobs: &[Job], warm_up: usize) -> f64 {
    let mut ends: BinaryHeap<Reverse<(Duration, u32)>> = BinaryHeap::new();
    let mut free = fleet.slices();
    let (mut requests, mut accepted) = (0.0, 0.0);
    for (number, job) in jobs.iter().enumerate() {
        while let Some(Reverse((_, slices))) =
            ends.peek().copied().filter(|end| end.0.0 <= job.arrival)
        {
            ends.pop();
            free = free.saturating_add(slices);
        }
        let slices = fleet.slices_of(&job.profile).unwrap_or(u32::MAX);
        let counted = f64::from(u8::from(number >= warm_up));
        requests += counted;
        if slices <= free {
            free = free.saturating_sub(slices);
            ends.push(Reverse((job.arrival.saturating_add(job.duration), slices)));
            accepted += counted;
        }
    }
    ratio(accepted, requests)
}
