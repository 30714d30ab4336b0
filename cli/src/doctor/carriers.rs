//! Dials each server of an agent by every carrier that the agent may use, and tells a blocked carrier from a server that is away.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use daemon::Scope;
use daemon::config::KeyError;
use proto::CloseCode;
use proto::wire::{Hello, refused::Reason};
use transport::{
    Carrier, DialError, DialPath, DialTls, Dialed, Endpoint, EndpointKeys, HANDSHAKE_MAX, Proxies, Proxy,
    dial_tcp,
};

use super::check::Check;
use super::configuration::{ADDRESS, RawAgentConfig, split_address};
use super::https;
use super::report::Report;

/// The agent as which servers are dialed, and its configuration.
pub(super) struct Dialer<'a> {
    pub(super) config: &'a RawAgentConfig,
    pub(super) proxies: &'a Proxies,
    pub(super) tls: DialTls,
    /// False for an agent that is not enrolled. Servers then refuse the certificate, and have answered all the same.
    pub(super) has_certificate: bool,
}

/// The carriers that the configuration allows.
struct Carriers {
    quic: bool,
    http2: bool,
}

/// A server on its way to be dialed.
struct Target<'a> {
    host: &'a str,
    port: u16,
    /// The name that its certificate must have.
    name: &'a str,
    /// Absent if only a proxy can resolve the name.
    address: Option<SocketAddr>,
    proxy: Option<&'a Proxy>,
}

/// The end of one dial.
enum DialOutcome {
    /// Both sides have verified each other.
    Accepted,
    /// The server has answered an agent that has no certificate yet.
    Answered,
    /// The server works, and takes no tunnel at the moment.
    Busy(String),
    /// No packet of the server came back, or there is no connection to it.
    Blocked(String),
    /// The server was reached, and one side refused the other.
    Refused(String),
}

/// Spawns the carriers' drivers as background tasks, which end with the command.
struct BackgroundSpawner(Scope);

impl Dialer<'_> {
    /// Dials each server of the configuration, and reports each carrier.
    pub(super) async fn check_servers(&self, scope: &Scope, report: &mut Report) {
        let Some(carriers) = carriers(self.config.carrier.as_deref(), report) else { return };
        if self.config.servers.is_empty() {
            report.fail(Check::Servers, "none is named", "name at least one host:port in `servers`");
        }
        for server in &self.config.servers {
            let Some((host, port)) = split_address(server) else {
                report.fail_by(Check::Servers, &KeyError::new("servers", server, ADDRESS));
                continue;
            };
            let proxy = self.proxies.to(host, port);
            let address = match https::look_up(host, port).await {
                Ok(addresses) => addresses.first().copied(),
                // The proxy may know it.
                Err(_) if proxy.is_some() && carriers.http2 => None,
                Err(found) => {
                    report.fail(Check::Dns, found, "check the name and your DNS");
                    continue;
                }
            };
            let name = self.config.server_name.as_deref().unwrap_or(host);
            self.check_server(&Target { host, port, name, address, proxy }, &carriers, scope, report).await;
        }
    }

    async fn check_server(
        &self,
        target: &Target<'_>,
        carriers: &Carriers,
        scope: &Scope,
        report: &mut Report,
    ) {
        let quic = async {
            match carriers.quic {
                true => Some(self.outcome(self.quic(target, scope).await)),
                false => None,
            }
        };
        let http2 = async {
            match carriers.http2 {
                true => Some(self.outcome(self.http2(target, scope).await)),
                false => None,
            }
        };
        let (quic, http2) = tokio::join!(quic, http2);
        let [by_quic, by_http2] =
            [&quic, &http2].map(|outcome| outcome.as_ref().is_some_and(DialOutcome::works));
        for (carrier, outcome, other_works) in
            [(Carrier::Quic, quic, by_http2), (Carrier::Http2, http2, by_quic)]
        {
            if let Some(outcome) = outcome {
                outcome.report(carrier, target, other_works, report);
            }
        }
    }

    /// Dials as the agent does, and sends a Hello without a version. Every server refuses it before it reads the rest. Both sides have
    /// then verified each other, no tunnel begins, and the tunnel of a running agent stays.
    async fn quic(&self, target: &Target<'_>, scope: &Scope) -> Result<Dialed, DialError> {
        let Some(address) = target.address else { return Err(DialError::NoAnswer) };
        let local = |error: String| DialError::Local(std::io::Error::other(error));
        let keys = EndpointKeys::generate().map_err(|error| local(error.to_string()))?;
        let spawner = Arc::new(BackgroundSpawner(scope.clone()));
        let endpoint = Endpoint::dialing(address, &keys, spawner)
            .map_err(|error| local(daemon::error_chain(&error).to_string()))?;
        let dialed = endpoint.dial(address, target.name, &self.tls, hello(), HANDSHAKE_MAX).await;
        endpoint.close(CloseCode::Drained).await;
        dialed
    }

    async fn http2(&self, target: &Target<'_>, scope: &Scope) -> Result<Dialed, DialError> {
        let path = match (target.proxy, target.address) {
            (Some(proxy), _) => {
                DialPath::Proxied { proxy: proxy.clone(), host: target.host.to_owned(), port: target.port }
            }
            (None, Some(address)) => DialPath::Direct(address),
            (None, None) => return Err(DialError::NoAnswer),
        };
        let spawner = BackgroundSpawner(scope.clone());
        dial_tcp(&path, target.name, &self.tls, hello(), HANDSHAKE_MAX, &spawner).await
    }

    fn outcome(&self, dialed: Result<Dialed, DialError>) -> DialOutcome {
        let error = match dialed {
            Ok(dialed) => {
                dialed.tunnel.close(CloseCode::Drained);
                return DialOutcome::Accepted;
            }
            Err(error) => error,
        };
        let text = daemon::error_chain(&error).to_string();
        match error {
            DialError::Refused(refused) if refused.reason() == Reason::Version => DialOutcome::Accepted,
            DialError::ServerUnavailable => DialOutcome::Busy(text),
            DialError::NoAnswer | DialError::Tcp(_) | DialError::Proxy(_) | DialError::Local(_) => {
                DialOutcome::Blocked(text)
            }
            DialError::Rejected(_) | DialError::Untrusted(_) | DialError::Handshake(_)
                if !self.has_certificate =>
            {
                DialOutcome::Answered
            }
            DialError::Name(_)
            | DialError::Rejected(_)
            | DialError::Untrusted(_)
            | DialError::Clock(_)
            | DialError::Handshake(_)
            | DialError::TurnedAway(_)
            | DialError::TooSlow
            | DialError::Refused(_)
            | DialError::NotAWelcome
            | DialError::Broke(_) => DialOutcome::Refused(text),
        }
    }
}

impl DialOutcome {
    fn works(&self) -> bool {
        matches!(self, Self::Accepted | Self::Answered | Self::Busy(_))
    }

    /// Reports it. A carrier that fails while the other one works is a warning, because the agent uses that one.
    fn report(self, carrier: Carrier, target: &Target<'_>, other_works: bool, report: &mut Report) {
        let check = match carrier {
            Carrier::Quic => Check::TunnelQuic,
            Carrier::Http2 => Check::TunnelHttp2,
        };
        let at = target.by(carrier);
        let (is_blocked, error) = match self {
            Self::Accepted => {
                return report.ok(check, format!("{at} answers, and accepts the agent's certificate"));
            }
            Self::Answered => {
                return report
                    .ok(check, format!("{at} answers; it checks the certificate once the agent has one"));
            }
            Self::Busy(error) => return report.warn(check, format!("{at}: {error}"), "try again"),
            Self::Blocked(error) => (true, error),
            Self::Refused(error) => (false, error),
        };
        let has_proxy = target.proxy.is_some();
        let (found, advice) = (format!("{at}: {error}"), advice(carrier, is_blocked, other_works, has_proxy));
        if other_works {
            report.warn(check, found, advice);
        } else {
            report.fail(check, found, advice);
        }
    }
}

fn advice(carrier: Carrier, is_blocked: bool, other_works: bool, has_proxy: bool) -> &'static str {
    match (carrier, is_blocked, other_works) {
        (Carrier::Quic, true, true) => {
            "the agent uses HTTP/2 over TCP: allow UDP to this port, because QUIC suffers less from packet loss; or set `carrier: http2`"
        }
        (Carrier::Http2, true, true) => {
            "the agent uses QUIC: allow TCP to this port as well, for times in which the network blocks UDP; or set `carrier: quic`"
        }
        (_, false, true) => "the agent uses the other carrier; see the server's log for this one",
        (Carrier::Quic, true, false) => {
            "check that the server runs, and allow UDP to this port; firewalls often pass TCP only"
        }
        (Carrier::Http2, true, false) if has_proxy => "correct `proxy`, or have the proxy allow this address",
        (Carrier::Http2, true, false) => "check that the server runs, and allow TCP to this port",
        (_, false, false) => "see the server's log",
    }
}

impl Target<'_> {
    /// The server and the way to it by this carrier.
    fn by(&self, carrier: Carrier) -> String {
        let Self { host, port, name, address, proxy } = self;
        let address = address.map_or_else(|| format!("{host}:{port}"), |address| address.to_string());
        match (carrier, proxy) {
            (Carrier::Quic, _) => format!("{name} at UDP {address}"),
            (Carrier::Http2, None) => format!("{name} at TCP {address}"),
            (Carrier::Http2, Some(proxy)) => format!("{name} at TCP {host}:{port} by the proxy {proxy}"),
        }
    }
}

fn carriers(configured: Option<&str>, report: &mut Report) -> Option<Carriers> {
    match configured {
        None | Some("auto") => Some(Carriers { quic: true, http2: true }),
        Some("quic") => Some(Carriers { quic: true, http2: false }),
        Some("http2") => Some(Carriers { quic: false, http2: true }),
        Some(other) => {
            report.fail_by(Check::Configuration, &KeyError::new("carrier", other, "auto, quic or http2"));
            None
        }
    }
}

fn hello() -> Hello {
    let software = concat!("tombolo-doctor/", env!("CARGO_PKG_VERSION")).to_owned();
    Hello { software, ..Hello::default() }
}

impl transport::Spawn for BackgroundSpawner {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn_background(driver);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Target<'_> =
        Target { host: "gateway.test", port: 8443, name: "gateway.test", address: None, proxy: None };

    /// The agent's tunnel stands by the other carrier, so nothing has failed.
    #[test]
    fn a_carrier_that_is_blocked_while_the_other_works_is_a_warning() {
        for (carrier, words) in [(Carrier::Quic, "carrier: http2"), (Carrier::Http2, "carrier: quic")] {
            let mut report = Report::default();
            DialOutcome::Blocked("no answer".to_owned()).report(carrier, &SERVER, true, &mut report);
            assert_eq!(report.exit_code(), 0);
            let line = report.lines().remove(0);
            assert!(line.starts_with("warning") && line.contains(words), "{line}");

            DialOutcome::Blocked("no answer".to_owned()).report(carrier, &SERVER, false, &mut report);
            assert_eq!(report.exit_code(), 1);
        }
    }

    #[test]
    fn only_the_carriers_of_the_configuration_are_dialed() {
        let mut report = Report::default();
        for (text, quic, http2) in [
            (None, true, true),
            (Some("auto"), true, true),
            (Some("quic"), true, false),
            (Some("http2"), false, true),
        ] {
            let found = carriers(text, &mut report).unwrap();
            assert_eq!((found.quic, found.http2), (quic, http2), "{text:?}");
        }
        assert!(carriers(Some("tcp"), &mut report).is_none());
        assert!(report.lines()[0].contains("auto, quic or http2"), "{:?}", report.lines());
    }
}
