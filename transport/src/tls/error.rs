//! The reasons why TLS cannot be set up.

use rustls::server::VerifierBuilderError;

/// The reason why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A root certificate that cannot be used.
    #[error("a root certificate cannot be used")]
    Root(#[source] rustls::Error),
    /// No root was given, which would mean to trust nobody, or everybody.
    #[error("no root certificate was given")]
    NoRoots,
    /// The verifier for the other side's certificates cannot be built.
    #[error("the verifier of certificates cannot be built")]
    Verifier(#[from] VerifierBuilderError),
    /// The certificate and its key do not fit, or are of a kind that is not supported.
    #[error("the certificate and its key cannot be used together")]
    Certificate(#[source] rustls::Error),
    /// The provider lacks what QUIC needs.
    #[error("the cryptography provider cannot be used for QUIC")]
    Provider(#[source] rustls::Error),
}
