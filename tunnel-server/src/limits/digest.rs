//! The digest by which servers speak of a caller without its name.

use std::net::IpAddr;

use aws_lc_rs::digest::{Context, SHA256};
use proto::ClusterId;
use proto::peering::CallerDigest;

use super::CallerKey;

/// Keeps these digests apart from digests of other things. Another form of the input needs another number.
const PURPOSE: &str = "tombolo caller share 1";

/// The digest of a caller, and of the cluster where a limit is for one.
///
/// It is SHA-256 without a key, cut to 16 bytes, over the purpose, the method, the user, the source address and the cluster, each
/// behind its length. So every server makes the same one, after a restart, too, and no secret has to be shared. It hides nothing
/// from a reader who guesses names. That suffices: it travels over TLS to servers that know these callers themselves, and no
/// log has it ([`CallerDigest`] does not show it). A caller would need 2^128 names to find one with the digest of another
/// caller. Two names of its own with one digest would only share a limit.
pub(super) fn caller_digest((method, user, source): &CallerKey, cluster: Option<&ClusterId>) -> CallerDigest {
    let source = source.as_ref().map(IpAddr::to_string).unwrap_or_default();
    let mut context = Context::new(&SHA256);
    // No cluster and no address is empty, so nothing else is taken for none.
    for part in [PURPOSE, method.as_str(), user, &source, cluster.map_or("", ClusterId::as_str)] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let mut digest = [0; 16];
    digest.copy_from_slice(&context.finish().as_ref()[..16]);
    CallerDigest(digest)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::identity::Method;

    /// Servers of different versions must agree, so a change of these bytes needs another [`PURPOSE`].
    #[test]
    fn every_server_makes_the_same_digest() {
        let key = (Method::ClientCertificate, "ann".to_owned(), Some("192.0.2.7".parse().unwrap()));
        let edge = "edge-a".parse().unwrap();

        let digest = caller_digest(&key, Some(&edge));

        let expected = 0xd9f1_d701_3a14_96d8_3636_d764_e709_b3ad_u128;
        assert_eq!(u128::from_be_bytes(digest.0), expected);
        assert_eq!(format!("{digest:?}"), "CallerDigest(..)", "no log can show it");
    }

    #[test]
    fn callers_and_clusters_have_digests_of_their_own() {
        let key = |method, user: &str, source: Option<&str>| {
            (method, user.to_owned(), source.map(|source| source.parse().unwrap()))
        };
        let [a, b]: [ClusterId; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let digests = [
            caller_digest(&key(Method::StaticToken, "ann", None), None),
            caller_digest(&key(Method::StaticToken, "ann", None), Some(&a)),
            caller_digest(&key(Method::StaticToken, "ann", None), Some(&b)),
            caller_digest(&key(Method::StaticToken, "anna", None), None),
            caller_digest(&key(Method::StaticToken, "ann", Some("::1")), None),
            caller_digest(&key(Method::ClientCertificate, "ann", None), None),
        ];

        assert_eq!(digests.into_iter().collect::<HashSet<_>>().len(), digests.len());
    }
}
