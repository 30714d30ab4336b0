//! A deserializer that hides keys of a YAML mapping: `apiVersion` and `kind`, and on demand the common keys too.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, IntoDeserializer as _, MapAccess, Visitor},
    forward_to_deserialize_any,
};

use super::common::COMMON_KEYS;

/// A `T` read from a mapping whose head is hidden from it.
pub(super) struct WithoutHead<T>(pub(super) T);

/// A `T` read from a mapping whose head and common keys are hidden from it.
pub(super) struct OwnKeys<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WithoutHead<T> {
    fn deserialize<D: Deserializer<'de>>(complete: D) -> Result<Self, D::Error> {
        T::deserialize(Filter { inner: complete, hides: Hidden::Head }).map(Self)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OwnKeys<T> {
    fn deserialize<D: Deserializer<'de>>(complete: D) -> Result<Self, D::Error> {
        T::deserialize(Filter { inner: complete, hides: Hidden::HeadAndCommon }).map(Self)
    }
}

/// The keys that a filter hides.
#[derive(Clone, Copy)]
enum Hidden {
    Head,
    HeadAndCommon,
}

/// `D` without the hidden keys: in this deserializer, visitor and map access alike.
struct Filter<D> {
    inner: D,
    hides: Hidden,
}

/// A key is hidden, and the seed comes back unused, or it is visible.
enum Key<K, V> {
    Hidden(K),
    Visible(V),
}

struct KeySeed<K> {
    seed: K,
    hides: Hidden,
}

impl Hidden {
    fn has(self, key: &str) -> bool {
        let is_head = matches!(key, "apiVersion" | "kind");
        match self {
            Self::Head => is_head,
            Self::HeadAndCommon => is_head || COMMON_KEYS.contains(&key),
        }
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Filter<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_map(Filter { inner: visitor, hides: self.hides })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_struct(name, fields, Filter { inner: visitor, hides: self.hides })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Filter<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Filter { inner: map, hides: self.hides })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Filter<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, mut seed: K) -> Result<Option<K::Value>, A::Error> {
        loop {
            match self.inner.next_key_seed(KeySeed { seed, hides: self.hides })? {
                None => return Ok(None),
                Some(Key::Visible(key)) => return Ok(Some(key)),
                Some(Key::Hidden(unused)) => {
                    seed = unused;
                    self.inner.next_value::<IgnoredAny>()?;
                }
            }
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(seed)
    }
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for KeySeed<K> {
    type Value = Key<K, K::Value>;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Self::Value, D::Error> {
        let key = String::deserialize(key)?;
        if self.hides.has(&key) {
            return Ok(Key::Hidden(self.seed));
        }
        self.seed.deserialize(key.into_deserializer()).map(Key::Visible)
    }
}
