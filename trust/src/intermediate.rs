//! An intermediate CA whose key is in this process: the default [`Signer`].

use std::fmt;
use std::time::SystemTime;

use proto::spiffe::AgentId;
use rcgen::{CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::X509Certificate;

use crate::ca::{self, MakeError, NotACa};
use crate::key::ProvenKey;
use crate::names::TrustDomain;
use crate::organizations;
use crate::role::Role;
use crate::serial::Serial;
use crate::signer::{Issued, Issuing, Order, SignError, Signer};
use crate::subject::{Subject, SubjectError};

/// Most certificates of one intermediate: by the current root, and by earlier ones.
pub const CERTIFICATES_MAX: usize = 4;

/// The validity of an intermediate. It is renewed with the root at hand, every other year at the latest.
pub const INTERMEDIATE_VALIDITY: Duration = Duration::days(3 * 365);

/// The validity of a certificate that tries a signer out, and is then dropped.
const TRIAL_VALIDITY: std::time::Duration = std::time::Duration::from_secs(60);

/// An intermediate signs leaves and nothing else.
const LEVELS: u8 = 0;

/// Signs the certificates of one role. It may not sign CAs, nor for another purpose than its role's.
pub struct Intermediate {
    role: Role,
    domain: TrustDomain,
    /// Certificates of this one key, the current root's first. A peer that trusts any of their roots accepts
    /// the issued leaves.
    certificates: Vec<CertificateDer<'static>>,
    issuer: Issuer<'static, KeyPair>,
    not_after: OffsetDateTime,
}

impl Intermediate {
    /// Makes an intermediate below `root`, which ends at `root_ends`.
    pub(crate) fn generate(
        role: Role,
        domain: TrustDomain,
        root: &Issuer<'_, KeyPair>,
        root_ends: OffsetDateTime,
        now: SystemTime,
    ) -> Result<Self, MakeError> {
        let key = ca::key()?;
        let params = params(role, &domain, root_ends, now)?;
        let certificate = params.signed_by(&key, root)?.der().clone();
        let not_after = params.not_after;
        Ok(Self {
            role,
            domain,
            certificates: vec![certificate],
            issuer: Issuer::new(params, key),
            not_after,
        })
    }

    /// Adds a certificate of the same key by another root.
    pub(crate) fn add_cross_signature(
        &mut self,
        root: &Issuer<'_, KeyPair>,
        root_ends: OffsetDateTime,
        now: SystemTime,
    ) -> Result<(), MakeError> {
        let params = params(self.role, &self.domain, root_ends, now)?;
        self.certificates.push(params.signed_by(self.issuer.key(), root)?.der().clone());
        Ok(())
    }

    /// Loads the intermediate of `role` from its stored certificates and key.
    ///
    /// # Errors
    /// [`NotACa`].
    pub fn load(
        role: Role,
        domain: TrustDomain,
        certificates: Vec<CertificateDer<'static>>,
        key: KeyPair,
    ) -> Result<Self, NotACa> {
        let wrong = NotACa::Constraints("an intermediate of this role");
        let Some(first) = certificates.first().filter(|_| certificates.len() <= CERTIFICATES_MAX) else {
            return Err(wrong);
        };
        let mut not_after = None;
        for der in &certificates {
            let certificate = ca::parse(der).ok_or(NotACa::Unreadable)?;
            if ca::levels(&certificate) != Some(LEVELS.into()) || !is_for(&certificate, role) {
                return Err(wrong);
            }
            if !ca::belongs_to(&certificate, &key) {
                return Err(NotACa::Mismatch);
            }
            not_after.get_or_insert_with(|| certificate.validity().not_after.to_datetime());
        }
        let not_after = not_after.ok_or(wrong)?;
        let issuer = Issuer::from_ca_cert_der(first, key).map_err(NotACa::Unusable)?;
        Ok(Self { role, domain, certificates, issuer, not_after })
    }

    /// Its certificates, that of the current root first.
    #[must_use]
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// The end of its validity.
    #[must_use]
    pub fn not_after(&self) -> OffsetDateTime {
        self.not_after
    }

    /// Its key, to be sealed.
    pub(crate) fn key(&self) -> &KeyPair {
        self.issuer.key()
    }

    /// Issues an agent's certificate of a minute to nobody, which shows if listeners accept what this signer issues.
    ///
    /// # Errors
    /// [`SignError`], as [`Self::sign`].
    pub fn sign_trial(&self, now: SystemTime) -> Result<Issued, SignError> {
        // Its own public key stands for an agent's: nobody uses the certificate.
        let key = ProvenKey::of_pair(self.key());
        let key = key.ok_or(SignError::Make(rcgen::Error::UnsupportedSignatureAlgorithm))?;
        let agent = "trial".parse().ok().and_then(|cluster| AgentId::new(cluster, "trial"));
        let agent = agent.ok_or_else(|| SubjectError::Letters("trial".to_owned()))?;
        self.sign(&Order { subject: Subject::Agent(agent), key, now, lasting: TRIAL_VALIDITY })
    }

    /// Issues a certificate at once.
    ///
    /// # Errors
    /// [`SignError`], but never `Unreachable`.
    pub fn sign(&self, order: &Order) -> Result<Issued, SignError> {
        let subject = &order.subject;
        if subject.role() != self.role {
            return Err(SignError::OtherRole { signer: self.role, asked: subject.role() });
        }
        let serial = Serial::random().ok_or(SignError::Randomness)?;
        let lasting = Duration::try_from(order.lasting).map_err(|_| SignError::Dates)?;
        let (not_before, not_after) = ca::dates(order.now, lasting).ok_or(SignError::Dates)?;
        if not_after > self.not_after {
            return Err(SignError::Outlived(self.not_after));
        }
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from_slice(&serial.to_bytes()));
        (params.not_before, params.not_after) = (not_before, not_after);
        params.distinguished_name = subject.distinguished_name();
        params.subject_alt_names = subject.alternative_names(&self.domain)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![self.role.purpose()];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&order.key, &self.issuer).map_err(SignError::Make)?;
        let certificate = match subject {
            Subject::Caller { user, groups } if !groups.is_empty() => {
                organizations::with_organizations(certificate.der(), user, groups, self.key())
                    .map_err(SignError::Make)?
            }
            Subject::Caller { .. }
            | Subject::Server { .. }
            | Subject::Agent(_)
            | Subject::Admin { .. }
            | Subject::Peer { .. } => certificate.der().clone(),
        };
        let chain = [certificate].into_iter().chain(self.certificates.iter().cloned()).collect();
        Ok(Issued { chain, serial, not_after })
    }
}

impl Signer for Intermediate {
    fn role(&self) -> Role {
        self.role
    }

    fn trust_domain(&self) -> &TrustDomain {
        &self.domain
    }

    fn issue(&self, order: Order) -> Issuing<'_> {
        Box::pin(async move { self.sign(&order) })
    }
}

impl fmt::Debug for Intermediate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Intermediate");
        shown.field("role", &self.role).field("domain", &self.domain).finish_non_exhaustive()
    }
}

fn params(
    role: Role,
    domain: &TrustDomain,
    root_ends: OffsetDateTime,
    now: SystemTime,
) -> Result<CertificateParams, MakeError> {
    let mut params = ca::params(role, domain, "intermediate", LEVELS, now, INTERMEDIATE_VALIDITY)?;
    params.not_after = params.not_after.min(root_ends);
    // On a CA's certificate this binds everything below it.
    params.extended_key_usages = vec![role.purpose()];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn is_for(certificate: &X509Certificate<'_>, role: Role) -> bool {
    let usage = certificate.extended_key_usage().ok().flatten();
    usage.is_some_and(|usage| ca::is_bound_to(usage.value, role))
}

#[cfg(test)]
mod tests;
