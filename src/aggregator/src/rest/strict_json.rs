//! Strict parsing of JSON objects.
//!
//! serde also reads a struct from an array, by position. A request such as `[8, "80GB"]` would be accepted, and its
//! meaning would change when a field is added. Arrays in place of objects are therefore rejected at every depth.

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

/// Parses one document. An array in place of an object is an error.
///
/// # Errors
///
/// Returns the path of the value that cannot be read, and the reason with its line and column.
pub(super) fn from_slice<T: DeserializeOwned>(
    document: &[u8],
) -> Result<T, serde_path_to_error::Error<serde_json::Error>> {
    let mut reader = serde_json::Deserializer::from_slice(document);
    let value = serde_path_to_error::deserialize(StrictObjects(&mut reader))?;
    let root = serde_path_to_error::Track::new().path();
    reader.end().map_err(|error| serde_path_to_error::Error::new(root, error))?;
    Ok(value)
}

/// Wrapper around a part of serde's protocol that reads structs from objects only, at every depth.
struct StrictObjects<T>(T);

/// Forwards methods without additional parameters.
macro_rules! forward {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(StrictObjects(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for StrictObjects<D> {
    type Error = D::Error;

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_unit deserialize_seq deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(StrictObjects(visitor))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, StrictObjects(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, StrictObjects(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(length, StrictObjects(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, length, StrictObjects(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, StrictObjects(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// Forwards methods that take a value.
macro_rules! visit {
    ($($method:ident: $type:ty),*) => {$(
        fn $method<E: serde::de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for StrictObjects<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    visit! {
        visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str, visit_borrowed_str: &'de str,
        visit_string: String
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(StrictObjects(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(StrictObjects(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(StrictObjects(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(StrictObjects(entries))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(StrictObjects(data))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for StrictObjects<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(StrictObjects(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for StrictObjects<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(StrictObjects(seed))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for StrictObjects<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(StrictObjects(seed))
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for StrictObjects<A> {
    type Error = A::Error;
    type Variant = StrictObjects<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let (variant, content) = self.0.variant_seed(seed)?;
        Ok((variant, StrictObjects(content)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for StrictObjects<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(StrictObjects(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(length, StrictObjects(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, StrictObjects(visitor))
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::estimate::EstimateRequest;
    use octavo_fleet::hardware_profile::create_request::ProfileOrder;
    use octavo_fleet::matching::MatchRequest;
    use octavo_fleet::slo::SloRequest;

    use super::*;

    #[test]
    fn array_in_place_of_object_is_rejected_at_any_depth() {
        fn refused<T: DeserializeOwned + fmt::Debug>(document: &str) {
            let error = from_slice::<T>(document.as_bytes()).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("invalid type: sequence"), "{document}: {text}");
        }
        refused::<MatchRequest>("[8, \"80GB\"]");
        refused::<MatchRequest>("[]");
        refused::<MatchRequest>("{\"performance\": [[]]}");
        refused::<SloRequest>("[{}, []]");
        refused::<SloRequest>("{\"objectives\": [], \"rows\": []}");
        refused::<ProfileOrder>("[]");
        refused::<ProfileOrder>("{\"counts\": [[\"nvidia.com/gpu\"]]}");
        refused::<EstimateRequest>("[]");
        refused::<EstimateRequest>(
            "{\"workload\": [\"decoding\", null, 7e9, \"bf16\"], \"devices\": []}",
        );
        refused::<EstimateRequest>(
            "{\"workload\": {\"kind\": \"decoding\", \"parameters\": 7e9, \"precision\": \"bf16\"}, \"devices\": [[\"a\", 1]]}",
        );
    }

    #[test]
    fn objects_are_parsed_and_trailing_data_is_rejected() {
        let document = r#"{"workload": {"kind": "decoding", "parameters": 7e9, "precision": "bf16"},
            "devices": [{"type": "nvidia-l4-24gb", "count": 1}]}"#;
        let strict: EstimateRequest = from_slice(document.as_bytes()).unwrap();
        assert_eq!(strict, serde_json::from_str(document).unwrap());
        let document = r#"{"count": 8, "preferred": ["a"], "performance": []}"#;
        let strict: MatchRequest = from_slice(document.as_bytes()).unwrap();
        assert_eq!(strict, serde_json::from_str(document).unwrap());
        let text = from_slice::<MatchRequest>(b"{} {}").unwrap_err().to_string();
        assert!(text.contains("trailing characters"), "{text}");
        let twice = br#"{"count": 1, "count": 2}"#;
        let text = from_slice::<MatchRequest>(twice).unwrap_err().to_string();
        assert!(text.contains("duplicate field"), "{text}");
    }
}
