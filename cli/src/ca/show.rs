//! `tombolo ca show`: prints the certificates of a file, or the roots of a trust bundle, for people.

use std::net::{Ipv4Addr, Ipv6Addr};

use aws_lc_rs::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};
use trust::bundle::TrustBundle;
use trust::{Pin, Role, Serial};
use x509_parser::extensions::{ExtendedKeyUsage, GeneralName};
use x509_parser::prelude::X509Certificate;
use x509_parser::x509::X509Name;

use super::bundle;
use crate::args::CaShow;
use crate::pem::{self, PemError};
use crate::print::visible;

/// Describes each certificate of the file in a few lines, with an empty line between two.
pub(crate) fn show(args: &CaShow) -> Result<Vec<String>, PemError> {
    if let Some(bundle) = bundle::read(&args.file)? {
        return Ok(describe_bundle(&bundle));
    }
    let certificates = pem::read_certificates(&args.file)?;
    let now = OffsetDateTime::now_utc();
    let mut lines = Vec::new();
    for (index, der) in certificates.ders.iter().enumerate() {
        let Some(certificate) = pem::parse_x509(der) else {
            return Err(PemError::NotACertificate(args.file.clone(), index + 1));
        };
        if index > 0 {
            lines.push(String::new());
        }
        describe(&certificate, der, now, &mut lines);
    }
    Ok(lines)
}

/// Version, trust domain and pins of a trust bundle.
fn describe_bundle(bundle: &TrustBundle) -> Vec<String> {
    let created = i64::try_from(bundle.created_seconds()).ok();
    let created = created.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let mut lines = vec![
        format!("{:<12}{} of the trust domain {}", "bundle", bundle.version(), bundle.domain()),
        format!("{:<12}{}", "created", created.map_or_else(|| "(unreadable)".to_owned(), date)),
    ];
    for role in Role::ALL {
        for root in bundle.roots(role) {
            if let Some(root) = pem::parse_x509(root) {
                let (pin, end) = (Pin::of_certificate(&root), date(root.validity().not_after.to_datetime()));
                lines.push(format!("{:<12}{pin} (until {end})", role.as_str()));
            }
        }
    }
    lines
}

fn describe(
    certificate: &X509Certificate<'_>,
    der: &CertificateDer<'_>,
    now: OffsetDateTime,
    lines: &mut Vec<String>,
) {
    let mut line = |title: &str, value: &str| lines.push(format!("{title:<12}{}", visible(value)));
    let (begin, end) =
        (certificate.validity().not_before.to_datetime(), certificate.validity().not_after.to_datetime());
    line("subject", &name(certificate.subject()));
    line("issuer", &name(certificate.issuer()));
    line("names", &or_none(alternative_names(certificate)));
    line("for", &or_none(purposes(certificate)));
    line("valid from", &format!("{}{}", date(begin), if now < begin { " (not yet valid)" } else { "" }));
    line("valid until", &format!("{} ({})", date(end), left(end - now)));
    if let Some(serial) = Serial::of(certificate) {
        line("serial", &serial.to_string());
    }
    line("SHA-256", &fingerprint(der));
    line("pin", &Pin::of_certificate(certificate).to_string());
}

fn name(name: &X509Name<'_>) -> String {
    let text = name.to_string();
    if text.is_empty() { "(empty)".to_owned() } else { text }
}

fn or_none(items: Vec<String>) -> String {
    if items.is_empty() { "(none)".to_owned() } else { items.join(", ") }
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = match certificate.subject_alternative_name() {
        Ok(Some(extension)) => &extension.value.general_names,
        Ok(None) => return Vec::new(),
        Err(_) => return vec!["(unreadable)".to_owned()],
    };
    names
        .iter()
        .map(|name| match name {
            GeneralName::DNSName(name) => format!("DNS:{name}"),
            GeneralName::URI(uri) => format!("URI:{uri}"),
            GeneralName::IPAddress(bytes) => format!("IP:{}", address(bytes)),
            GeneralName::RFC822Name(name) => format!("email:{name}"),
            other @ (GeneralName::OtherName(..)
            | GeneralName::X400Address(_)
            | GeneralName::DirectoryName(_)
            | GeneralName::EDIPartyName(_)
            | GeneralName::RegisteredID(_)
            | GeneralName::Invalid(..)) => other.to_string(),
        })
        .collect()
}

fn address(bytes: &[u8]) -> String {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Ipv4Addr::from(four).to_string();
    }
    match <[u8; 16]>::try_from(bytes) {
        Ok(sixteen) => Ipv6Addr::from(sixteen).to_string(),
        Err(_) => "(unreadable)".to_owned(),
    }
}

fn purposes(certificate: &X509Certificate<'_>) -> Vec<String> {
    let mut purposes = Vec::new();
    if certificate.is_ca() {
        purposes.push("signing certificates".to_owned());
    }
    if let Ok(Some(extension)) = certificate.extended_key_usage() {
        let ExtendedKeyUsage { any, server_auth, client_auth, .. } = extension.value;
        let known = [(any, "any purpose"), (server_auth, "TLS servers"), (client_auth, "TLS clients")];
        purposes.extend(known.iter().filter(|(set, _)| **set).map(|(_, purpose)| (*purpose).to_owned()));
    }
    purposes
}

fn date(at: OffsetDateTime) -> String {
    let (hour, minute, second) = at.to_hms();
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", at.date())
}

fn left(left: Duration) -> String {
    match (left.is_negative(), left.abs().whole_days()) {
        (true, 0) => format!("expired {} hours ago", left.abs().whole_hours()),
        (true, days) => format!("expired {days} days ago"),
        (false, 0) => format!("{} hours left", left.whole_hours()),
        (false, days) => format!("{days} days left"),
    }
}

fn fingerprint(der: &[u8]) -> String {
    let bytes: Vec<_> = digest(&SHA256, der).as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}
