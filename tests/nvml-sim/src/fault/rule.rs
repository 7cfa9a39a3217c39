//! A fault: its calls, the affected ones among them, and its action.
//!
//! A rule is written flat (`call: ..., nth: 2, return: IN_USE`) and has one action; two actions are two rules. Rules
//! are independent: each that matches counts the call, and their effects are combined in one [`Verdict`].

mod conversion;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::action::{Abort, Action, CountScope, Hang};
use super::format::RawRule;
use crate::model::Code;

/// A fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawRule", into = "RawRule")]
pub struct Rule {
    /// Id of the rule, for its removal; generated (`fault-1`) if not given.
    pub id: String,
    /// Function name, exact or with `*` for any text.
    pub call: String,
    /// Only calls on this GPU: an index, or a UUID.
    pub gpu: Option<String>,
    /// The first affected matching call, from 1.
    pub nth: u64,
    /// Number of affected calls; `None` for all.
    pub times: Option<u64>,
    /// Scope of the count.
    pub count: CountScope,
    /// Its action.
    pub action: Action,
    /// Distinguishes it from an earlier rule with the same id; 0 until it is written.
    pub made: u64,
}

/// Why a rule or a file of rules cannot be used.
#[derive(Debug, Error)]
pub enum RuleError {
    /// No function is named.
    #[error("a fault requires `call`: a function name, or a pattern such as nvmlDevice*")]
    NoCall,
    /// Not exactly one action.
    #[error("the fault for {call} has {found} actions; exactly one is required")]
    Actions {
        /// The pattern.
        call: String,
        /// How many.
        found: usize,
    },
    /// The factor must be positive.
    #[error("the fault for {0} has nth: 0; calls are counted from 1")]
    ZerothCall(String),
    /// Time cannot run backwards or stand still.
    #[error("the fault for {0} has a slow_factor that is not a positive number")]
    SlowFactor(String),
    /// The name of the function is misspelt.
    #[error("NVML has no function {0}")]
    NoFunction(String),
    /// Two rules have the same id.
    #[error("two faults have the ID {0:?}")]
    SameId(String),
    /// The file cannot be read or written.
    #[error("cannot {doing} {path}")]
    File {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is no list of rules.
    #[error("{path} is not a list of faults: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason, with line and column.
        reason: String,
    },
}

/// A call at the gate.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Exported name, such as `nvmlDeviceGetCount_v2`.
    pub function: &'a str,
    /// Index and UUID of its GPU, if any.
    pub gpu: Option<(u32, &'a str)>,
    /// A monotonic clock in milliseconds.
    pub now_ms: u64,
}

/// Effect on a call, in this order: wait, kill, hang, return a code or execute (modified), lose the GPU, kill.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Additional delay.
    pub delay: Duration,
    /// Factor for the latency of the call's class.
    pub slow_factor: f64,
    /// Kill the process, before or after.
    pub abort: Option<Abort>,
    /// Hang until this ends.
    pub hang: Option<ActiveHang>,
    /// Return this code without effect; SUCCESS is a false result.
    pub answer: Option<Code>,
    /// Use another placement for the GPU instance.
    pub wrong_placement: bool,
    /// Return destroyed MIG devices too.
    pub stale_mig_handles: bool,
    /// Order of enumeration: entry n is the real index of the device reported at n.
    pub index_order: Option<Vec<u32>>,
    /// Do not activate a MIG mode, and return this status.
    pub activation: Option<Code>,
    /// Lose the GPU after the call.
    pub lose_gpu: bool,
}

/// A hang with its rule: it ends when the rule is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveHang {
    /// The key of the rule.
    pub rule: String,
    /// Its other end condition.
    pub hang: Hang,
}

/// Counts by the key of the rule.
pub type Counts = BTreeMap<String, RuleCount>;

/// Counts of one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RuleCount {
    /// Number of matching calls.
    pub matched: u64,
    /// Start of the current `IN_USE` period, on the clock of the calls.
    pub since_ms: Option<u64>,
}

/// The active rules.
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
            activation: None,
            lose_gpu: false,
        }
    }
}

impl Rules {
    /// Gives each unnamed rule a unique id, and rejects duplicates.
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

    /// True if the decision on the call needs the counts shared by all processes.
    pub fn counts_on_machine(&self, call: &Call<'_>) -> bool {
        self.0.iter().any(|rule| rule.count == CountScope::Machine && rule.matches(call))
    }

    /// Decides on one call and counts it.
    pub fn decide(&self, call: &Call<'_>, process: &mut Counts, machine: &mut Counts) -> Verdict {
        let mut verdict = Verdict::default();
        for rule in self.0.iter().filter(|rule| rule.matches(call)) {
            let counts = match rule.count {
                CountScope::Process => &mut *process,
                CountScope::Machine => &mut *machine,
            };
            let tally = counts.entry(rule.key()).or_default();
            tally.matched = tally.matched.saturating_add(1);
            if rule.hits(tally.matched) {
                rule.apply(call.now_ms, tally, &mut verdict);
            }
        }
        verdict
    }
}

/// Every function of the library, one per line.
const FUNCTIONS: &str = include_str!("../../data/nvml-functions.txt");

impl Rule {
    /// Rejects a rule that no call can match, because such a fault would test nothing.
    pub fn check(&self) -> Result<(), RuleError> {
        let mut functions = FUNCTIONS.lines().map(str::as_bytes);
        if functions.any(|name| glob(self.call.as_bytes(), name)) {
            return Ok(());
        }
        Err(RuleError::NoFunction(self.call.clone()))
    }

    /// Key of its counts: a rule that is removed and added again starts at one.
    pub(super) fn key(&self) -> String {
        format!("{}@{}", self.id, self.made)
    }

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

    fn apply(&self, now_ms: u64, tally: &mut RuleCount, verdict: &mut Verdict) {
        match &self.action {
            Action::Return(code) => verdict.answer = Some(*code),
            Action::Hang(hang) => {
                verdict.hang = Some(ActiveHang { rule: self.key(), hang: hang.clone() });
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
            Action::Activation(status) => verdict.activation = Some(*status),
            Action::LoseGpu => verdict.lose_gpu = true,
        }
    }
}

/// True if the text matches the pattern, in which `*` matches any text.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => {
            (0..=text.len()).any(|from| text.get(from..).is_some_and(|text| glob(rest, text)))
        }
        Some((first, rest)) => {
            text.split_first().is_some_and(|(byte, text)| byte == first && glob(rest, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        Rules(serde_saphyr::from_str(text).unwrap()).named().unwrap()
    }

    fn call(function: &str, now_ms: u64) -> Call<'_> {
        Call { function, gpu: Some((1, "GPU-a")), now_ms }
    }

    /// Results of `times` calls of a function by one process, a millisecond apart; `None` means that it is executed.
    fn answers(rules: &Rules, function: &str, times: u64) -> Vec<Option<Code>> {
        let (mut process, mut machine) = (Counts::new(), Counts::new());
        (0..times)
            .map(|now| {
                let decided = rules.decide(&call(function, now), &mut process, &mut machine);
                decided.answer
            })
            .collect()
    }

    #[test]
    fn rule_applies_from_nth_call_for_its_number_of_times() {
        let rules = rules("- {call: nvmlInit_v2, nth: 2, times: 2, return: TIMEOUT}");
        let timeout = Some(Code::Timeout);
        assert_eq!(answers(&rules, "nvmlInit_v2", 5), [None, timeout, timeout, None, None]);
        assert_eq!(answers(&rules, "nvmlInit", 3), [None; 3]);
    }

    #[test]
    fn pattern_matches_many_functions_and_counts_them_together() {
        let rules = rules("- {call: 'nvml*Get*', nth: 2, return: NO_DATA}");
        let (mut process, mut machine) = (Counts::new(), Counts::new());
        let mut decide = |name| rules.decide(&call(name, 0), &mut process, &mut machine).answer;
        assert_eq!(decide("nvmlDeviceGetName"), None);
        assert_eq!(decide("nvmlShutdown"), None);
        assert_eq!(decide("nvmlSystemGetDriverVersion"), Some(Code::NoData));
    }

    #[test]
    fn rule_for_one_gpu_affects_no_other_call() {
        for (gpu, hit) in [("1", true), ("0", false), ("GPU-a", true), ("GPU-b", false)] {
            let rules = rules(&format!("- {{call: '*', gpu: {gpu}, return: UNKNOWN}}"));
            assert_eq!(answers(&rules, "f", 1) == [Some(Code::Unknown)], hit, "{gpu}");
            let elsewhere = Call { function: "f", gpu: None, now_ms: 0 };
            let verdict = rules.decide(&elsewhere, &mut Counts::new(), &mut Counts::new());
            assert_eq!(verdict, Verdict::default());
        }
    }

    #[test]
    fn in_use_period_starts_with_first_call_and_restarts_after_success() {
        let rules = rules("- {call: nvmlGpuInstanceDestroy, in_use_ms: 2}");
        let busy = Some(Code::InUse);
        assert_eq!(
            answers(&rules, "nvmlGpuInstanceDestroy", 6),
            [busy, busy, None, busy, busy, None]
        );
    }

    #[test]
    fn effects_of_several_rules_on_one_call_are_combined() {
        let rules = rules(
            "
- {call: f, delay_ms: 3}
- {call: f, delay_ms: 4}
- {call: f, slow_factor: 10}
- {call: f, abort: after}
- {call: f, abort: before}
- {call: f, lie: true}
- {call: f, wrong_placement: true}
- {call: f, stale_mig_handles: true}
- {call: f, index_order: [1, 0]}
- {call: f, activation: RESET_REQUIRED}
- {call: f, lose_gpu: true}
- {call: f, hang: forever, id: stuck}
",
        );
        let verdict = rules.decide(&call("f", 0), &mut Counts::new(), &mut Counts::new());
        assert_eq!(
            verdict,
            Verdict {
                delay: Duration::from_millis(7),
                slow_factor: 10.0,
                abort: Some(Abort::Before),
                hang: Some(ActiveHang { rule: "stuck@0".to_owned(), hang: Hang::Forever }),
                answer: Some(Code::Success),
                wrong_placement: true,
                stale_mig_handles: true,
                index_order: Some(vec![1, 0]),
                activation: Some(Code::ResetRequired),
                lose_gpu: true,
            }
        );
    }

    #[test]
    fn machine_rule_uses_shared_counts() {
        let rules = rules("- {call: f, nth: 2, count: machine, return: UNKNOWN}");
        assert!(rules.counts_on_machine(&call("f", 0)));
        assert!(!rules.counts_on_machine(&call("g", 0)));
        let mut machine = Counts::new();
        let mut one_process = || {
            let decided = rules.decide(&call("f", 0), &mut Counts::new(), &mut machine);
            decided.answer
        };
        assert_eq!([one_process(), one_process()], [None, Some(Code::Unknown)]);
    }

    #[test]
    fn every_kind_of_rule_round_trips() {
        let rules = rules(
            "
- {call: f, gpu: 3, nth: 4, times: 5, count: machine, return: IN_USE}
- {call: f, gpu: GPU-x, hang: {until_file: /tmp/go}}
- {call: f, in_use_ms: 300, id: slow}
- {call: f, slow_factor: 100}
- {call: f, index_order: [2, 1, 0]}
- {call: f, activation: IN_USE}
- {call: f, lie: true}
",
        );
        let text = serde_json::to_string(&rules.0).unwrap();
        assert_eq!(serde_saphyr::from_str::<Vec<Rule>>(&text).unwrap(), rules.0);
    }

    #[test]
    fn rule_without_effect_is_rejected() {
        for (text, reason) in [
            ("{return: IN_USE}", "a fault requires `call`"),
            ("{call: f}", "the fault for f has 0 actions"),
            ("{call: f, lie: true, abort: after}", "the fault for f has 2 actions"),
            ("{call: f, nth: 0, lie: true}", "the fault for f has nth: 0"),
            ("{call: f, slow_factor: -1}", "the fault for f has a slow_factor"),
            ("{call: f, return: NOT_A_CODE}", "unknown variant"),
            ("{call: f, lie: true, whne: 3}", "unknown field"),
        ] {
            let error = serde_saphyr::from_str::<Rule>(text).unwrap_err();
            let message = error.without_snippet().to_string();
            assert!(message.contains(reason), "{text}: {message}");
        }
        let twice: Vec<Rule> =
            serde_saphyr::from_str("[{call: f, id: a, lie: true}, {call: g, id: a, lie: true}]")
                .unwrap();
        assert!(matches!(Rules(twice).named(), Err(RuleError::SameId(id)) if id == "a"));
    }
}
