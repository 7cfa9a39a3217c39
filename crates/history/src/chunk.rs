//! Compression of 60 values of one metric.
//!
//! ```text
//!   0 value                constant
//!   1-7 base bits          values minus base in as many bits; all bits set is a gap
//!   8 60 bytes             as they are
//!   9 count (len value)*   runs of equal values
//! ```
//! The shortest form is used. DEFLATE is not used: it saves a fifth for busy devices and nothing for others
//! (docs/performance.md, "History").

/// Values per chunk.
pub(crate) const CHUNK: usize = 60;
/// Stored value of a step without a sample.
pub(crate) const GAP: u8 = u8::MAX;

/// Values of a chunk.
pub(crate) type Values = [u8; CHUNK];

const RAW: u8 = 8;
const RUNS: u8 = 9;

/// Appends the shortest form of `values`.
pub(crate) fn encode(values: &Values, to: &mut Vec<u8>) {
    let present = values.iter().copied().filter(|value| *value != GAP);
    let least = present.clone().min().unwrap_or(GAP);
    let range = present.max().unwrap_or(GAP).saturating_sub(least);
    let has_gap = least != GAP && values.contains(&GAP);
    let width = if range == 0 && !has_gap { 0 } else { width(range) };
    let runs = || values.chunk_by(|a, b| a == b);
    let by_runs = runs().count().saturating_mul(2).saturating_add(2);
    if by_runs < size(width) {
        to.push(RUNS);
        to.push(u8::try_from(runs().count()).unwrap_or_default());
        for run in runs() {
            to.push(u8::try_from(run.len()).unwrap_or_default());
            to.extend(run.first());
        }
    } else if width == RAW {
        to.push(RAW);
        to.extend(values);
    } else {
        to.extend([width, least]);
        pack(values, (width, least), to);
    }
}

/// Decodes the values at the start of `bytes` to `values`, and returns the remaining bytes; `None` if they are invalid.
pub(crate) fn decode<'a>(bytes: &'a [u8], values: &mut Values) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_first()?;
    match *head {
        RAW => {
            let (raw, rest) = rest.split_first_chunk::<CHUNK>()?;
            values.copy_from_slice(raw);
            Some(rest)
        }
        RUNS => {
            let (count, rest) = rest.split_first()?;
            let (runs, rest) = rest.split_at_checked(usize::from(*count).saturating_mul(2))?;
            let mut all = runs
                .as_chunks::<2>()
                .0
                .iter()
                .flat_map(|[len, value]| std::iter::repeat_n(*value, usize::from(*len)));
            for value in values {
                *value = all.next()?;
            }
            Some(rest)
        }
        width if width < RAW => {
            let (base, rest) = rest.split_first()?;
            let (packed, rest) = rest.split_at_checked(size(width).checked_sub(2)?)?;
            unpack(packed, (width, *base), values);
            Some(rest)
        }
        _ => None,
    }
}

/// Bits per value for values that differ by at most `range`, and a gap.
fn width(range: u8) -> u8 {
    (1..RAW).find(|width| u32::from(range) + 1 < (1 << width)).unwrap_or(RAW)
}

/// Bytes of a chunk with this number of bits per value.
fn size(width: u8) -> usize {
    match width {
        RAW => CHUNK + 1,
        width => (CHUNK * usize::from(width)).div_ceil(8) + 2,
    }
}

fn pack(values: &Values, (width, base): (u8, u8), to: &mut Vec<u8>) {
    let gap = (1_u32 << width) - 1;
    let (mut bits, mut count) = (0_u32, 0_u8);
    for value in values.iter().filter(|_| width > 0) {
        let code = if *value == GAP { gap } else { u32::from(value.saturating_sub(base)) };
        bits |= code << count;
        count += width;
        while count >= 8 {
            to.push(bits.to_le_bytes()[0]);
            bits >>= 8;
            count -= 8;
        }
    }
    if count > 0 {
        to.push(bits.to_le_bytes()[0]);
    }
}

fn unpack(packed: &[u8], (width, base): (u8, u8), values: &mut Values) {
    let gap = (1_u32 << width) - 1;
    let mut bytes = packed.iter();
    let (mut bits, mut count) = (0_u32, 0_u8);
    for value in values {
        if count < width {
            bits |= u32::from(bytes.next().copied().unwrap_or_default()) << count;
            count += 8;
        }
        let code = bits & gap;
        bits >>= width;
        count -= width;
        let code = u8::try_from(code).ok().filter(|_| width == 0 || code != gap);
        *value = code.map_or(GAP, |code| base.saturating_add(code));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn encoded(values: &Values) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(values, &mut bytes);
        bytes
    }

    #[test]
    fn size_depends_on_the_variation() {
        let with = |of: fn(usize) -> u8| encoded(&std::array::from_fn(of)).len();
        assert_eq!(with(|_| 42), 2);
        assert_eq!(with(|_| GAP), 2);
        assert_eq!(with(|at| if at < 30 { 7 } else { GAP }), 6);
        assert_eq!(with(|at| 40 + u8::try_from(at % 3).unwrap()), 17);
        assert_eq!(with(|at| if at % 2 == 0 { GAP } else { 0 }), 10);
        assert_eq!(with(|at| u8::try_from(at * 97 % 255).unwrap()), 61);
    }

    fn values() -> impl Strategy<Value = Values> {
        let value = (any::<u8>(), 0..=255_u8).prop_flat_map(|(base, range)| {
            vec(prop_oneof![4 => base..=base.saturating_add(range), 1 => Just(GAP)], CHUNK)
        });
        let runs = vec((any::<u8>(), 1..40_usize), CHUNK).prop_map(|runs| {
            runs.into_iter().flat_map(|(value, len)| std::iter::repeat_n(value, len)).collect()
        });
        prop_oneof![value, runs].prop_map(|all: Vec<u8>| std::array::from_fn(|at| all[at]))
    }

    #[test]
    fn chunk_with_an_unknown_form_is_invalid() {
        assert_eq!(decode(&[10; 79], &mut [0; CHUNK]), None);
        assert_eq!(decode(&[u8::MAX; 600], &mut [0; CHUNK]), None);
    }

    proptest! {
        #[test]
        fn values_round_trip_in_at_most_61_bytes(one in values(), other in values()) {
            let mut bytes = encoded(&one);
            prop_assert!(bytes.len() <= 61);
            encode(&other, &mut bytes);
            let mut decoded = [0; CHUNK];
            let rest = decode(&bytes, &mut decoded).unwrap();
            prop_assert_eq!(decoded, one);
            prop_assert_eq!(decode(rest, &mut decoded), Some(&[][..]));
            prop_assert_eq!(decoded, other);
        }

        #[test]
        fn decoder_never_panics(bytes in vec(any::<u8>(), 0..80)) {
            decode(&bytes, &mut [0; CHUNK]);
        }
    }
}
