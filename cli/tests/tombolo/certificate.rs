//! Verifies certificates as a peer would that trusts one root.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{Error, RootCertStore};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use crate::workdir::WorkDir;

/// All certificates in a file.
pub(crate) fn all(workdir: &WorkDir, file: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(workdir.text(file).as_bytes())
        .map(|der| der.unwrap().into_owned())
        .collect()
}

/// The only certificate in a file.
pub(crate) fn only(workdir: &WorkDir, file: &str) -> CertificateDer<'static> {
    let mut all = all(workdir, file);
    assert_eq!(all.len(), 1, "{file}");
    all.remove(0)
}

/// The certificate in a file that was issued, with its intermediate behind it.
pub(crate) fn leaf(workdir: &WorkDir, file: &str) -> CertificateDer<'static> {
    let mut all = all(workdir, file);
    assert_eq!(all.len(), 2, "{file}");
    all.remove(0)
}

pub(crate) fn fields<'a>(der: &'a CertificateDer<'_>) -> X509Certificate<'a> {
    x509_parser::parse_x509_certificate(der).unwrap().1
}

/// Tells whether a caller that trusts `root` accepts `leaf` of the server `name`.
pub(crate) fn accepted_as_server(workdir: &WorkDir, root: &str, leaf: &str, name: &str) -> Result<(), Error> {
    let verifier =
        WebPkiServerVerifier::builder_with_provider(roots(workdir, root), provider()).build().unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let chain = all(workdir, leaf);
    verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], UnixTime::now()).map(|_| ())
}

/// Tells whether a server that trusts `root` accepts `leaf` of a client.
pub(crate) fn accepted_as_client(workdir: &WorkDir, root: &str, leaf: &str) -> Result<(), Error> {
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots(workdir, root), provider()).build().unwrap();
    let chain = all(workdir, leaf);
    verifier.verify_client_cert(&chain[0], &chain[1..], UnixTime::now()).map(|_| ())
}

/// Subject alternative names, in their order.
pub(crate) fn names(workdir: &WorkDir, file: &str) -> Vec<String> {
    let der = leaf(workdir, file);
    let certificate = fields(&der);
    let Some(extension) = certificate.subject_alternative_name().unwrap() else {
        return Vec::new();
    };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => format!("DNS:{name}"),
        GeneralName::URI(uri) => format!("URI:{uri}"),
        GeneralName::IPAddress(bytes) => format!("IP:{bytes:?}"),
        other @ (GeneralName::OtherName(..)
        | GeneralName::RFC822Name(_)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..)) => panic!("an unexpected name: {other:?}"),
    };
    extension.value.general_names.iter().map(name).collect()
}

/// The certificate's validity after now, rounded to days.
pub(crate) fn days(workdir: &WorkDir, file: &str) -> i64 {
    let der = all(workdir, file).remove(0);
    let end = fields(&der).validity().not_after.timestamp();
    let now = i64::try_from(UnixTime::now().as_secs()).unwrap();
    (end - now + 43_200) / 86_400
}

fn roots(workdir: &WorkDir, file: &str) -> Arc<RootCertStore> {
    let mut store = RootCertStore::empty();
    store.add(only(workdir, file)).unwrap();
    store.into()
}

fn provider() -> Arc<CryptoProvider> {
    aws_lc_rs::default_provider().into()
}
