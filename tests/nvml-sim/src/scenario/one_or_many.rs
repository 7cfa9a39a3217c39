//! Values of a scenario for one or several GPUs.

use serde::Deserialize;

/// One value for all GPUs of an entry, or one for each.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected one valid value, or a list with one value for each GPU")]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T: Clone> OneOrMany<T> {
    /// The value for GPU `nth` of the entry; `None` beyond the end of the list.
    pub(super) fn get(&self, nth: usize) -> Option<T> {
        match self {
            Self::One(value) => Some(value.clone()),
            Self::Many(values) => values.get(nth).cloned(),
        }
    }

    /// Number of GPUs that the values are for; `None` for any number.
    pub(super) fn count(&self) -> Option<usize> {
        match self {
            Self::One(_) => None,
            Self::Many(values) => Some(values.len()),
        }
    }
}

/// The default of a count.
pub(super) fn one() -> u32 {
    1
}
