//! Checks certificate and key files: that they exist, are private, are within their dates, and belong together.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::KeyPair;
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::prelude::X509Certificate;

use super::check::Check;
use super::report::Report;
use crate::pem;
use crate::tls::ClientIdentity;

/// Days before its end from which a certificate gets a warning.
const SOON_DAYS: i64 = 7;

/// Reads CA certificates, and checks their dates. `None` if the file has none; the report says why.
pub(super) fn roots(
    report: &mut Report,
    check: Check,
    path: &Path,
    now: SystemTime,
) -> Option<Vec<CertificateDer<'static>>> {
    match pem::read_certificates(path) {
        Ok(found) => {
            dates(report, check, &path.display().to_string(), &found.ders, now);
            Some(found.ders)
        }
        Err(error) => {
            report.fail_by(check, &error);
            None
        }
    }
}

/// Reads a certificate and its key. Checks their dates, that they belong together, and that the key is private.
pub(super) fn identity(
    report: &mut Report,
    certificate: &Path,
    key: &Path,
    now: SystemTime,
) -> Option<ClientIdentity> {
    const CHECK: Check = Check::Certificate;
    let chain = match pem::read_certificates(certificate) {
        Ok(found) => found.ders,
        Err(error) => {
            report.fail_by(CHECK, &error);
            return None;
        }
    };
    // An intermediate may end before the leaf, and peers verify the whole chain.
    dates(report, CHECK, &certificate.display().to_string(), &chain, now);
    let private = match pem::read_key(key) {
        Ok(found) => found,
        Err(error) => {
            report.fail_by(Check::Key, &error);
            return None;
        }
    };
    key_match(report, &chain, &private.pair, &format!("{} and {}", key.display(), certificate.display()));
    private_file(report, Check::Key, key);
    Some(ClientIdentity { chain, key: private.der })
}

/// Checks that a certificate and a key belong together.
pub(super) fn key_match(report: &mut Report, chain: &[CertificateDer<'_>], key: &KeyPair, what: &str) {
    let leaf = chain.first().and_then(|leaf| pem::parse_x509(leaf));
    if leaf.is_some_and(|leaf| pem::is_for_key(&leaf, key)) {
        report.ok(Check::Key, format!("{what} belong together"));
    } else {
        report.fail(
            Check::Key,
            format!("{what} do not belong together"),
            "use the certificate and key that were issued together",
        );
    }
}

/// Checks the dates of certificates. The report names the earliest end.
pub(super) fn dates(
    report: &mut Report,
    check: Check,
    what: &str,
    chain: &[CertificateDer<'_>],
    now: SystemTime,
) {
    let parsed: Vec<X509Certificate<'_>> = chain.iter().filter_map(|der| pem::parse_x509(der)).collect();
    let begin = parsed.iter().map(|found| found.validity().not_before.to_datetime()).max();
    let end = parsed.iter().map(|found| found.validity().not_after.to_datetime()).min();
    let (Some(begin), Some(end)) = (begin, end) else {
        report.fail(check, format!("{what} cannot be read"), "have it issued again");
        return;
    };
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let now = i64::try_from(seconds).ok().and_then(|now| OffsetDateTime::from_unix_timestamp(now).ok());
    let now = now.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let days = (end - now).whole_days();
    if now > end {
        let advice = "have a new one issued (tombolo ca issue), or correct this machine's clock";
        report.fail(check, format!("{what} has expired on {}", end.date()), advice);
    } else if now < begin {
        let advice = "correct this machine's clock, or have a new one issued";
        report.fail(check, format!("{what} is valid only from {begin} on"), advice);
    } else if days < SOON_DAYS {
        let advice = "have a new one issued in time (tombolo ca issue)";
        report.warn(check, format!("{what} ends on {}, in {days} days", end.date()), advice);
    } else {
        report.ok(check, format!("{what} is valid for {days} more days"));
    }
}

/// Checks that only its owner may read a secret file.
pub(super) fn private_file(report: &mut Report, check: Check, path: &Path) {
    match fs::metadata(path) {
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            let mode = found.permissions().mode() & 0o777;
            let shown = path.display();
            report.warn(
                check,
                format!("others may read {shown} (mode {mode:03o})"),
                format!("run: chmod 600 {shown}"),
            );
        }
        Ok(_) => report.ok(check, format!("only its owner may read {}", path.display())),
        Err(error) => {
            let shown = daemon::config::redact(&path.display().to_string());
            report.fail(check, format!("{shown}: {error}"), "check the path and who may read it");
        }
    }
}
