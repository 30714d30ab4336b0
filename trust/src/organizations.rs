//! Writes subjects with several organizations. The library rcgen cannot: it keeps one attribute of each type.

use rcgen::{KeyPair, SigningKey as _};
use rustls_pki_types::CertificateDer;
use yasna::models::ObjectIdentifier;
use yasna::{ASN1Result, DERWriter};

use crate::names::{Group, User};

/// The index of the subject in the certificate's signed part, after version, serial number, algorithm, issuer
/// and validity (RFC 5280, section 4.1).
const SUBJECT: usize = 5;
const ORGANIZATION_NAME: &[u64] = &[2, 5, 4, 10];
const COMMON_NAME: &[u64] = &[2, 5, 4, 3];

/// Rewrites a caller's certificate: one organization per group, then the user as common name. Signs it again with `issuer`.
pub(crate) fn with_organizations(
    certificate: &[u8],
    user: &User,
    groups: &[Group],
    issuer: &KeyPair,
) -> Result<CertificateDer<'static>, rcgen::Error> {
    let (mut signed_part, algorithm) =
        split_certificate(certificate).map_err(|_| rcgen::Error::CouldNotParseCertificate)?;
    let subject = signed_part.get_mut(SUBJECT).ok_or(rcgen::Error::CouldNotParseCertificate)?;
    *subject = yasna::construct_der(|writer| write_subject(writer, user, groups));
    let signed_part = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| signed_part.iter().for_each(|part| writer.next().write_der(part)));
    });
    let signature = issuer.sign(&signed_part)?;
    let complete = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(&signed_part);
            writer.next().write_der(&algorithm);
            writer.next().write_bitvec_bytes(&signature, signature.len() * 8);
        });
    });
    Ok(complete.into())
}

/// Splits a certificate into the elements of its signed part and the signature's algorithm.
fn split_certificate(certificate: &[u8]) -> ASN1Result<(Vec<Vec<u8>>, Vec<u8>)> {
    yasna::parse_der(certificate, |reader| {
        reader.read_sequence(|reader| {
            let signed_part = reader.next().collect_sequence_of(|reader| reader.read_der())?;
            let algorithm = reader.next().read_der()?;
            let _old_signature = reader.next().read_der()?;
            Ok((signed_part, algorithm))
        })
    })
}

fn write_subject(writer: DERWriter<'_>, user: &User, groups: &[Group]) {
    let attributes =
        groups.iter().map(|group| (ORGANIZATION_NAME, group.as_str())).chain([(COMMON_NAME, user.as_str())]);
    writer.write_sequence(|writer| {
        for (kind, value) in attributes {
            writer.next().write_set(|writer| {
                writer.next().write_sequence(|writer| {
                    writer.next().write_oid(&ObjectIdentifier::from_slice(kind));
                    writer.next().write_utf8_string(value);
                });
            });
        }
    });
}
