//! Copies bytes between two TCP connections. A connection without bytes under way holds no buffer.

use std::cell::RefCell;
use std::io;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::coop::consume_budget;

/// Bytes that one read takes at most, and that wait in each direction while the other side does not read.
const CHUNK_BYTES: usize = 64 * 1024;

thread_local! {
    /// The buffer of every copy on this thread. No copy keeps it over a wait.
    static CHUNK: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK_BYTES]);
}

/// The side of a copy that broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyError {
    /// Nothing more can be read from the one side.
    From,
    /// Nothing more can be written to the other side.
    To,
}

/// One direction of a connection: the bytes that were read and not yet written, and its end. It stays valid when a
/// copy is dropped, so that another one, also of another process, can go on.
#[derive(Debug, Default)]
pub(crate) struct Half {
    rest: Vec<u8>,
    written: usize,
    is_done: bool,
}

impl Half {
    /// A direction with bytes that are to be written first.
    pub(crate) fn new(unwritten: Vec<u8>, is_done: bool) -> Self {
        Self { rest: unwritten, written: 0, is_done }
    }

    /// The bytes that were read and not yet written.
    pub(crate) fn unwritten(&self) -> &[u8] {
        &self.rest[self.written..]
    }

    /// Returns true if the end of file was read and passed on.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Reads once, and writes what the other side takes. The rest is kept. `copied` learns of what was read.
    fn step(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        chunk: &mut [u8],
        copied: &mut impl FnMut(&[u8]),
    ) -> Result<(), CopyError> {
        let read = match read(from, chunk) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            read => read.map_err(|_| CopyError::From)?,
        };
        if read == 0 {
            end(to).map_err(|_| CopyError::To)?;
            self.is_done = true;
            return Ok(());
        }
        copied(&chunk[..read]);
        let written = match to.try_write(&chunk[..read]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            written => written.map_err(|_| CopyError::To)?,
        };
        if written < read {
            self.rest = chunk[written..read].to_vec();
        }
        Ok(())
    }

    /// Writes the bytes that are kept, and waits until the other side has taken them.
    async fn flush(&mut self, to: &TcpStream) -> io::Result<()> {
        while self.written < self.rest.len() {
            to.ready(Interest::WRITABLE).await?;
            match to.try_write(self.unwritten()) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        (self.rest, self.written) = (Vec::new(), 0);
        Ok(())
    }
}

/// Copies from `from` to `to` until the end of file, and passes that on. `copied` learns of the bytes of each
/// read. Cancel-safe: `half` has all that was read and not yet written.
///
/// # Errors
/// One of the sides broke. Neither may take that for an end of file.
pub(crate) async fn copy(
    from: &TcpStream,
    to: &TcpStream,
    half: &mut Half,
    mut copied: impl FnMut(&[u8]),
) -> Result<(), CopyError> {
    half.flush(to).await.map_err(|_| CopyError::To)?;
    while !half.is_done {
        consume_budget().await;
        from.readable().await.map_err(|_| CopyError::From)?;
        CHUNK.with_borrow_mut(|chunk| half.step(from, to, chunk, &mut copied))?;
        half.flush(to).await.map_err(|_| CopyError::To)?;
    }
    Ok(())
}

/// Passes the end of file on.
fn end(to: &TcpStream) -> io::Result<()> {
    match rustix::net::shutdown(to, rustix::net::Shutdown::Write) {
        // The other side has closed before us.
        Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads what has come. After less than was asked for, the next wait is for new bytes: a read before that would only
/// say that nothing is there. tokio does the same in its `poll_read`, and not in `try_read`.
fn read(from: &TcpStream, chunk: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    let asked = from.try_io(Interest::READABLE, || {
        read = rustix::io::read(from, &mut *chunk)?;
        let is_all = 0 < read && read < chunk.len();
        if is_all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match asked {
        Err(error) if read == 0 => Err(error),
        Ok(()) | Err(_) => Ok(read),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// More than the kernel holds for a reader that has not begun to read.
    const LARGE_BYTES: usize = 16 * 1024 * 1024;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn every_byte_and_the_end_of_file_arrive_although_the_reader_is_slow() {
        let ((mut caller, from), (to, mut api_server)) = (pair().await, pair().await);
        let sent: Vec<u8> = (0..LARGE_BYTES).map(|at| (at % 251) as u8).collect();
        let mut copied = 0;

        let send = async {
            caller.write_all(&sent).await.unwrap();
            caller.shutdown().await.unwrap();
        };
        let receive = async {
            let mut received = vec![0; 1000];
            api_server.read_exact(&mut received).await.unwrap();
            // The other side of the way back is still open.
            api_server.read_to_end(&mut received).await.unwrap();
            received
        };
        let mut half = Half::default();
        let copying = copy(&from, &to, &mut half, |bytes| copied += bytes.len());
        let (result, (), received) = tokio::join!(copying, send, receive);

        result.unwrap();
        assert!(received == sent && copied == LARGE_BYTES, "{} of {copied}", received.len());
    }

    /// The copy is dropped in the midst of bytes, and another one goes on with what the first has left.
    #[tokio::test]
    async fn another_copy_goes_on_where_a_dropped_one_has_stopped() {
        let ((mut caller, from), (to, mut api_server)) = (pair().await, pair().await);
        let sent: Vec<u8> = (0..LARGE_BYTES).map(|at| (at % 251) as u8).collect();
        let mut half = Half::default();
        let send = async {
            caller.write_all(&sent).await.unwrap();
            caller.shutdown().await.unwrap();
        };

        let receive = async {
            // Nobody reads, so bytes are left. Then the copy is dropped.
            let mut is_full = false;
            while !is_full {
                let copying = copy(&from, &to, &mut half, |_| {});
                is_full = tokio::time::timeout(Duration::from_millis(20), copying).await.is_err()
                    && !half.unwritten().is_empty();
            }
            let mut half = Half::new(half.unwritten().to_vec(), half.is_done());
            let mut received = Vec::new();
            let copying = copy(&from, &to, &mut half, |_| {});
            let (copied, read) = tokio::join!(copying, api_server.read_to_end(&mut received));
            copied.unwrap();
            read.unwrap();
            received
        };
        let ((), received) = tokio::join!(send, receive);

        assert!(received == sent, "{} of {}", received.len(), sent.len());
    }

    #[tokio::test]
    async fn a_reset_is_an_error_and_no_end_of_file() {
        let ((caller, from), (to, api_server)) = (pair().await, pair().await);
        caller.set_zero_linger().unwrap();
        drop(caller);

        let broken = copy(&from, &to, &mut Half::default(), |_| {}).await;

        assert_eq!(broken, Err(CopyError::From));

        assert_eq!(api_server.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
