//! Server certificates that Go's clients accept or refuse, in one table.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject as _;
use time::OffsetDateTime;

use super::*;

/// A self-signed certificate with an RSA key of 1,024 bits, valid for a century.
const RSA_1024: &str = "-----BEGIN CERTIFICATE-----
MIICEzCCAXygAwIBAgIUDeUNik3CKk9OUJ6D84u3RD1tad0wDQYJKoZIhvcNAQEL
BQAwEDEOMAwGA1UEAwwFc2hvcnQwIBcNMjYxMTI2MTAyODQxWhgPMjEyNjExMDIx
MDI4NDFaMBAxDjAMBgNVBAMMBXNob3J0MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCB
iQKBgQC8Kmsgl6wnMfxpwKn9dAoYfH3NITBPKb2okLIb/7gOE7w6TY5p0pDsnl4d
//1/N8xhURrlRCoxfYlrUJeBPwT0TX+VKsxjf+cl8hMgE+rYqmp6akPob253tl/G
osQn24t29EYv1escFa6F+ER4nqu5bgoP2hxG/9e9WPb2THRXnQIDAQABo2gwZjAd
BgNVHQ4EFgQUOMDEcsaGfkjIm6j5+vbcODNZ7JUwHwYDVR0jBBgwFoAUOMDEcsaG
fkjIm6j5+vbcODNZ7JUwDwYDVR0TAQH/BAUwAwEB/zATBgNVHREEDDAKgghhcGku
dGVzdDANBgkqhkiG9w0BAQsFAAOBgQAo96vXeNUJ8KmF0LohgfGu/1IkGdj3MAla
jh0REUQeyRERSrWhlNKz+yKR3G0Qx9vPLC7CBXxNnoKeWEqHL/nEXwxJ1bjDlp+s
lRkKDrRIOal1xQ1N04ubjFWX6FnG2EaazUUif05gA5XuhY62ZQAbWyZ+5bm70vDU
9y3V8empRA==
-----END CERTIFICATE-----";

type Shown = CertificateDer<'static>;

#[test]
fn a_chain_to_a_given_ca_is_accepted() {
    let (ca, leaf) = signed(&|_| {}, &|_| {});

    assert_eq!(verify(&[ca], &leaf), Ok(()));
}

#[test]
fn exactly_that_certificate_is_accepted_as_its_own_ca() {
    for (what, is_ca) in [
        ("openssl req -x509", IsCa::Ca(BasicConstraints::Unconstrained)),
        ("CA:FALSE", IsCa::ExplicitNoCa),
        ("no basic constraints", IsCa::NoCa),
    ] {
        let (given, other) = (self_signed(is_ca, &|_| {}), self_signed(is_ca, &|_| {}));

        assert_eq!(verify(std::slice::from_ref(&given), &given), Ok(()), "{what}");
        assert!(verify(&[given], &other).is_err(), "{what}: another certificate of the same name");
    }
}

#[test]
fn the_pin_of_a_leaf_is_accepted_and_trusts_no_other_leaf() {
    let (ca, pinned) = signed(&|_| {}, &|_| {});
    let (_, other) = signed(&|_| {}, &|_| {});

    assert_eq!(verify(std::slice::from_ref(&pinned), &pinned), Ok(()));
    assert_eq!(verify(std::slice::from_ref(&pinned), &other), Err("UnknownIssuer".to_owned()));
    assert!(verify(&[pinned], &ca).is_err());
}

#[test]
fn a_pinned_certificate_is_still_one_of_that_name_time_and_use() {
    let ended: &dyn Fn(&mut CertificateParams) = &|params| params.not_after = at(-1);
    let begins: &dyn Fn(&mut CertificateParams) = &|params| params.not_before = at(1);
    let for_clients: &dyn Fn(&mut CertificateParams) =
        &|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let renamed: &dyn Fn(&mut CertificateParams) = &|params| {
        params.subject_alt_names =
            CertificateParams::new(vec!["other.test".to_owned()]).unwrap().subject_alt_names;
    };
    for (change, expected) in [
        (ended, "Expired"),
        (begins, "NotValidYet"),
        (for_clients, "NotForServers"),
        (renamed, "NotValidForNameContext"),
    ] {
        let given = self_signed(IsCa::ExplicitNoCa, change);
        assert_eq!(verify(std::slice::from_ref(&given), &given), Err(expected.to_owned()));
    }
}

#[test]
fn a_ca_that_has_expired_or_is_not_valid_yet_signs_nothing() {
    let ended: &dyn Fn(&mut CertificateParams) = &|params| params.not_after = at(-1);
    let begins: &dyn Fn(&mut CertificateParams) = &|params| params.not_before = at(1);
    for (change, expected) in [(ended, "CaExpired"), (begins, "CaNotValidYet")] {
        let (ca, leaf) = signed(change, &|_| {});
        let (valid, _) = signed(&|_| {}, &|_| {});

        assert_eq!(verify(&[ca, valid], &leaf), Err(expected.to_owned()));
    }
}

#[test]
fn a_root_that_may_not_sign_is_no_ca() {
    let without: &dyn Fn(&mut CertificateParams) = &|params| params.is_ca = IsCa::NoCa;
    let leaf_alone: &dyn Fn(&mut CertificateParams) = &|params| params.is_ca = IsCa::ExplicitNoCa;
    let no_signing: &dyn Fn(&mut CertificateParams) =
        &|params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    for (change, why) in
        [(without, NotACa::NoBasicConstraints), (leaf_alone, NotACa::Leaf), (no_signing, NotACa::KeyUsage)]
    {
        let (ca, leaf) = signed(change, &|_| {});

        assert_eq!(verifier().trust(ca.clone()).unwrap(), Err(why));
        assert_eq!(verify(&[ca], &leaf), Err("UnknownIssuer".to_owned()), "{why}");
    }
}

#[test]
fn a_short_key_is_refused_by_its_length() {
    let given = CertificateDer::from_pem_slice(RSA_1024.as_bytes()).unwrap();

    assert_eq!(verify(std::slice::from_ref(&given), &given), Err("ShortKey(1024)".to_owned()));
}

#[test]
fn what_is_no_certificate_cannot_be_trusted() {
    let (ca, _) = signed(&|_| {}, &|_| {});
    let longer = CertificateDer::from([ca.as_ref(), &[0]].concat());
    let shorter = CertificateDer::from(ca[..ca.len() - 1].to_vec());

    for broken in [longer, shorter, CertificateDer::from(b"CA".to_vec())] {
        let mut verifier = verifier();
        assert!(verifier.trust(broken).is_err());
        assert!(verifier.pins.is_empty());
    }
}

fn verifier() -> ServerCertificateVerifier {
    ServerCertificateVerifier::new(aws_lc_rs::default_provider().signature_verification_algorithms)
}

/// Verifies a certificate for `api.test`. The error is the variant's name.
#[expect(clippy::unwrap_in_result, reason = "only the verifier's own error is the result of a test")]
#[expect(clippy::wildcard_enum_match_arm, reason = "rustls::Error is foreign and non-exhaustive")]
fn verify(given: &[Shown], shown: &Shown) -> Result<(), String> {
    let mut verifier = verifier();
    for certificate in given {
        // One that is no CA is still trusted as itself.
        let _ = verifier.trust(certificate.clone()).unwrap();
    }
    let name = ServerName::try_from("api.test").unwrap();
    let verified = verifier.verify_server_cert(shown, &[], &name, &[], UnixTime::now());
    verified.map(drop).map_err(|error| match error {
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            let ours = other.0.downcast_ref::<ServerCertificateError>();
            ours.map_or_else(|| other.to_string(), |ours| format!("{ours:?}"))
        }
        Error::InvalidCertificate(error) => {
            format!("{error:?}").split([' ', '{', '(']).next().unwrap_or_default().to_owned()
        }
        other => other.to_string(),
    })
}

/// A CA and a leaf that it has signed.
fn signed(
    change_ca: &dyn Fn(&mut CertificateParams),
    change_leaf: &dyn Fn(&mut CertificateParams),
) -> (Shown, Shown) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change_ca(&mut params);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::new(vec!["api.test".to_owned()]).unwrap();
    change_leaf(&mut params);
    let leaf = params.signed_by(&KeyPair::generate().unwrap(), &ca).unwrap();
    (ca.der().clone(), leaf.der().clone())
}

fn self_signed(is_ca: IsCa, change: &dyn Fn(&mut CertificateParams)) -> Shown {
    let mut params = CertificateParams::new(vec!["api.test".to_owned()]).unwrap();
    params.is_ca = is_ca;
    change(&mut params);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}

/// A time so many days from now.
fn at(days: i64) -> OffsetDateTime {
    OffsetDateTime::now_utc() + time::Duration::days(days)
}
