//! Frames on the Unix socket between two processes, each with its file descriptors.
//!
//! A frame is 8 bytes of header (kind, number of descriptors, two zeros, length) and its payload. The descriptors
//! come with the header.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use aws_lc_rs::digest::{Context, SHA256};
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Version of the frames. Another one is not understood, and the successor starts without its predecessor.
pub(super) const VERSION: u32 = 1;

/// Most descriptors of a frame. The kernel takes up to 253 with one message (`SCM_MAX_FD`).
const FDS_MAX: usize = 2;

/// Largest payload: the facts, and the unwritten bytes of both directions. 256 KiB.
const PAYLOAD_BYTES_MAX: usize = 256 * 1024;

const HEADER_BYTES: usize = 8;

/// Makes the enum of frames and, from the same list, their numbers.
macro_rules! frame_kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal;)*) => {
        /// The kind of a frame.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum FrameKind {
            $($(#[$doc])* $kind,)*
        }

        impl FrameKind {
            const fn number(self) -> u8 {
                match self {
                    $(Self::$kind => $number,)*
                }
            }

            fn parse(number: u8) -> Option<Self> {
                [$(Self::$kind),*].into_iter().find(|kind| kind.number() == number)
            }
        }
    };
}

frame_kinds! {
    /// The successor asks, with the version of its frames.
    Ask = 1;
    /// A socket that listens for callers.
    Listener = 2;
    /// The sockets of a connection.
    Connection = 3;
    /// The socket that owns the table of nftables.
    Steering = 4;
    /// Nothing more comes; with the number and the digest of the frames before.
    End = 5;
    /// The successor has all, and can serve.
    HaveAll = 6;
    /// The predecessor has let go.
    Go = 7;
}

/// The reason why a handover did not take place. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The socket failed, or the other process has ended.
    #[error("the connection to the other process failed")]
    Io(#[from] io::Error),
    /// The other end belongs to another user.
    #[error("the other process belongs to user id {0}")]
    OtherUser(u32),
    /// The other process speaks another version.
    #[error("the other process has version {0} of the handover, and this program has {VERSION}")]
    Version(u32),
    /// A frame is not as it must be.
    #[error("the other process sent a message that is damaged or not understood: {0}")]
    Damaged(&'static str),
    /// There is more than any process has.
    #[error("the other process has more than {0} sockets")]
    TooMany(usize),
    /// The other process took too long.
    #[error("the other process did not answer within {0} s")]
    Timeout(u64),
}

/// A frame that was received, with its descriptors.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    pub(super) payload: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

/// One end of the connection, which counts and digests the frames that passed.
pub(super) struct Wire {
    socket: UnixStream,
    digest: Context,
    frames: u32,
}

impl Wire {
    /// Takes a connection to a process of the same user.
    pub(super) fn new(socket: UnixStream) -> Result<Self, HandoverError> {
        let other = socket.peer_cred()?.uid();
        same_user(other, geteuid().as_raw())?;
        Ok(Self { socket, digest: Context::new(&SHA256), frames: 0 })
    }

    /// Sends a frame. Dropped before its end, the connection is of no more use.
    pub(super) async fn send(
        &mut self,
        kind: FrameKind,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), HandoverError> {
        let frame = encode(kind, payload, fds.len())?;
        self.count(&frame);
        let socket = &self.socket;
        let mut sent = socket.async_io(Interest::WRITABLE, || send_with(socket, &frame, fds)).await?;
        while sent < frame.len() {
            sent += socket.async_io(Interest::WRITABLE, || send_with(socket, &frame[sent..], &[])).await?;
        }
        Ok(())
    }

    /// Sends a frame without payload at once, or not at all.
    pub(super) fn send_now(&mut self, kind: FrameKind) -> Result<(), HandoverError> {
        let frame = encode(kind, &[], 0)?;
        let sent = send_with(&self.socket, &frame, &[])?;
        // A socket takes 8 bytes or none.
        if sent == frame.len() { Ok(()) } else { Err(HandoverError::Damaged("it takes no frame")) }
    }

    /// Receives a frame with its descriptors.
    pub(super) async fn receive(&mut self) -> Result<Frame, HandoverError> {
        let (mut header, mut fds) = ([0; HEADER_BYTES], Vec::new());
        self.fill(&mut header, &mut fds).await?;
        let [kind, count, 0, 0, l0, l1, l2, l3] = header else {
            return Err(HandoverError::Damaged("a header has unknown bits"));
        };
        let kind = FrameKind::parse(kind).ok_or(HandoverError::Damaged("an unknown kind"))?;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > PAYLOAD_BYTES_MAX {
            return Err(HandoverError::Damaged("a frame is too large"));
        }
        let mut payload = vec![0; length];
        self.fill(&mut payload, &mut fds).await?;
        if fds.len() != usize::from(count) {
            return Err(HandoverError::Damaged("descriptors are missing"));
        }
        self.count(&header);
        self.digest.update(&payload);
        Ok(Frame { kind, payload, fds })
    }

    /// The number and the digest of all frames until now, as the payload of [`FrameKind::End`].
    pub(super) fn sum(&self) -> Vec<u8> {
        let digest = self.digest.clone().finish();
        [&self.frames.to_le_bytes()[..], digest.as_ref()].concat()
    }

    /// Ends the connection in both directions. The other end can send nothing from now on; a frame that it
    /// sent before can be received.
    pub(super) fn shut_down(&self) {
        // A connection that is gone is shut down, too.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Waits until the other end is closed.
    pub(super) async fn closed(&mut self) {
        while self.receive().await.is_ok() {}
    }

    fn count(&mut self, bytes: &[u8]) {
        self.frames = self.frames.wrapping_add(1);
        self.digest.update(bytes);
    }

    async fn fill(&self, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<(), HandoverError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            let read =
                self.socket.async_io(Interest::READABLE, || receive_with(&self.socket, rest, fds)).await?;
            if read == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            filled += read;
        }
        Ok(())
    }
}

/// The payload of a frame: the length of the facts, the facts, and then bytes.
pub(super) fn payload(facts: &impl Serialize, bytes: [&[u8]; 2]) -> Vec<u8> {
    // Numbers, texts and addresses always have a form in JSON.
    let facts = serde_json::to_vec(facts).unwrap_or_default();
    let length = u32::try_from(facts.len()).unwrap_or(u32::MAX).to_le_bytes();
    [&length, facts.as_slice(), bytes[0], bytes[1]].concat()
}

/// The facts of a payload, and the bytes after them.
pub(super) fn parse<T: DeserializeOwned>(payload: &[u8]) -> Result<(T, &[u8]), HandoverError> {
    const DAMAGED: HandoverError = HandoverError::Damaged("its facts cannot be parsed");
    let (length, rest) = payload.split_first_chunk().ok_or(DAMAGED)?;
    let (facts, bytes) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(DAMAGED)?;
    Ok((serde_json::from_slice(facts).map_err(|_| DAMAGED)?, bytes))
}

pub(super) fn same_user(other: u32, own: u32) -> Result<(), HandoverError> {
    if other == own { Ok(()) } else { Err(HandoverError::OtherUser(other)) }
}

fn encode(kind: FrameKind, payload: &[u8], fds: usize) -> Result<Vec<u8>, HandoverError> {
    if payload.len() > PAYLOAD_BYTES_MAX || fds > FDS_MAX {
        return Err(HandoverError::Damaged("it does not fit into a frame"));
    }
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
    let header = [kind.number(), u8::try_from(fds).unwrap_or(u8::MAX), 0, 0];
    Ok([&header[..], &length, payload].concat())
}

fn send_with(socket: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one frame"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?)
}

fn receive_with(socket: &UnixStream, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("descriptors were lost; is the limit of open files too low?"));
    }
    Ok(received.bytes)
}
