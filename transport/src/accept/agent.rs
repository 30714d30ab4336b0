//! Judges the greeting of an agent.

use std::time::Duration;

use proto::greeting::{self, BootNonce, Greeting, ServerInfo};
use proto::session::Protocol;
use proto::spiffe::AgentId;
use proto::wire::control_frame::Frame;
use proto::wire::refused::Reason;

use super::{AcceptedGreeting, GreetError, Greeter, NotAccepted};

/// The process of a greeting that only checks the connection. No process draws it, in practice.
const CHECKING: BootNonce = BootNonce([0; 16]);

/// Greets the agent of a verified certificate.
pub(super) struct AgentGreeter<'a, F> {
    pub(super) agent: &'a AgentId,
    pub(super) server_info: &'a ServerInfo,
    /// Decides last about the process that greets.
    pub(super) may_enter: F,
}

impl<F: FnOnce(BootNonce) -> Result<(), (Reason, String)>> Greeter for AgentGreeter<'_, F> {
    const PROTOCOL: Protocol = Protocol::Agent;

    type Greeting = Greeting;

    fn judge(
        self,
        first: Option<Frame>,
        silence_max: Duration,
    ) -> Result<AcceptedGreeting<Greeting>, NotAccepted> {
        let Self { agent, server_info, may_enter } = self;
        let Some(Frame::Hello(hello)) = first else {
            return Err(NotAccepted::NotAHello);
        };
        let check = greeting::only_checks(&hello);
        let may_enter = |boot| may_enter(boot).map_err(|(reason, message)| greeting::refuse(reason, message));
        let verified = if check.is_some() {
            // The running agent is another process.
            may_enter(CHECKING).and_then(|()| greeting::verify_hello(hello, agent))
        } else {
            greeting::verify_hello(hello, agent)
                .and_then(|greeting| may_enter(greeting.boot).map(|()| greeting))
        };
        match verified {
            Ok(greeting) => {
                let silence_max = greeting::silence_agreed(&greeting, silence_max);
                let welcome = Frame::Welcome(greeting::welcome(&greeting, server_info, silence_max));
                Ok(AcceptedGreeting { greeting, welcome, silence_max })
            }
            Err(refused) => {
                let error = match check {
                    Some(software) => GreetError::Checked { agent: agent.clone(), software },
                    None => GreetError::Refused(refused.message.clone()),
                };
                Err(NotAccepted::Refused(refused, error))
            }
        }
    }
}
