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

/// Copies from `from` to `to` until the end of file, and passes that on. `copied` learns of the bytes of each
/// read.
///
/// # Errors
/// One of the sides broke. Neither may take that for an end of file.
pub(crate) async fn copy(from: &TcpStream, to: &TcpStream, mut copied: impl FnMut(usize)) -> io::Result<()> {
    loop {
        consume_budget().await;
        from.readable().await?;
        let step = CHUNK.with_borrow_mut(|chunk| step(from, to, chunk));
        match step {
            Ok(Step::End) => break,
            Ok(Step::Copied(bytes)) => copied(bytes),
            Ok(Step::Left(bytes, rest)) => {
                copied(bytes);
                write_all(to, &rest).await?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    match rustix::net::shutdown(to, rustix::net::Shutdown::Write) {
        // The other side has closed before us.
        Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The result of one read, and of the write after it.
enum Step {
    End,
    Copied(usize),
    /// So many bytes were read. Those that the other side did not take are left.
    Left(usize, Vec<u8>),
}

fn step(from: &TcpStream, to: &TcpStream, chunk: &mut [u8]) -> io::Result<Step> {
    let read = from.try_read(chunk)?;
    if read == 0 {
        return Ok(Step::End);
    }
    let written = match to.try_write(&chunk[..read]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        written => written?,
    };
    if written == read { Ok(Step::Copied(read)) } else { Ok(Step::Left(read, chunk[written..read].to_vec())) }
}

async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.ready(Interest::WRITABLE).await?;
        match to.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
