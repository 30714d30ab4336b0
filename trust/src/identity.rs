//! Identifies the other side of a handshake by its certificate, which TLS has verified against the root of its
//! role.
//!
//! The root implies the role already, and the URI repeats it. So a certificate of one role is never accepted as
//! another one's, even if two roots were exchanged by mistake, or one root signs for two roles.

use proto::spiffe::{self, AgentId, SpiffeError};
use rustls_pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use crate::ca;
use crate::names::Label;
use crate::role::Role;

/// The reason why a certificate that the root of a role has signed is not of that role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOfRole {
    /// The certificate is not valid X.509.
    #[error("the certificate cannot be read")]
    Unreadable,
    /// The certificate is a CA's.
    #[error("the certificate is a CA's")]
    Authority,
    /// Its extended key usage is not exactly the role's.
    #[error("the certificate is not for {} authentication alone", if *.0 == Role::Server { "server" } else { "client" })]
    Usage(Role),
    /// It has no URI, several ones, or a name of another kind.
    #[error("the certificate's alternative names are not exactly one URI")]
    Names,
    /// The URI belongs to another role or domain.
    #[error(transparent)]
    Uri(#[from] SpiffeError),
    /// The URI is of this trust domain, but not a caller's.
    #[error("the certificate names another role than a caller: {0:?}")]
    NotACaller(String),
}

/// The agent that a verified certificate names: by one URI and nothing else.
///
/// # Errors
/// [`NotOfRole`]: every deviation from an issued certificate is refused.
pub fn agent(leaf: &CertificateDer<'_>, domain: &str) -> Result<AgentId, NotOfRole> {
    let leaf = leaf_for(leaf, Role::Agent)?;
    Ok(AgentId::parse(only_uri(&leaf)?, domain)?)
}

/// The administrator whom a verified certificate names: by one URI and nothing else.
///
/// # Errors
/// [`NotOfRole`].
pub fn admin(leaf: &CertificateDer<'_>, domain: &str) -> Result<Label, NotOfRole> {
    let leaf = leaf_for(leaf, Role::Admin)?;
    label(spiffe::parse_admin(only_uri(&leaf)?, domain)?)
}

/// The server that a verified certificate names: by one URI, beside DNS names and addresses.
///
/// # Errors
/// [`NotOfRole`].
pub fn server(leaf: &CertificateDer<'_>, domain: &str) -> Result<Label, NotOfRole> {
    let leaf = leaf_for(leaf, Role::Server)?;
    let names =
        leaf.subject_alternative_name().map_err(|_| NotOfRole::Unreadable)?.ok_or(NotOfRole::Names)?;
    let mut uris = uris(&names.value.general_names);
    let (Some(uri), None) = (uris.next(), uris.next()) else {
        return Err(NotOfRole::Names);
    };
    label(spiffe::parse_server(uri, domain)?)
}

/// The server that shows a verified certificate of the role [`Role::Peer`] when it dials another server: one URI contains
/// its server ID, and the certificate has no other name.
///
/// # Errors
/// [`NotOfRole`]. The certificate that the same server shows at its listeners is refused, too.
pub fn peer(leaf: &CertificateDer<'_>, domain: &str) -> Result<Label, NotOfRole> {
    let leaf = leaf_for(leaf, Role::Peer)?;
    label(spiffe::parse_peer(only_uri(&leaf)?, domain)?)
}

/// Checks that a verified certificate may be a caller's. Callers may have a CA of their own, so no URI is needed. But a URI
/// of this trust domain must be a caller's. The subject names the caller.
///
/// # Errors
/// `NotACaller`, or `Unreadable`.
pub fn caller(leaf: &X509Certificate<'_>, domain: &str) -> Result<(), NotOfRole> {
    let Some(names) = leaf.subject_alternative_name().map_err(|_| NotOfRole::Unreadable)? else {
        return Ok(());
    };
    let expected = spiffe::caller_uri(domain);
    let other = uris(&names.value.general_names)
        .find(|uri| spiffe::is_in_trust_domain(uri, domain) && *uri != expected);
    other.map_or(Ok(()), |uri| Err(NotOfRole::NotACaller(uri.to_owned())))
}

/// The fields of a leaf that is for the role's side of TLS and for nothing else.
fn leaf_for<'a>(der: &'a CertificateDer<'_>, role: Role) -> Result<X509Certificate<'a>, NotOfRole> {
    let leaf = ca::parse(der).ok_or(NotOfRole::Unreadable)?;
    if leaf.is_ca() {
        return Err(NotOfRole::Authority);
    }
    if is_for(&leaf, role)? { Ok(leaf) } else { Err(NotOfRole::Usage(role)) }
}

fn is_for(leaf: &X509Certificate<'_>, role: Role) -> Result<bool, NotOfRole> {
    let usage = leaf.extended_key_usage().map_err(|_| NotOfRole::Unreadable)?;
    Ok(usage.is_some_and(|usage| ca::is_bound_to(usage.value, role)))
}

fn only_uri<'a>(leaf: &X509Certificate<'a>) -> Result<&'a str, NotOfRole> {
    let names =
        leaf.subject_alternative_name().map_err(|_| NotOfRole::Unreadable)?.ok_or(NotOfRole::Names)?;
    match names.value.general_names.as_slice() {
        [GeneralName::URI(uri)] => Ok(*uri),
        _ => Err(NotOfRole::Names),
    }
}

fn uris<'a>(names: &'a [GeneralName<'a>]) -> impl Iterator<Item = &'a str> {
    names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        GeneralName::OtherName(..)
        | GeneralName::RFC822Name(_)
        | GeneralName::DNSName(_)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::IPAddress(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..) => None,
    })
}

/// Parses a label, which the parser of the URI has validated already.
fn label(text: &str) -> Result<Label, NotOfRole> {
    text.parse().map_err(|_| NotOfRole::Names)
}

#[cfg(test)]
mod tests;
