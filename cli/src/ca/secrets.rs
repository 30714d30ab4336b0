//! `tombolo ca secrets`: the server's files as two Secrets, for `kubectl apply`.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use trust::Role;

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
    metadata::trust_domain(directory)?;
    let shown = directory.display();
    let prefix = args.id.as_ref().map_or_else(String::new, |id| format!("{id}-"));
    let flag = args.id.as_ref().map_or_else(String::new, |id| format!(" --id {id}"));
    let issue = format!("tombolo ca issue server --dir {shown} --name HOST{flag}");
    let certificate = directory.join(format!("{prefix}server.crt"));
    let key = directory.join(format!("{prefix}server.key"));
    check_pair(&certificate, &key, &issue)?;
    let init = format!("tombolo ca init --dir {shown}");
    let intermediate = format!("tombolo ca intermediate --dir {shown} --role agent");
    let file = |name: &str, path: PathBuf, command: &str| entry(name, &path, command);
    let mut server = vec![
        file("server.crt", certificate, &issue)?,
        file("server.key", key, &issue)?,
        file("caller-ca.crt", paths::root_certificate(directory, Role::Caller), &init)?,
        file("agent-ca.crt", paths::root_certificate(directory, Role::Agent), &init)?,
        file("admin-ca.crt", paths::root_certificate(directory, Role::Admin), &init)?,
        file("agent-intermediate.sealed", paths::intermediate(directory, Role::Agent), &intermediate)?,
        file("trust.bundle", paths::bundle(directory), &init)?,
    ];
    // The certificate of the proxy listener, if one was issued.
    for name in ["proxy.crt", "proxy.key"] {
        let path = directory.join(name);
        if path.exists() {
            server.push(file(name, path, "tombolo ca issue proxy")?);
        }
    }
    let sealing = vec![file("sealing.key", paths::sealing_key(directory), &intermediate)?];
    let mut lines = manifest(SERVER, &args.namespace, &server);
    lines.push("---".to_owned());
    lines.extend(manifest(SEALING_KEY, &args.namespace, &sealing));
    Ok(lines)
}

fn check_pair(certificate: &Path, key: &Path, command: &str) -> Result<(), SecretsError> {
    for path in [certificate, key] {
        if !path.exists() {
            return Err(SecretsError::Missing { path: path.to_owned(), command: command.to_owned() });
        }
    }
    let (chain, pair) = (pem::read_certificates(certificate)?.ders, pem::read_key(key)?.pair);
    let leaf = chain.first().and_then(|leaf| pem::parse_x509(leaf));
    if leaf.is_some_and(|leaf| pem::is_for_key(&leaf, &pair)) {
        return Ok(());
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
