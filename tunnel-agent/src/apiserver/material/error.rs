//! Errors of the credential for the API server.

use std::io;
use std::path::PathBuf;

use daemon::config::redact;

/// Largest file that is read, which may be a kubeconfig of many clusters or a CA bundle. 1 MiB.
pub(super) const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The credential cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A file cannot be read.
    #[error(
        "cannot read the {what} {}, check that the file is there and that this user may read it",
        redact(&path.display().to_string())
    )]
    Unreadable {
        /// `token`, `CA certificate` and so on.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file is too large.
    #[error("the {what} {} is larger than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// `token`, `CA certificate` and so on.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
    },
    /// The file has no certificate or key.
    #[error("the {what} in {found_in} is not PEM, or nothing that TLS can use")]
    NotPem {
        /// `CA certificate`, `client certificate` or `client key`.
        what: &'static str,
        /// The file, or the field of a kubeconfig.
        found_in: String,
    },
    /// The file has no valid token.
    #[error("the token in {0} is empty, too long, or has characters that no token has")]
    Token(String),
    /// The client certificate is not usable, for example because its key is another one's.
    #[error("the client certificate cannot be used")]
    Tls(#[source] rustls::Error),
    /// The API server's address is not valid.
    #[error("{0:?} is not the name or address of an API server")]
    Host(String),
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
}

/// A kubeconfig cannot be used. No variant quotes the file, because it holds secrets.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// Not YAML, or not of a kubeconfig's shape.
    #[error("{} is not a kubeconfig (line {line}, column {column})", path.display())]
    Syntax {
        /// The path of the file.
        path: PathBuf,
        /// From 1; 0 if unknown.
        line: u64,
        /// From 1; 0 if unknown.
        column: u64,
    },
    /// There is neither a `current-context` nor a configured one.
    #[error("{} has no current-context; set apiServer.context to one of its contexts", .0.display())]
    NoContext(PathBuf),
    /// A name without an entry.
    #[error("{} has no {what} named {name:?}", path.display())]
    Missing {
        /// The path of the file.
        path: PathBuf,
        /// The kind of the entry: `context`, `cluster` or `user`.
        what: &'static str,
        /// The name of the missing entry.
        name: String,
    },
    /// A field that an unattended process cannot or must not use.
    #[error("{}: {field} is not supported; {advice}", path.display())]
    Unsupported {
        /// The path of the file.
        path: PathBuf,
        /// The field, as people write it.
        field: &'static str,
        /// Advice on what to use instead.
        advice: &'static str,
    },
    /// Not an https URL of a host, which may have a path.
    #[error("{}: server must be https://HOST[:PORT][/PATH], without user, query, fragment or dots in the path", .0.display())]
    Server(PathBuf),
    /// A required field is missing.
    #[error("{}: {field} is missing; {advice}", path.display())]
    Incomplete {
        /// The path of the file.
        path: PathBuf,
        /// The name of the field.
        field: &'static str,
        /// Advice on what to set.
        advice: &'static str,
    },
    /// The data of a field is not base64.
    #[error("{}: {field} is not base64", path.display())]
    NotBase64 {
        /// The path of the file.
        path: PathBuf,
        /// The name of the field.
        field: &'static str,
    },
}
