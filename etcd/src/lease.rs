//! Leases, with which keys are removed when their holder is silent.

use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};

use crate::client::Client;
use crate::error::Error;
use crate::rpc::lease_client::LeaseClient;
use crate::rpc::{LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest};

/// A lease of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease(i64);

/// The lease has ended, and its keys are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease has ended")]
pub struct LeaseEnded;

impl Lease {
    pub(crate) fn id(self) -> i64 {
        self.0
    }
}

impl Client {
    /// Grants a lease that ends when it is not kept alive for `ttl`, in whole seconds. A try whose answer was lost leaves a
    /// lease without keys, which ends by itself.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn grant(&self, ttl: Duration) -> Result<Lease, Error> {
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let request = LeaseGrantRequest { ttl: seconds, id: 0 };
        let granted = self.read(|channel| async move {
            Ok(LeaseClient::new(channel).lease_grant(request).await?.into_inner())
        });
        Ok(Lease(granted.await?.id))
    }

    /// Keeps a lease alive for its whole time, from now on.
    ///
    /// # Errors
    /// [`Error`]; and [`LeaseEnded`] within the result if it is too late.
    pub async fn keep_alive(&self, lease: Lease) -> Result<Result<(), LeaseEnded>, Error> {
        let answer = self.read(|channel| async move {
            let request = OneMessage(Some(LeaseKeepAliveRequest { id: lease.0 }));
            let mut answers = LeaseClient::new(channel).lease_keep_alive(request).await?.into_inner();
            answers.message().await?.ok_or_else(|| Status::unavailable("the stream ended without an answer"))
        });
        Ok(if answer.await?.ttl > 0 { Ok(()) } else { Err(LeaseEnded) })
    }

    /// Ends a lease, and removes its keys. A lease that has ended already is no error.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn revoke(&self, lease: Lease) -> Result<(), Error> {
        let request = LeaseRevokeRequest { id: lease.0 };
        let revoked = self.read(|channel| async move {
            match LeaseClient::new(channel).lease_revoke(request).await {
                Err(status) if status.code() != Code::NotFound => Err(status),
                Ok(_) | Err(_) => Ok(()),
            }
        });
        revoked.await
    }
}

impl fmt::Display for Lease {
    /// Writes the ID as `etcdctl lease list` does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A stream of one message, after which the sender ends.
struct OneMessage<T>(Option<T>);

impl<T: Unpin> tonic::codegen::tokio_stream::Stream for OneMessage<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        std::task::Poll::Ready(self.0.take())
    }
}
