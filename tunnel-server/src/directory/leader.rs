//! The record of a leader that the servers have elected.

use serde::{Deserialize, Serialize};

use super::store::{StoreTable, StoredRecord};

/// The leader of an election. Its record is bound to the lease, and etcd removes it with that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Leader {
    /// The ID of the server that leads.
    pub(super) server_id: String,
    /// The lease of its entry, in hexadecimal. So each process and each registration has a record of its own.
    pub(super) lease: String,
}

impl StoredRecord for Leader {
    const TABLE: StoreTable = StoreTable::Leaders;
}
