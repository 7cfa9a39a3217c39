//! Conversion between a rule and its file format.
//!
//! Parsing validates user input; writing produces parsable text.

use std::time::Duration;

use super::super::action::Action;
use super::super::format::{GpuName, RawRule};
use super::{Rule, RuleError};

impl TryFrom<RawRule> for Rule {
    type Error = RuleError;

    fn try_from(raw: RawRule) -> Result<Self, RuleError> {
        if raw.call.is_empty() {
            return Err(RuleError::NoCall);
        }
        if raw.nth == Some(0) {
            return Err(RuleError::ZerothCall(raw.call));
        }
        if raw.slow_factor.is_some_and(|factor| !(factor.is_finite() && factor > 0.0)) {
            return Err(RuleError::SlowFactor(raw.call));
        }
        let set = |flag: bool, action: Action| flag.then_some(action);
        let mut actions: Vec<Action> = [
            raw.answer.map(Action::Return),
            raw.hang.map(Action::Hang),
            raw.delay_ms.map(Duration::from_millis).map(Action::Delay),
            raw.slow_factor.map(Action::Slow),
            raw.abort.map(Action::Abort),
            raw.in_use_ms.map(Duration::from_millis).map(Action::InUseFor),
            raw.index_order.map(Action::IndexOrder),
            raw.activation.map(Action::Activation),
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
            return Err(RuleError::Actions { call: raw.call, found });
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
            made: raw.made.unwrap_or(0),
        })
    }
}

impl From<Rule> for RawRule {
    fn from(rule: Rule) -> Self {
        let mut raw = Self {
            id: rule.id,
            call: rule.call,
            gpu: rule.gpu.map(|gpu| gpu.parse().map_or(GpuName::Uuid(gpu), GpuName::Index)),
            nth: Some(rule.nth),
            times: rule.times,
            count: rule.count,
            made: Some(rule.made).filter(|made| *made != 0),
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
            Action::Activation(status) => raw.activation = Some(status),
            Action::LoseGpu => raw.lose_gpu = true,
        }
        raw
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
