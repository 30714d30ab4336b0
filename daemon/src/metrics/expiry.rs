//! When certificates end.

use metrics::gauge;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Sets the gauge `metric{certificate="USED_FOR"}` to when the first of these certificates ends, in seconds since 1970. One
/// that cannot be read is left out.
pub fn note(metric: &'static str, used_for: &'static str, certificates: &[CertificateDer<'_>]) {
    let ends = certificates.iter().filter_map(|certificate| {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        Some(certificate.validity().not_after.timestamp())
    });
    if let Some(first) = ends.min() {
        gauge!(metric, "certificate" => used_for).set(first as f64);
    }
}
