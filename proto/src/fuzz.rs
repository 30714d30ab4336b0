//! Fuzz targets for everything that peers and callers send, with arbitrary bytes.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use prost::Message;
use prost::bytes::BytesMut;

use crate::allow_list::AllowList;
use crate::enrollment::{EnrollRequest, EnrollResponse, RenewRequest, RenewResponse};
use crate::frame::{FrameError, decode, encode, missing};
use crate::greeting::{Advertised, CERTIFICATES_MAX, ENDPOINTS_MAX, verify_hello};
use crate::headers::{clean_request, clean_response, is_protected, take_impersonation};
use crate::location::Location;
use crate::peering::{DELTA_ENTRIES_MAX, PeerMessage, USAGE_CALLERS_MAX, ViaOutcome, ViaRequest};
use crate::server_list::{SERVER_ADDRESSES_MAX, SERVERS_BYTES_MAX, SERVERS_MAX, ServerList};
use crate::session::{FRAMES_BURST_MAX, Session};
use crate::spiffe::AgentId;
use crate::trust::{Bundle, SignedBundle};
use crate::wire::{Assert, CarrierNote, ControlFrame, Hello, Peer, Servers, StreamOpen, ViaReply};
use crate::{ClusterId, socks5, upgrade_protocol};

/// Random inputs that `make test` tries beside the corpus. `make fuzz` overrides the number by the
/// environment.
const ITERATIONS: usize = 2_000;

/// A frame is decoded completely or not at all, `missing` agrees with that, and a decoded frame encodes to
/// the same bytes.
#[test]
fn frames() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        framed::<ControlFrame>(bytes);
        framed::<StreamOpen>(bytes);
        framed::<CarrierNote>(bytes);
        framed::<ViaReply>(bytes);
    });
}

/// Every message that was decoded survives encoding and decoding again.
#[test]
fn messages() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        round_trip::<ControlFrame>(bytes);
        round_trip::<StreamOpen>(bytes);
        round_trip::<CarrierNote>(bytes);
        round_trip::<ViaReply>(bytes);
        round_trip::<EnrollRequest>(bytes);
        round_trip::<EnrollResponse>(bytes);
        round_trip::<RenewRequest>(bytes);
        round_trip::<RenewResponse>(bytes);
        round_trip::<SignedBundle>(bytes);
        round_trip::<Bundle>(bytes);
    });
}

/// No proper prefix of a SOCKS5 message parses as complete, and none asks for more bytes than the longest
/// message has.
#[test]
fn socks5() {
    fn read<T: Debug>(bytes: &[u8], parse: impl Fn(&[u8]) -> Result<socks5::Parsed<T>, socks5::Socks5Error>) {
        // Reads like the server: as many bytes as are missing, and never one more.
        let mut end = 0;
        while let Ok(socks5::Parsed::Incomplete(lacking)) = parse(&bytes[..end]) {
            assert!(lacking > 0 && end + lacking <= socks5::MESSAGE_BYTES_MAX, "{lacking} behind {end}");
            end += lacking;
            if end > bytes.len() {
                return;
            }
        }
        for shorter in 0..end {
            assert!(
                !matches!(parse(&bytes[..shorter]), Ok(socks5::Parsed::Complete(_))),
                "{shorter} of {end}"
            );
        }
    }
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        read(bytes, socks5::greeting);
        read(bytes, socks5::login);
        read(bytes, socks5::request);
    });
}

/// An accepted greeting has the identity of its certificate, and no unprintable text of an agent reaches a
/// terminal.
#[test]
fn greetings() {
    let agent = AgentId::parse("spiffe://tombolo/cluster/edge-a/agent/x", "tombolo").unwrap();
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(hello) = Hello::decode(bytes) else { return };
        match verify_hello(hello.clone(), &agent) {
            Ok(greeting) => {
                assert_eq!((&greeting.agent, hello.cluster.as_str()), (&agent, "edge-a"));
                let Advertised { endpoints, certificates, kubernetes_version } = &greeting.advertised;
                assert!(endpoints.len() <= ENDPOINTS_MAX && certificates.len() <= CERTIFICATES_MAX);
                let names = certificates.iter().flat_map(|one| one.names.iter().chain([&one.address]));
                let texts = endpoints.iter().chain([&greeting.software, kubernetes_version]).chain(names);
                assert!(texts.into_iter().all(|text| is_printable(text)));
            }
            Err(refused) => assert!(is_printable(&refused.message), "{:?}", refused.message),
        }
    });
}

/// An accepted message of a server is within its limits, and encodes to a message that is read alike. A stream for a cluster is
/// one for an agent once it has passed a server.
#[test]
fn peering() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        if let Ok(peer) = Peer::decode(bytes)
            && let Ok(Some(message)) = PeerMessage::parse(peer)
        {
            match &message {
                PeerMessage::Tunnels(delta) => {
                    assert!(delta.added.len() + delta.removed.len() <= DELTA_ENTRIES_MAX);
                }
                PeerMessage::Usage(shares) => assert!(shares.len() <= USAGE_CALLERS_MAX),
                PeerMessage::Draining
                | PeerMessage::Clock { .. }
                | PeerMessage::Applied { .. }
                | PeerMessage::Probe(_)
                | PeerMessage::Probed(_)
                | PeerMessage::Status(_) => {}
            }
            assert_eq!(PeerMessage::parse(message.clone().into()), Ok(Some(message)));
        }
        if let Ok(open) = StreamOpen::decode(bytes)
            && let Ok(request) = ViaRequest::parse(open)
        {
            let again = ViaRequest::wrap(&request.cluster, request.open.clone()).map(ViaRequest::parse);
            assert_eq!(again, Some(Ok(request)));
        }
        if let Ok(reply) = ViaReply::decode(bytes) {
            let outcome = ViaOutcome::from(reply);
            if let ViaOutcome::Refused(message) = &outcome {
                assert!(is_printable(message), "{message:?}");
            }
            assert_eq!(ViaOutcome::from(ViaReply::from(outcome.clone())), outcome);
        }
    });
}

/// A list of servers is within its limits, fits into a frame beside the largest trust bundle, and is read alike from what
/// it is sent as.
#[test]
fn server_lists() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(servers) = Servers::decode(bytes) else { return };
        let list = ServerList::from_wire(servers);
        assert!(list.servers().len() <= SERVERS_MAX);
        for server in list.servers() {
            assert!(server.addresses.len() <= SERVER_ADDRESSES_MAX);
            assert!(server.addresses.iter().chain([&server.id]).all(|text| is_printable(text)));
        }
        assert!(list.to_wire().encoded_len() <= SERVERS_BYTES_MAX);
        assert_eq!(ServerList::from_wire(list.to_wire()).servers().len(), list.servers().len());
    });
}

/// A session accepts frames up to its limit, and the state that a peer makes it keep does not grow with them.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a begin for pretended time; there is no other way to make an Instant"
)]
fn sessions() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let begun = Instant::now();
        let (mut now, mut session, mut taken) = (begun, Session::new(begun, Duration::ZERO), 0_u32);
        let mut buffer = BytesMut::from(bytes);
        while let Ok(Some(frame)) = decode::<ControlFrame>(&mut buffer) {
            // The next byte is time: up to an hour from one frame to the next.
            let step = buffer.first().map_or(0, |byte| u64::from(*byte) * 14_000);
            now += Duration::from_millis(if taken % 2 == 0 { 0 } else { step });
            session.handle_timeout(now);
            if session.handle_frame(now, frame.frame).is_err() {
                return;
            }
            taken += 1;
            let events = std::iter::from_fn(|| session.poll_event()).count();
            let frames = std::iter::from_fn(|| session.poll_frame()).count();
            assert!(events <= 8 && frames <= 8, "{events} events and {frames} frames for one");
            assert!(session.poll_timeout().is_none_or(|next| next >= begun));
        }
        assert!(now > begun || taken <= FRAMES_BURST_MAX);
    });
}

/// Both walls: what the first lets pass holds nothing of a caller's identity, and the second finds nothing
/// more to do.
#[test]
fn request_headers() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Some(mut headers) = headers(bytes) else { return };
        let _ = upgrade_protocol::UpgradeProtocol::requested(&http::Method::GET, &headers);
        let assumed = take_impersonation(&mut headers);
        assert!(assumed.is_none_or(|identity| !identity.user.is_empty()));
        if clean_request(&mut headers).is_err() {
            return;
        }
        for (name, value) in &headers {
            let folded = name.as_str().replace('_', "-");
            assert!(!is_protected(&folded) && !folded.starts_with("impersonate-"), "{name}");
            assert!(
                !["connection", "te", "upgrade", "transfer-encoding"].contains(&folded.as_str()),
                "{name}"
            );
            let hides_token = name == "sec-websocket-protocol"
                && value.to_str().is_ok_and(|text| text.contains("base64url.bearer.authorization.k8s.io."));
            // Within an entry it is none: an entry begins so, behind a comma and blanks.
            assert!(!hides_token || !is_entry(value), "{value:?}");
        }
        let mut again = headers.clone();
        assert_eq!(clean_request(&mut again), Ok(()));
        assert_eq!(again, headers);
    });
}

/// An answer that was cleaned is clean.
#[test]
fn response_headers() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Some(mut headers) = headers(bytes) else { return };
        clean_response(&mut headers);
        let mut again = headers.clone();
        clean_response(&mut again);
        assert_eq!(again, headers);
        assert!(["set-cookie", "alt-svc", "connection"].iter().all(|name| !headers.contains_key(*name)));
    });
}

/// An identity that may be asserted matches the list, and its header values are the names unchanged.
#[test]
fn allow_lists() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split('\n').map(str::to_owned);
        let (pattern, system, user) = (lines.next(), lines.next(), lines.next().unwrap_or_default());
        let groups: Vec<String> = lines.collect();
        let identity = Assert { user, groups };
        let patterns = pattern.map(|pattern| vec![pattern]);
        let list = AllowList::new(patterns.clone(), patterns, system.map(|name| vec![name]));
        for list in [Ok(AllowList::default()), list].into_iter().flatten() {
            let Ok(assertable) = list.check(&identity) else { continue };
            assert_eq!(assertable.user().as_bytes(), identity.user.as_bytes());
            assert!(
                assertable
                    .groups()
                    .iter()
                    .map(HeaderValue::as_bytes)
                    .eq(identity.groups.iter().map(String::as_bytes))
            );
            for name in identity.groups.iter().chain([&identity.user]) {
                assert!(!["", "system:masters", "system:nodes"].contains(&name.as_str()));
                assert!(!name.starts_with("system:") || list.system_names().contains(name), "{name}");
                assert!(list != AllowList::default() || name.starts_with("tombolo:"), "{name}");
            }
        }
    });
}

/// A name that is read is written as it was.
#[test]
fn names() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        if let Ok(cluster) = text.parse::<ClusterId>() {
            assert_eq!(cluster.as_str(), text);
        }
        if let Ok(agent) = AgentId::parse(text, "tombolo") {
            assert_eq!(agent.uri("tombolo"), text);
        }
        let instance = AgentId::new("edge-a".parse().unwrap(), text);
        assert!(instance.is_none_or(|agent| AgentId::parse(&agent.uri("tombolo"), "tombolo") == Ok(agent)));
    });
}

/// A resolved path begins with exactly one slash, and has no dot segment that a client would resolve further.
#[test]
fn locations() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
        let (Location::Path(path) | Location::Host { path, .. }) = Location::parse(&value) else { return };
        for resolved in [path.resolve("/api/v1/x"), path.from_root()] {
            let end = resolved.find(['?', '#']).unwrap_or(resolved.len());
            let segments = resolved[..end].to_ascii_lowercase().replace("%2e", ".");
            assert!(resolved.starts_with('/') && !resolved.starts_with("//"), "{resolved}");
            assert!(segments.split('/').all(|segment| segment != "." && segment != ".."), "{resolved}");
        }
    });
}

fn framed<M: Message + Default + PartialEq + Debug>(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    let lacking = missing(bytes);
    match decode::<M>(&mut buffer) {
        Ok(Some(message)) => {
            assert_eq!(lacking, Ok(None));
            let mut written = BytesMut::new();
            encode(&message, &mut written).unwrap();
            assert_eq!(decode::<M>(&mut written), Ok(Some(message)));
            assert!(written.is_empty() && bytes.ends_with(&buffer));
        }
        Ok(None) => {
            assert!(lacking.unwrap().is_some_and(|lacking| lacking > 0));
            assert_eq!(&buffer, bytes);
        }
        Err(FrameError::Protobuf(_)) => assert_eq!(lacking, Ok(None)),
        Err(error @ (FrameError::TooLong(_) | FrameError::Prefix)) => assert_eq!(lacking, Err(error)),
    }
    assert!(buffer.capacity() <= bytes.len().max(64));
}

fn round_trip<M: Message + Default + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(message) = M::decode(bytes) {
        assert_eq!(M::decode(message.encode_to_vec().as_slice()), Ok(message));
    }
}

/// One header a line, `NAME: VALUE`; `None` where a line is none, or there are more than a parser would give.
fn headers(bytes: &[u8]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(200) {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        headers.append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    Some(headers)
}

fn is_entry(value: &HeaderValue) -> bool {
    let entries = value.to_str().unwrap_or_default().split(',').map(str::trim);
    entries.into_iter().any(|entry| entry.starts_with("base64url.bearer.authorization.k8s.io."))
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}
