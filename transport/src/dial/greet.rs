//! Greets a server on a connection whose handshake is done.

use std::time::{Duration, Instant};

use proto::Session;
use proto::greeting::{self, GREETING_MAX};
use proto::session::{FrameAllowance, ProtocolViolation, SILENCE_MAX, SILENCE_MOST};
use proto::wire::{Hello, Welcome, control_frame::Frame};
use tokio::task::coop;
use tokio::time::timeout;

use super::error::DialError;
use crate::carrier::Connection;
use crate::control::{ControlStream, Driver};
use crate::error::TunnelEnded;
use crate::settings::Side;
use crate::tunnel::Tunnel;

/// A tunnel that an agent has dialed.
pub struct Dialed {
    /// The handle of the tunnel.
    pub tunnel: Tunnel,
    /// The driver that has to be polled for it.
    pub driver: Driver,
    /// The server's answer to the greeting.
    pub welcome: Welcome,
}

/// Greets the server on a connection whose handshake is done. The caller closes the connection if that fails.
pub(super) async fn greet(connection: Connection, hello: Hello) -> Result<Dialed, DialError> {
    let limit = silence_limit(&hello);
    let greeted = timeout(GREETING_MAX, greet_server(&connection, hello)).await;
    let (stream, welcome) = greeted.unwrap_or(Err(DialError::TooSlow))?;
    let session = Session::new(Instant::now(), agreed_silence(&welcome, limit));
    let (tunnel, driver) = Driver::new(connection, stream, session, Side::Agent);
    Ok(Dialed { tunnel, driver, welcome })
}

/// The agent's own limit for silence; the longest possible one if the greeting has none, so that the server's
/// decides.
pub(super) fn silence_limit(hello: &Hello) -> Duration {
    match Duration::from_millis(hello.silence_max_ms.into()) {
        Duration::ZERO => SILENCE_MOST,
        ours => ours,
    }
}

/// The agreed limit for silence. A server that does not know the agent's limit answers with its own.
fn agreed_silence(welcome: &Welcome, limit: Duration) -> Duration {
    match Duration::from_millis(welcome.silence_max_ms.into()) {
        Duration::ZERO => SILENCE_MAX.min(limit),
        theirs => theirs.min(limit),
    }
}

async fn greet_server(connection: &Connection, hello: Hello) -> Result<(ControlStream, Welcome), DialError> {
    let mut stream = ControlStream::new(connection.control(Side::Agent).await?);
    stream.write(Frame::Hello(hello)).await?;
    let mut allowance = FrameAllowance::new(Instant::now());
    loop {
        match stream.read().await?.frame {
            Some(Frame::Welcome(welcome)) if greeting::VERSIONS.contains(&welcome.version) => {
                return Ok((stream, welcome));
            }
            Some(Frame::Refused(refused)) => return Err(DialError::Refused(refused)),
            // A newer server's frame that may be ignored.
            None if allowance.take(Instant::now(), 1) => {}
            None => return Err(TunnelEnded::from(ProtocolViolation::TooManyFrames).into()),
            Some(_) => return Err(DialError::NotAWelcome),
        }
        coop::consume_budget().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The agent's limit applies if it is shorter than the default.
    #[test]
    fn a_server_without_a_silence_limit_has_the_default_or_the_agents() {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        for (agents, servers, limit) in
            [(0, 0, 300), (0, 600, 600), (60, 0, 60), (60, 600, 60), (600, 60, 60)]
        {
            let hello = Hello { silence_max_ms: agents * 1000, ..Hello::default() };
            let welcome = Welcome { silence_max_ms: servers * 1000, ..Welcome::default() };
            assert_eq!(
                agreed_silence(&welcome, silence_limit(&hello)),
                seconds(limit),
                "{agents} and {servers}"
            );
        }
    }
}
