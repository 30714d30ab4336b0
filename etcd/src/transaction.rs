//! Changes that are made together, if nothing that they depend on has changed.

use crate::client::Client;
use crate::error::CommitError;
use crate::keys::{KeyRange, Revision};
use crate::lease::Lease;
use crate::rpc::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::rpc::kv_client::KvClient;
use crate::rpc::request_op::Request;
use crate::rpc::{self, DeleteRangeRequest, PutRequest, RequestOp, TxnRequest, TxnResponse};

/// Most comparisons of one transaction, and most writes: etcd's own default (`--max-txn-ops`).
pub const TRANSACTION_OPERATIONS_MAX: usize = 128;

/// A condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key was last changed by this revision.
    Unchanged(Vec<u8>, Revision),
    /// The key does not exist.
    Absent(Vec<u8>),
    /// No key of the range was added or changed after this revision. Removed keys are not noticed.
    NothingNewer(KeyRange, Revision),
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Puts a value.
    Put(Vec<u8>, Vec<u8>),
    /// Puts a value that is removed with the lease.
    PutLeased(Vec<u8>, Vec<u8>, Lease),
    /// Removes a key, if it is there.
    Remove(Vec<u8>),
    /// Removes all keys of a range.
    RemoveAll(KeyRange),
}

/// The result of a transaction that etcd has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All changes were made, by this revision.
    Made(Revision),
    /// A condition does not hold, so nothing was changed.
    Conflict,
}

impl Client {
    /// Makes all changes if all conditions hold.
    ///
    /// # Errors
    /// [`CommitError`], which tells a change that was surely not made from one that may have been.
    pub async fn commit(
        &self,
        conditions: Vec<Compare>,
        changes: Vec<Write>,
    ) -> Result<Outcome, CommitError> {
        let request = TxnRequest {
            compare: conditions.into_iter().map(rpc::Compare::from).collect(),
            success: changes.into_iter().map(RequestOp::from).collect(),
            failure: Vec::new(),
        };
        let answer = self.write(|channel| {
            let request = request.clone();
            async move { Ok(KvClient::new(channel).txn(request).await?.into_inner()) }
        });
        let TxnResponse { header, succeeded, .. } = answer.await?;
        let revision = header.map_or(0, |header| header.revision);
        Ok(if succeeded { Outcome::Made(Revision(revision)) } else { Outcome::Conflict })
    }
}

impl From<Compare> for rpc::Compare {
    fn from(condition: Compare) -> Self {
        let modified = |key, end, result: CompareResult, revision: Revision| Self {
            result: result.into(),
            target: CompareTarget::Mod.into(),
            key,
            range_end: end,
            target_union: Some(TargetUnion::ModRevision(revision.0)),
        };
        match condition {
            Compare::Unchanged(key, revision) => modified(key, Vec::new(), CompareResult::Equal, revision),
            Compare::Absent(key) => modified(key, Vec::new(), CompareResult::Equal, Revision(0)),
            Compare::NothingNewer(KeyRange { key, end }, revision) => {
                modified(key, end, CompareResult::Less, Revision(revision.0.saturating_add(1)))
            }
        }
    }
}

impl From<Write> for RequestOp {
    fn from(change: Write) -> Self {
        let put = |key, value, lease| Request::RequestPut(PutRequest { key, value, lease });
        let request = match change {
            Write::Put(key, value) => put(key, value, 0),
            Write::PutLeased(key, value, lease) => put(key, value, lease.id()),
            Write::RemoveAll(KeyRange { key, end }) => {
                Request::RequestDeleteRange(DeleteRangeRequest { key, range_end: end })
            }
            Write::Remove(key) => {
                Request::RequestDeleteRange(DeleteRangeRequest { key, range_end: Vec::new() })
            }
        };
        Self { request: Some(request) }
    }
}
