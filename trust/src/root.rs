//! A root CA: made once for each role, used to make intermediates, and kept offline in between.

use std::time::SystemTime;

use rcgen::{Issuer, KeyPair};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};

use crate::ca::{self, MakeError, NotACa};
use crate::intermediate::Intermediate;
use crate::names::TrustDomain;
use crate::pin::Pin;
use crate::role::Role;

/// A root outlives everything that it issues.
const ROOT_VALIDITY: Duration = Duration::days(10 * 365);

/// A root signs intermediates, and those sign leaves.
const LEVELS: u8 = 1;

/// A root of one role, with its key.
#[derive(Debug)]
pub struct Root {
    role: Role,
    domain: TrustDomain,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    pin: Pin,
    not_after: OffsetDateTime,
}

impl Root {
    /// Makes a root with a new key.
    ///
    /// # Errors
    /// [`MakeError`].
    pub fn generate(role: Role, domain: TrustDomain, now: SystemTime) -> Result<Self, MakeError> {
        let key = ca::key()?;
        let params = ca::params(role, &domain, "root", LEVELS, now, ROOT_VALIDITY)?;
        let certificate = params.self_signed(&key)?.der().clone();
        let pin = Pin::of_spki(&rcgen::PublicKeyData::subject_public_key_info(&key));
        let not_after = params.not_after;
        Ok(Self { role, domain, certificate, issuer: Issuer::new(params, key), pin, not_after })
    }

    /// Loads the root of `role` from its stored certificate and key.
    ///
    /// # Errors
    /// [`NotACa`].
    pub fn load(
        role: Role,
        domain: TrustDomain,
        certificate: CertificateDer<'static>,
        key: KeyPair,
    ) -> Result<Self, NotACa> {
        let parsed = ca::parse(&certificate).ok_or(NotACa::Unreadable)?;
        if ca::levels(&parsed) != Some(LEVELS.into()) {
            return Err(NotACa::Constraints("a root"));
        }
        if !ca::belongs_to(&parsed, &key) {
            return Err(NotACa::Mismatch);
        }
        let (pin, not_after) = (Pin::of_certificate(&parsed), parsed.validity().not_after.to_datetime());
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(NotACa::Unusable)?;
        Ok(Self { role, domain, certificate, issuer, pin, not_after })
    }

    /// Makes an intermediate of this role. Its key may be online, where certificates are issued.
    ///
    /// # Errors
    /// [`MakeError`].
    pub fn intermediate(&self, now: SystemTime) -> Result<Intermediate, MakeError> {
        Intermediate::generate(self.role, self.domain.clone(), &self.issuer, self.not_after, now)
    }

    /// Cross-signs an intermediate of another root of this role. Peers that trust either root accept its
    /// leaves, so the old root introduces the new one's.
    ///
    /// # Errors
    /// [`MakeError`].
    pub fn cross_sign(&self, intermediate: &mut Intermediate, now: SystemTime) -> Result<(), MakeError> {
        intermediate.add_cross_signature(&self.issuer, self.not_after, now)
    }

    /// The role that it signs for.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Its certificate, which peers pin.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The pin of its key.
    #[must_use]
    pub fn pin(&self) -> Pin {
        self.pin
    }

    /// Its private key, to be stored.
    #[must_use]
    pub fn key(&self) -> &KeyPair {
        self.issuer.key()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{self, DAY, copy, domain, intermediate, now, pair, root};

    #[test]
    fn a_stored_root_loads_and_signs_as_before() {
        let kept = root(Role::Agent);

        let loaded = Root::load(Role::Agent, domain(), kept.certificate().clone(), copy(kept.key())).unwrap();

        assert_eq!((loaded.role(), loaded.certificate()), (Role::Agent, kept.certificate()));
        assert_eq!(loaded.pin(), kept.pin());
        assert_eq!(loaded.key().serialize_der(), kept.key().serialize_der());
        let below = loaded.intermediate(now() + DAY * (9 * 365)).unwrap();
        assert!(fixtures::is_signed_by(&below.certificates()[0], kept.certificate()));
        assert_eq!(below.not_after(), kept.not_after);
    }

    #[test]
    fn only_a_roots_certificate_and_its_own_key_are_a_root() {
        let load = |certificate: &CertificateDer<'static>, key| {
            Root::load(Role::Agent, domain(), certificate.clone(), key)
        };
        let (kept, below) = (root(Role::Agent), intermediate(Role::Agent));
        let leaf = fixtures::issued(Role::Agent).chain.remove(0);

        assert!(matches!(load(kept.certificate(), pair()), Err(NotACa::Mismatch)));
        let of_intermediate = load(&below.certificates()[0], copy(below.key()));
        assert!(matches!(of_intermediate, Err(NotACa::Constraints(_))), "{of_intermediate:?}");
        assert!(matches!(load(&leaf, pair()), Err(NotACa::Constraints(_))));
        assert!(matches!(load(&vec![1].into(), pair()), Err(NotACa::Unreadable)));
    }
}
