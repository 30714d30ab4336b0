//! Releases of Kubernetes, such as `v1.36.3`.

use std::fmt;
use std::str::FromStr;

/// A release, without marks of builds or of releases to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KubernetesVersion {
    major: u32,
    minor: u32,
    patch: u32,
}

#[derive(Debug, thiserror::Error)]
#[error("not a release of Kubernetes; use one such as v1.36.3")]
pub(crate) struct NotAKubernetesVersion;

/// An upgrade that Kubernetes does not support.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAnUpgrade {
    #[error(
        "{1} is older than {0}, and Kubernetes does not support downgrades: restore a backup of etcd with the programs of {1}"
    )]
    Downgrade(KubernetesVersion, KubernetesVersion),
    #[error("from {0} to {1} a minor release would be left out; upgrade to v{major}.{next} first", major = .0.major, next = .0.minor + 1)]
    SkipsMinor(KubernetesVersion, KubernetesVersion),
}

impl KubernetesVersion {
    /// Refuses an upgrade to `next` that Kubernetes' version skew policy does not allow. The same release is allowed: it ends an
    /// interrupted upgrade.
    pub(crate) fn check_upgrade(self, next: Self) -> Result<(), NotAnUpgrade> {
        if next < self {
            Err(NotAnUpgrade::Downgrade(self, next))
        } else if next.major != self.major || next.minor > self.minor + 1 {
            Err(NotAnUpgrade::SkipsMinor(self, next))
        } else {
            Ok(())
        }
    }
}

impl FromStr for KubernetesVersion {
    type Err = NotAKubernetesVersion;

    fn from_str(text: &str) -> Result<Self, NotAKubernetesVersion> {
        let number = |part: &str| {
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse().ok().filter(|_| is_number).ok_or(NotAKubernetesVersion)
        };
        match *text.strip_prefix('v').unwrap_or(text).split('.').collect::<Vec<_>>() {
            [major, minor, patch] => {
                Ok(Self { major: number(major)?, minor: number(minor)?, patch: number(patch)? })
            }
            _ => Err(NotAKubernetesVersion),
        }
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_three_numbers() {
        assert_eq!(version("1.36.3").to_string(), "v1.36.3");
        for bad in ["", "v1.36", "v1.36.3-rc.1", "v1.36.3.4", "v1.+3.1", "latest"] {
            assert!(bad.parse::<KubernetesVersion>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_upgrade_goes_forward_by_one_minor_release_at_most() {
        let from = version("v1.36.3");
        for next in ["v1.36.3", "v1.36.10", "v1.37.0"] {
            assert_eq!(from.check_upgrade(version(next)), Ok(()), "{next}");
        }
        for older in ["v1.36.2", "v1.35.9", "v0.40.0"] {
            let expected = NotAnUpgrade::Downgrade(from, version(older));
            assert_eq!(from.check_upgrade(version(older)), Err(expected));
        }
        for far in ["v1.38.0", "v2.0.0"] {
            let refused = from.check_upgrade(version(far)).unwrap_err();
            assert!(refused.to_string().contains("upgrade to v1.37 first"), "{refused}");
        }
    }

    fn version(text: &str) -> KubernetesVersion {
        text.parse().unwrap()
    }
}
