//! Faults of API servers and callers.

use super::{REFUSED, UNNOTICED};
use crate::matrix::code::Timing;
use crate::matrix::fault::ApiFault;
use crate::matrix::fault::Injection::{Api, Elsewhere};
use crate::matrix::fault::Row;

/// The only stage of faults that exist from the start: every request meets them.
const FROM_THE_START: &[Timing] = &[Timing::New];

/// The rows 65 to 79.
pub(super) const ROWS: &[Row] = &[
    Row::new("65", "the API server is gone for 5 s", Api(ApiFault::Gone))
        .in_flight(["G3", "W1/W2", "E1", "A1", "G3"])
        .unanswered(["G2", "W2", "E2", "A1", "G2"])
        .begun_during(REFUSED)
        .note("the tunnel stays, and the error names the API server"),
    Row::new("65s", "the API server accepts connections and sends nothing for 10 s", Api(ApiFault::Silent))
        .begun_during(["G0/G2", "W0/W2", "E0/E2", "A0/A2", "G0/G2"])
        .at(FROM_THE_START)
        .seconds(10)
        .note("pooled connections are used as long as they work"),
    Row::new(
        "66",
        "the API server closes each connection after the last byte",
        Api(ApiFault::ClosesAfterTheLastByte),
    )
    .begun_during(["G0/G1", "-", "-", "A0", "G0/G1"])
    .at(FROM_THE_START),
    Row::new("67", "the API server sends GOAWAY", Api(ApiFault::GoesAway)).always(UNNOTICED),
    Row::new(
        "67c",
        "a real API server ends connections by GOAWAY under 40 callers",
        Elsewhere("goaways_of_a_real_api_server_fail_no_request_and_repeat_none"),
    ),
    Row::new(
        "67r",
        "the API server refuses streams, and others lie above a GOAWAY, under 40 callers",
        Elsewhere("under_refusals_and_goaways_no_write_fails_and_none_is_done_twice"),
    ),
    Row::new("69", "the API server freezes in the middle of an answer for 10 s", Api(ApiFault::Freezes))
        .in_flight(["G0", "-", "-", "A0", "G0"])
        .at(&[Timing::BeforeHead, Timing::MidBody, Timing::AtTheEnd])
        .seconds(10),
    Row::new("69t", "the API server sends a byte a second", Api(ApiFault::Trickles))
        .begun_during(["G0", "-", "-", "-", "-"])
        .at(FROM_THE_START)
        .seconds(1),
    Row::new("70", "the answer is shorter than its length", Api(ApiFault::ShortOfLength))
        .note("a request whose answer was not passed on yet is refused; otherwise the answer breaks off: never a clean end")
        .begun_during(["G2/G3", "-", "-", "A1", "G2/G3"])
        .at(FROM_THE_START),
    Row::new("70c", "the answer ends without its last chunk", Api(ApiFault::ShortOfChunks))
        .begun_during(["G2/G3", "-", "-", "A1", "G2/G3"])
        .at(FROM_THE_START),
    Row::new("70b", "a malformed chunk", Api(ApiFault::BadChunk))
        .begun_during(["G2/G3", "-", "-", "A1", "G2/G3"])
        .at(FROM_THE_START),
    Row::new("71", "429 with Retry-After", Api(ApiFault::Says(429)))
        .begun_during(["P", "-", "P", "P", "P"])
        .at(FROM_THE_START),
    Row::new("71b", "503 with Retry-After", Api(ApiFault::Says(503)))
        .begun_during(["P", "-", "P", "P", "P"])
        .at(FROM_THE_START),
    Row::new("71c", "409", Api(ApiFault::Says(409)))
        .begun_during(["P", "-", "P", "P", "P"])
        .at(FROM_THE_START),
    Row::new("71d", "410", Api(ApiFault::Says(410)))
        .begun_during(["P", "-", "P", "P", "P"])
        .at(FROM_THE_START),
    Row::new(
        "72",
        "a caller reads a huge list at 10 KiB/s",
        Elsewhere("hundreds_of_slow_readers_disturb_nobody_within_the_memory_budget"),
    ),
    Row::new(
        "73",
        "10,000 events a second for a slow caller",
        Elsewhere("a_steady_reader_and_an_idle_watcher_are_never_ended"),
    ),
    Row::new("74", "the caller leaves at any moment", Elsewhere("an_http2_disconnect_ends_the_request_at_an_api_server_of_any_version")),
    Row::new("77", "the API server shows another certificate", Elsewhere("an_api_server_of_another_authority_is_refused_with_the_reason")),
    Row::new("78", "the API server redirects to another host", Api(ApiFault::Redirects))
        .begun_during(["G2", "-", "E2", "A1", "G2"])
        .at(FROM_THE_START),
    Row::new("78b", "the API server answers an upgrade that nobody asked for", Api(ApiFault::Wrong101))
        .begun_during(["G2", "-", "E2", "A1", "G2"])
        .at(FROM_THE_START),
    Row::new(
        "79",
        "server and agent of neighbouring versions",
        Elsewhere("an_agent_of_this_release_serves_at_the_server_before_and_after"),
    ),
];
