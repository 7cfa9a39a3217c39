//! Parts of the JSON format that several types share.

use std::fmt::{Display, LowerHex};

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;
use serde_with::{DeserializeAs, SerializeAs};

use crate::id::parse_hex;

/// A number of exactly `DIGITS` hexadecimal digits, as printed by `lspci`.
pub(super) struct Hex<const DIGITS: usize>;

impl<T: LowerHex, const DIGITS: usize> SerializeAs<T> for Hex<DIGITS> {
    fn serialize_as<S: Serializer>(number: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{number:0DIGITS$x}"))
    }
}

impl<'de, T: TryFrom<u64>, const DIGITS: usize> DeserializeAs<'de, T> for Hex<DIGITS> {
    fn deserialize_as<D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_hex(&text, DIGITS..=DIGITS).ok_or_else(|| {
            D::Error::custom(format_args!("{text:?} is not {DIGITS} hexadecimal digits"))
        })
    }
}

/// A number from `MIN` to `MAX`.
pub(super) struct Within<const MIN: u8, const MAX: u8>;

impl<'de, T, const MIN: u8, const MAX: u8> DeserializeAs<'de, T> for Within<MIN, MAX>
where
    T: Deserialize<'de> + PartialOrd + From<u8> + Display,
{
    fn deserialize_as<D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let number = T::deserialize(deserializer)?;
        if (T::from(MIN)..=T::from(MAX)).contains(&number) {
            return Ok(number);
        }
        let message = format_args!("{number} is not in the range {MIN} to {MAX}");
        Err(D::Error::custom(message))
    }
}

/// Returns `true` for a value that JSON omits.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads the rest of a tagged object, whose errors have their place in it: serde reads such an object as a whole.
pub(super) fn with_place<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    serde_path_to_error::deserialize(deserializer).map_err(D::Error::custom)
}

/// Reads the rest of a tagged object without other keys, which serde would ignore in a unit variant.
pub(super) fn no_more_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Empty {}
    Empty::deserialize(deserializer).map(|Empty {}| ())
}

/// Orders a list by a key that no two devices may share.
pub(super) fn unique<T, K: Ord + Display, E: Error>(
    mut devices: Vec<T>,
    name: &str,
    key: fn(&T) -> K,
) -> Result<Vec<T>, E> {
    devices.sort_by_key(key);
    let mut pairs = devices.iter().zip(devices.iter().skip(1));
    match pairs.find(|(one, next)| key(one) == key(next)) {
        Some((twice, _)) => {
            let message = format_args!("two devices have the {name} {}", key(twice));
            Err(E::custom(message))
        }
        None => Ok(devices),
    }
}
