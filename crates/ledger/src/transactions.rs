//! Division of intervals into transactions.

use crate::interval::Interval;

/// Maximum number of intervals of a transaction, so that a database writes them within its time limit.
const MAX_INTERVALS: usize = 10_000;

/// Divides intervals, in the order of [`crate::Recorder::take_changed`], into transactions that are written one after another. Without
/// intervals, the only transaction is empty.
///
/// A restarted recorder continues each device at the latest end that is written. Therefore a transaction ends only at a time of a
/// device before which all of its intervals are written. The exception is a device with more intervals than a transaction can have.
pub fn transactions(intervals: &[Interval]) -> Vec<&[Interval]> {
    divide(intervals, MAX_INTERVALS)
}

/// Divides intervals into transactions of at most `max` intervals, which must not be 0.
pub(crate) fn divide(intervals: &[Interval], max: usize) -> Vec<&[Interval]> {
    let mut transactions = Vec::new();
    let mut rest = intervals;
    while rest.len() > max {
        let (transaction, others) = rest.split_at(boundary(rest, max));
        transactions.push(transaction);
        rest = others;
    }
    transactions.push(rest);
    transactions
}

/// Number of intervals before the last boundary among the first `max`; `max` if there is none.
fn boundary(intervals: &[Interval], max: usize) -> usize {
    let pairs = intervals.iter().zip(intervals.iter().skip(1));
    let mut last = None;
    let mut end = i64::MIN;
    for ((interval, next), count) in pairs.zip(1..=max) {
        end = end.max(interval.end);
        let (device, other) = (&interval.device, &next.device);
        let is_same_device = device.node == other.node && device.id == other.id;
        if !is_same_device || next.start >= end {
            last = Some(count);
            end = i64::MIN;
        }
    }
    last.unwrap_or(max)
}
