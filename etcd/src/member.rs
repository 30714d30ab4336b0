//! The state of one member, and whether its release can be used.

use std::fmt;

use tokio::time::Instant;
use tonic::Status;

use crate::client::{Client, TRY_MAX, Tried};
use crate::endpoint::Endpoint;
use crate::error::TryError;
use crate::rpc::StatusRequest;
use crate::rpc::maintenance_client::MaintenanceClient;

/// The oldest release that can be used. Watches of earlier ones lose events or tell of progress too early (etcd issues
/// 15220, 17507, 17529 and 18089).
pub const VERSION_MIN: Version = Version(3, 5, 15);

/// A release of etcd: major, minor, patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

/// The state of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// The release of the member; `None` if it is not of three numbers.
    pub version: Option<Version>,
    /// The release as the member writes it.
    pub version_text: String,
    /// The ID of the etcd cluster.
    pub cluster_id: u64,
    /// True if the member knows a leader.
    pub has_leader: bool,
    /// True for a member that does not vote yet.
    pub is_learner: bool,
    /// The size of the database in bytes, and its quota, 0 if it is not told.
    pub database_bytes: (u64, u64),
    /// Alarms, such as `NOSPACE`.
    pub alarms: Vec<String>,
}

/// The reason why a member cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    /// Its watches can lose events.
    #[error("it is etcd {0}, whose watches can lose events: use {VERSION_MIN} or a newer release")]
    Version(String),
    /// It takes no more writes.
    #[error("it has the alarm {0}: `etcdctl alarm list` and etcd's page on maintenance say what to do")]
    Alarm(String),
}

impl Client {
    /// Asks one member for its state.
    ///
    /// # Errors
    /// [`TryError`].
    pub async fn status(&self, endpoint: &Endpoint) -> Result<MemberStatus, TryError> {
        let index = self.endpoints().iter().position(|found| found == endpoint).unwrap_or_default();
        let ask = |channel| async {
            Ok::<_, Status>(MaintenanceClient::new(channel).status(StatusRequest {}).await?.into_inner())
        };
        match self.ask(index, Instant::now() + TRY_MAX, &ask).await {
            Tried::Answered(answer) => Ok(MemberStatus {
                version: answer.version.parse().ok(),
                version_text: answer.version,
                cluster_id: answer.header.map_or(0, |header| header.cluster_id),
                has_leader: answer.leader != 0,
                is_learner: answer.is_learner,
                database_bytes: (
                    u64::try_from(answer.db_size).unwrap_or_default(),
                    u64::try_from(answer.db_size_quota).unwrap_or_default(),
                ),
                alarms: answer.errors,
            }),
            Tried::NotProcessed(error) | Tried::Unknown(error) => Err(error),
            Tried::Refused(status) => Err(TryError::Status(status)),
        }
    }
}

impl MemberStatus {
    /// Checks that the member can be used.
    ///
    /// # Errors
    /// [`Unsuitable`]. A release that is not of three numbers is refused, too.
    pub fn check(&self) -> Result<(), Unsuitable> {
        if self.version.is_none_or(|version| version < VERSION_MIN) {
            return Err(Unsuitable::Version(self.version_text.clone()));
        }
        let alarm = self.alarms.iter().find(|alarm| alarm.contains("NOSPACE") || alarm.contains("CORRUPT"));
        alarm.map_or(Ok(()), |alarm| Err(Unsuitable::Alarm(alarm.clone())))
    }
}

impl std::str::FromStr for Version {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A pre-release is older than its release, and not wanted here.
        let mut numbers = text.splitn(3, '.');
        let mut next = || numbers.next().unwrap_or_default().parse();
        Ok(Self(next()?, next()?, next()?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_whose_watches_lose_events_and_members_without_space_are_refused() {
        for (version, alarm, is_usable) in [
            ("3.5.14", None, false),
            ("3.5.15", None, true),
            ("3.7.3", None, true),
            ("3.6.0-rc.1", None, false),
            ("3.4.99", None, false),
            ("", None, false),
            ("3.7.3", Some("memberID:8 alarm:NOSPACE "), false),
        ] {
            let status = MemberStatus {
                version: version.parse().ok(),
                version_text: version.to_owned(),
                cluster_id: 1,
                has_leader: true,
                is_learner: false,
                database_bytes: (0, 0),
                alarms: alarm.map(str::to_owned).into_iter().collect(),
            };
            assert_eq!(status.check().is_ok(), is_usable, "{version} {alarm:?}");
        }
    }
}
