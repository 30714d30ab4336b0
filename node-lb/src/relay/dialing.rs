//! Finds an API server for a connection, and dials it.

use std::net::SocketAddr;
use std::time::Instant;

use daemon::error_chain;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::debug;

use super::{DIAL_MAX, FIRST_MAX, keep_alive};
use crate::balancer::{Balancer, Chosen};
use crate::members::{ConnectionResult, ProbeOutcome};
use crate::probing::dial_failed;

/// The connection to an API server.
#[derive(Debug)]
pub(super) struct ApiServer {
    pub(super) stream: TcpStream,
    pub(super) chosen: Chosen,
    /// Changes when the connection has to end.
    pub(super) cuts: watch::Receiver<u64>,
}

impl ApiServer {
    /// A connection that another process has made.
    pub(super) fn new(stream: TcpStream, chosen: Chosen) -> Self {
        let cuts = chosen.traffic.cuts();
        Self { stream, chosen, cuts }
    }
}

/// Dials API servers until one answers, other than those that were `tried`. `None` if none does.
pub(super) async fn connect(balancer: &Balancer, tried: &[SocketAddr]) -> Option<ApiServer> {
    let mut tried = tried.to_vec();
    let mut chosen =
        if tried.is_empty() { balancer.choose_first(FIRST_MAX).await? } else { balancer.choose(&tried)? };
    loop {
        // Before the dial, so that no cut is missed.
        let cuts = chosen.traffic.cuts();
        if let Some(stream) = dial(balancer, &chosen).await
            && balancer.has_proved(chosen.address)
        {
            return Some(ApiServer { stream, chosen, cuts });
        }
        tried.push(chosen.address);
        chosen = balancer.choose(&tried)?;
    }
}

async fn dial(balancer: &Balancer, chosen: &Chosen) -> Option<TcpStream> {
    let began = Instant::now();
    match timeout(DIAL_MAX, TcpStream::connect(chosen.address)).await {
        Ok(Ok(stream)) => {
            let _ = stream.set_nodelay(true);
            if let Err(error) = keep_alive::watch(&stream) {
                debug!(%error, "a connection to an API server cannot be watched for its end");
            }
            Some(stream)
        }
        Ok(Err(error)) => {
            let outcome = dial_failed(&error);
            let result = match outcome {
                ProbeOutcome::Refused => ConnectionResult::DialRefused,
                ProbeOutcome::Answered { .. }
                | ProbeOutcome::Missed
                | ProbeOutcome::Unreachable
                | ProbeOutcome::Foreign => ConnectionResult::DialFailed,
            };
            chosen.traffic.count(result);
            debug!(api_server = %chosen.address, error = %error_chain(&error), "a dial for a caller failed");
            balancer.probed(chosen.address, outcome, began);
            None
        }
        Err(_) => {
            chosen.traffic.count(ConnectionResult::DialFailed);
            balancer.suspect();
            None
        }
    }
}
