//! One fault: which calls it is for, which of them it hits, and what it does to them.
//!
//! A rule is written flat (`call: ..., nth: 2, return: IN_USE`) and is one action; two actions are two rules. Rules are
//! independent: each that matches counts the call, and what they do is put together in one [`Verdict`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::model::Code;

/// What one rule does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Answers a code without doing anything.
    Return(Code),
    /// Does not come back.
    Hang(Hang),
    /// Takes longer by this.
    Delay(Duration),
    /// Takes this many times as long as its class of call.
    Slow(f64),
    /// Kills the calling process, as `kill -9`.
    Abort(Abort),
    /// Answers SUCCESS without doing anything: an instance that stays after it was destroyed.
    Lie,
    /// Answers `IN_USE` for this long after the first matching call, then lets one through and starts again.
    InUseFor(Duration),
    /// Puts a GPU instance somewhere else than asked, when there is another free place.
    WrongPlacement,
    /// `nvmlDeviceGetMigDeviceHandleByIndex` also answers devices that were destroyed.
    StaleMigHandles,
    /// GPUs are enumerated in this order of their indices.
    IndexOrder(Vec<u32>),
    /// The GPU of the call is lost when the call is done.
    LoseGpu,
}

/// How a hang ends, other than by removing its rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hang {
    /// It does not.
    Forever,
    /// When this file appears.
    UntilFile(PathBuf),
}

/// When the caller dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Abort {
    /// Nothing was done yet.
    Before,
    /// It was done, and the caller never learns.
    After,
}

/// Over what "the nth call" counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counting {
    /// Calls of each process on its own; a restarted client starts at one.
    #[default]
    Process,
    /// Calls of all processes on this state directory.
    Machine,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawRule", into = "RawRule")]
pub struct Rule {
    /// Names the rule, to remove it; given out (`fault-1`) when the writer names none.
    pub id: String,
    /// Function name, exact or with `*` for any text.
    pub call: String,
    /// Only calls on this GPU: an index, or a UUID.
    pub gpu: Option<String>,
    /// The first matching call that it hits, from 1.
    pub nth: u64,
    /// How many calls it hits; `None` for no end.
    pub times: Option<u64>,
    /// Over what calls are counted.
    pub count: Counting,
    /// What it does.
    pub action: Action,
}

/// A rule as it is written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawRule {
    id: String,
    call: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<GpuName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nth: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
    count: Counting,
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    answer: Option<Code>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hang: Option<Hang>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow_factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    abort: Option<Abort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index_order: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "is_false")]
    lie: bool,
    #[serde(skip_serializing_if = "is_false")]
    wrong_placement: bool,
    #[serde(skip_serializing_if = "is_false")]
    stale_mig_handles: bool,
    #[serde(skip_serializing_if = "is_false")]
    lose_gpu: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum GpuName {
    Index(u32),
    Uuid(String),
}

/// Why a rule or a file of rules cannot be used.
#[derive(Debug, Error)]
pub enum RuleError {
    /// No function is named.
    #[error("a fault needs `call`: the name of a function, or a pattern like nvmlDevice*")]
    NoCall,
    /// Not exactly one action.
    #[error("the fault for {call} has {found} actions; it needs exactly one")]
    Actions {
        /// The pattern.
        call: String,
        /// How many.
        found: usize,
    },
    /// Calls are counted from one.
    #[error("the fault for {0} has nth: 0; calls are counted from 1")]
    ZerothCall(String),
    /// Time cannot run backwards or stand still.
    #[error("the fault for {0} has a slow_factor that is not a positive number")]
    SlowFactor(String),
    /// Two rules have one name.
    #[error("two faults are named {0:?}")]
    SameId(String),
    /// The file cannot be read or written.
    #[error("cannot {doing} {path}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is no list of rules.
    #[error("{path} is no list of faults: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why not, with line and column.
        reason: String,
    },
}

/// One call at the gate.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Exported name, as `nvmlDeviceGetCount_v2`.
    pub function: &'a str,
    /// Index and UUID of the GPU it is on, if it is on one.
    pub gpu: Option<(u32, &'a str)>,
    /// A clock that does not go backwards, in milliseconds.
    pub now_ms: u64,
}

/// What to do with a call. In this order: wait, die, hang, answer, or do it (bent), then lose the GPU, then die.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Wait this long more.
    pub delay: Duration,
    /// Multiply the latency of the call's class by this.
    pub slow_factor: f64,
    /// Kill the process, before or after.
    pub abort: Option<Abort>,
    /// Do not come back until this is over.
    pub hang: Option<HangOf>,
    /// Answer this without doing it; SUCCESS is a lie.
    pub answer: Option<Code>,
    /// Put the GPU instance elsewhere.
    pub wrong_placement: bool,
    /// Answer destroyed MIG devices too.
    pub stale_mig_handles: bool,
    /// Enumerate in this order: entry n is the true index of what is shown at n.
    pub index_order: Option<Vec<u32>>,
    /// Lose the GPU after the call.
    pub lose_gpu: bool,
}

/// A hang and the rule that made it: it is over when the rule is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HangOf {
    /// The rule.
    pub rule: String,
    /// How else it ends.
    pub hang: Hang,
}

/// What has been counted, by rule.
pub type Counts = BTreeMap<String, Tally>;

/// What one rule has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Calls that matched.
    pub matched: u64,
    /// When the running `IN_USE` period began, on the clock of the calls.
    pub since_ms: Option<u64>,
}

/// The rules in force.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rules(pub Vec<Rule>);

impl Default for Verdict {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            slow_factor: 1.0,
            abort: None,
            hang: None,
            answer: None,
            wrong_placement: false,
            stale_mig_handles: false,
            index_order: None,
            lose_gpu: false,
        }
    }
}

impl Rules {
    /// Gives each unnamed rule a name that no other has, and refuses two of one name.
    pub fn named(mut self) -> Result<Self, RuleError> {
        let mut taken = std::collections::BTreeSet::new();
        for rule in self.0.iter().filter(|rule| !rule.id.is_empty()) {
            if !taken.insert(rule.id.clone()) {
                return Err(RuleError::SameId(rule.id.clone()));
            }
        }
        let mut next = 1_u32;
        for rule in self.0.iter_mut().filter(|rule| rule.id.is_empty()) {
            while taken.contains(&format!("fault-{next}")) {
                next = next.saturating_add(1);
            }
            rule.id = format!("fault-{next}");
            taken.insert(rule.id.clone());
        }
        Ok(self)
    }

    /// Whether deciding on the call needs the counts that all processes share.
    pub fn counts_on_machine(&self, call: &Call<'_>) -> bool {
        self.0
            .iter()
            .any(|rule| rule.count == Counting::Machine && rule.matches(call))
    }

    /// Decides on one call and counts it.
    pub fn decide(&self, call: &Call<'_>, process: &mut Counts, machine: &mut Counts) -> Verdict {
        let mut verdict = Verdict::default();
        for rule in self.0.iter().filter(|rule| rule.matches(call)) {
            let counts = match rule.count {
                Counting::Process => &mut *process,
                Counting::Machine => &mut *machine,
            };
            let tally = counts.entry(rule.id.clone()).or_default();
            tally.matched = tally.matched.saturating_add(1);
            if rule.hits(tally.matched) {
                rule.apply(call.now_ms, tally, &mut verdict);
            }
        }
        verdict
    }
}

impl Rule {
    fn matches(&self, call: &Call<'_>) -> bool {
        let on_gpu = match (&self.gpu, call.gpu) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(wanted), Some((index, uuid))) => wanted == uuid || *wanted == index.to_string(),
        };
        on_gpu && glob(self.call.as_bytes(), call.function.as_bytes())
    }

    fn hits(&self, matched: u64) -> bool {
        let since = matched.checked_sub(self.nth);
        since.is_some_and(|nth| self.times.is_none_or(|times| nth < times))
    }

    fn apply(&self, now_ms: u64, tally: &mut Tally, verdict: &mut Verdict) {
        match &self.action {
            Action::Return(code) => verdict.answer = Some(*code),
            Action::Hang(hang) => {
                verdict.hang = Some(HangOf {
                    rule: self.id.clone(),
                    hang: hang.clone(),
                });
            }
            Action::Delay(delay) => verdict.delay = verdict.delay.saturating_add(*delay),
            Action::Slow(factor) => verdict.slow_factor *= factor,
            Action::Abort(abort) => {
                verdict.abort = Some(verdict.abort.map_or(*abort, |other| other.min(*abort)));
            }
            Action::Lie => verdict.answer = Some(Code::Success),
            Action::InUseFor(time) => {
                let since = *tally.since_ms.get_or_insert(now_ms);
                if u128::from(now_ms.saturating_sub(since)) < time.as_millis() {
                    verdict.answer = Some(Code::InUse);
                } else {
                    tally.since_ms = None;
                }
            }
            Action::WrongPlacement => verdict.wrong_placement = true,
            Action::StaleMigHandles => verdict.stale_mig_handles = true,
            Action::IndexOrder(order) => verdict.index_order = Some(order.clone()),
            Action::LoseGpu => verdict.lose_gpu = true,
        }
    }
}

impl TryFrom<RawRule> for Rule {
    type Error = RuleError;

    fn try_from(raw: RawRule) -> Result<Self, RuleError> {
        if raw.call.is_empty() {
            return Err(RuleError::NoCall);
        }
        if raw.nth == Some(0) {
            return Err(RuleError::ZerothCall(raw.call));
        }
        if raw
            .slow_factor
            .is_some_and(|factor| !(factor.is_finite() && factor > 0.0))
        {
            return Err(RuleError::SlowFactor(raw.call));
        }
        let set = |flag: bool, action: Action| flag.then_some(action);
        let mut actions: Vec<Action> = [
            raw.answer.map(Action::Return),
            raw.hang.map(Action::Hang),
            raw.delay_ms.map(Duration::from_millis).map(Action::Delay),
            raw.slow_factor.map(Action::Slow),
            raw.abort.map(Action::Abort),
            raw.in_use_ms
                .map(Duration::from_millis)
                .map(Action::InUseFor),
            raw.index_order.map(Action::IndexOrder),
            set(raw.lie, Action::Lie),
            set(raw.wrong_placement, Action::WrongPlacement),
            set(raw.stale_mig_handles, Action::StaleMigHandles),
            set(raw.lose_gpu, Action::LoseGpu),
        ]
        .into_iter()
        .flatten()
        .collect();
        let found = actions.len();
        let (Some(action), 1) = (actions.pop(), found) else {
            return Err(RuleError::Actions {
                call: raw.call,
                found,
            });
        };
        Ok(Self {
            id: raw.id,
            call: raw.call,
            gpu: raw.gpu.map(|gpu| match gpu {
                GpuName::Index(index) => index.to_string(),
                GpuName::Uuid(uuid) => uuid,
            }),
            nth: raw.nth.unwrap_or(1),
            times: raw.times,
            count: raw.count,
            action,
        })
    }
}

impl From<Rule> for RawRule {
    fn from(rule: Rule) -> Self {
        let mut raw = Self {
            id: rule.id,
            call: rule.call,
            gpu: rule
                .gpu
                .map(|gpu| gpu.parse().map_or(GpuName::Uuid(gpu), GpuName::Index)),
            nth: Some(rule.nth),
            times: rule.times,
            count: rule.count,
            ..Self::default()
        };
        match rule.action {
            Action::Return(code) => raw.answer = Some(code),
            Action::Hang(hang) => raw.hang = Some(hang),
            Action::Delay(delay) => raw.delay_ms = Some(millis(delay)),
            Action::Slow(factor) => raw.slow_factor = Some(factor),
            Action::Abort(abort) => raw.abort = Some(abort),
            Action::Lie => raw.lie = true,
            Action::InUseFor(time) => raw.in_use_ms = Some(millis(time)),
            Action::WrongPlacement => raw.wrong_placement = true,
            Action::StaleMigHandles => raw.stale_mig_handles = true,
            Action::IndexOrder(order) => raw.index_order = Some(order),
            Action::LoseGpu => raw.lose_gpu = true,
        }
        raw
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form serde asks for")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Whether the text is of the pattern, in which `*` stands for any text.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => {
            (0..=text.len()).any(|from| text.get(from..).is_some_and(|text| glob(rest, text)))
        }
        Some((first, rest)) => text
            .split_first()
            .is_some_and(|(byte, text)| byte == first && glob(rest, text)),
    }
}
