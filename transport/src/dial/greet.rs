//! Greets the accepting side on a connection whose handshake is done.

use std::time::{Duration, Instant};

use proto::Session;
use proto::greeting::{self, GREETING_MAX};
use proto::session::{FrameAllowance, Protocol, ProtocolViolation, SILENCE_MAX, SILENCE_MOST};
use proto::wire::{Hello, Welcome, control_frame::Frame};
use tokio::task::coop;
use tokio::time::timeout;

use super::error::DialError;
use crate::carrier::Connection;
use crate::control::{ControlStream, Driver};
use crate::error::TunnelEnded;
use crate::settings::Side;
use crate::tunnel::Tunnel;

/// The first frame of a side that dials, which decides the protocol, and the answer that it expects.
pub trait Opening {
    /// The protocol of the session that follows.
    const PROTOCOL: Protocol;

    /// The answer of the accepting side to an accepted greeting.
    type Welcome;

    /// The frame that opens the session.
    fn frame(&self) -> Frame;

    /// This side's limit for silence, until the other one is known.
    fn silence_limit(&self) -> Duration;

    /// Takes the answer, which is no refusal.
    ///
    /// # Errors
    /// `DialError`, if it is not the answer to this opening.
    fn welcomed(&self, answer: Frame) -> Result<Self::Welcome, DialError>;

    /// The agreed limit for silence.
    fn silence_agreed(&self, welcome: &Self::Welcome) -> Duration;
}

/// A tunnel that this side has dialed: an agent's, or with another `W` a session between servers.
pub struct Dialed<W = Welcome> {
    /// The handle of the tunnel.
    pub tunnel: Tunnel,
    /// The driver that has to be polled for it.
    pub driver: Driver,
    /// The server's answer to the greeting.
    pub welcome: W,
}

impl Opening for Hello {
    const PROTOCOL: Protocol = Protocol::Agent;

    type Welcome = Welcome;

    fn frame(&self) -> Frame {
        Frame::Hello(self.clone())
    }

    fn silence_limit(&self) -> Duration {
        silence_limit(self)
    }

    fn welcomed(&self, answer: Frame) -> Result<Welcome, DialError> {
        if let Frame::Welcome(welcome) = answer
            && greeting::VERSIONS.contains(&welcome.version)
        {
            return Ok(welcome);
        }
        Err(DialError::NotAWelcome)
    }

    fn silence_agreed(&self, welcome: &Welcome) -> Duration {
        agreed_silence(welcome, silence_limit(self))
    }
}

/// Greets the server on a connection whose handshake is done. The caller closes the connection if that fails.
pub(super) async fn greet<O: Opening>(
    connection: Connection,
    opening: &O,
) -> Result<Dialed<O::Welcome>, DialError> {
    let greeted = timeout(GREETING_MAX, greet_server(&connection, opening)).await;
    let (stream, welcome) = greeted.unwrap_or(Err(DialError::TooSlow))?;
    let session = Session::with_protocol(O::PROTOCOL, Instant::now(), opening.silence_agreed(&welcome));
    let (tunnel, driver) = Driver::new(connection, stream, session, Side::Agent);
    Ok(Dialed { tunnel, driver, welcome })
}

/// The agent's own limit for silence; the longest possible one if the greeting has none, so that the server's
/// decides.
fn silence_limit(hello: &Hello) -> Duration {
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

async fn greet_server<O: Opening>(
    connection: &Connection,
    opening: &O,
) -> Result<(ControlStream, O::Welcome), DialError> {
    let mut stream = ControlStream::new(connection.control(Side::Agent).await?);
    stream.write(opening.frame()).await?;
    let mut allowance = FrameAllowance::new(Instant::now());
    loop {
        match stream.read().await?.frame {
            Some(Frame::Refused(refused)) => return Err(DialError::Refused(refused)),
            // A newer server's frame that may be ignored.
            None if allowance.take(Instant::now(), 1) => {}
            None => return Err(TunnelEnded::from(ProtocolViolation::TooManyFrames).into()),
            Some(answer) => return opening.welcomed(answer).map(|welcome| (stream, welcome)),
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
