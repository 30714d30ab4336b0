//! The keys that are recorded of a cluster's issuer: public ones that verify, and nothing else of what was sent.

use std::fmt;

use proto::enrollment::ISSUER_KEYS_BYTES_MAX;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::jwt::Jwt;
use super::super::keys::{KeySet, KeySetError, Signed};

/// Most keys of an issuer that are recorded. An API server has one, and two while they are replaced.
pub const ISSUER_KEYS_MAX: usize = 16;

/// Longest name of a key, in bytes. They are shown to people.
const NAME_BYTES_MAX: usize = 256;

/// Keys of one issuer, none of which stands twice, by its name or by itself.
#[derive(Clone)]
pub struct IssuerKeys {
    written: Vec<PublicKey>,
    set: KeySet,
}

/// What is recorded of a key (RFC 7517 and 7518).
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

/// The key itself.
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

/// Why what was sent are no keys that can be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IssuerKeysError {
    /// More than [`ISSUER_KEYS_BYTES_MAX`].
    #[error("the issuer's keys have more than {ISSUER_KEYS_BYTES_MAX} bytes")]
    TooLarge,
    /// More than [`ISSUER_KEYS_MAX`].
    #[error("the issuer has more than {ISSUER_KEYS_MAX} keys")]
    TooMany,
    /// A name that nobody would give a key.
    #[error("the name of a key has more than {NAME_BYTES_MAX} bytes, or others than printable ASCII")]
    Name,
    /// Two of one name, or one twice.
    #[error("of the issuer's keys two have one name, or are one")]
    Twice,
    /// No set, or no key of use.
    #[error(transparent)]
    KeySet(#[from] KeySetError),
}

/// Why keys are not added to those that are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddKeysError {
    /// Whoever sends them may be anybody.
    #[error("none of them is recorded already")]
    NoneKnown,
    /// A recorded key's name is another's now.
    #[error("one bears the name of another key that is recorded")]
    Renamed,
    /// There is no room.
    #[error("with them there would be more than {ISSUER_KEYS_MAX}")]
    Full,
}

impl IssuerKeys {
    /// Reads a JSON Web VerificationKey Set. Keys that verify nothing are left out, and of the others all that is not the public key.
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

    fn of(written: Vec<PublicKey>) -> Result<Self, IssuerKeysError> {
        let is_name =
            |name: &String| name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !written.iter().filter_map(|key| key.kid.as_ref()).all(is_name) {
            return Err(IssuerKeysError::Name);
        }
        let is_twice = |(at, key): (usize, &PublicKey)| {
            written[..at].iter().any(|other| other.kid == key.kid || other.material == key.material)
        };
        if written.iter().enumerate().any(is_twice) {
            return Err(IssuerKeysError::Twice);
        }
        let set = KeySet::parse(document(&written).as_bytes())?;
        Ok(Self { written, set })
    }

    /// As they are recorded: a JSON Web VerificationKey Set.
    #[must_use]
    pub fn to_json(&self) -> String {
        document(&self.written)
    }

    /// The names of the keys; `<none>` of one that has none.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.written.iter().map(|key| key.kid.as_deref().unwrap_or("<none>"))
    }

    /// These and those of `shown` that are new, if one of `shown` is among these; `None` where nothing is new.
    ///
    /// # Errors
    ///
    /// [`AddKeysError`].
    pub fn with(&self, shown: &Self) -> Result<Option<Self>, AddKeysError> {
        let is_known = |key: &PublicKey| self.written.iter().any(|known| known.material == key.material);
        let (known, new): (Vec<_>, Vec<_>) = shown.written.iter().cloned().partition(is_known);
        if new.is_empty() {
            return Ok(None);
        }
        if known.is_empty() {
            return Err(AddKeysError::NoneKnown);
        }
        if self.written.len() + new.len() > ISSUER_KEYS_MAX {
            return Err(AddKeysError::Full);
        }
        let all = self.written.iter().cloned().chain(new).collect();
        // Each of them verifies, so that a name is all that can stand twice.
        Self::of(all).map(Some).map_err(|_| AddKeysError::Renamed)
    }

    pub(super) fn signed(&self, jwt: &Jwt<'_>) -> Signed {
        self.set.signed(jwt)
    }
}

impl PublicKey {
    /// Whether it is one that signatures can be verified by.
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
