//! A tunnel-server under attack by an agent with a good certificate, whose QUIC frames aim to fill its memory
//! or to crash it.

use quinn::{Connection, ConnectionError};
use tests::evil_quic::forged::{Forgery, Space};
use tests::evil_quic::frames::{
    self, crypto, filled, new_connection_id, path_challenge, retire_connection_id, stream, varint,
};
use tests::evil_quic::trial::{ANSWER_MAX, Trial};
use tokio::time::timeout;

/// The one stream that an agent has beside its control stream.
const SPARE: u64 = 4;

/// The first stream that it does not have.
const NOT_GRANTED: u64 = 8;

/// The bytes that the server accepts of a stream that nobody reads.
const WINDOW_BYTES: u64 = 1_250_000;

/// Forged packets of an attack that the server tolerates. An honest agent is asked something after each part
/// of them.
const PACKETS: u64 = 4_000;
const PARTS: u64 = 4;

/// A datagram that fills quinn's queue, which fills packets.
const DATAGRAM: &[u8] = &[0; 400];

/// The name of an attack, its expected outcome, and the function that makes its frame with this number.
type Attack = (&'static str, AttackOutcome, fn(u64) -> Vec<u8>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum AttackOutcome {
    /// The server closes the connection.
    Ended,
    /// It may go on, because no memory is kept for it.
    Tolerated,
}

#[tokio::test]
async fn gaps_and_overlaps_end_their_own_tunnel_before_they_fill_memory() {
    let attacks: [Attack; 5] = [
        ("every second byte of a stream, the first withheld", AttackOutcome::Ended, |number| {
            stream(SPARE, (2 * number + 2) % WINDOW_BYTES, b"x")
        }),
        ("pieces that overlap, the first withheld", AttackOutcome::Tolerated, |number| {
            stream(SPARE, (7 * number + 1) % (WINDOW_BYTES - 1000), &[b'x'; 900])
        }),
        ("the same piece again and again, behind a gap", AttackOutcome::Tolerated, |number| {
            stream(SPARE, 1 + number % 2, &[b'x'; 400])
        }),
        ("every second byte of the TLS behind the handshake", AttackOutcome::Ended, |number| {
            crypto(2 * number + 2, b"x")
        }),
        ("a piece of a stream that was not granted", AttackOutcome::Ended, |number| {
            stream(NOT_GRANTED, number, b"x")
        }),
    ];
    are_survived(&attacks).await;
}

/// The peer acknowledges nothing of what it gets.
#[tokio::test]
async fn frames_that_need_state_or_replies_are_bounded() {
    let attacks: [Attack; 6] = [
        ("PATH_CHALLENGE", AttackOutcome::Tolerated, path_challenge),
        ("NEW_CONNECTION_ID, each giving up all before", AttackOutcome::Ended, |number| {
            new_connection_id(number + 1, number + 1)
        }),
        ("NEW_CONNECTION_ID, none giving up one", AttackOutcome::Ended, |number| {
            new_connection_id(number + 1, 0)
        }),
        ("RETIRE_CONNECTION_ID of names never given", AttackOutcome::Ended, |number| {
            retire_connection_id(number + 1_000)
        }),
        ("RETIRE_CONNECTION_ID of each name", AttackOutcome::Ended, retire_connection_id),
        ("STREAMS_BLOCKED, DATA_BLOCKED and MAX_DATA", AttackOutcome::Tolerated, |number| {
            [&[0x16], varint(number).as_slice(), &[0x14], &varint(number), &[0x10], &varint(number)].concat()
        }),
    ];
    are_survived(&attacks).await;
}

#[tokio::test]
async fn frames_of_no_known_type_end_their_own_connection_in_every_space() {
    let trial = Trial::start().await;
    for space in [Space::Handshake, Space::Data] {
        for kind in frames::UNKNOWN.chain([0x4000, (1 << 62) - 1]) {
            let forgery = Forgery::default();
            let closed = match space {
                Space::Handshake => {
                    forgery.begin(space, move |room| filled(room, &mut 0, |_| varint(kind)));
                    // The client holds the handshake for done before the server has seen what is wrong.
                    match trial.connect(&forgery).await {
                        Ok(connection) => closed(&connection).await,
                        Err(error) => error,
                    }
                }
                Space::Data => {
                    let connection = trial.greeted(&forgery).await;
                    forgery.begin(space, move |room| filled(room, &mut 0, |_| varint(kind)));
                    drive(&connection, &forgery, 1).await;
                    let error = closed(&connection).await;
                    trial.rig.disconnected("edge-b").await;
                    error
                }
            };
            assert!(forgery.packets() > 0, "{space:?} {kind:#x}");
            assert!(matches!(closed, ConnectionError::ConnectionClosed(_)), "{space:?} {kind:#x}: {closed}");
        }
        trial.others_are_undisturbed().await;
    }
    trial.new_agents_are_served().await;
}

/// Each attack is tolerated or ended. In both cases the honest agent is served and memory stays within its
/// bound.
async fn are_survived(attacks: &[Attack]) {
    let trial = Trial::start().await;
    for &(what, outcome, frame) in attacks {
        let forgery = Forgery::default();
        let connection = trial.greeted(&forgery).await;
        let mut next = 0;
        forgery.begin(Space::Data, move |room| filled(room, &mut next, frame));
        for part in 1..=PARTS {
            drive(&connection, &forgery, part * PACKETS / PARTS).await;
            trial.others_are_undisturbed().await;
        }
        let ended = match outcome {
            AttackOutcome::Ended => Some(closed(&connection).await),
            AttackOutcome::Tolerated => connection.close_reason(),
        };
        // An attacker that has retired all its connection IDs gets a stateless reset.
        let is_reported =
            matches!(ended, None | Some(ConnectionError::ConnectionClosed(_) | ConnectionError::Reset));
        assert!(is_reported, "{what}: {ended:?}");
        eprintln!("{what}: {} packets, then {ended:?}", forgery.packets());
        forgery.end();
        connection.close(quinn::VarInt::from_u32(0), b"");
        trial.rig.disconnected("edge-b").await;
    }
    trial.new_agents_are_served().await;
}

/// Has quinn send until so many packets were forged, or the server has closed the connection.
async fn drive(connection: &Connection, forgery: &Forgery, packets: u64) {
    let sending = async {
        while forgery.packets() < packets && connection.close_reason().is_none() {
            if connection.send_datagram_wait(DATAGRAM.into()).await.is_err() {
                return;
            }
        }
    };
    timeout(ANSWER_MAX, sending).await.expect("the server acknowledges, or closes");
}

async fn closed(connection: &Connection) -> ConnectionError {
    timeout(ANSWER_MAX, connection.closed()).await.expect("it is closed")
}
