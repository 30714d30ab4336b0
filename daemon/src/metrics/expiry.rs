//! The gauge of the expiry times of certificates.

use metrics::gauge;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Sets the gauge `metric{certificate="USED_FOR"}` to the earliest end of these certificates, in seconds
/// since 1970. A certificate that cannot be parsed is left out.
pub fn set_gauge(metric: &'static str, used_for: &'static str, certificates: &[CertificateDer<'_>]) {
    let ends = certificates.iter().filter_map(|certificate| {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        Some(certificate.validity().not_after.timestamp())
    });
    if let Some(first) = ends.min() {
        gauge!(metric, "certificate" => used_for).set(first as f64);
    }
}
