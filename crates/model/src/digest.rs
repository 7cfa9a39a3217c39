//! Digests that detect accidental differences.

use std::fmt;

/// FNV-1a hash of bytes, 64 bits. It detects accidental differences, not tampering: a peer that can forge it could
/// send other bytes as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Digest(u64);

impl Digest {
    /// The digest of no bytes.
    pub const START: Self = Self(0xcbf2_9ce4_8422_2325);

    /// The hash of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self::START.with(bytes)
    }

    /// Creates a digest from the result of [`Digest::get`].
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The digest as a number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The digest of the bytes so far, followed by `bytes`.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }
}

impl fmt::LowerHex for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}
