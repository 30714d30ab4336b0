//! Hashes of CAs, by which a machine without a credential recognizes its cluster.

use std::str::FromStr;

use aws_lc_rs::digest::{self, SHA256};

/// The hash of a CA's public key: `sha256:` and 64 hexadecimal digits, as kubeadm has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CaHash(String);

/// The text is no hash of a CA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the hash of a CA, which is sha256: and 64 hexadecimal digits; `tombolo node join-command` prints it"
)]
pub(crate) struct NotAHash;

impl CaHash {
    /// The hash of a public key, SubjectPublicKeyInfo in DER.
    pub(crate) fn of_public_key(public_key: &[u8]) -> Self {
        let digest = digest::digest(&SHA256, public_key);
        Self(format!(
            "sha256:{}",
            digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        ))
    }

    /// The text, as kubeadm has it.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl FromStr for CaHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let digits = text.strip_prefix("sha256:").ok_or(NotAHash)?;
        let is_hash = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hash { Ok(Self(text.to_ascii_lowercase())) } else { Err(NotAHash) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_kubeadm() {
        let digits = "8CB2DE97839780A412B93877F8507AD6C94F73ADD17D5D7058E91741C9D5EC78";

        let hash: CaHash = format!("sha256:{digits}").parse().unwrap();

        assert_eq!(hash.text(), format!("sha256:{}", digits.to_lowercase()));
        for text in ["", digits, "sha256:12", "sha1:00"] {
            assert_eq!(text.parse::<CaHash>(), Err(NotAHash), "{text}");
        }
    }
}
