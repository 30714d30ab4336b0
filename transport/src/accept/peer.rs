//! Judges the greeting of another server.

use std::time::Duration;

use proto::peering::{self, PeerGreeting, PeerInfo};
use proto::session::{PEER_SILENCE_MAX, Protocol};
use proto::wire::control_frame::Frame;
use proto::wire::refused::Reason;

use super::{AcceptedGreeting, GreetError, Greeter, NotAccepted};

/// Greets the server of a verified certificate.
pub(super) struct PeerGreeter<'a, F> {
    pub(super) certified_id: &'a str,
    pub(super) own: &'a PeerInfo,
    /// Decides last about the server that greets.
    pub(super) may_enter: F,
}

impl<F: FnOnce(&PeerGreeting) -> Result<(), (Reason, String)>> Greeter for PeerGreeter<'_, F> {
    const PROTOCOL: Protocol = Protocol::Peer;

    type Greeting = PeerGreeting;

    fn judge(self, first: Option<Frame>, _: Duration) -> Result<AcceptedGreeting<PeerGreeting>, NotAccepted> {
        let Self { certified_id, own, may_enter } = self;
        let Some(Frame::PeerHello(hello)) = first else {
            return Err(NotAccepted::NotAHello);
        };
        let verified = peering::verify_hello(hello, certified_id, own).and_then(|greeting| {
            may_enter(&greeting).map_err(|(reason, message)| peering::refuse(reason, message))?;
            Ok(greeting)
        });
        match verified {
            Ok(greeting) => {
                let welcome = Frame::PeerWelcome(peering::welcome(&greeting, own));
                Ok(AcceptedGreeting { greeting, welcome, silence_max: PEER_SILENCE_MAX })
            }
            Err(refused) => {
                let error = GreetError::Refused(refused.message.clone());
                Err(NotAccepted::Refused(refused, error))
            }
        }
    }
}
