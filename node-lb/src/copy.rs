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

#[cfg(test)]
mod tests {
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
        let (result, (), received) = tokio::join!(copy(&from, &to, |bytes| copied += bytes), send, receive);

        result.unwrap();
        assert!(received == sent && copied == LARGE_BYTES, "{} of {copied}", received.len());
    }

    #[tokio::test]
    async fn a_reset_is_an_error_and_no_end_of_file() {
        let ((caller, from), (to, api_server)) = (pair().await, pair().await);
        caller.set_zero_linger().unwrap();
        drop(caller);

        copy(&from, &to, |_| {}).await.unwrap_err();

        assert_eq!(api_server.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
