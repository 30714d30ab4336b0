//! `tombolo ca secrets`: the server's files as two Secrets, for `kubectl apply`.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls_pki_types::CertificateDer;
use trust::Role;
use trust::names::TrustDomain;

use super::metadata::{self, MetadataError};
use super::paths;
use crate::args::CaSecrets;
use crate::files::{self, ReadError};
use crate::names::Label;
use crate::pem::{self, PemError};

/// The Secret with the certificates, and the Secret with the key that decrypts the intermediate.
const SERVER: &str = "tunnel-server";
const SEALING_KEY: &str = "tunnel-server-sealing-key";

/// The error if no Secrets were made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretsError {
    #[error(transparent)]
    Authority(#[from] MetadataError),
    #[error("there is no {path}; make it with `{command}`")]
    Missing { path: PathBuf, command: String },
    #[error("{certificate} and {key} do not belong together; issue both again with `{command}`")]
    KeyMismatch { certificate: PathBuf, key: PathBuf, command: String },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Pem(#[from] PemError),
}

/// The Secrets as lines of YAML. The intermediate and its sealing key are never in one Secret.
pub(crate) fn secrets(args: &CaSecrets) -> Result<Vec<String>, SecretsError> {
    let directory = &args.dir;
    let domain = metadata::trust_domain(directory)?;
    let init = format!("tombolo ca init --dir {}", directory.display());
    let intermediate = format!("tombolo ca intermediate --dir {} --role agent", directory.display());
    let file = |name: &str, path: PathBuf, command: &str| entry(name, &path, command);
    let mut server = match args.id.as_slice() {
        [] => server_entries(directory, None, "", &domain)?,
        [id] => server_entries(directory, Some(id), "", &domain)?,
        ids => several_servers(directory, ids, &domain)?,
    };
    server.extend([
        file("caller-ca.crt", paths::root_certificate(directory, Role::Caller), &init)?,
        file("agent-ca.crt", paths::root_certificate(directory, Role::Agent), &init)?,
        file("admin-ca.crt", paths::root_certificate(directory, Role::Admin), &init)?,
        file("agent-intermediate.sealed", paths::intermediate(directory, Role::Agent), &intermediate)?,
        file("trust.bundle", paths::bundle(directory), &init)?,
    ]);
    // The certificate of the proxy listener, if one was issued.
    for name in ["proxy.crt", "proxy.key"] {
        let path = directory.join(name);
        if path.exists() {
            server.push(file(name, path, "tombolo ca issue proxy")?);
        }
    }
    if server.iter().any(|line| line.contains("peer.crt: ")) {
        server.push(file("peer-ca.crt", paths::root_certificate(directory, Role::Peer), &init)?);
        server.push(file("server-ca.crt", paths::root_certificate(directory, Role::Server), &init)?);
    }
    let sealing = vec![file("sealing.key", paths::sealing_key(directory), &intermediate)?];
    let mut lines = manifest(SERVER, &args.namespace, &server);
    lines.push("---".to_owned());
    lines.extend(manifest(SEALING_KEY, &args.namespace, &sealing));
    Ok(lines)
}

/// The certificates of each server, with its ID before their names. Each server has one for its peers.
fn several_servers(
    directory: &Path,
    ids: &[Label],
    domain: &TrustDomain,
) -> Result<Vec<String>, SecretsError> {
    let mut all = Vec::new();
    for id in ids {
        let entries = server_entries(directory, Some(id), &format!("{id}-"), domain)?;
        if !entries.iter().any(|line| line.contains("peer.crt: ")) {
            let path = directory.join(format!("{id}-peer.crt"));
            return Err(SecretsError::Missing { path, command: issue_peer(directory, id) });
        }
        all.extend(entries);
    }
    Ok(all)
}

/// The certificate that a server shows at its listeners, and the one for its peers if it was issued. `prefix` is before
/// the names in the Secret.
fn server_entries(
    directory: &Path,
    id: Option<&Label>,
    prefix: &str,
    domain: &TrustDomain,
) -> Result<Vec<String>, SecretsError> {
    let of = id.map_or_else(String::new, |id| format!("{id}-"));
    let flag = id.map_or_else(String::new, |id| format!(" --id {id}"));
    let issue = format!("tombolo ca issue server --dir {} --name HOST{flag}", directory.display());
    let [certificate, key] = ["crt", "key"].map(|kind| directory.join(format!("{of}server.{kind}")));
    let leaf = check_pair(&certificate, &key, &issue)?;
    let mut entries = vec![
        entry(&format!("{prefix}server.crt"), &certificate, &issue)?,
        entry(&format!("{prefix}server.key"), &key, &issue)?,
    ];
    let Ok(id) = trust::identity::server(&leaf, domain.as_str()) else { return Ok(entries) };
    let [certificate, key] = ["crt", "key"].map(|kind| directory.join(format!("{id}-peer.{kind}")));
    if certificate.exists() || key.exists() {
        let issue = format!("{} --force", issue_peer(directory, &id));
        check_pair(&certificate, &key, &issue)?;
        entries.push(entry(&format!("{prefix}peer.crt"), &certificate, &issue)?);
        entries.push(entry(&format!("{prefix}peer.key"), &key, &issue)?);
    }
    Ok(entries)
}

/// The command that issues the certificate by which a server dials its peers.
fn issue_peer(directory: &Path, id: &dyn std::fmt::Display) -> String {
    format!("tombolo ca issue peer --dir {} --id {id}", directory.display())
}

/// Checks that a certificate and its key are there and belong together. Returns the certificate.
fn check_pair(
    certificate: &Path,
    key: &Path,
    command: &str,
) -> Result<CertificateDer<'static>, SecretsError> {
    for path in [certificate, key] {
        if !path.exists() {
            return Err(SecretsError::Missing { path: path.to_owned(), command: command.to_owned() });
        }
    }
    let (mut chain, pair) = (pem::read_certificates(certificate)?.ders, pem::read_key(key)?.pair);
    let leaf = chain.swap_remove(0);
    if pem::parse_x509(&leaf).is_some_and(|leaf| pem::is_for_key(&leaf, &pair)) {
        return Ok(leaf);
    }
    let (certificate, key) = (certificate.to_owned(), key.to_owned());
    Err(SecretsError::KeyMismatch { certificate, key, command: command.to_owned() })
}

/// A file as one line of a Secret's `data`. `command` makes the file if it is missing.
fn entry(name: &str, path: &Path, command: &str) -> Result<String, SecretsError> {
    if !path.exists() {
        return Err(SecretsError::Missing { path: path.to_owned(), command: command.to_owned() });
    }
    Ok(format!("  {name}: {}", BASE64.encode(files::read_bytes(path)?)))
}

fn manifest(name: &str, namespace: &Label, data: &[String]) -> Vec<String> {
    let head = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n  namespace: {namespace}\n  labels:\n    \
         app.kubernetes.io/part-of: tombolo\ntype: Opaque\ndata:"
    );
    head.lines().map(str::to_owned).chain(data.iter().cloned()).collect()
}
