//! The trust bundle: the roots of every role, with a version, signed by server roots.

use std::time::SystemTime;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use prost::Message as _;
use proto::trust::{Bundle as WireBundle, Signature, SignedBundle};
use rcgen::{PKCS_ECDSA_P256_SHA256, SigningKey as _};
use rustls_pki_types::CertificateDer;

use crate::ca;
use crate::names::TrustDomain;
use crate::pin::Pin;
use crate::role::Role;
use crate::root::Root;

/// Largest bundle with its signatures, in bytes. It has to fit into a frame.
pub const BUNDLE_BYTES_MAX: usize = 32 * 1024;

/// Most roots of one role. More than two at a time are a mistake.
pub const ROOTS_PER_ROLE_MAX: usize = 8;

/// Most signatures of a bundle.
pub const SIGNATURES_MAX: usize = 8;

/// Prefix of every signed message, so that the signature is valid for a bundle only.
const LABEL: &[u8] = b"tombolo trust bundle 1\0";

/// The roots of every role, in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustBundle {
    version: u64,
    domain: TrustDomain,
    created_seconds: u64,
    /// In the order of [`Role::ALL`].
    roots: [Vec<CertificateDer<'static>>; Role::ALL.len()],
}

/// The server roots that a reader of bundles trusts already, as certificates or by their pins.
#[derive(Clone, Debug)]
pub struct Anchors {
    domain: TrustDomain,
    pins: Vec<Pin>,
    roots: Vec<CertificateDer<'static>>,
}

/// The reason why a bundle was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// It is larger than [`BUNDLE_BYTES_MAX`].
    #[error("the trust bundle is larger than {BUNDLE_BYTES_MAX} bytes")]
    TooLarge,
    /// The bytes are no bundle.
    #[error("it is not a trust bundle")]
    Malformed,
    /// It exceeds [`ROOTS_PER_ROLE_MAX`] or [`SIGNATURES_MAX`].
    #[error(
        "the trust bundle has more than {ROOTS_PER_ROLE_MAX} roots of a role, or {SIGNATURES_MAX} signatures"
    )]
    TooMany,
    /// Agents could dial no server any more.
    #[error("the trust bundle names no root of servers")]
    NoServers,
    /// A root is not a CA, or is listed twice.
    #[error("a root of the role {0} in the trust bundle is not a CA's certificate, or is there twice")]
    NotARoot(Role),
    /// It belongs to another trust domain.
    #[error("the trust bundle is of the trust domain {found}, not of {expected}")]
    OtherDomain {
        /// The domain of the bundle.
        found: String,
        /// The domain of the reader.
        expected: TrustDomain,
    },
    /// No trusted root has signed it.
    #[error("no root of servers that is trusted here has signed the trust bundle")]
    Untrusted,
    /// A newer bundle is known already.
    #[error("the trust bundle has version {found}, and version {current} is known already")]
    Outdated {
        /// The version of the bundle.
        found: u64,
        /// The version that the reader has.
        current: u64,
    },
    /// Another bundle of the same version exists: somebody signed two of them.
    #[error("another trust bundle of the same version {0} is known already; sign one with a higher version")]
    Conflict(u64),
}

/// The reason why a bundle was not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignBundleError {
    /// No reader would accept the signature.
    #[error("a trust bundle is signed by roots of servers whose key is ECDSA on P-256, at least by one")]
    NotByServers,
    /// Readers would refuse the bundle.
    #[error(transparent)]
    Refused(#[from] BundleError),
    /// The signature could not be computed.
    #[error("the trust bundle could not be signed")]
    Sign(#[source] rcgen::Error),
}

impl TrustBundle {
    /// An unsigned bundle of `roots`.
    ///
    /// # Errors
    /// [`BundleError`]: readers would refuse the bundle.
    pub fn new(
        version: u64,
        domain: TrustDomain,
        created: SystemTime,
        roots: impl IntoIterator<Item = (Role, CertificateDer<'static>)>,
    ) -> Result<Self, BundleError> {
        let created = created.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut bundle =
            Self { version, domain, created_seconds: created.as_secs(), roots: Default::default() };
        for (role, root) in roots {
            bundle.roots[role as usize].push(root);
        }
        bundle.check()?;
        Ok(bundle)
    }

    /// The version; each new bundle of a domain has a higher one.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The trust domain of the bundle.
    #[must_use]
    pub fn domain(&self) -> &TrustDomain {
        &self.domain
    }

    /// The time of its creation, in seconds of Unix time.
    #[must_use]
    pub fn created_seconds(&self) -> u64 {
        self.created_seconds
    }

    /// The trusted roots of `role`.
    #[must_use]
    pub fn roots(&self, role: Role) -> &[CertificateDer<'static>] {
        &self.roots[role as usize]
    }

    /// Encodes the bundle, signed by these server roots. A reader that trusts one of them accepts it, so the
    /// old root's signature introduces a new root.
    ///
    /// # Errors
    /// [`SignBundleError`].
    pub fn sign(&self, by: &[&Root]) -> Result<Vec<u8>, SignBundleError> {
        let bundle = self.to_wire().encode_to_vec();
        let message = [LABEL, &bundle].concat();
        let mut signatures = Vec::new();
        for root in by {
            let key = root.key();
            if root.role() != Role::Server || *key.algorithm() != PKCS_ECDSA_P256_SHA256 {
                return Err(SignBundleError::NotByServers);
            }
            let signature = key.sign(&message).map_err(SignBundleError::Sign)?;
            signatures.push(Signature { pin: root.pin().as_bytes().to_vec(), signature });
        }
        if signatures.is_empty() {
            return Err(SignBundleError::NotByServers);
        }
        let bytes = SignedBundle { bundle, signatures }.encode_to_vec();
        // Validated as a reader does.
        read(&bytes)?;
        Ok(bytes)
    }

    /// Decodes the bundle in `bytes` without verifying its signatures: only to show it.
    ///
    /// # Errors
    /// [`BundleError`], of its form.
    pub fn decode_unverified(bytes: &[u8]) -> Result<Self, BundleError> {
        read(bytes).map(|(bundle, _)| bundle)
    }

    fn check(&self) -> Result<(), BundleError> {
        if self.roots.iter().any(|roots| roots.len() > ROOTS_PER_ROLE_MAX) {
            return Err(BundleError::TooMany);
        }
        if self.roots(Role::Server).is_empty() {
            return Err(BundleError::NoServers);
        }
        let mut pins = Vec::new();
        for role in Role::ALL {
            for root in self.roots(role) {
                let pin =
                    pin_of_ca(root).filter(|pin| !pins.contains(pin)).ok_or(BundleError::NotARoot(role))?;
                pins.push(pin);
            }
        }
        Ok(())
    }

    fn to_wire(&self) -> WireBundle {
        let ders = |role: Role| self.roots(role).iter().map(|root| root.to_vec()).collect();
        WireBundle {
            version: self.version,
            trust_domain: self.domain.to_string(),
            created_seconds: self.created_seconds,
            server_roots: ders(Role::Server),
            agent_roots: ders(Role::Agent),
            caller_roots: ders(Role::Caller),
            admin_roots: ders(Role::Admin),
            peer_roots: ders(Role::Peer),
        }
    }
}

impl Anchors {
    /// Anchors of `domain` without any root yet.
    #[must_use]
    pub fn new(domain: TrustDomain) -> Self {
        Self { domain, pins: Vec::new(), roots: Vec::new() }
    }

    /// Adds a server root by its pin.
    #[must_use]
    pub fn and_pin(mut self, pin: Pin) -> Self {
        self.pins.push(pin);
        self
    }

    /// Adds these server roots. A certificate that is not a CA's is left out.
    #[must_use]
    pub fn and_roots(mut self, roots: &[CertificateDer<'static>]) -> Self {
        for root in roots {
            if let Some(pin) = pin_of_ca(root) {
                self.pins.push(pin);
                self.roots.push(root.clone());
            }
        }
        self
    }

    /// Anchors of the same domain with only these server roots.
    #[must_use]
    pub fn replaced_by(&self, roots: &[CertificateDer<'static>]) -> Self {
        Self::new(self.domain.clone()).and_roots(roots)
    }

    /// A fingerprint of the set, independent of order: two sets with the same fingerprint trust the same roots.
    #[must_use]
    pub fn mark(&self) -> Pin {
        let mut pins = self.pins.clone();
        pins.sort_unstable();
        pins.dedup();
        let bytes: Vec<u8> =
            pins.iter().flat_map(|pin| *pin.as_bytes()).chain(self.domain.as_str().bytes()).collect();
        Pin::of_spki(&bytes)
    }

    /// Verifies the bundle in `bytes`: one of these roots has signed it, and it is newer than `current`. Returns `None` if it
    /// is `current` itself.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn accept(
        &self,
        bytes: &[u8],
        current: Option<&TrustBundle>,
    ) -> Result<Option<TrustBundle>, BundleError> {
        let (bundle, signed) = read(bytes)?;
        if bundle.domain != self.domain {
            let found = bundle.domain.to_string();
            return Err(BundleError::OtherDomain { found, expected: self.domain.clone() });
        }
        if !signed
            .signatures
            .iter()
            .any(|signature| self.is_signed_by_anchor(&bundle, &signed.bundle, signature))
        {
            return Err(BundleError::Untrusted);
        }
        match current {
            Some(current) if bundle.version < current.version => {
                Err(BundleError::Outdated { found: bundle.version, current: current.version })
            }
            Some(current) if bundle == *current => Ok(None),
            Some(current) if bundle.version == current.version => Err(BundleError::Conflict(current.version)),
            Some(_) | None => Ok(Some(bundle)),
        }
    }

    fn is_signed_by_anchor(&self, bundle: &TrustBundle, bytes: &[u8], signature: &Signature) -> bool {
        let Ok(pin) = <[u8; 32]>::try_from(signature.pin.as_slice()).map(Pin::from) else { return false };
        if !self.pins.contains(&pin) {
            return false;
        }
        let message = [LABEL, bytes].concat();
        // The certificate of a root that is known only by its pin is in the bundle itself.
        let mut known = self.roots.iter().chain(bundle.roots(Role::Server));
        known.any(|root| {
            let Some(root) = ca::parse(root).filter(|root| Pin::of_certificate(root) == pin) else {
                return false;
            };
            let key = &root.public_key().subject_public_key.data;
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key)
                .verify(&message, &signature.signature)
                .is_ok()
        })
    }
}

fn read(bytes: &[u8]) -> Result<(TrustBundle, SignedBundle), BundleError> {
    if bytes.len() > BUNDLE_BYTES_MAX {
        return Err(BundleError::TooLarge);
    }
    let signed = SignedBundle::decode(bytes).map_err(|_| BundleError::Malformed)?;
    let wire = WireBundle::decode(signed.bundle.as_slice()).map_err(|_| BundleError::Malformed)?;
    if signed.signatures.len() > SIGNATURES_MAX {
        return Err(BundleError::TooMany);
    }
    if wire.version == 0 {
        return Err(BundleError::Malformed);
    }
    let WireBundle {
        version,
        trust_domain,
        created_seconds,
        server_roots,
        agent_roots,
        caller_roots,
        admin_roots,
        peer_roots,
    } = wire;
    let domain = trust_domain.parse().map_err(|_| BundleError::Malformed)?;
    let roots = [server_roots, agent_roots, caller_roots, admin_roots, peer_roots]
        .map(|ders| ders.into_iter().map(CertificateDer::from).collect());
    let bundle = TrustBundle { version, domain, created_seconds, roots };
    bundle.check()?;
    Ok((bundle, signed))
}

fn pin_of_ca(certificate: &CertificateDer<'_>) -> Option<Pin> {
    ca::parse(certificate).filter(|certificate| certificate.is_ca()).map(|root| Pin::of_certificate(&root))
}

#[cfg(test)]
mod tests;
