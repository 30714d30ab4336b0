//! The roots by which clients and servers are verified, taken up again whenever their files change.

use std::sync::{Arc, Mutex, PoisonError};

use daemon::{Failure, FollowedFiles, Scope, error_chain, follow_files};
use rustls::client::Resumption;
use rustls::server::ResolvesServerCert;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use tracing::{info, warn};
use transport::tls::{SharedCertificate, SharedRoots};

use crate::config::{ClientRoots, RootsFile, TrustedRoots};
use crate::listener::tls::TlsError;
use crate::listener::{ListenerTls, tls};
use crate::metrics::{self, ReloadStatus, ReloadedFile};

/// Puts roots into force, or says why they cannot be used.
type Put = Box<dyn Fn(&[CertificateDer<'static>]) -> Result<(), String> + Send + Sync>;

/// Follows files of roots by tasks of a scope. Clones share the roots of clients.
#[derive(Clone)]
pub(super) struct RootsFollower {
    clients: Arc<Mutex<ClientRoots>>,
    scope: Scope,
}

impl RootsFollower {
    /// Follows files within `scope`. `clients` are the roots of the configuration, none of which has two roles.
    pub(super) fn new(clients: ClientRoots, scope: &Scope) -> Self {
        Self { clients: Arc::new(Mutex::new(clients)), scope: scope.clone() }
    }

    /// The roots of agents, for all listeners at which agents arrive.
    ///
    /// # Errors
    /// [`Failure`] if they cannot be used.
    pub(super) fn agents(&self, roots: &TrustedRoots) -> Result<Arc<SharedRoots>, Failure> {
        self.shared(ReloadedFile::AgentCa, roots)
    }

    /// The roots of other servers that dial this one.
    ///
    /// # Errors
    /// [`Failure`] if they cannot be used.
    pub(super) fn peers(&self, roots: &TrustedRoots) -> Result<Arc<SharedRoots>, Failure> {
        self.shared(ReloadedFile::PeerCa, roots)
    }

    /// Roots by which several listeners verify the clients of one role.
    fn shared(&self, label: ReloadedFile, roots: &TrustedRoots) -> Result<Arc<SharedRoots>, Failure> {
        let shared = SharedRoots::new(roots.certificates.clone()).map_err(Failure::misconfigured)?;
        let verifier = Arc::clone(&shared);
        let put = move |roots: &[CertificateDer<'static>]| shown(verifier.replace(roots.to_vec()));
        self.clients(label, roots, put);
        Ok(shared)
    }

    /// The roots of servers that this one dials, of the newest file.
    pub(super) fn dialed_servers(
        &self,
        roots: &TrustedRoots,
    ) -> watch::Receiver<Arc<Vec<CertificateDer<'static>>>> {
        let (given, taken) = watch::channel(Arc::new(roots.certificates.clone()));
        let put = move |roots: &[CertificateDer<'static>]| {
            given.send_replace(Arc::new(roots.to_vec()));
            Ok(())
        };
        self.follow(ReloadedFile::ServerCa, roots, put);
        taken
    }

    /// The gateway's TLS for callers. Without roots it requests no certificate.
    ///
    /// # Errors
    /// [`Failure`] if they cannot be used.
    pub(super) fn callers(
        &self,
        certificate: &Arc<SharedCertificate>,
        roots: Option<&TrustedRoots>,
    ) -> Result<ListenerTls, Failure> {
        let Some(roots) = roots else {
            let tls = tls::server_config(shown_by(certificate), None).map_err(Failure::misconfigured)?;
            return Ok(ListenerTls::callers_only(tls));
        };
        let make = |certificate, roots| tls::server_config(certificate, Some(roots));
        let tls = self.listener(ReloadedFile::CallerCa, certificate, roots, make)?;
        Ok(ListenerTls::callers_by_newest(tls))
    }

    /// The TLS configuration of the admin API's listener.
    ///
    /// # Errors
    /// [`Failure`] if the roots cannot be used.
    pub(super) fn admins(
        &self,
        certificate: &Arc<SharedCertificate>,
        roots: &TrustedRoots,
    ) -> Result<watch::Receiver<Arc<ServerConfig>>, Failure> {
        self.listener(ReloadedFile::AdminCa, certificate, roots, tls::for_admins)
    }

    /// The TLS configuration of an entry point for an API server's egress.
    ///
    /// # Errors
    /// [`Failure`] if the roots cannot be used.
    pub(super) fn egress(
        &self,
        certificate: &Arc<SharedCertificate>,
        roots: &TrustedRoots,
    ) -> Result<ListenerTls, Failure> {
        let tls = self.listener(ReloadedFile::EgressCa, certificate, roots, tls::for_entry_point)?;
        Ok(ListenerTls::callers_by_newest(tls))
    }

    /// The TLS configuration of a listener, which `make` makes of its certificate and its clients' roots, and again after
    /// each change of the roots.
    ///
    /// # Errors
    /// [`Failure`] if they cannot be used.
    fn listener(
        &self,
        label: ReloadedFile,
        certificate: &Arc<SharedCertificate>,
        roots: &TrustedRoots,
        make: impl Fn(Arc<dyn ResolvesServerCert>, Vec<CertificateDer<'static>>) -> Result<ServerConfig, TlsError>
        + Send
        + Sync
        + 'static,
    ) -> Result<watch::Receiver<Arc<ServerConfig>>, Failure> {
        let certificate = shown_by(certificate);
        let make = move |roots: &[CertificateDer<'static>]| make(Arc::clone(&certificate), roots.to_vec());
        let (put, taken) = newest(&roots.certificates, make).map_err(Failure::misconfigured)?;
        self.clients(label, roots, put);
        Ok(taken)
    }

    /// The TLS configuration for servers that are called by HTTPS, which trusts the newest roots of the file alone.
    ///
    /// # Errors
    /// [`Failure`] if the cryptography provider cannot be used.
    pub(super) fn servers(
        &self,
        label: ReloadedFile,
        roots: &TrustedRoots,
    ) -> Result<watch::Receiver<Arc<ClientConfig>>, Failure> {
        let make = |roots: &[CertificateDer<'static>]| trusting(roots, None, b"http/1.1");
        let (put, taken) = newest(&roots.certificates, make).map_err(Failure::could_not_go_on)?;
        self.follow(label, roots, put);
        Ok(taken)
    }

    /// The TLS configuration for etcd's members, to which this server shows `certificate`.
    ///
    /// # Errors
    /// [`Failure`] if the cryptography provider cannot be used.
    pub(super) fn etcd(
        &self,
        roots: &TrustedRoots,
        certificate: Arc<SharedCertificate>,
    ) -> Result<watch::Receiver<Arc<ClientConfig>>, Failure> {
        let make =
            move |roots: &[CertificateDer<'static>]| trusting(roots, Some(Arc::clone(&certificate)), b"h2");
        let (put, taken) = newest(&roots.certificates, make).map_err(Failure::could_not_go_on)?;
        self.follow(ReloadedFile::EtcdCa, roots, put);
        Ok(taken)
    }

    /// Follows the roots of clients, which `put` puts into force. A root that is there for another role is refused.
    fn clients(
        &self,
        label: ReloadedFile,
        roots: &TrustedRoots,
        put: impl Fn(&[CertificateDer<'static>]) -> Result<(), String> + Send + Sync + 'static,
    ) {
        let (all, file) = (Arc::clone(&self.clients), roots.file.clone());
        let put = move |roots: &[CertificateDer<'static>]| {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            let mut next = all.clone();
            next.replace(&file, roots).map_err(|error| error.to_string())?;
            put(roots)?;
            *all = next;
            Ok(())
        };
        self.follow(label, roots, put);
    }

    fn follow(
        &self,
        label: ReloadedFile,
        roots: &TrustedRoots,
        put: impl Fn(&[CertificateDer<'static>]) -> Result<(), String> + Send + Sync + 'static,
    ) {
        let TrustedRoots { certificates, file } = roots.clone();
        note_expiry(label, &certificates);
        self.scope.spawn_background(follow_file(label, file, certificates, put));
    }
}

/// Shows the first root of a file to expire, by the name of its kind. Kinds that have several files, and those of servers
/// that are called, are not shown.
fn note_expiry(label: ReloadedFile, roots: &[CertificateDer<'static>]) {
    if matches!(label, ReloadedFile::AgentCa | ReloadedFile::CallerCa | ReloadedFile::AdminCa) {
        metrics::certificates(label.as_str(), roots);
    }
}

/// Follows the file as long as it is polled. Roots that `put` refuses, or that cannot be read, change nothing.
async fn follow_file(
    label: ReloadedFile,
    file: RootsFile,
    first: Vec<CertificateDer<'static>>,
    put: impl Fn(&[CertificateDer<'static>]) -> Result<(), String> + Send + Sync + 'static,
) {
    let mut status = ReloadStatus::new(label);
    let (key, path) = (file.key().to_owned(), file.path().to_owned());
    let current = Arc::new((Mutex::new(first), put));
    let read = move || file.read().map_err(|error| error.to_string());
    let take = move |roots: Vec<CertificateDer<'static>>| {
        let (current, put) = &*current;
        let is_new = take(&mut current.lock().unwrap_or_else(PoisonError::into_inner), &roots, put)?;
        if is_new {
            note_expiry(label, &roots);
        }
        Ok(is_new)
    };
    let report = |outcome: FollowedFiles<'_>| match outcome {
        FollowedFiles::Taken => {
            status.read(true);
            info!(key, file = %path.display(), "the CA file has changed, and new connections are verified by it");
        }
        FollowedFiles::Restored => status.read(true),
        FollowedFiles::Refused(error) => {
            status.read(false);
            warn!(
                key, file = %path.display(), error,
                "the CA file has changed and was not taken, the last valid one stays in force: correct the file, and it is \
                 read again"
            );
        }
    };
    follow_files(&[&path], read, take, report).await;
}

/// A value that `make` makes of roots: a receiver of the newest one, and the function that makes it again of others.
fn newest<T, E>(
    roots: &[CertificateDer<'static>],
    make: impl Fn(&[CertificateDer<'static>]) -> Result<T, E> + Send + Sync + 'static,
) -> Result<(Put, watch::Receiver<Arc<T>>), E>
where
    T: Send + Sync + 'static,
    E: std::error::Error + 'static,
{
    let (given, taken) = watch::channel(Arc::new(make(roots)?));
    let put: Put = Box::new(move |roots| {
        given.send_replace(Arc::new(shown(make(roots))?));
        Ok(())
    });
    Ok((put, taken))
}

/// The certificate as TLS configurations take it.
fn shown_by(certificate: &Arc<SharedCertificate>) -> Arc<dyn ResolvesServerCert> {
    let certificate: Arc<SharedCertificate> = Arc::clone(certificate);
    certificate
}

/// Puts `roots` into force. Returns false if they are those that are `current`.
fn take(
    current: &mut Vec<CertificateDer<'static>>,
    roots: &[CertificateDer<'static>],
    put: impl Fn(&[CertificateDer<'static>]) -> Result<(), String>,
) -> Result<bool, String> {
    if *current == roots {
        return Ok(false);
    }
    put(roots)?;
    *current = roots.to_vec();
    Ok(true)
}

/// A TLS client configuration that trusts these roots and no others, shows the certificate if there is one, and offers one
/// protocol.
fn trusting(
    roots: &[CertificateDer<'static>],
    certificate: Option<Arc<SharedCertificate>>,
    protocol: &[u8],
) -> Result<ClientConfig, rustls::Error> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().cloned());
    let builder = ClientConfig::builder_with_provider(transport::tls::provider())
        .with_protocol_versions(&[&TLS13, &TLS12])?;
    let builder = builder.with_root_certificates(store);
    let mut config = match certificate {
        Some(certificate) => builder.with_client_cert_resolver(certificate),
        None => builder.with_no_client_auth(),
    };
    // A resumed session would not verify the certificate again.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

/// The error with its causes, as a log shows it.
fn shown<T, E: std::error::Error + 'static>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| error_chain(&error).to_string())
}
