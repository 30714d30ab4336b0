//! The interface of everything that issues certificates, wherever its key is.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::key::ProvenKey;
use crate::names::TrustDomain;
use crate::role::Role;
use crate::serial::Serial;
use crate::subject::{Subject, SubjectError};

/// Certificates are valid a little before they are made, for peers whose clocks are behind.
pub const BACKDATED: Duration = Duration::from_secs(5 * 60);

/// Issues certificates of one role in one trust domain. Its key may be in this process ([`Intermediate`](crate::Intermediate)),
/// in a hardware token, or behind a socket.
pub trait Signer: fmt::Debug + Send + Sync {
    /// The role of everything that it issues.
    fn role(&self) -> Role;

    /// The trust domain of everything that it issues.
    fn trust_domain(&self) -> &TrustDomain;

    /// Issues one certificate for `order`.
    ///
    /// # Errors
    /// [`SignError`]; nothing was issued then, as far as this side knows.
    fn issue(&self, order: Order) -> Issuing<'_>;
}

/// The future that [`Signer::issue`] returns.
pub type Issuing<'a> = Pin<Box<dyn Future<Output = Result<Issued, SignError>> + Send + 'a>>;

/// A certificate to be issued.
#[derive(Clone, Debug)]
pub struct Order {
    /// The subject that it names.
    pub subject: Subject,
    /// The public key that it certifies.
    pub key: ProvenKey,
    /// The current time of the issuer's clock.
    pub now: SystemTime,
    /// The validity from now on.
    pub lasting: Duration,
}

/// A certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The certificate, and the intermediates behind it that lead to a root; the root is not among them.
    pub chain: Vec<CertificateDer<'static>>,
    /// The serial number of the certificate.
    pub serial: Serial,
    /// The end of its validity.
    pub not_after: OffsetDateTime,
}

/// The reason why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The order has another role. This is a bug in the caller.
    #[error("the signer of {signer} certificates was asked for one of {asked}")]
    OtherRole {
        /// The role that the signer issues.
        signer: Role,
        /// The role that was ordered.
        asked: Role,
    },
    /// The subject has too many names, or names that X.509 cannot encode.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// It would end after its issuer, when no peer accepts it.
    #[error("the certificate would outlive its issuer, which ends at {0}; ask for less, or renew the issuer")]
    Outlived(OffsetDateTime),
    /// The clock or the validity is beyond the calendar.
    #[error("the certificate's beginning or end is not a date; check the clock")]
    Dates,
    /// The system gave no random bytes.
    #[error("no random bytes for a serial number")]
    Randomness,
    /// The encoding or the signature failed.
    #[error("the certificate could not be made")]
    Make(#[source] rcgen::Error),
    /// A remote signer cannot be reached now.
    #[error("the signer cannot be reached; try again")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
}
