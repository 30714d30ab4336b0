//! Finds the field names of a struct with a derived `Deserialize`.

use serde::de::value::Error;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

/// The keys that `T` accepts; none if `T` is not a struct with a derived `Deserialize`.
pub(super) fn field_names<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // Always an error: the deserializer has no value.
    let _ = T::deserialize(NameFinder(&mut names));
    names
}

/// A deserializer without a value, which notes the fields that it is asked for.
struct NameFinder<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for NameFinder<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_struct_has_its_keys_and_other_types_have_none() {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        #[expect(dead_code, reason = "only the names of the fields count")]
        struct Server {
            server_id: String,
            listen: Option<u16>,
        }

        assert_eq!(field_names::<Server>(), ["serverId", "listen"]);
        assert!(field_names::<String>().is_empty());
    }
}
