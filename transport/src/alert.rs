//! Explains a server's TLS alert to the people who read the log of the side that dials.

use proto::session::Protocol;
use rustls::AlertDescription;

/// The reason why the server refused the handshake of an agent, or of another server, and what to do.
pub(crate) fn explain_to(protocol: Protocol, alert: AlertDescription) -> String {
    match protocol {
        Protocol::Agent => explain(alert),
        Protocol::Peer => explain_to_server(alert),
    }
}

/// The same for an agent. The alerts: RFC 8446, section 6.2.
#[expect(clippy::wildcard_enum_match_arm, reason = "the alerts of another crate, which may be more")]
fn explain(alert: AlertDescription) -> String {
    let about_certificate = |what: &str| {
        format!("{what}; issue a new one with `tombolo ca issue agent`, and check the clocks of both hosts")
    };
    match alert {
        AlertDescription::CertificateExpired => {
            about_certificate("this agent's certificate has expired, or is not valid yet, by the server's clock")
        }
        AlertDescription::CertificateRevoked => about_certificate("this agent's certificate was revoked"),
        AlertDescription::UnknownCA
        | AlertDescription::DecryptError
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown => about_certificate(
            "this agent's certificate is not one of the agents' CA that the server has, or is not for agents",
        ),
        AlertDescription::AccessDenied => "it does not let this agent in".to_owned(),
        AlertDescription::CertificateRequired => "it got no certificate; check tls.certificateFile".to_owned(),
        AlertDescription::UnrecognisedName => "it has no certificate for the name that was dialed".to_owned(),
        AlertDescription::NoApplicationProtocol => {
            "it speaks no protocol of this agent: is it a tunnel-server, and one of a version close to this agent's?"
                .to_owned()
        }
        other => explain_to_anybody(other),
    }
}

/// The same for a server that dials another one.
#[expect(clippy::wildcard_enum_match_arm, reason = "the alerts of another crate, which may be more")]
fn explain_to_server(alert: AlertDescription) -> String {
    let about_certificate =
        |what: &str| format!("{what}; issue a new one, and check the clocks of both servers");
    match alert {
        AlertDescription::CertificateExpired => {
            about_certificate("this server's peer certificate has expired, or is not valid yet, by the other's clock")
        }
        AlertDescription::CertificateRevoked => about_certificate("this server's peer certificate was revoked"),
        AlertDescription::UnknownCA
        | AlertDescription::DecryptError
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown => about_certificate(
            "this server's peer certificate is not one of the peers' CA that the other server has, or is not for peers",
        ),
        AlertDescription::CertificateRequired => "it got no peer certificate of this server".to_owned(),
        AlertDescription::AccessDenied | AlertDescription::NoApplicationProtocol => {
            "it does not speak the protocol between servers there: is this the address for peers, and not the one for agents?"
                .to_owned()
        }
        other => explain_to_anybody(other),
    }
}

/// The alerts that have nothing to do with the role of this side.
#[expect(clippy::wildcard_enum_match_arm, reason = "the alerts of another crate, which may be more")]
fn explain_to_anybody(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::ProtocolVersion
        | AlertDescription::HandshakeFailure
        | AlertDescription::InsufficientSecurity => {
            "both have no version or cipher of TLS in common; is it a tunnel-server?".to_owned()
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_that_people_can_fix_are_explained_and_others_named() {
        assert!(
            explain(AlertDescription::CertificateExpired).starts_with("this agent's certificate has expired")
        );
        assert!(explain(AlertDescription::UnknownCA).contains("agents' CA"));
        assert_eq!(explain(AlertDescription::UserCanceled), "UserCanceled");
    }

    #[test]
    fn an_alert_to_a_server_speaks_of_peers_and_not_of_agents() {
        let unknown_ca = explain_to(Protocol::Peer, AlertDescription::UnknownCA);
        assert!(unknown_ca.contains("peers' CA"), "{unknown_ca}");
        let other_listener = explain_to(Protocol::Peer, AlertDescription::AccessDenied);
        assert!(other_listener.contains("the address for peers"), "{other_listener}");
    }
}
