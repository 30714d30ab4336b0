//! The gauges of the times between which certificates are valid.

use metrics::{describe_gauge, gauge};
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The names of the two gauges of a daemon, each with the label `certificate`, in seconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct ValidityGauges {
    /// The gauge of the end, `notAfter`.
    pub expiry: &'static str,
    /// The gauge of the beginning, `notBefore`. An alert needs it, because a certificate of one day is always
    /// close to its end.
    pub not_before: &'static str,
}

impl ValidityGauges {
    /// Describes both gauges to the exporter.
    pub fn describe(self) {
        describe_gauge!(self.expiry, "When a certificate in use expires, in seconds since 1970, by its use.");
        describe_gauge!(
            self.not_before,
            "When a certificate in use became valid, in seconds since 1970, by its use."
        );
    }

    /// Sets both gauges with `certificate="USED_FOR"` to the times of the certificate that ends first. A
    /// certificate that cannot be parsed is left out.
    pub fn set(self, used_for: &'static str, certificates: &[CertificateDer<'_>]) {
        let validities = certificates.iter().filter_map(|certificate| {
            let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
            let validity = certificate.validity();
            Some((validity.not_after.timestamp(), validity.not_before.timestamp()))
        });
        if let Some((not_after, not_before)) = validities.min() {
            gauge!(self.expiry, "certificate" => used_for).set(not_after as f64);
            gauge!(self.not_before, "certificate" => used_for).set(not_before as f64);
        }
    }
}
