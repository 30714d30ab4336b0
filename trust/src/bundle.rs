//! Whom the members of a trust domain trust: every role's roots, with a version, signed by the roots of servers.

use std::time::SystemTime;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use prost::Message as _;
use proto::trust::{Bundle as Written, Signature, SignedBundle};
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

/// Most signatures that are looked at.
pub const SIGNATURES_MAX: usize = 8;

/// Tells a bundle's signature from every other of the same key.
const LABEL: &[u8] = b"tombolo trust bundle 1\0";

/// Every role's roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustBundle {
    version: u64,
    domain: TrustDomain,
    created_seconds: u64,
    /// In the order of [`Role::ALL`].
    roots: [Vec<CertificateDer<'static>>; 4],
}

/// Whom a reader of bundles trusts already: roots of servers, in whole or by their pins.
#[derive(Clone, Debug)]
pub struct Anchors {
    domain: TrustDomain,
    pins: Vec<Pin>,
    roots: Vec<CertificateDer<'static>>,
}

/// Why a bundle is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// Beyond [`BUNDLE_BYTES_MAX`].
    #[error("the trust bundle is larger than {BUNDLE_BYTES_MAX} bytes")]
    TooLarge,
    /// Not a bundle.
    #[error("it is not a trust bundle")]
    Malformed,
    /// Beyond [`ROOTS_PER_ROLE_MAX`] or [`SIGNATURES_MAX`].
    #[error(
        "the trust bundle has more than {ROOTS_PER_ROLE_MAX} roots of a role, or {SIGNATURES_MAX} signatures"
    )]
    TooMany,
    /// Nobody could be dialed any more.
    #[error("the trust bundle names no root of servers")]
    NoServers,
    /// A root that is none, or one of two roles.
    #[error("a root of the role {0} in the trust bundle is not a CA's certificate, or is there twice")]
    NotARoot(Role),
    /// Another domain's.
    #[error("the trust bundle is of the trust domain {found}, not of {expected}")]
    OtherDomain {
        /// Its own.
        found: String,
        /// The reader's.
        expected: TrustDomain,
    },
    /// Nobody whom the reader trusts has signed it.
    #[error("no root of servers that is trusted here has signed the trust bundle")]
    Stranger,
    /// It was superseded.
    #[error("the trust bundle has version {found}, and version {held} is held already")]
    Older {
        /// Its own.
        found: u64,
        /// The reader's.
        held: u64,
    },
    /// Two bundles of one version: somebody signed without looking.
    #[error("another trust bundle of the same version {0} is held already; sign one with a higher version")]
    Conflict(u64),
}

/// Why a bundle was not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignBundleError {
    /// Nobody would believe it.
    #[error("a trust bundle is signed by roots of servers whose key is ECDSA on P-256, at least by one")]
    NotByServers,
    /// What its readers would say.
    #[error(transparent)]
    Refused(#[from] BundleError),
    /// The signature failed.
    #[error("the trust bundle could not be signed")]
    Sign(#[source] rcgen::Error),
}

impl TrustBundle {
    /// A bundle of `roots`, before it is signed.
    ///
    /// # Errors
    /// What its readers would say: [`BundleError`].
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

    /// Which of the domain's bundles this is.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The domain that it is for.
    #[must_use]
    pub fn domain(&self) -> &TrustDomain {
        &self.domain
    }

    /// When it was made, in seconds of Unix time.
    #[must_use]
    pub fn created_seconds(&self) -> u64 {
        self.created_seconds
    }

    /// The roots of `role`.
    #[must_use]
    pub fn roots(&self, role: Role) -> &[CertificateDer<'static>] {
        &self.roots[role as usize]
    }

    /// The bundle in bytes, signed by these roots of servers. Whoever trusts one of them takes it, so a new root is brought
    /// in by the old one's signature.
    ///
    /// # Errors
    /// [`SignBundleError`].
    pub fn sign(&self, by: &[&Root]) -> Result<Vec<u8>, SignBundleError> {
        let bundle = self.written().encode_to_vec();
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
        // As its readers will.
        read(&bytes)?;
        Ok(bytes)
    }

    /// The bundle in `bytes`, whoever signed it: for people to look at.
    ///
    /// # Errors
    /// [`BundleError`], of its form.
    pub fn look(bytes: &[u8]) -> Result<Self, BundleError> {
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

    fn written(&self) -> Written {
        let ders = |role: Role| self.roots(role).iter().map(|root| root.to_vec()).collect();
        Written {
            version: self.version,
            trust_domain: self.domain.to_string(),
            created_seconds: self.created_seconds,
            server_roots: ders(Role::Server),
            agent_roots: ders(Role::Agent),
            caller_roots: ders(Role::Caller),
            admin_roots: ders(Role::Admin),
        }
    }
}

impl Anchors {
    /// Of `domain`, nobody yet.
    #[must_use]
    pub fn new(domain: TrustDomain) -> Self {
        Self { domain, pins: Vec::new(), roots: Vec::new() }
    }

    /// And a root of servers by its pin alone.
    #[must_use]
    pub fn and_pin(mut self, pin: Pin) -> Self {
        self.pins.push(pin);
        self
    }

    /// And these roots of servers. What is no CA's certificate is left out.
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

    /// Of the same domain, these roots of servers and nobody else.
    #[must_use]
    pub fn replaced_by(&self, roots: &[CertificateDer<'static>]) -> Self {
        Self::new(self.domain.clone()).and_roots(roots)
    }

    /// Names them all, in whatever order they came: two sets of anchors with the same name trust the same.
    #[must_use]
    pub fn mark(&self) -> Pin {
        let mut pins = self.pins.clone();
        pins.sort_unstable();
        pins.dedup();
        let bytes: Vec<u8> =
            pins.iter().flat_map(|pin| *pin.as_bytes()).chain(self.domain.as_str().bytes()).collect();
        Pin::of_spki(&bytes)
    }

    /// The bundle in `bytes`, if one of these roots has signed it, and if it is newer than the one that is `held`; `None`
    /// where it is that one.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn accept(
        &self,
        bytes: &[u8],
        held: Option<&TrustBundle>,
    ) -> Result<Option<TrustBundle>, BundleError> {
        let (bundle, signed) = read(bytes)?;
        if bundle.domain != self.domain {
            let found = bundle.domain.to_string();
            return Err(BundleError::OtherDomain { found, expected: self.domain.clone() });
        }
        if !signed.signatures.iter().any(|signature| self.vouches(&bundle, &signed.bundle, signature)) {
            return Err(BundleError::Stranger);
        }
        match held {
            Some(held) if bundle.version < held.version => {
                Err(BundleError::Older { found: bundle.version, held: held.version })
            }
            Some(held) if bundle == *held => Ok(None),
            Some(held) if bundle.version == held.version => Err(BundleError::Conflict(held.version)),
            Some(_) | None => Ok(Some(bundle)),
        }
    }

    fn vouches(&self, bundle: &TrustBundle, bytes: &[u8], signature: &Signature) -> bool {
        let Ok(pin) = <[u8; 32]>::try_from(signature.pin.as_slice()).map(Pin::from) else { return false };
        if !self.pins.contains(&pin) {
            return false;
        }
        let message = [LABEL, bytes].concat();
        // A root that is known by its pin alone stands in the bundle itself.
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
    let written = Written::decode(signed.bundle.as_slice()).map_err(|_| BundleError::Malformed)?;
    if signed.signatures.len() > SIGNATURES_MAX {
        return Err(BundleError::TooMany);
    }
    if written.version == 0 {
        return Err(BundleError::Malformed);
    }
    let Written {
        version,
        trust_domain,
        created_seconds,
        server_roots,
        agent_roots,
        caller_roots,
        admin_roots,
    } = written;
    let domain = trust_domain.parse().map_err(|_| BundleError::Malformed)?;
    let roots = [server_roots, agent_roots, caller_roots, admin_roots]
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
