//! The recorded keys of a cluster's issuer: public keys that can verify, and nothing else of the sent
//! document.

use std::fmt;

use proto::enrollment::ISSUER_KEYS_BYTES_MAX;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::jwt::Jwt;
use super::super::keys::{KeySet, KeySetError, Signed};

/// Most recorded keys of an issuer. An API server has one, and two while they are replaced.
pub const ISSUER_KEYS_MAX: usize = 16;

/// Longest ID of a key, in bytes. Administrators see it.
const NAME_BYTES_MAX: usize = 256;

/// Keys of one issuer, without duplicate IDs or keys.
#[derive(Clone)]
pub struct IssuerKeys {
    recorded: Vec<PublicKey>,
    set: KeySet,
}

/// The recorded form of a key (RFC 7517 and 7518).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PublicKey {
    kty: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alg: Option<String>,
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    purpose: Option<String>,
    #[serde(flatten)]
    material: Material,
}

/// The numbers of the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Material {
    #[serde(skip_serializing_if = "Option::is_none")]
    crv: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    x: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct PublicKeySet<K> {
    keys: Vec<K>,
}

/// The reason why keys cannot be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IssuerKeysError {
    /// The document has more than [`ISSUER_KEYS_BYTES_MAX`].
    #[error("the issuer's keys have more than {ISSUER_KEYS_BYTES_MAX} bytes")]
    TooLarge,
    /// It has more than [`ISSUER_KEYS_MAX`].
    #[error("the issuer has more than {ISSUER_KEYS_MAX} keys")]
    TooMany,
    /// The ID of a key has unusual characters or is too long.
    #[error("the name of a key has more than {NAME_BYTES_MAX} bytes, or others than printable ASCII")]
    Name,
    /// Two keys have the same ID, or are the same.
    #[error("of the issuer's keys two have one name, or are one")]
    Twice,
    /// It is no key set, or has no usable key.
    #[error(transparent)]
    KeySet(#[from] KeySetError),
}

/// The reason why keys are not added to the recorded ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddKeysError {
    /// None of the keys is recorded, so anyone could have sent them.
    #[error("none of them is recorded already")]
    NoneKnown,
    /// A recorded key's ID belongs to another key now.
    #[error("one bears the name of another key that is recorded")]
    Renamed,
    /// There is no room for them.
    #[error("with them there would be more than {ISSUER_KEYS_MAX}")]
    Full,
}

impl IssuerKeys {
    /// Parses a JSON Web Key Set. Keys that cannot verify are left out, and so is every part that is not the
    /// public key.
    ///
    /// # Errors
    ///
    /// [`IssuerKeysError`].
    pub fn parse(json: &[u8]) -> Result<Self, IssuerKeysError> {
        if json.len() > ISSUER_KEYS_BYTES_MAX {
            return Err(IssuerKeysError::TooLarge);
        }
        let PublicKeySet { keys } =
            serde_json::from_slice::<PublicKeySet<Value>>(json).map_err(|_| KeySetError::Shape)?;
        if keys.len() > ISSUER_KEYS_MAX {
            return Err(IssuerKeysError::TooMany);
        }
        let public = |key| serde_json::from_value::<PublicKey>(key).ok().filter(PublicKey::verifies);
        Self::of(keys.into_iter().filter_map(public).collect())
    }

    fn of(recorded: Vec<PublicKey>) -> Result<Self, IssuerKeysError> {
        let is_name =
            |name: &String| name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !recorded.iter().filter_map(|key| key.kid.as_ref()).all(is_name) {
            return Err(IssuerKeysError::Name);
        }
        let is_twice = |(at, key): (usize, &PublicKey)| {
            recorded[..at].iter().any(|other| other.kid == key.kid || other.material == key.material)
        };
        if recorded.iter().enumerate().any(is_twice) {
            return Err(IssuerKeysError::Twice);
        }
        let set = KeySet::parse(document(&recorded).as_bytes())?;
        Ok(Self { recorded, set })
    }

    /// The recorded form: a JSON Web Key Set.
    #[must_use]
    pub fn to_json(&self) -> String {
        document(&self.recorded)
    }

    /// The IDs of the keys; `<none>` for one without an ID.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.recorded.iter().map(|key| key.kid.as_deref().unwrap_or("<none>"))
    }

    /// These keys and the new ones of `shown`, if one of `shown` is among these; `None` if none is new.
    ///
    /// # Errors
    ///
    /// [`AddKeysError`].
    pub fn with(&self, shown: &Self) -> Result<Option<Self>, AddKeysError> {
        let is_known = |key: &PublicKey| self.recorded.iter().any(|known| known.material == key.material);
        let (known, new): (Vec<_>, Vec<_>) = shown.recorded.iter().cloned().partition(is_known);
        if new.is_empty() {
            return Ok(None);
        }
        if known.is_empty() {
            return Err(AddKeysError::NoneKnown);
        }
        if self.recorded.len() + new.len() > ISSUER_KEYS_MAX {
            return Err(AddKeysError::Full);
        }
        let all = self.recorded.iter().cloned().chain(new).collect();
        // Each key is valid, so that only an ID can be a duplicate.
        Self::of(all).map(Some).map_err(|_| AddKeysError::Renamed)
    }

    pub(super) fn signed(&self, jwt: &Jwt<'_>) -> Signed {
        self.set.signed(jwt)
    }
}

impl PublicKey {
    /// Returns true if the key can verify signatures.
    fn verifies(&self) -> bool {
        KeySet::parse(document(std::slice::from_ref(self)).as_bytes()).is_ok()
    }
}

impl fmt::Debug for IssuerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

fn document(keys: &[PublicKey]) -> String {
    serde_json::json!({ "keys": keys }).to_string()
}
