//! Every parameter of HTTP/2 and of the TCP connection under it, in one place, each with its reason.

use std::io;
use std::time::Duration;

use proto::session::SILENCE_MOST;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
#[cfg(target_os = "linux")]
use tracing::debug;

use crate::settings::{IDLE_BEYOND_SILENCE, KEEP_ALIVE_EVERY, STREAMS_MAX};

/// The control stream, and the carrier's own.
const OWN_STREAMS: u32 = 2;

/// Most bytes that one stream has in flight towards a reader who does not read. Less than on QUIC, because a
/// window of HTTP/2 ends at 2³¹ − 1 bytes, and the connection's has to hold those of all streams.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 500_000;

/// Most bytes that all streams together have in flight. It never binds before the streams' own windows,
/// because it is shared.
const CONNECTION_WINDOW_BYTES: u32 = (STREAMS_MAX + OWN_STREAMS) * STREAM_WINDOW_BYTES;
const _: () = assert!((STREAMS_MAX as u64 + OWN_STREAMS as u64) * (STREAM_WINDOW_BYTES as u64) < 1 << 31);
const _: () =
    assert!(STREAM_WINDOW_BYTES <= crate::settings::STREAM_WINDOW_BYTES, "the gateway counts with QUIC's");

/// Most bytes that h2 buffers of one stream until TCP takes them. Windows are the other side's memory, this
/// is ours: 4,096 streams that all wait hold 128 MiB.
pub(super) const SEND_BYTES_MAX: usize = 32 * 1024;

/// The largest DATA frame. While one is written nothing overtakes it.
const FRAME_BYTES: u32 = 16 * 1024;

/// The largest DATA frame of a bulk stream: a small request waits for one frame of each of those. Its header
/// is a tenth of a percent of it, and that of its TLS record half a percent.
pub(super) const BULK_FRAME_BYTES: usize = 4 * 1024;

/// A head of ours has five short fields.
const HEAD_BYTES_MAX: u32 = 4096;

/// HPACK's table: holds the heads of our three kinds of streams.
const HEADER_TABLE_BYTES: u32 = 4096;

/// Most streams that the server opened and reset before the agent accepted them: as many as it may have open,
/// because it may cancel them all at once. h2's default of 20 would end the tunnel when a crowd of callers
/// hangs up.
const PENDING_RESETS_MAX: usize = STREAMS_MAX as usize;

/// Time for which a reset stream is remembered. Data that was in flight arrives within a round trip, and is
/// discarded as long as the stream is remembered. Afterwards h2 answers each such frame with a reset.
const RESET_REMEMBERED: Duration = Duration::from_secs(30);
const RESETS_REMEMBERED_MAX: usize = STREAMS_MAX as usize;

/// h2's budget for the overhead of small DATA frames that nobody reads: it counts 256 bytes each, less their
/// payload. Its default for a small window ends the tunnel when nobody reads a watch of a hundred events; the
/// one for ours is a gigabyte.
pub(super) const SMALL_FRAMES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most bytes that a socket holds unsent. Nothing overtakes them any more, so they delay every small request.
/// At 50 Mbit/s beside a bulk stream, 16 KiB instead of the kernel's default are worth a factor of four.
const UNSENT_BYTES: u32 = 16 * 1024;

/// Longest retransmission timeout of TCP. By default it doubles up to 120 s, and after a long outage nothing
/// flows before it has passed. One second is the least that Linux accepts.
#[cfg(target_os = "linux")]
const RTO_MAX: Duration = Duration::from_secs(1);

/// Most bytes that rustls holds until the socket takes them: one record and a little, for the same reason.
pub(crate) const TLS_BYTES: usize = 20 * 1024;

/// A tunnel is replaced when it reaches this stream id, while it still serves. Ids are never reused, and end
/// at 2³¹.
pub(super) const REPLACE_AT_STREAM_ID: u32 = 1 << 29;

/// The round trip that is assumed before the first measurement, as on QUIC (RFC 9002, section 6.2.2).
pub(super) const ROUND_TRIP_INITIAL: Duration = Duration::from_millis(333);

/// Most bytes of carrier frames that wait to be sent. Every stream of a full tunnel may end at once, at nine
/// bytes each; a peer that does not read them is broken.
pub(super) const CARRIER_FRAMES_BYTES_MAX: usize = 16 * 9 * STREAMS_MAX as usize;

/// Longest time that a side waits after it has closed, for the peer to read the reason.
pub(super) const CLOSE_WAIT_MAX: Duration = Duration::from_secs(1);

/// The agent's parameters: it is HTTP/2's server, and accepts the streams.
pub(super) fn agent() -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(STREAMS_MAX + OWN_STREAMS)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_header_list_size(HEAD_BYTES_MAX)
        .header_table_size(HEADER_TABLE_BYTES)
        .max_send_buffer_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_concurrent_reset_streams(RESETS_REMEMBERED_MAX)
        .reset_stream_duration(RESET_REMEMBERED)
        // h2 counts over the whole life of a connection, so a tunnel that lives for months would reach any
        // limit.
        .max_local_error_reset_streams(None)
        .data_frame_budget(SMALL_FRAMES_BYTES_MAX);
    builder
}

/// The server's parameters: it is HTTP/2's client, and opens the streams.
pub(super) fn server() -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        // Nothing is pushed.
        .max_concurrent_streams(0)
        // Until the agent's SETTINGS have come: no exchange before they have.
        .initial_max_send_streams(OWN_STREAMS as usize)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_header_list_size(HEAD_BYTES_MAX)
        .header_table_size(HEADER_TABLE_BYTES)
        .max_send_buffer_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_concurrent_reset_streams(RESETS_REMEMBERED_MAX)
        .reset_stream_duration(RESET_REMEMBERED)
        .max_local_error_reset_streams(None)
        .data_frame_budget(SMALL_FRAMES_BYTES_MAX);
    builder
}

/// Sets the options of a tunnel's TCP socket.
pub(crate) fn socket(tcp: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(tcp);
    // Frames are sent without delay.
    socket.set_tcp_nodelay(true)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    // The kernel must not give a path up before the session does. By default it does so after `tcp_retries2`
    // doublings, about 15 minutes, or at a host's own shorter setting.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(SILENCE_MOST + IDLE_BEYOND_SILENCE))?;
    // Set after the user timeout: without one the kernel would give up after fifteen such timeouts.
    #[cfg(target_os = "linux")]
    if let Err(error) = sys::set_tcp_rto_max(tcp, RTO_MAX) {
        debug!(%error, "this kernel cannot bound TCP's retransmission timeout: after an outage, streams over TCP resume late");
    }
    // Backstop for the heartbeats; with a user timeout the kernel counts no probes.
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE_EVERY).with_interval(KEEP_ALIVE_EVERY))
}
