//! Requests to the kernel by netlink, each with its acknowledgement: RFC 3549, netlink(7).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

// linux/netlink.h: the message is a request, it is acknowledged, and it makes something, which must not be there yet, or at the end
// of a list.
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

/// The type of a message that acknowledges, with an error code that is 0 for success.
const ERROR: u16 = 2;

/// The bit of an attribute that contains attributes.
const NESTED: u16 = 0x8000;

/// The size of `struct nlmsghdr`, in bytes.
const HEADER_BYTES: usize = 16;

/// Largest message of the kernel that is read. An acknowledgement repeats its request.
const MESSAGE_BYTES_MAX: usize = 8192;

/// Longest wait for an acknowledgement. The kernel answers at once.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A socket for requests. What the kernel binds to a socket ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

/// Messages for the kernel, one after another.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    bytes: Vec<u8>,
    /// The sequence numbers of those that are acknowledged.
    acknowledged: u32,
}

impl Netlink {
    /// # Errors
    /// No socket is left, or the kernel has no such protocol.
    pub(crate) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_MAX))?;
        Ok(Self(socket))
    }

    /// Sends all messages at once, and waits for their acknowledgements.
    ///
    /// # Errors
    /// The first error of the kernel. Of a batch nothing is done then.
    pub(crate) fn request(&self, messages: &Messages) -> io::Result<()> {
        send(&self.0, &messages.bytes, SendFlags::empty())?;
        let mut waiting = messages.acknowledged;
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        while waiting > 0 {
            let (read, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            let codes = acknowledgements(&buffer[..read]);
            // A batch that fails is not acknowledged message by message.
            if let Some(error) = codes.iter().find(|code| **code != 0) {
                return Err(Errno::from_raw_os_error(-error).into());
            }
            waiting = waiting.saturating_sub(u32::try_from(codes.len()).unwrap_or(u32::MAX));
        }
        Ok(())
    }
}

impl From<OwnedFd> for Netlink {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The codes of the acknowledgements in what the kernel sent.
fn acknowledgements(mut bytes: &[u8]) -> Vec<i32> {
    let mut codes = Vec::new();
    while let Some(header) = bytes.first_chunk::<HEADER_BYTES>() {
        let [l0, l1, l2, l3, t0, t1, ..] = *header;
        let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let code = bytes.get(HEADER_BYTES..).and_then(|rest| rest.first_chunk::<4>());
        if let (ERROR, Some(code)) = (u16::from_ne_bytes([t0, t1]), code) {
            codes.push(i32::from_ne_bytes(*code));
        }
        bytes = bytes.get(aligned(length).max(HEADER_BYTES)..).unwrap_or_default();
    }
    codes
}

impl Messages {
    /// Adds a message that makes something new. `body` writes what follows the header.
    pub(crate) fn create(&mut self, kind: u16, body: impl FnOnce(&mut Attributes)) -> &mut Self {
        self.add(kind, REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE, body)
    }

    /// Adds a message that makes something new at the end of a list.
    pub(crate) fn append(&mut self, kind: u16, body: impl FnOnce(&mut Attributes)) -> &mut Self {
        self.add(kind, REQUEST | ACKNOWLEDGE | CREATE | APPEND, body)
    }

    /// Adds a message that takes something away.
    pub(crate) fn remove(&mut self, kind: u16, body: impl FnOnce(&mut Attributes)) -> &mut Self {
        self.add(kind, REQUEST | ACKNOWLEDGE, body)
    }

    /// Adds a message that is not acknowledged, as the begin and the end of a batch.
    pub(crate) fn mark(&mut self, kind: u16, body: impl FnOnce(&mut Attributes)) -> &mut Self {
        self.add(kind, REQUEST, body)
    }

    fn add(&mut self, kind: u16, flags: u16, body: impl FnOnce(&mut Attributes)) -> &mut Self {
        self.acknowledged += u32::from(flags & ACKNOWLEDGE != 0);
        let mut attributes = Attributes::default();
        body(&mut attributes);
        let length = HEADER_BYTES + attributes.0.len();
        self.bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(self.acknowledged.to_ne_bytes());
        self.bytes.extend([0; 4]); // The kernel fills in the port.
        self.bytes.extend(attributes.0);
        self
    }
}

/// The part of a message behind its header: a fixed structure, then attributes.
#[derive(Debug, Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds the bytes of a fixed structure, whose length is a multiple of 4.
    pub(crate) fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    /// Adds an attribute of bytes.
    pub(crate) fn bytes(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(aligned(self.0.len()), 0);
        self
    }

    /// Adds an attribute of text, which ends with a zero.
    pub(crate) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Adds an attribute of a number in network order.
    pub(crate) fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Adds an attribute that contains others.
    pub(crate) fn nested(&mut self, kind: u16, inner: impl FnOnce(&mut Self)) -> &mut Self {
        let mut attributes = Self::default();
        inner(&mut attributes);
        self.bytes(NESTED | kind, &attributes.0)
    }
}

/// The next multiple of 4.
fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_aligned_and_their_length_is_without_the_padding() {
        let mut attributes = Attributes::default();
        attributes.nested(4, |inner| {
            inner.text(1, "meta").number(2, 7);
        });

        let [l0, l1, k0, k1] = *attributes.0.first_chunk().unwrap();
        assert_eq!((u16::from_ne_bytes([l0, l1]), u16::from_ne_bytes([k0, k1])), (24, 0x8004));
        assert_eq!(attributes.0[4..6], 9_u16.to_ne_bytes());
        assert_eq!(&attributes.0[8..16], b"meta\0\0\0\0");
        assert_eq!(attributes.0[20..], [0, 0, 0, 7]);
    }

    #[test]
    fn the_codes_of_several_acknowledgements_are_found_and_a_cut_one_is_not() {
        let mut bytes = Vec::new();
        for code in [0_i32, -17] {
            bytes.extend(36_u32.to_ne_bytes());
            bytes.extend(ERROR.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(code.to_ne_bytes());
            bytes.extend([0; 16]);
        }

        assert_eq!(acknowledgements(&bytes), [0, -17]);
        assert_eq!(acknowledgements(&bytes[..bytes.len() - 17]), [0]);
        assert_eq!(acknowledgements(&bytes[..10]), [0_i32; 0]);
    }
}
