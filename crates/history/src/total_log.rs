//! Compressed sums of one metric of a group of devices.
//!
//! ```text
//!   head, one byte: steps since the previous record (6 bits), the devices or the weight changed (1 bit), the sum changed (1 bit)
//!   difference of the sum                          if the sum changed
//!   difference of the weight, of the devices       if one of them changed
//! ```
//! Differences are variable-length integers whose sign is in the lowest bit. A chunk has the records of 60 steps. Its
//! first record is the difference from 0.

use std::collections::VecDeque;

use crate::chunk::CHUNK;
use crate::unit_sum::UnitSum;

/// Sums by step, oldest first. A step without a record is a gap.
#[derive(Debug, Clone, Default)]
pub(crate) struct TotalLog {
    /// Number and records of each chunk.
    chunks: VecDeque<(u32, Vec<u8>)>,
    /// The last record.
    last: (u32, UnitSum),
}

/// Steps per chunk.
#[expect(clippy::cast_possible_truncation, reason = "60")]
const STEPS: u32 = CHUNK as u32;

const DISTANCE: u8 = 0b0011_1111;
const DEVICES: u8 = 0b0100_0000;
const SUM: u8 = 0b1000_0000;

impl TotalLog {
    /// Adds the sum of a step, which must be newer than the last one.
    pub(crate) fn push(&mut self, step: u32, sum: UnitSum) {
        let chunk = step / STEPS;
        if self.chunks.back().is_none_or(|(number, _)| *number != chunk) {
            if let Some((_, records)) = self.chunks.back_mut() {
                records.shrink_to_fit();
            }
            self.chunks.push_back((chunk, Vec::new()));
            self.last = (chunk * STEPS, UnitSum::default());
        }
        let Some((_, records)) = self.chunks.back_mut() else { return };
        let (before, last) = self.last;
        let distance = u8::try_from(step.saturating_sub(before)).unwrap_or(DISTANCE);
        let has_sum = sum.sum != last.sum;
        let has_devices = (sum.weight, sum.devices) != (last.weight, last.devices);
        records
            .push(distance | if has_sum { SUM } else { 0 } | if has_devices { DEVICES } else { 0 });
        if has_sum {
            write(records, last.sum, sum.sum);
        }
        if has_devices {
            write(records, last.weight, sum.weight);
            write(records, last.devices.into(), sum.devices.into());
        }
        self.last = (step, sum);
    }

    /// Drops the chunks that end before `step`.
    pub(crate) fn drop_before(&mut self, step: u32) {
        while self.chunks.front().is_some_and(|(number, _)| *number < step / STEPS) {
            self.chunks.pop_front();
        }
    }

    /// Calls `visit` with the step and the sum of each record from the chunk of `step` on.
    pub(crate) fn for_each_from(&self, step: u32, mut visit: impl FnMut(u32, UnitSum)) {
        for (number, records) in self.chunks.iter().filter(|(number, _)| *number >= step / STEPS) {
            let (mut at, mut sum) = (number * STEPS, UnitSum::default());
            let mut records = records.iter().copied();
            while let Some(head) = records.next() {
                at = at.saturating_add(u32::from(head & DISTANCE));
                if head & SUM != 0 {
                    sum.sum = read(&mut records, sum.sum);
                }
                if head & DEVICES != 0 {
                    sum.weight = read(&mut records, sum.weight);
                    let devices = read(&mut records, sum.devices.into());
                    sum.devices = u32::try_from(devices).unwrap_or(u32::MAX);
                }
                visit(at, sum);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes of memory on the heap.
    pub(crate) fn bytes(&self) -> usize {
        let chunks = self.chunks.capacity().saturating_mul(size_of::<(u32, Vec<u8>)>());
        self.chunks.iter().fold(chunks, |sum, (_, records)| sum.saturating_add(records.capacity()))
    }
}

/// Appends the difference of two numbers.
fn write(records: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from).cast_signed();
    let mut rest = ((difference << 1) ^ (difference >> 63)).cast_unsigned();
    while rest > 0x7f {
        records.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    records.push(rest.to_le_bytes()[0]);
}

/// Reads a difference and adds it to `from`.
fn read(records: &mut impl Iterator<Item = u8>, from: u64) -> u64 {
    let (mut coded, mut shift) = (0_u64, 0_u32);
    for byte in records {
        coded |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let difference = (coded >> 1) ^ 0_u64.wrapping_sub(coded & 1);
    from.wrapping_add(difference)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn records(log: &TotalLog, from: u32) -> Vec<(u32, UnitSum)> {
        let mut all = Vec::new();
        log.for_each_from(from, |step, sum| all.push((step, sum)));
        all
    }

    proptest! {
        #[test]
        fn records_round_trip(
            steps in vec((1..90_u32, any::<u64>(), any::<u64>(), any::<u32>(), any::<bool>()), 1..200),
        ) {
            let (mut log, mut step, mut all) = (TotalLog::default(), 600, Vec::new());
            let mut last = UnitSum::default();
            for (distance, sum, weight, devices, is_same) in steps {
                step += distance;
                if !is_same {
                    last = UnitSum { sum, weight, devices };
                }
                log.push(step, last);
                all.push((step, last));
            }
            prop_assert_eq!(records(&log, 0), all.clone());
            let middle = all[all.len() / 2].0;
            let begin = middle / STEPS * STEPS;
            all.retain(|(step, _)| *step >= begin);
            prop_assert_eq!(records(&log, middle), all.clone());
            log.drop_before(middle);
            prop_assert_eq!(records(&log, 0), all);
        }
    }

    #[test]
    fn unchanged_sum_needs_a_byte() {
        let mut log = TotalLog::default();
        for step in 600..660 {
            log.push(step, UnitSum { sum: 4_000_000, weight: 10_000, devices: 10_000 });
        }
        log.push(660, UnitSum::default());
        assert_eq!(log.chunks[0].1.len(), 60 + 4 + 3 + 3);
        log.drop_before(720);
        assert!(log.is_empty());
    }
}
