//! TLS to API servers: the cluster's CA alone is trusted. The kubelet's client certificate is used once it is
//! there, and read again as it rotates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api_servers::{BundleError, ServerCertificateVerifier};
use aws_lc_rs::digest::{SHA256, digest};
use daemon::config::describe_pem_error;
use daemon::{FollowedFiles, Scope, follow_files, read_bounded};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::version::{TLS12, TLS13};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::sync::watch;
use tracing::{info, warn};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::config::TlsFiles;

/// Largest file with certificates or keys. 1 MiB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

const HTTP_1_1: &[u8] = b"http/1.1";

/// The trust in API servers and our credential, as the files have them. Clones share them.
#[derive(Debug, Clone)]
pub struct Tls {
    files: Arc<TlsFiles>,
    current: watch::Sender<Arc<Identity>>,
}

/// The content of the files at one moment.
pub struct Identity {
    /// The configuration of connections to API servers.
    pub config: Arc<ClientConfig>,
    /// The name that their certificates must bear.
    pub server_name: ServerName<'static>,
    /// The SHA-256 of each CA's public key, as `sha256:` and 64 digits.
    pub ca_keys: Vec<String>,
    /// True if there is a client certificate.
    pub has_certificate: bool,
    /// The content of the CA's file, of the certificate and of its key.
    content: [Option<Vec<u8>>; 3],
}

/// The files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file is larger than 1 MiB.
    #[error("{} is larger than {FILE_BYTES_MAX} bytes", .0.display())]
    TooLarge(PathBuf),
    /// The CA's file has no certificate.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The certificate or its key is not PEM.
    #[error("{}: {fault}", path.display())]
    NotPem {
        /// The path of the file.
        path: PathBuf,
        /// The fault, without a quotation.
        fault: &'static str,
    },
    /// The library does not accept the certificate with this key.
    #[error("the client certificate cannot be used with its key")]
    Refused(#[source] rustls::Error),
}

impl Tls {
    /// Reads the files. The client certificate may be missing: a kubelet gets its first one through us.
    ///
    /// # Errors
    /// [`TlsError`] if the CA cannot be read, or the certificate is there and cannot be used.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let identity = Identity::read(&files)?;
        if !identity.has_certificate {
            info!("there is no client certificate yet, so the API servers are not asked for their list");
        }
        Ok(Self { files: Arc::new(files), current: watch::Sender::new(Arc::new(identity)) })
    }

    /// The content of the files as it is now.
    #[must_use]
    pub fn current(&self) -> Arc<Identity> {
        Arc::clone(&self.current.borrow())
    }

    /// Changes when the files have another content.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<Identity>> {
        self.current.subscribe()
    }

    /// Reads the files again as they change, until the process ends.
    pub async fn follow(self, scope: Scope) {
        let files = Arc::clone(&self.files);
        let paths: Vec<&Path> = [Some(&files.ca), files.certificate.as_ref(), files.key.as_ref()]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
            .collect();
        let read = {
            let files = Arc::clone(&files);
            move || Identity::read(&files).map_err(|error| daemon::error_chain(&error).to_string())
        };
        let take = move |identity: Identity| Ok(self.take(identity));
        let report = |followed: FollowedFiles<'_>| match followed {
            FollowedFiles::Taken => info!("the CA or the client certificate is another one now"),
            FollowedFiles::Restored => info!("the files of CA and client certificate are as they were"),
            FollowedFiles::Refused(error) => {
                warn!(
                    error,
                    "the files of CA and client certificate are not taken, the last good ones stay in use"
                );
            }
        };
        // Both arms are cancel-safe: the files are read again at the next start.
        tokio::select! {
            () = follow_files(&paths, read, take, report) => {}
            () = scope.draining() => {}
        }
    }

    /// Puts the content into force. Returns true if it is new.
    fn take(&self, identity: Identity) -> bool {
        self.current.send_if_modified(|current| {
            // A certificate that vanishes for a moment is one that rotates.
            let is_new =
                current.content != identity.content && (identity.has_certificate || !current.has_certificate);
            if is_new {
                *current = Arc::new(identity);
            }
            is_new
        })
    }
}

impl Identity {
    /// Reads the files as they are now.
    ///
    /// # Errors
    /// As for [`Tls::load`].
    pub(crate) fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let ca = file(&files.ca)?;
        let certificate = files.certificate.as_deref().map(optional_file).transpose()?.flatten();
        let key = files.key.as_deref().map(optional_file).transpose()?.flatten();
        let provider = Arc::new(default_provider());
        let mut verifier = ServerCertificateVerifier::new(provider.signature_verification_algorithms);
        verifier.trust_bundle(&ca, &files.ca.display().to_string())?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(TlsError::Refused)?
            // It verifies as the library does, and in addition what Go's clients accept or refuse.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match (&certificate, &key, &files.certificate, &files.key) {
            (Some(certificate), Some(key), Some(certificate_path), Some(key_path)) => {
                let (chain, key) = (chain(certificate, certificate_path)?, private_key(key, key_path)?);
                builder.with_client_auth_cert(chain, key).map_err(TlsError::Refused)?
            }
            _ => builder.with_no_client_auth(),
        };
        // A resumed session does not verify the server's certificate again, and connections are few.
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            server_name: files.server_name.clone(),
            ca_keys: ca_keys(&ca),
            has_certificate: certificate.is_some() && key.is_some(),
            content: [Some(ca), certificate, key],
        })
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("ca_keys", &self.ca_keys)
            .field("has_certificate", &self.has_certificate)
            .finish_non_exhaustive()
    }
}

fn file(path: &Path) -> Result<Vec<u8>, TlsError> {
    let bytes = read_bounded(path, FILE_BYTES_MAX)
        .map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })?;
    bytes.ok_or_else(|| TlsError::TooLarge(path.to_owned()))
}

fn optional_file(path: &Path) -> Result<Option<Vec<u8>>, TlsError> {
    match file(path) {
        Err(TlsError::Unreadable { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn chain(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let not_pem = |fault| TlsError::NotPem { path: path.to_owned(), fault };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| not_pem(describe_pem_error(&error)))?;
    if chain.is_empty() { Err(not_pem("there is no certificate in it")) } else { Ok(chain) }
}

fn private_key(pem: &[u8], path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|error| TlsError::NotPem { path: path.to_owned(), fault: describe_pem_error(&error) })
}

/// The SHA-256 of the public key of each certificate that can be read, sorted.
fn ca_keys(pem: &[u8]) -> Vec<String> {
    let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    let mut keys: Vec<String> = certificates
        .filter_map(|certificate| {
            let (_, parsed) = X509Certificate::from_der(&certificate).ok()?;
            Some(format!("sha256:{}", hex(digest(&SHA256, parsed.public_key().raw).as_ref())))
        })
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Lower-case digits of the bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
