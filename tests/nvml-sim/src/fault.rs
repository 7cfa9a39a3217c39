//! Faults: rules that make calls fail, hang, return false results or kill their caller.
//!
//! ```text
//!  call ── Faults::decide ── rules that match, counted ── Verdict ── applied by the C layer
//! ```
//!
//! The rules are in `faults.yaml` of the state directory, so that a test can add and remove them while clients run; the
//! file is read again when it changes. [`Rules::decide`] is pure: counts and time are arguments. All faults were
//! observed on real machines; the README has the table.

mod action;
mod format;
mod rule;
mod shell;

pub use action::{Abort, Action, CountScope, Hang};
pub use rule::{ActiveHang, Call, Counts, Rule, RuleCount, RuleError, Rules, Verdict};
pub use shell::{Faults, change_rules, read_rules, write_rules};
