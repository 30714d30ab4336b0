//! Who issues certificates, wherever its key is.

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
/// in a token of hardware, or behind a socket.
pub trait Signer: fmt::Debug + Send + Sync {
    /// The role of everything that it issues.
    fn role(&self) -> Role;

    /// The trust domain of everything that it issues.
    fn trust_domain(&self) -> &TrustDomain;

    /// Issues one certificate.
    ///
    /// # Errors
    /// [`SignError`]; nothing was issued then, as far as this side knows.
    fn issue(&self, order: Order) -> Issuing<'_>;
}

/// What [`Signer::issue`] returns.
pub type Issuing<'a> = Pin<Box<dyn Future<Output = Result<Issued, SignError>> + Send + 'a>>;

/// A certificate to be issued.
#[derive(Clone, Debug)]
pub struct Order {
    /// Whom it names.
    pub subject: Subject,
    /// Of which key.
    pub key: ProvenKey,
    /// The time by the issuer's clock.
    pub now: SystemTime,
    /// For how long from now on.
    pub lasting: Duration,
}

/// A certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The certificate, and the intermediates behind it that lead to a root; the root is not among them.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its serial number.
    pub serial: Serial,
    /// Its end.
    pub not_after: OffsetDateTime,
}

/// Why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// A fault of ours.
    #[error("the signer of {signer} certificates was asked for one of {asked}")]
    OtherRole {
        /// What it issues.
        signer: Role,
        /// What was asked for.
        asked: Role,
    },
    /// Too many names, or names that cannot be written.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// Nobody would accept it after the end of its issuer.
    #[error("the certificate would outlive its issuer, which ends at {0}; ask for less, or renew the issuer")]
    Outlived(OffsetDateTime),
    /// A clock or a span beyond the calendar.
    #[error("the certificate's beginning or end is not a date; check the clock")]
    Dates,
    /// None from the system.
    #[error("no random bytes for a serial number")]
    Randomness,
    /// The encoding or the signature failed.
    #[error("the certificate could not be made")]
    Make(#[source] rcgen::Error),
    /// The signer is somewhere else and cannot be asked, for now.
    #[error("the signer cannot be reached; try again")]
    Away(#[source] Box<dyn std::error::Error + Send + Sync>),
}
