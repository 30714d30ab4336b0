//! The names in the serving certificates that API servers have shown last. They are for people to read: no
//! decision uses them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use http::uri::Authority;
use proto::greeting::{CERTIFICATES_MAX, truncate_certificates};
use proto::wire::ServedCertificate;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::endpoints::Destination;
use crate::config::API_SERVERS_MAX;

// One for each balanced API server, and one for the API server in the credential.
const _: () = assert!(CERTIFICATES_MAX == API_SERVERS_MAX + 1);

/// The certificates of all API servers, as they were shown last.
pub(super) struct ServingCertificates {
    /// The certificates by the destination that has shown them.
    shown_last: Mutex<BTreeMap<Destination, ServedCertificate>>,
    published: watch::Sender<Vec<ServedCertificate>>,
}

impl Default for ServingCertificates {
    fn default() -> Self {
        Self { shown_last: Mutex::default(), published: watch::Sender::new(Vec::new()) }
    }
}

impl ServingCertificates {
    /// Notes the certificate that the API server at `authority` has shown, after it was verified.
    pub(super) fn note(&self, destination: Destination, authority: &Authority, shown: &CertificateDer<'_>) {
        let Some(names) = names(shown) else { return };
        let certificate = ServedCertificate { address: authority.to_string(), names, cut: false };
        let mut shown_last = self.shown_last.lock().unwrap_or_else(PoisonError::into_inner);
        if shown_last.contains_key(&destination) || shown_last.len() < CERTIFICATES_MAX {
            shown_last.insert(destination, certificate);
        }
        self.publish(&shown_last);
    }

    /// Drops the certificates of API servers that are no longer balanced.
    pub(super) fn retain(&self, addresses: &[SocketAddr]) {
        let mut shown_last = self.shown_last.lock().unwrap_or_else(PoisonError::into_inner);
        shown_last.retain(|destination, _| destination.is_none_or(|address| addresses.contains(&address)));
        self.publish(&shown_last);
    }

    /// The certificates of all API servers, as they change.
    pub(super) fn subscribe(&self) -> watch::Receiver<Vec<ServedCertificate>> {
        self.published.subscribe()
    }

    fn publish(&self, shown_last: &BTreeMap<Destination, ServedCertificate>) {
        let now = truncate_certificates(shown_last.values().cloned().collect());
        self.published.send_if_modified(|published| {
            let has_changed = *published != now;
            if has_changed {
                *published = now;
            }
            has_changed
        });
    }
}

/// The DNS names and addresses of a certificate. `None` where it cannot be parsed.
fn names(der: &CertificateDer<'_>) -> Option<Vec<String>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let Some(found) = certificate.subject_alternative_name().ok()? else { return Some(Vec::new()) };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        // No client connects to a server by one of these.
        GeneralName::OtherName(..)
        | GeneralName::RFC822Name(_)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::URI(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..) => None,
    };
    Some(found.value.general_names.iter().filter_map(name).collect())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let of_ipv4 = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    of_ipv4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

#[cfg(test)]
mod tests {
    use rcgen::string::Ia5String;
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    #[test]
    fn only_the_names_and_addresses_of_a_certificate_are_published() {
        let shown = certificate(&["kubernetes", "*.edge.example", "10.96.0.1", "fd00::1"]);
        let certificates = ServingCertificates::default();
        let mut published = certificates.subscribe();

        certificates.note(None, &authority("10.96.0.1:443"), &shown);

        assert!(published.has_changed().unwrap());
        let names = published.borrow_and_update().clone();
        assert_eq!(names.len(), 1);
        assert_eq!((names[0].address.as_str(), names[0].cut), ("10.96.0.1:443", false));
        assert_eq!(names[0].names, ["kubernetes", "*.edge.example", "10.96.0.1", "fd00::1"]);
        // The same certificate again changes nothing, nor does one that cannot be parsed.
        certificates.note(None, &authority("10.96.0.1:443"), &shown);
        certificates.note(None, &authority("10.96.0.1:443"), &CertificateDer::from(vec![0; 9]));
        assert!(!published.has_changed().unwrap());
        // Another certificate of the same destination does.
        certificates.note(None, &authority("10.96.0.1:443"), &certificate(&["kubernetes"]));
        assert_eq!(published.borrow_and_update()[0].names, ["kubernetes"]);
    }

    #[test]
    fn only_current_api_servers_are_published_up_to_the_limit() {
        let (shown, certificates) = (certificate(&["kubernetes"]), ServingCertificates::default());
        let destination = |last: u8| SocketAddr::from(([10, 0, 0, last], 6443));
        certificates.note(None, &authority("kubernetes:443"), &shown);
        for last in 0..=u8::try_from(API_SERVERS_MAX).unwrap() {
            certificates.note(Some(destination(last)), &authority(&destination(last).to_string()), &shown);
        }
        assert_eq!(certificates.subscribe().borrow().len(), CERTIFICATES_MAX);

        certificates.retain(&[destination(3)]);

        let published: Vec<String> =
            certificates.subscribe().borrow().iter().map(|one| one.address.clone()).collect();
        assert_eq!(published, ["kubernetes:443", "10.0.0.3:6443"]);
    }

    fn authority(text: &str) -> Authority {
        text.parse().unwrap()
    }

    fn certificate(names: &[&str]) -> CertificateDer<'static> {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.subject_alt_names.push(SanType::URI(Ia5String::try_from("spiffe://tombolo/x").unwrap()));
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }
}
