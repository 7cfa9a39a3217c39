//! Deterministic identities: the same scenario has the same UUIDs in every run, and all are distinct.

/// Hashes text for a seed (FNV-1a, 64 bits).
pub(crate) fn seed(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The UUID number `counter` of the seed, in lower-case hexadecimal with dashes (version and variant bits as RFC 4122).
pub(crate) fn uuid(seed: u64, counter: u64) -> String {
    let [high, low] = halves(seed, counter);
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// Two independent words. A bijection of the counter for each seed, so all are distinct.
fn halves(seed: u64, counter: u64) -> [u64; 2] {
    let first = mix(seed ^ mix(counter));
    [first, mix(first ^ seed.rotate_left(32) ^ counter)]
}

/// The finalizer of `SplitMix64` with its increment.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_depends_on_seed_and_counter_and_has_usual_form() {
        let one = uuid(seed("dgx"), 1);
        assert_eq!(one, uuid(seed("dgx"), 1));
        assert_ne!(one, uuid(seed("dgx"), 2));
        assert_ne!(one, uuid(seed("hgx"), 1));
        let lengths: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
    }
}
