//! Which names stand in the serving certificates of API servers, as these were shown last. For people to read: nothing is decided by it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use http::uri::Authority;
use proto::greeting::{CERTIFICATES_MAX, cut};
use proto::wire::ServedCertificate;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::endpoints::Place;
use crate::config::API_SERVERS_MAX;

// Each that requests are balanced among, and the one that the credential names.
const _: () = assert!(CERTIFICATES_MAX == API_SERVERS_MAX + 1);

/// What is known of all of them.
pub(super) struct Served {
    /// By where they were asked.
    seen: Mutex<BTreeMap<Place, ServedCertificate>>,
    told: watch::Sender<Vec<ServedCertificate>>,
}

impl Default for Served {
    fn default() -> Self {
        Self { seen: Mutex::default(), told: watch::Sender::new(Vec::new()) }
    }
}

impl Served {
    /// Notes what the API server at `authority` has shown, which was verified.
    pub(super) fn note(&self, place: Place, authority: &Authority, shown: &CertificateDer<'_>) {
        let Some(names) = names(shown) else { return };
        let certificate = ServedCertificate { address: authority.to_string(), names, cut: false };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.contains_key(&place) || seen.len() < CERTIFICATES_MAX {
            seen.insert(place, certificate);
        }
        self.tell(&seen);
    }

    /// From now on these are all that requests are balanced among.
    pub(super) fn keep(&self, addresses: &[SocketAddr]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|place, _| place.is_none_or(|address| addresses.contains(&address)));
        self.tell(&seen);
    }

    /// The certificates now, and whenever they change.
    pub(super) fn subscribe(&self) -> watch::Receiver<Vec<ServedCertificate>> {
        self.told.subscribe()
    }

    fn tell(&self, seen: &BTreeMap<Place, ServedCertificate>) {
        let now = cut(seen.values().cloned().collect());
        self.told.send_if_modified(|told| {
            let is_other = *told != now;
            if is_other {
                *told = now;
            }
            is_other
        });
    }
}

/// The DNS names and addresses for which a certificate is. `None`, where it cannot be read.
fn names(der: &CertificateDer<'_>) -> Option<Vec<String>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let Some(found) = certificate.subject_alternative_name().ok()? else { return Some(Vec::new()) };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        // No server is asked for by any of these.
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
    fn the_names_and_addresses_of_a_certificate_are_told_and_nothing_else_of_it() {
        let shown = certificate(&["kubernetes", "*.edge.example", "10.96.0.1", "fd00::1"]);
        let served = Served::default();
        let mut told = served.subscribe();

        served.note(None, &authority("10.96.0.1:443"), &shown);

        assert!(told.has_changed().unwrap());
        let known = told.borrow_and_update().clone();
        assert_eq!(known.len(), 1);
        assert_eq!((known[0].address.as_str(), known[0].cut), ("10.96.0.1:443", false));
        assert_eq!(known[0].names, ["kubernetes", "*.edge.example", "10.96.0.1", "fd00::1"]);
        // The same once more is no news, nor is what cannot be read.
        served.note(None, &authority("10.96.0.1:443"), &shown);
        served.note(None, &authority("10.96.0.1:443"), &CertificateDer::from(vec![0; 9]));
        assert!(!told.has_changed().unwrap());
        // Another certificate in its place is.
        served.note(None, &authority("10.96.0.1:443"), &certificate(&["kubernetes"]));
        assert_eq!(told.borrow_and_update()[0].names, ["kubernetes"]);
    }

    #[test]
    fn of_api_servers_that_are_asked_no_more_nothing_is_told_and_of_no_more_than_may_be() {
        let (shown, served) = (certificate(&["kubernetes"]), Served::default());
        let place = |last: u8| SocketAddr::from(([10, 0, 0, last], 6443));
        served.note(None, &authority("kubernetes:443"), &shown);
        for last in 0..=u8::try_from(API_SERVERS_MAX).unwrap() {
            served.note(Some(place(last)), &authority(&place(last).to_string()), &shown);
        }
        assert_eq!(served.subscribe().borrow().len(), CERTIFICATES_MAX);

        served.keep(&[place(3)]);

        let told: Vec<String> = served.subscribe().borrow().iter().map(|one| one.address.clone()).collect();
        assert_eq!(told, ["kubernetes:443", "10.0.0.3:6443"]);
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
