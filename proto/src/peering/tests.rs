//! Tests of the greeting of two servers, their messages, and streams through another one.

use std::time::Duration;

use prost::Message as _;
use prost::bytes::BytesMut;

use super::*;
use crate::frame;
use crate::greeting::{
    Advertised, CERTIFICATE_NAME_BYTES_MAX, CERTIFICATES_MAX, Certificate, ENDPOINTS_MAX,
    KUBERNETES_VERSION_BYTES_MAX,
};
use crate::spiffe::AgentId;
use crate::wire::{
    Assert, CallerUsage, ControlFrame, Peer, PeerTunnel, Probe, Probed, ServerStatus, StreamOpen,
    TunnelsDelta, Usage, ViaOpen, ViaOpened, ViaReply, control_frame::Frame, peer::Content, stream_open,
    via_reply,
};

#[test]
fn servers_greet_each_other_by_the_id_of_the_certificate() {
    let (a, b) = (server("a"), server("b"));

    let at_b = verify_hello(hello(&a), "a", &b).unwrap();
    let at_a = verify_welcome(welcome(&at_b, &b), "b").unwrap();

    assert_eq!((at_b.peer, at_b.version), (a, 1));
    assert_eq!((at_a.peer, at_a.version), (b, 1));
}

#[test]
fn a_greeting_of_another_server_than_the_certificates_is_refused() {
    let refused = verify_hello(hello(&server("a")), "c", &server("b")).unwrap_err();
    assert_eq!(refused.reason(), Reason::Greeting);
    assert!(refused.message.contains("the peer c and the server is \"a\""), "{}", refused.message);

    let short = PeerHello { boot_nonce: vec![0; 15], ..hello(&server("a")) };
    assert_eq!(verify_hello(short, "a", &server("b")).unwrap_err().reason(), Reason::Greeting);
}

/// Its address is its own, or two servers have one ID.
#[test]
fn a_server_that_dials_its_own_id_is_refused() {
    let refused = verify_hello(hello(&server("a")), "a", &server("a")).unwrap_err();
    assert!(refused.message.contains("has dialed itself"), "{}", refused.message);
}

#[test]
fn servers_without_a_common_version_are_told_of_both() {
    let newer = PeerHello { versions: vec![2], ..hello(&server("a")) };
    let refused = verify_hello(newer, "a", &server("b")).unwrap_err();
    assert_eq!((refused.reason(), refused.versions), (Reason::Version, PEER_VERSIONS.to_vec()));
    assert!(refused.message.contains("{2}") && refused.message.contains("{1}"), "{}", refused.message);

    let both = PeerHello { versions: vec![2, 1], ..hello(&server("a")) };
    assert_eq!(verify_hello(both, "a", &server("b")).unwrap().version, 1);
}

#[test]
fn a_welcome_of_another_server_or_version_is_not_accepted() {
    let answer = |id: &str| welcome(&PeerGreeting { peer: server("a"), version: 1 }, &server(id));
    let other = NotTheDialedPeer::Id { dialed: "b".to_owned(), found: "c".to_owned() };
    assert_eq!(verify_welcome(answer("c"), "b"), Err(other));
    let newer = PeerWelcome { version: 2, ..answer("b") };
    assert_eq!(verify_welcome(newer, "b"), Err(NotTheDialedPeer::Version(2)));
    let short = PeerWelcome { boot_nonce: vec![1], ..answer("b") };
    assert_eq!(verify_welcome(short, "b"), Err(NotTheDialedPeer::BootNonce));
}

#[test]
fn every_message_between_servers_arrives_as_it_was_sent() {
    let share = |kind| CallerShare { caller: CallerDigest([4; 16]), kind, held: 7 };
    let kinds = [
        UsageKind::Requests,
        UsageKind::Rate,
        UsageKind::Watches,
        UsageKind::Upgrades,
        UsageKind::Connections,
        UsageKind::RequestsWanted,
    ];
    for message in [
        PeerMessage::Tunnels(PoolDelta::split(true, 3, vec![tunnel(1), tunnel(2)], vec![9]).remove(0)),
        PeerMessage::Draining,
        PeerMessage::Clock { unix_millis: 1_700_000_000_123 },
        PeerMessage::Applied { revision: 42 },
        PeerMessage::Usage(kinds.map(share).to_vec()),
        PeerMessage::Probe(ProbeRequest { number: 3, agent: tunnel(1).agent, boot: BootNonce([5; 16]) }),
        PeerMessage::Status(status(RecordsState::Fresh, Some(FileDigest([6; 32])))),
        PeerMessage::Status(status(RecordsState::Stale, None)),
    ] {
        let peer = Peer::decode(Peer::from(message.clone()).encode_to_vec().as_slice()).unwrap();
        assert_eq!(PeerMessage::parse(peer), Ok(Some(message)));
    }
}

#[test]
fn every_answer_to_a_probe_arrives_as_it_was_sent() {
    for outcome in [
        None,
        Some(ProbeOutcome::NoDuplicate),
        Some(ProbeOutcome::OldReplaced),
        Some(ProbeOutcome::NewRefused),
    ] {
        let message = PeerMessage::Probed(ProbeAnswer { number: 9, outcome });
        assert_eq!(PeerMessage::parse(Peer::from(message.clone())), Ok(Some(message)));
    }
    let newer = Peer { content: Some(Content::Probed(Probed { number: 9, outcome: 99 })) };
    let unknown = PeerMessage::Probed(ProbeAnswer { number: 9, outcome: None });
    assert_eq!(PeerMessage::parse(newer), Ok(Some(unknown)));
}

#[test]
fn a_probe_for_an_agent_that_cannot_be_is_refused() {
    let probe = |cluster: &str, agent: &str, boot: usize| {
        let boot_nonce = vec![1; boot];
        let probe = Probe { number: 1, cluster: cluster.to_owned(), agent: agent.to_owned(), boot_nonce };
        PeerMessage::parse(Peer { content: Some(Content::Probe(probe)) })
    };
    assert!(probe("edge-a", "x", 16).is_ok());
    assert!(matches!(probe("Edge/a", "x", 16), Err(PeerMessageError::Cluster(_))));
    assert!(matches!(probe("edge-a", "x y", 16), Err(PeerMessageError::Agent(_))));
    assert!(matches!(probe("edge-a", "x", 15), Err(PeerMessageError::BootNonce(_))));
}

#[test]
fn a_message_of_a_newer_server_is_ignored() {
    assert_eq!(PeerMessage::parse(Peer { content: None }), Ok(None));
    let newer = CallerUsage { caller: vec![0; 16], kind: 99, held: 1 };
    let usage = Peer { content: Some(Content::Usage(Usage { callers: vec![newer] })) };
    assert_eq!(PeerMessage::parse(usage), Ok(Some(PeerMessage::Usage(Vec::new()))));

    // A kind of content that nobody knows yet has another number.
    let unknown_kind = [0xf2, 0x7f, 0x02, 0x08, 0x01];
    let newest = Peer::decode(unknown_kind.as_slice()).unwrap();
    assert_eq!(PeerMessage::parse(newest), Ok(None));
    let unknown_state = ServerStatus { records: 99, ..status(RecordsState::Fresh, None).into() };
    assert_eq!(PeerStatus::try_from(unknown_state).unwrap().records, RecordsState::Behind);

    let unknown_health = PeerTunnel { health: 99, ..tunnel(1).into() };
    assert!(!RemoteTunnel::try_from(unknown_health).unwrap().is_live);
}

#[test]
fn a_delta_has_as_many_entries_as_it_may_and_not_one_more() {
    let delta = |added, removed| TunnelsDelta {
        added: vec![PeerTunnel::from(tunnel(1)); added],
        removed: vec![7; removed],
        ..TunnelsDelta::default()
    };
    assert!(PoolDelta::try_from(delta(DELTA_ENTRIES_MAX - 1, 1)).is_ok());
    for (added, removed) in [(DELTA_ENTRIES_MAX, 1), (0, DELTA_ENTRIES_MAX + 1)] {
        assert_eq!(
            PoolDelta::try_from(delta(added, removed)),
            Err(PeerMessageError::Entries(DELTA_ENTRIES_MAX + 1))
        );
    }
}

#[test]
fn a_digest_of_a_file_is_whole_and_shown_by_its_digits() {
    let cut = ServerStatus { policy_digest: vec![1; 31], ..status(RecordsState::Fresh, None).into() };
    assert_eq!(PeerStatus::try_from(cut), Err(PeerMessageError::FileDigest));
    let none = ServerStatus { policy_digest: Vec::new(), ..status(RecordsState::Fresh, None).into() };
    assert_eq!(PeerStatus::try_from(none), Err(PeerMessageError::FileDigest));

    assert_eq!(FileDigest([0xa7; 32]).to_string(), "a7".repeat(32));
}

#[test]
fn usage_has_as_many_callers_as_it_may_and_not_one_more() {
    let usage = |callers| Peer {
        content: Some(Content::Usage(Usage {
            callers: vec![CallerUsage { caller: vec![1; 16], kind: 1, held: u32::MAX }; callers],
        })),
    };
    let most = usage(USAGE_CALLERS_MAX);
    assert!(most.encoded_len() < FRAME_BYTES_MAX);
    assert!(PeerMessage::parse(most).is_ok());
    let beyond = PeerMessage::parse(usage(USAGE_CALLERS_MAX + 1));
    assert_eq!(beyond, Err(PeerMessageError::Callers(USAGE_CALLERS_MAX + 1)));
}

#[test]
fn a_tunnel_with_a_name_or_number_that_cannot_be_is_refused() {
    let good = || PeerTunnel::from(tunnel(1));
    assert_eq!(RemoteTunnel::try_from(good()), Ok(tunnel(1)));
    let bad = |tunnel| RemoteTunnel::try_from(tunnel).unwrap_err();
    assert!(matches!(bad(PeerTunnel { cluster: "Edge".to_owned(), ..good() }), PeerMessageError::Cluster(_)));
    assert!(matches!(bad(PeerTunnel { agent: "a/b".to_owned(), ..good() }), PeerMessageError::Agent(_)));
    assert!(matches!(bad(PeerTunnel { boot_nonce: vec![0; 17], ..good() }), PeerMessageError::BootNonce(_)));
    for serial in ["", "0F", "0x1", &"1".repeat(SERIAL_DIGITS_MAX + 1)] {
        let tunnel = PeerTunnel { serial: serial.to_owned(), ..good() };
        assert!(matches!(bad(tunnel), PeerMessageError::Serial(_)), "{serial:?}");
    }
}

/// Agents advertise from nothing to as much as they may.
#[test]
fn a_change_is_split_into_deltas_that_fit_into_frames() {
    for (count, make) in
        [(2000, tunnel as fn(u64) -> RemoteTunnel), (7, largest as fn(u64) -> RemoteTunnel), (0, tunnel)]
    {
        let (added, removed): (Vec<_>, Vec<_>) = ((0..count).map(make).collect(), (0..count).collect());

        let deltas = PoolDelta::split(true, 5, added.clone(), removed.clone());

        for (index, delta) in deltas.iter().enumerate() {
            let is_last = index + 1 == deltas.len();
            assert_eq!((delta.is_full, delta.is_done, delta.revision), (index == 0, is_last, 5));
            assert!(delta.entries() <= DELTA_ENTRIES_MAX);
            let frame = ControlFrame::from(Frame::Peer(PeerMessage::Tunnels(delta.clone()).into()));
            frame::encode(&frame, &mut BytesMut::new()).unwrap();
        }
        let told: Vec<_> = deltas.iter().flat_map(|delta| delta.added.clone()).collect();
        let gone: Vec<_> = deltas.iter().flat_map(|delta| delta.removed.clone()).collect();
        assert!(told == added && gone == removed);
    }
}

#[test]
fn a_stream_for_an_agent_passes_unchanged_through_another_server() {
    let cluster: crate::ClusterId = "edge-a".parse().unwrap();
    let alice = Assert { user: "alice".to_owned(), groups: Vec::new() };
    for open in [
        StreamOpen::http(alice, "audit".to_owned(), true).with_deadline(Duration::from_secs(7)),
        StreamOpen::dial("10.0.0.1:80".to_owned(), "audit".to_owned()),
    ] {
        let wrapped = ViaRequest::wrap(&cluster, open.clone()).unwrap();
        let arrived = StreamOpen::decode(wrapped.encode_to_vec().as_slice()).unwrap();
        let numbered = StreamOpen { number: 9, ..arrived };

        assert_eq!(ViaRequest::parse(numbered), Ok(ViaRequest { cluster: cluster.clone(), open }));
    }
}

/// So there is no second hop: neither this server can ask for one, nor can a frame have it.
#[test]
fn a_stream_through_a_server_cannot_go_through_another_one() {
    let cluster = "edge-a".parse().unwrap();
    let dial = StreamOpen::dial("10.0.0.1:80".to_owned(), "audit".to_owned());
    let once = ViaRequest::wrap(&cluster, dial).unwrap();
    assert_eq!(ViaRequest::wrap(&cluster, once.clone()), None);
    assert_eq!(ViaRequest::wrap(&cluster, StreamOpen::default()), None);

    // The bytes of a ViaOpen within a ViaOpen, at the field that a StreamOpen has for it.
    let Some(stream_open::Kind::Via(inner)) = once.kind else { panic!("no ViaOpen") };
    let mut nested = ViaOpen { cluster: "edge-b".to_owned(), kind: None }.encode_to_vec();
    let inner = inner.encode_to_vec();
    nested.extend([4 << 3 | 2, u8::try_from(inner.len()).unwrap()]);
    nested.extend(inner);
    let nested = ViaOpen::decode(nested.as_slice()).unwrap();
    let open = StreamOpen { kind: Some(stream_open::Kind::Via(nested)), number: 1 };
    assert!(matches!(ViaRequest::parse(open), Err(NotVia::NoRequest(_))));
}

#[test]
fn a_stream_of_a_server_without_a_cluster_is_refused() {
    let dial = StreamOpen::dial("10.0.0.1:80".to_owned(), "audit".to_owned());
    assert_eq!(ViaRequest::parse(dial), Err(NotVia::Kind));
    assert_eq!(ViaRequest::parse(StreamOpen::default()), Err(NotVia::Kind));
    let via = ViaOpen { cluster: "Edge/a".to_owned(), kind: None };
    let open = StreamOpen { kind: Some(stream_open::Kind::Via(via)), number: 1 };
    assert!(matches!(ViaRequest::parse(open), Err(NotVia::Cluster(_))));
}

#[test]
fn an_answer_to_such_a_stream_is_read_as_it_was_sent_or_as_a_refusal() {
    let long = "x".repeat(REFUSAL_BYTES_MAX);
    for outcome in [
        ViaOutcome::Opened { agent: "0f3c".to_owned(), number: 7 },
        ViaOutcome::NoTunnel,
        ViaOutcome::Refused(long.clone()),
    ] {
        assert_eq!(ViaOutcome::from(ViaReply::from(outcome.clone())), outcome);
    }
    let longer = ViaOutcome::Refused(format!("\u{1b}[2J\n{long}"));
    let ViaOutcome::Refused(cut) = ViaReply::from(longer).into() else { panic!("no refusal") };
    assert!(cut.starts_with("[2Jxxx") && cut.len() == REFUSAL_BYTES_MAX, "{cut}");

    let opened = ViaOpened { agent: "a b".to_owned(), number: 7 };
    for outcome in [None, Some(via_reply::Outcome::Opened(opened))] {
        assert!(matches!(ViaOutcome::from(ViaReply { outcome }), ViaOutcome::Refused(_)));
    }
}

fn server(id: &str) -> PeerInfo {
    PeerInfo {
        server_id: id.to_owned(),
        boot: BootNonce([8; 16]),
        epoch: 12,
        software: "tunnel-server/1".to_owned(),
    }
}

fn tunnel(number: u64) -> RemoteTunnel {
    RemoteTunnel {
        number,
        agent: AgentId::new("edge-a".parse().unwrap(), "0f3c").unwrap(),
        boot: BootNonce([3; 16]),
        sequence: 2,
        serial: "00ab".repeat(8),
        issued: 1_700_000_000,
        advertised: Advertised {
            endpoints: vec!["10.0.0.1:6443".to_owned()],
            certificates: Vec::new(),
            kubernetes_version: "v1.36.3".to_owned(),
        },
        is_live: true,
        is_on_probation: true,
        is_draining: false,
        distance: Duration::from_micros(23_456),
        streams_open: 5,
        version: "0.1.0".to_owned(),
        since: Some(1_700_000_001),
        capabilities: crate::Capabilities::OWN,
    }
}

fn status(records: RecordsState, trust_bundle: Option<FileDigest>) -> PeerStatus {
    PeerStatus {
        is_ready: true,
        records,
        records_age: Duration::from_millis(345),
        policy: FileDigest([5; 32]),
        trust_bundle,
        peers: 2,
        peers_connected: 1,
    }
}

/// With the most and the longest that an agent may advertise, in as many names as there can be.
fn largest(number: u64) -> RemoteTunnel {
    let text = |bytes: usize| "x".repeat(bytes);
    let names = CERTIFICATE_NAME_BYTES_MAX / CERTIFICATES_MAX;
    let certificate = Certificate { address: text(260), names: vec![text(1); names], is_cut: true };
    let advertised = Advertised {
        endpoints: vec![text(260); ENDPOINTS_MAX],
        certificates: vec![certificate; CERTIFICATES_MAX],
        kubernetes_version: text(KUBERNETES_VERSION_BYTES_MAX),
    };
    let agent = AgentId::new(text(63).parse().unwrap(), &text(63)).unwrap();
    let number = u64::MAX - number;
    let version = text(SOFTWARE_BYTES_MAX);
    RemoteTunnel {
        number,
        agent,
        version,
        serial: "f".repeat(SERIAL_DIGITS_MAX),
        advertised,
        ..tunnel(number)
    }
}
