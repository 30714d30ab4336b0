//! Tests that apply to a tunnel over every carrier.

use std::io;

use proto::greeting::{Advertised, Certificate};
use proto::session::Health;
use proto::wire::{Endpoints, Hello, ServedCertificate, refused::Reason};
use proto::{AbortCode, CloseCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::tls::{ExpectedServers, Material};
use transport::{Carrier, DialError, OpenError, TunnelEnded, TunnelEvent, abort_code};

use crate::pair::{
    Authority, Pair, Server, dial, dial_one_of, expected_servers, hello, open, open_numbered, soon,
};

/// Makes of each claim a test over each carrier.
macro_rules! on_both_carriers {
    ($($claim:ident)*) => {
        mod quic {
            $(#[tokio::test]
            async fn $claim() {
                super::$claim(transport::Carrier::Quic).await;
            })*
        }

        mod http2 {
            $(#[tokio::test]
            async fn $claim() {
                super::$claim(transport::Carrier::Http2).await;
            })*
        }
    };
}

on_both_carriers! {
    all_bytes_arrive_in_both_directions_and_each_ends_on_its_own
    the_first_frame_is_read_and_not_one_byte_behind_it
    a_dropped_stream_is_an_error_and_never_a_clean_end
    a_drop_after_shutdown_aborts_a_peer_that_still_writes
    an_abort_carries_its_code_to_readers_and_writers
    an_abort_code_that_a_handle_sets_is_the_code_of_the_drop
    a_blocked_writer_gets_the_code_with_which_its_reader_left
    a_drain_lets_an_open_stream_finish_and_loses_nothing
    more_streams_than_granted_wait_for_their_turn_and_then_say_so
    an_agent_of_another_authority_gets_no_tunnel
    a_server_of_another_authority_or_name_is_not_trusted
    a_certificate_without_a_servers_uri_is_not_trusted
    a_server_that_is_not_among_the_expected_ones_is_not_dialed
    version_two_alone_is_refused_and_one_and_two_are_accepted
    the_shorter_of_both_limits_for_an_outage_is_agreed
    changed_endpoints_reach_the_server
    a_dropped_driver_ends_the_tunnel_for_both
    a_finished_response_is_complete_though_its_stream_is_dropped
    fifty_readers_who_stopped_do_not_stop_another
    an_agent_with_an_unusable_certificate_learns_the_reason
}

async fn all_bytes_arrive_in_both_directions_and_each_ends_on_its_own(carrier: Carrier) {
    let pair = Pair::greeted(carrier).await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    assert_eq!(here.read_open().await.unwrap(), open_numbered(1));
    let sent = vec![7_u8; 3_000_000];

    let (mut read_there, mut read_here) = (Vec::new(), Vec::new());
    let server = async {
        there.write_all(&sent).await.unwrap();
        there.shutdown().await.unwrap();
        there.read_to_end(&mut read_there).await.unwrap();
    };
    let agent = async {
        here.read_to_end(&mut read_here).await.unwrap();
        // The other direction is still open after the end of this one.
        here.write_all(b"answer").await.unwrap();
        here.shutdown().await.unwrap();
    };
    soon(async { tokio::join!(server, agent) }).await;

    assert!(read_here == sent && read_there == b"answer");
}

async fn the_first_frame_is_read_and_not_one_byte_behind_it(carrier: Carrier) {
    let pair = Pair::greeted(carrier).await;
    let mut there = pair.server.open(&open()).await.unwrap();
    there.write_all(b"GET / HTTP/1.1").await.unwrap();
    let mut here = pair.accepted().await;

    assert_eq!(soon(here.read_open()).await.unwrap(), open_numbered(1));

    let mut behind = [0; 14];
    here.read_exact(&mut behind).await.unwrap();
    assert_eq!(&behind, b"GET / HTTP/1.1");
}

async fn a_dropped_stream_is_an_error_and_never_a_clean_end(carrier: Carrier) {
    let pair = Pair::greeted(carrier).await;
    let mut there = pair.server.open(&open()).await.unwrap();
    there.write_all(b"half an answ").await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();
    drop(there);

    let error = soon(here.read_to_end(&mut Vec::new())).await.unwrap_err();

    assert_eq!(abort_code(&error), Some(AbortCode::Abandoned));
}

async fn a_drop_after_shutdown_aborts_a_peer_that_still_writes(carrier: Carrier) {
    let pair = Pair::greeted(carrier).await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    soon(there.shutdown()).await.unwrap();
    let gone = here.gone();
    drop(there);

    soon(gone).await;

    let failed = soon(async {
        loop {
            if let Err(error) = here.write_all(&[0; 1024]).await {
                return error;
            }
        }
    });
    assert_eq!(abort_code(&failed.await), Some(AbortCode::Abandoned));
}

async fn an_abort_carries_its_code_to_readers_and_writers(carrier: Carrier) {
    let pair = Pair::greeted(carrier).await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let abort_codes = there.abort_codes();
    assert_eq!(abort_codes.peer_code(), None);
    pair.accepted().await.abort(AbortCode::ApiServerUnreachable);

    let error = soon(there.read_to_end(&mut Vec::new())).await.unwrap_err();
    assert_eq!(abort_code(&error), Some(AbortCode::ApiServerUnreachable));
    let error = soon(async {
        loop {
            if let Err(error) = there.write_all(&[0; 1024]).await {
                return error;
            }
        }
    });
    assert_eq!(abort_code(&error.await), Some(AbortCode::ApiServerUnreachable));
    assert_eq!(abort_codes.peer_code(), Some(AbortCode::ApiServerUnreachable));
}

async fn an_abort_code_that_a_handle_sets_is_the_code_of_the_drop(carrier: Carrier) {
    let pair = Pair::greeted(carrier).await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let here = pair.accepted().await;
    let abort_codes = here.abort_codes();
    abort_codes.set(AbortCode::ApiServerLost);
    drop(here);

    let error = soon(there.read_to_end(&mut Vec::new())).await.unwrap_err();

    assert_eq!(abort_code(&error), Some(AbortCode::ApiServerLost));
}

async fn a_blocked_writer_gets_the_code_with_which_its_reader_left(carrier: Carrier) {
    let mut pair = Pair::greeted(carrier).await;
    let mut there = pair.server.open(&open()).await.unwrap();
    // More than what is read and a window on top of it, so that its end cannot have accepted.
    let writing = tokio::spawn(async move {
        let bytes = vec![0; 3_000_000];
        there.write_all(&bytes).await?;
        there.shutdown().await?;
        io::Result::Ok(there)
    });
    let mut here = pair.accepted().await;
    let mut half = vec![0; 1_000_000];
    soon(here.read_exact(&mut half)).await.unwrap();
    drop(here);

    let error = soon(writing).await.unwrap().map(drop).unwrap_err();

    assert_eq!(abort_code(&error), Some(AbortCode::Abandoned));
    assert_eq!(pair.server_events.try_recv().ok(), None, "the tunnel itself is well");
}

async fn a_drain_lets_an_open_stream_finish_and_loses_nothing(carrier: Carrier) {
    let pair = Pair::greeted(carrier).await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();
    pair.agent.begin_drain();
    soon(async {
        while !pair.server.is_draining() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(matches!(pair.server.open(&open()).await, Err(OpenError::Draining)));

    let sent = vec![3; 5_000_000];
    let writing = async {
        here.write_all(&sent).await.unwrap();
        here.shutdown().await.unwrap();
        here.read_to_end(&mut Vec::new()).await.unwrap();
        drop(here);
    };
    let reading = async {
        let mut received = Vec::new();
        there.read_to_end(&mut received).await.unwrap();
        there.shutdown().await.unwrap();
        drop(there);
        received
    };
    let ((), received) = soon(async { tokio::join!(writing, reading) }).await;

    assert!(received == sent);
    assert_eq!(soon(pair.server_ended).await.unwrap(), TunnelEnded::Drained);
    assert_eq!(soon(pair.agent_ended).await.unwrap(), TunnelEnded::Drained);
}

async fn more_streams_than_granted_wait_for_their_turn_and_then_say_so(carrier: Carrier) {
    let pair = Pair::greeted(carrier).await;
    let agent = pair.agent.clone();
    let _accepted = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok(stream) = agent.accept().await {
            kept.push(stream);
        }
    });
    let mut streams = Vec::new();
    for _ in 0..transport::STREAMS_MAX {
        streams.push(pair.server.open(&open()).await.unwrap());
    }
    assert!(matches!(soon(pair.server.open(&open())).await, Err(OpenError::Full)));
    assert_eq!(pair.server.streams_open(), transport::STREAMS_MAX);
}

async fn an_agent_of_another_authority_gets_no_tunnel(carrier: Carrier) {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = ours.server(carrier).await;
    let material = Material { peer_roots: vec![ours.server_root.clone()], ..theirs.agent_material() };

    let dialing = dial(carrier, server.address(), "gateway.test", material, hello());
    let (dialed, accepted) = soon(async { tokio::join!(dialing, server.accept_connection()) }).await;

    assert!(accepted.is_none());
    match dialed.map(drop) {
        Err(DialError::Rejected(reason)) => assert!(reason.contains("agents' CA"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

async fn a_server_of_another_authority_or_name_is_not_trusted(carrier: Carrier) {
    let (ours, theirs) = (Authority::new(), Authority::new());
    for (authority, name) in [(&theirs, "gateway.test"), (&ours, "elsewhere.test")] {
        let server = authority.server(carrier).await;
        let dialing = dial(carrier, server.address(), name, ours.agent_material(), hello());
        let (dialed, _accepted) = soon(async { tokio::join!(dialing, server.accept_connection()) }).await;
        assert!(matches!(dialed, Err(DialError::Untrusted(_))), "{name}");
    }
}

/// Although the servers' root has signed it.
async fn a_certificate_without_a_servers_uri_is_not_trusted(carrier: Carrier) {
    let expected = "the certificate's URI is not spiffe://tombolo/server/ID";
    let names = "the certificate's alternative names are not exactly one URI";
    for (uris, text) in [
        (&[][..], names),
        (&["spiffe://tombolo/server/a", "spiffe://tombolo/server/b"], names),
        (&["spiffe://tombolo/cluster/edge-a/agent/x"], expected),
        (&["spiffe://tombolo/caller"], expected),
        (&["spiffe://tombolo/admin/olga"], expected),
        (&["spiffe://tombolo/peer/gateway"], expected),
        (&["spiffe://elsewhere/server/gateway"], expected),
        (&["spiffe://tombolo/server/gateway/x"], expected),
    ] {
        let authority = Authority::with_server_uris(uris);
        let server = authority.server(carrier).await;

        let dialing = dial(carrier, server.address(), "gateway.test", authority.agent_material(), hello());
        let (dialed, accepted) = soon(async { tokio::join!(dialing, server.accept_connection()) }).await;

        // It did not even learn who dialed.
        assert!(accepted.is_none(), "{uris:?}");
        match dialed.map(drop) {
            Err(DialError::Untrusted(reason)) => assert_eq!(reason, text, "{uris:?}"),
            other => panic!("{uris:?}: {other:?}"),
        }
    }
}

async fn a_server_that_is_not_among_the_expected_ones_is_not_dialed(carrier: Carrier) {
    let authority = Authority::new();
    for (ids, is_dialed) in [(&[][..], true), (&["west", "gateway"], true), (&["west"], false)] {
        let server = authority.server(carrier).await;
        let expected =
            ExpectedServers { ids: ids.iter().map(|&id| id.to_owned()).collect(), ..expected_servers() };
        let material = authority.agent_material();

        let dialing = dial_one_of(carrier, server.address(), "gateway.test", material, expected, hello());
        let accepting =
            async { server.accept_connection().await.map(|accepted| tokio::spawn(Server::greet(accepted))) };
        let (dialed, _accepted) = soon(async { tokio::join!(dialing, accepting) }).await;

        match dialed.map(drop) {
            Ok(()) => assert!(is_dialed, "{ids:?}"),
            Err(error) => {
                assert!(!is_dialed, "{ids:?}: {error}");
                assert!(
                    error.to_string().contains("the server gateway, which is not among serverIds"),
                    "{error}"
                );
            }
        }
    }
}

async fn version_two_alone_is_refused_and_one_and_two_are_accepted(carrier: Carrier) {
    let authority = Authority::new();
    let refused = authority.try_greet(carrier, Hello { versions: vec![2], ..hello() }).await;
    let Err(DialError::Refused(refused)) = refused.map(drop) else { panic!("a tunnel, or another error") };
    assert_eq!(refused.reason(), Reason::Version);
    assert!(refused.message.contains("{2}") && refused.message.contains("{1}"), "{}", refused.message);

    let dialed = authority.try_greet(carrier, Hello { versions: vec![1, 2], ..hello() }).await.unwrap();
    assert_eq!(dialed.welcome.version, 1);
}

async fn the_shorter_of_both_limits_for_an_outage_is_agreed(carrier: Carrier) {
    let authority = Authority::new();
    for (agents, agreed) in [(60, 60), (600, 300), (0, 300)] {
        let hello = Hello { silence_max_ms: agents * 1000, ..hello() };
        let dialed = authority.try_greet(carrier, hello).await.unwrap();
        assert_eq!(dialed.welcome.silence_max_ms, agreed * 1000, "{agents} s of the agent");
    }
}

async fn changed_endpoints_reach_the_server(carrier: Carrier) {
    let mut pair = Pair::greeted(carrier).await;
    let (address, names) = ("192.168.1.10:6443".to_owned(), vec!["kubernetes".to_owned()]);
    let served = ServedCertificate { address: address.clone(), names: names.clone(), cut: false };
    pair.agent.advertise(Endpoints {
        addresses: vec![address.clone()],
        certificates: vec![served],
        kubernetes_version: "v1.36.3".to_owned(),
    });
    let event = soon(pair.server_events.recv()).await.unwrap();
    let certificate = Certificate { address: address.clone(), names, is_cut: false };
    let advertised = Advertised {
        endpoints: vec![address],
        certificates: vec![certificate],
        kubernetes_version: "v1.36.3".to_owned(),
    };
    assert_eq!(event, TunnelEvent::Endpoints(advertised));
}

async fn a_dropped_driver_ends_the_tunnel_for_both(carrier: Carrier) {
    let pair = Pair::greeted(carrier).await;
    pair.server_task.abort();
    assert_eq!(soon(pair.agent_ended).await.unwrap(), TunnelEnded::ClosedByPeer(CloseCode::Stopping));
    assert_eq!(pair.agent.health(), Health::Lost);
}

async fn a_finished_response_is_complete_though_its_stream_is_dropped(carrier: Carrier) {
    let pair = Pair::greeted(carrier).await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();
    let answer = vec![9; 200_000];
    here.write_all(&answer).await.unwrap();
    soon(here.shutdown()).await.unwrap();
    // Its other direction is still open, so this aborts it.
    drop(here);

    soon(there.write_all(b"late")).await.ok();
    let mut read = Vec::new();
    soon(there.read_to_end(&mut read)).await.unwrap();
    assert!(read == answer);
}

async fn fifty_readers_who_stopped_do_not_stop_another(carrier: Carrier) {
    let pair = Pair::greeted(carrier).await;
    let mut unread = Vec::new();
    for _ in 0..50 {
        let there = pair.server.open(&open()).await.unwrap();
        let mut here = pair.accepted().await;
        here.read_open().await.unwrap();
        let writing = tokio::spawn(async move {
            let bytes = vec![0; 64 * 1024];
            // Blocks once the window is full.
            while here.write_all(&bytes).await.is_ok() {}
        });
        unread.push((there, writing));
    }

    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();
    let sent = vec![7; 3_000_000];
    let writing = async {
        here.write_all(&sent).await.unwrap();
        here.shutdown().await.unwrap();
    };
    let mut read = Vec::new();
    let (ended, ()) = soon(async { tokio::join!(there.read_to_end(&mut read), writing) }).await;
    ended.unwrap();

    assert!(read == sent);
    assert_eq!(pair.server.health(), Health::Live);
    unread.into_iter().for_each(|(_, writing)| writing.abort());
}

async fn an_agent_with_an_unusable_certificate_learns_the_reason(carrier: Carrier) {
    let authority = Authority::new();
    let server = authority.server(carrier).await;
    let dialing = dial(carrier, server.address(), "gateway.test", authority.agent_material(), hello());
    let turning_away = async { server.accept_connection().await.unwrap().turn_away("it names no cluster") };

    let (dialed, ()) = soon(async { tokio::join!(dialing, turning_away) }).await;

    match dialed.map(drop) {
        Err(DialError::TurnedAway(reason)) => assert_eq!(reason, "it names no cluster"),
        other => panic!("{other:?}"),
    }
}
