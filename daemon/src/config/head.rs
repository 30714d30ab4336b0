//! A view of a YAML mapping without `apiVersion` and `kind`.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, IntoDeserializer as _, MapAccess, Visitor},
    forward_to_deserialize_any,
};

/// A `T` read from a mapping whose head is hidden from it.
pub(super) struct Beheaded<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Beheaded<T> {
    fn deserialize<D: Deserializer<'de>>(whole: D) -> Result<Self, D::Error> {
        T::deserialize(Rest(whole)).map(Self)
    }
}

/// `D` without the head: in this deserializer, visitor and map access alike.
struct Rest<D>(D);

/// A key is the head's, and the seed comes back unused, or it is another's.
enum Key<K, V> {
    Head(K),
    Other(V),
}

struct KeySeed<K>(K);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Rest<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Rest(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Rest(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Rest<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Rest(map))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, mut seed: K) -> Result<Option<K::Value>, A::Error> {
        loop {
            match self.0.next_key_seed(KeySeed(seed))? {
                None => return Ok(None),
                Some(Key::Other(key)) => return Ok(Some(key)),
                Some(Key::Head(unused)) => {
                    seed = unused;
                    self.0.next_value::<IgnoredAny>()?;
                }
            }
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for KeySeed<K> {
    type Value = Key<K, K::Value>;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Self::Value, D::Error> {
        let key = String::deserialize(key)?;
        match key.as_str() {
            "apiVersion" | "kind" => Ok(Key::Head(self.0)),
            _ => self.0.deserialize(key.into_deserializer()).map(Key::Other),
        }
    }
}
