//! Kubeconfigs in the form that kubeadm writes, with everything embedded.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::pki::Issued;

/// The credential of a kubeconfig's user.
#[derive(Debug, Clone)]
pub enum Credential {
    /// A bearer token of the user.
    Token(String),
    /// A client certificate with its key.
    Certificate(Issued),
}

/// The content of a kubeconfig. Its cluster, user and context are called `edge`.
#[derive(Debug)]
pub struct Kubeconfig<'a> {
    /// `https://HOST:PORT`, with a path if there is one.
    pub server: &'a str,
    /// The certificate of the authority that signed the server's.
    pub ca_pem: &'a str,
    /// The credential of the user.
    pub credential: &'a Credential,
}

impl Kubeconfig<'_> {
    /// Renders the file as YAML.
    pub fn render(&self) -> String {
        let user = match self.credential {
            Credential::Token(token) => format!("    token: {token:?}\n"),
            Credential::Certificate(issued) => format!(
                "    client-certificate-data: {}\n    client-key-data: {}\n",
                STANDARD.encode(&issued.certificate_pem),
                STANDARD.encode(&issued.key_pem)
            ),
        };
        let (server, ca) = (self.server, STANDARD.encode(self.ca_pem));
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: edge\n\
             clusters:\n- name: edge\n  cluster:\n    server: {server}\n    certificate-authority-data: {ca}\n\
             contexts:\n- name: edge\n  context:\n    cluster: edge\n    user: edge\n\
             users:\n- name: edge\n  user:\n{user}"
        )
    }

    /// Writes the file, readable by its owner alone.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(self.render().as_bytes())
    }
}
