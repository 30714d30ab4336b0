//! An issuer of OpenID Connect that signs any claims, with right keys or wrong ones.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
    RsaPublicKeyComponents,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::fake_api::{Behaviour, FakeApi};
use crate::scratch::Scratch;

/// The audience of its tokens.
pub const AUDIENCE: &str = "tombolo";

/// The names of its keys.
pub const EC_KEY: &str = "ec-1";
/// The ID of the RSA key.
pub const RSA_KEY: &str = "rsa-1";

/// The path of its keys.
pub const KEYS: &str = "/keys";

/// A fake issuer with its keys.
#[derive(Debug)]
#[must_use = "the issuer is gone when this is dropped"]
pub struct Issuer {
    /// Its HTTP endpoint. Requests for its keys are recorded here.
    pub fake: FakeApi,
    scratch: Scratch,
    ec: EcdsaKeyPair,
    rsa: RsaKeyPair,
}

/// The kind of key by which a token is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenSignature {
    /// The key on P-256, as ES256 has it.
    Ec,
    /// The RSA key, as RS256 has it.
    Rsa,
    /// A MAC whose key is the public RSA key, which is no secret.
    MacOfPublicKey,
    /// The token has an empty signature.
    Nobody,
}

impl Issuer {
    /// Starts one, which publishes both its keys.
    pub async fn start() -> Self {
        let fake = FakeApi::start_http1().await.expect("the fake starts");
        let scratch = Scratch::new("tombolo-oidc-").expect("a folder");
        std::fs::write(scratch.path().join("ca.crt"), fake.ca_pem()).expect("a file can be written");
        let ec = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key can be made");
        let rsa = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key can be made");
        let issuer = Self { fake, scratch, ec, rsa };
        let discovery = json!({ "issuer": issuer.url(), "jwks_uri": format!("{}{KEYS}", issuer.url()) });
        issuer.fake.on("/.well-known/openid-configuration", Behaviour::json(discovery.to_string()));
        issuer.publish(&[issuer.ec_jwk(EC_KEY), issuer.rsa_jwk()]);
        issuer
    }

    /// The issuer's URL, which tokens name as `iss`.
    pub fn url(&self) -> String {
        self.fake.url()
    }

    /// The file with the CA that vouches for it.
    pub fn ca_file(&self) -> PathBuf {
        self.scratch.path().join("ca.crt")
    }

    /// A folder of its own.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Publishes these keys from now on.
    pub fn publish(&self, keys: &[Value]) {
        self.fake.on(KEYS, Behaviour::json(json!({ "keys": keys }).to_string()));
    }

    /// Its public key on P-256 by another name.
    pub fn ec_jwk(&self, name: &str) -> Value {
        let (x, y) = self.ec.public_key().as_ref()[1..].split_at(32);
        json!({ "kty": "EC", "crv": "P-256", "use": "sig", "kid": name, "x": encoded(x), "y": encoded(y) })
    }

    /// The public RSA key as a JWK.
    pub fn rsa_jwk(&self) -> Value {
        let RsaPublicKeyComponents { n, e } = RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public_key());
        json!({ "kty": "RSA", "alg": "RS256", "use": "sig", "kid": RSA_KEY, "n": encoded(&n), "e": encoded(&e) })
    }

    /// The claims of a good token of `user`, to be changed.
    pub fn claims(&self, user: &str) -> Value {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        json!({
            "iss": self.url(), "aud": AUDIENCE, "sub": user, "groups": ["tombolo:admins"],
            "iat": now - 1, "nbf": now - 1, "exp": now + 600,
        })
    }

    /// A good token of `user`.
    pub fn token(&self, user: &str) -> String {
        self.signed(
            &json!({ "alg": "ES256", "typ": "JWT", "kid": EC_KEY }).to_string(),
            &self.claims(user).to_string(),
            TokenSignature::Ec,
        )
    }

    /// A token of these claims, otherwise good.
    pub fn token_of(&self, claims: &str) -> String {
        self.signed(
            &json!({ "alg": "ES256", "typ": "JWT", "kid": EC_KEY }).to_string(),
            claims,
            TokenSignature::Ec,
        )
    }

    /// A token of this header and these claims, to the byte.
    pub fn signed(&self, header: &str, claims: &str, by: TokenSignature) -> String {
        let mut token = format!("{}.{}", encoded(header.as_bytes()), encoded(claims.as_bytes()));
        let signature = self.signature(token.as_bytes(), by);
        let _ = write!(token, ".{}", encoded(&signature));
        token
    }

    fn signature(&self, message: &[u8], by: TokenSignature) -> Vec<u8> {
        let random = SystemRandom::new();
        match by {
            TokenSignature::Ec => self.ec.sign(&random, message).expect("a key signs").as_ref().to_vec(),
            TokenSignature::Rsa => {
                let mut signature = vec![0; self.rsa.public_modulus_len()];
                self.rsa.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).expect("a key signs");
                signature
            }
            TokenSignature::MacOfPublicKey => {
                let public = self.rsa.public_key().as_der().expect("a public key has a form");
                let key = hmac::Key::new(hmac::HMAC_SHA256, public.as_ref());
                hmac::sign(&key, message).as_ref().to_vec()
            }
            TokenSignature::Nobody => Vec::new(),
        }
    }
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
