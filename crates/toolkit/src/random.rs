//! Random numbers.

use std::hash::{BuildHasher, RandomState};

/// Returns a random number. The standard library seeds its hashers from the system's randomness, which is sufficient
/// for jitter and unique names.
pub fn random() -> u64 {
    RandomState::new().hash_one(0)
}
