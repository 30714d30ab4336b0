//! Usable keys, and the algorithms that each verifies.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RsaEncoding,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::RSAPublicKey;

use super::*;
use crate::identity::oidc::test_crypto;

/// All algorithms that a token can name, as RFC 7518, section 3.1, and RFC 8037 write them.
const ALGORITHMS: [&str; 12] = [
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "HS256", "HS384",
    "HS512",
];

/// A key in its published form, with a signing function for each algorithm of its kind.
struct KeySigner {
    jwk: Value,
    by: Vec<(&'static str, Sign)>,
}

type Sign = Box<dyn Fn(&[u8]) -> Vec<u8>>;

#[test]
fn the_number_of_an_issuers_keys_is_limited() {
    // The base point of P-256 (FIPS 186-4, section D.1.2.3), a valid public key.
    let key = json!({
        "kty": "EC", "crv": "P-256", "use": "sig", "kid": "k",
        "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY", "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU",
    });
    let parsed = |count: usize| set(&vec![key.clone(); count]);
    assert_eq!(parsed(KEYS_MAX).ok().map(|keys| keys.0.len()), Some(KEYS_MAX));
    assert_eq!(parsed(KEYS_MAX + 1).err(), Some(KeySetError::TooMany));
    assert_eq!(parsed(0).err(), Some(KeySetError::Empty));
}

/// A key verifies what it has signed by an algorithm of its kind, and nothing by another algorithm.
#[test]
fn a_key_verifies_only_algorithms_of_its_kind() {
    test_crypto().unwrap();
    for KeySigner { jwk, by } in [rsa(), p256(), p384(), ed25519()] {
        let keys = set(std::slice::from_ref(&jwk)).unwrap();
        for name in ALGORITHMS {
            let sign = by.iter().find(|(known, _)| *known == name).map(|(_, sign)| sign);
            let expected = if sign.is_some() { Signed::Yes } else { Signed::UnknownKey };

            let signature = |signed: &str| sign.map_or_else(|| vec![0; 64], |sign| sign(signed.as_bytes()));

            assert_eq!(verified(&keys, name, signature), expected, "{name} by {jwk}");
        }
        let (name, _) = by[0];
        assert_eq!(verified(&keys, name, |_| vec![0; 64]), Signed::No, "{name} by {jwk}");
    }
}

#[test]
fn a_key_for_one_algorithm_or_another_purpose_is_kept_to_it() {
    test_crypto().unwrap();
    let KeySigner { mut jwk, by } = rsa();
    jwk["alg"] = json!("PS384");
    let keys = set(std::slice::from_ref(&jwk)).unwrap();
    for (name, sign) in &by {
        let expected = if *name == "PS384" { Signed::Yes } else { Signed::UnknownKey };
        assert_eq!(verified(&keys, name, |signed| sign(signed.as_bytes())), expected, "{name}");
    }
    jwk["use"] = json!("enc");
    assert_eq!(set(&[jwk]).err(), Some(KeySetError::Empty));
}

#[test]
fn a_key_of_an_unsupported_curve_or_kind_is_left_out() {
    let half = URL_SAFE_NO_PAD.encode([1; 32]);
    for key in [
        json!({ "kty": "EC", "crv": "P-521", "x": half, "y": half }),
        json!({ "kty": "EC", "crv": "Ed25519", "x": half, "y": half }),
        json!({ "kty": "OKP", "crv": "P-256", "x": half }),
        json!({ "kty": "oct", "k": half }),
        json!({ "kty": "AKP", "alg": "ML-DSA-44", "pub": half }),
    ] {
        assert_eq!(set(std::slice::from_ref(&key)).err(), Some(KeySetError::Empty), "{key}");
    }
}

fn set(keys: &[Value]) -> Result<KeySet, KeySetError> {
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
}

/// The result of verifying a token with this algorithm by `keys`.
fn verified(keys: &KeySet, algorithm: &str, sign: impl Fn(&str) -> Vec<u8>) -> Signed {
    let [header, claims] =
        [json!({ "alg": algorithm }), json!({})].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = format!("{header}.{claims}");
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(sign(&signed)));
    keys.signed(&Jwt::parse(&token).unwrap().unwrap())
}

fn rsa() -> KeySigner {
    let key = std::rc::Rc::new(RsaKeyPair::generate(KeySize::Rsa2048).unwrap());
    let der = key.public_key().as_ref().to_vec();
    let (_, public) = RSAPublicKey::from_der(&der).unwrap();
    // In DER a number that begins with a one bit has a zero in front.
    let [n, e] = [public.modulus, public.exponent].map(|number| {
        URL_SAFE_NO_PAD.encode(&number[number.iter().take_while(|byte| **byte == 0).count()..])
    });
    let by = |name, encoding: &'static dyn RsaEncoding| {
        let key = key.clone();
        let sign = move |signed: &[u8]| {
            let mut signature = vec![0; key.public_modulus_len()];
            key.sign(encoding, &SystemRandom::new(), signed, &mut signature).unwrap();
            signature
        };
        (name, Box::new(sign) as Sign)
    };
    KeySigner {
        jwk: json!({ "kty": "RSA", "n": n, "e": e }),
        by: vec![
            by("RS256", &signature::RSA_PKCS1_SHA256),
            by("RS384", &signature::RSA_PKCS1_SHA384),
            by("RS512", &signature::RSA_PKCS1_SHA512),
            by("PS256", &signature::RSA_PSS_SHA256),
            by("PS384", &signature::RSA_PSS_SHA384),
            by("PS512", &signature::RSA_PSS_SHA512),
        ],
    }
}

fn p256() -> KeySigner {
    ecdsa("P-256", "ES256", &ECDSA_P256_SHA256_FIXED_SIGNING)
}

fn p384() -> KeySigner {
    ecdsa("P-384", "ES384", &ECDSA_P384_SHA384_FIXED_SIGNING)
}

fn ecdsa(curve: &str, name: &'static str, algorithm: &'static EcdsaSigningAlgorithm) -> KeySigner {
    let key = EcdsaKeyPair::generate(algorithm).unwrap();
    let point = &key.public_key().as_ref()[1..];
    let (x, y) = point.split_at(point.len() / 2);
    let [x, y] = [x, y].map(|half| URL_SAFE_NO_PAD.encode(half));
    let jwk = json!({ "kty": "EC", "crv": curve, "x": x, "y": y });
    let sign = move |signed: &[u8]| key.sign(&SystemRandom::new(), signed).unwrap().as_ref().to_vec();
    KeySigner { jwk, by: vec![(name, Box::new(sign))] }
}

fn ed25519() -> KeySigner {
    let key = Ed25519KeyPair::generate().unwrap();
    let x = URL_SAFE_NO_PAD.encode(key.public_key().as_ref());
    let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": x });
    KeySigner { jwk, by: vec![("EdDSA", Box::new(move |signed: &[u8]| key.sign(signed).as_ref().to_vec()))] }
}
