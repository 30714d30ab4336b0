//! Hashes of CAs, by which a machine without a credential recognizes its cluster.

use trust::Pin;

/// The text is no hash of a CA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the hash of a CA, which is sha256: and 64 hexadecimal digits; `tombolo node join-command` prints it"
)]
pub(crate) struct NotACaHash;

/// Parses the hash of a CA's public key, as kubeadm has it: it is the same as a pin.
pub(crate) fn ca_hash(text: &str) -> Result<Pin, NotACaHash> {
    text.parse().map_err(|_| NotACaHash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_kubeadm() {
        let digits = "8CB2DE97839780A412B93877F8507AD6C94F73ADD17D5D7058E91741C9D5EC78";

        let hash = ca_hash(&format!("sha256:{digits}")).unwrap();

        assert_eq!(hash.to_string(), format!("sha256:{}", digits.to_lowercase()));
        for text in ["", digits, "sha256:12", "sha1:00"] {
            assert_eq!(ca_hash(text), Err(NotACaHash), "{text}");
        }
    }
}
