//! Principals of entry points. Each entry point is the principal `entry-point:NAME`. Its clients are admitted
//! by a certificate, by the kernel's user ID, or merely by their source address.

use std::net::IpAddr;

use policy::Network;
use rustls_pki_types::CertificateDer;

use super::certificate::{self, CertificateError};
use super::{Authenticated, Caller, Credential, Method};

/// The reason why a client may not use an entry point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryPointError {
    /// The client showed no certificate.
    #[error("no certificate was shown")]
    NoCertificate,
    /// The certificate cannot be read, or has no name.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The certificate has another common name.
    #[error("the certificate names {found:?}, and clientName is {wanted:?}")]
    OtherName {
        /// The common name of the certificate.
        found: String,
        /// The common name that is allowed.
        wanted: String,
    },
    /// The kernel reports another user.
    #[error("user id {0} may not come by this socket, uids does not list it")]
    OtherUser(u32),
}

/// The principal of the entry point `name`, if the head of a verified `chain` has this common name.
///
/// # Errors
///
/// [`EntryPointError`].
pub fn by_certificate(
    name: &str,
    chain: &[CertificateDer<'_>],
    common_name: &str,
) -> Result<Authenticated, EntryPointError> {
    let leaf = chain.first().ok_or(EntryPointError::NoCertificate)?;
    let leaf = certificate::read(leaf).ok_or(CertificateError::Unreadable)?;
    let found = certificate::common_name(&leaf)?;
    if found != common_name {
        return Err(EntryPointError::OtherName { found: found.to_owned(), wanted: common_name.to_owned() });
    }
    Ok(Authenticated { caller: principal(name, certificate::credential(&leaf), None), has_second: false })
}

/// The principal of the entry point `name`, if the kernel reports one of these user IDs at the other end of
/// its socket.
///
/// # Errors
///
/// [`EntryPointError`].
pub fn by_socket(name: &str, uid: u32, uids: &[u32]) -> Result<Authenticated, EntryPointError> {
    if !uids.contains(&uid) {
        return Err(EntryPointError::OtherUser(uid));
    }
    let credential = Credential { id: format!("uid:{uid}").into(), issued: None, expires: None };
    Ok(Authenticated { caller: principal(name, credential, None), has_second: false })
}

/// The principal of the entry point `name` for a client at `source`, an address in the network `condition`.
/// The client has proved nothing.
#[must_use]
pub fn by_source(name: &str, source: IpAddr, condition: Network) -> Caller {
    let credential = Credential { id: format!("source:{condition}").into(), issued: None, expires: None };
    principal(name, credential, Some(source))
}

fn principal(name: &str, credential: Credential, source: Option<IpAddr>) -> Caller {
    let user = format!("entry-point:{name}");
    let method = Method::EntryPoint(user.as_str().into());
    Caller { method, user, groups: Vec::new(), credential, reviewed: None, token: None, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(common_names: &[&str]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for name in common_names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn an_entry_point_is_one_principal_for_its_one_certificate_name() {
        let shown = [certificate(&["kube-apiserver"])];

        let known = by_certificate("host-a", &shown, "kube-apiserver").unwrap();

        let caller = known.require_single_credential().unwrap();
        assert_eq!((caller.user(), caller.method().as_str()), ("entry-point:host-a", "entry-point:host-a"));
        assert!(policy::parse_method(caller.method().as_str()).is_ok());
        assert!(caller.credential().expires.is_some(), "it ends with its certificate");
        for other in ["kube-apiserve", "kube-apiserver2", "KUBE-APISERVER", ""] {
            let refused = by_certificate("host-a", &shown, other).unwrap_err();
            assert!(matches!(refused, EntryPointError::OtherName { .. }), "{other}: {refused}");
        }
        assert_eq!(by_certificate("host-a", &[], "x"), Err(EntryPointError::NoCertificate));
        let nameless = by_certificate("host-a", &[certificate(&[])], "").unwrap_err();
        assert_eq!(nameless, CertificateError::CommonName.into());
        let garbage = by_certificate("host-a", &[CertificateDer::from(vec![1, 2])], "x").unwrap_err();
        assert_eq!(garbage, CertificateError::Unreadable.into());
    }

    #[test]
    fn a_client_admitted_by_its_source_is_only_the_entry_point() {
        let caller = by_source("sni", "10.0.0.7".parse().unwrap(), "10.0.0.0/8".parse().unwrap());

        assert_eq!((caller.user(), caller.method().as_str()), ("entry-point:sni", "entry-point:sni"));
        assert_eq!((&*caller.credential().id, caller.groups()), ("source:10.0.0.0/8", &[][..]));
        assert_eq!(caller.source_address(), Some("10.0.0.7".parse().unwrap()));
        assert_eq!(
            by_socket("sni", 0, &[0]).unwrap().require_single_credential().unwrap().source_address(),
            None
        );
    }

    #[test]
    fn only_listed_users_are_admitted_at_a_socket() {
        assert_eq!(
            by_socket("host-a", 0, &[0, 7]).unwrap().require_single_credential().unwrap().user(),
            "entry-point:host-a"
        );
        assert_eq!(by_socket("host-a", 8, &[0, 7]), Err(EntryPointError::OtherUser(8)));
        assert_eq!(by_socket("host-a", 0, &[]), Err(EntryPointError::OtherUser(0)));
    }
}
