//! One caller: an HTTP/2 connection that is kept, and GETs over it.

use ::tests::dial::dial;
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::AbortHandle;

use crate::way::Door;

/// What Go's HTTP/2 client grants a server, and so kubectl and client-go.
/// <https://github.com/golang/net/blob/v0.47.0/http2/transport.go> (`transportDefaultStreamFlow`,
/// `transportDefaultConnFlow`)
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;

/// A connection to a door; it is closed when this is dropped.
#[derive(Debug)]
pub struct Caller {
    sender: SendRequest<Empty<Bytes>>,
    driver: AbortHandle,
}

/// Why a request has no answer, or not the one that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// TCP or TLS.
    #[error("no connection to {0}")]
    Connect(std::net::SocketAddr, #[source] std::io::Error),
    /// HTTP/2.
    #[error("the HTTP/2 connection broke")]
    Http(#[from] hyper::Error),
    /// An answer, but no success.
    #[error("{uri} was answered with {status}: {body}")]
    Refused {
        /// What was asked for.
        uri: Uri,
        /// The status.
        status: StatusCode,
        /// The answer's body.
        body: String,
    },
    /// More or fewer bytes than the answer should have.
    #[error("{uri} has {got} bytes and not {expected}")]
    Size {
        /// What was asked for.
        uri: Uri,
        /// How many came.
        got: u64,
        /// How many there are.
        expected: u64,
    },
}

impl Caller {
    /// Connects.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn connect(door: &Door) -> Result<Self, CallError> {
        let stream = dial(door.address, &door.ca_pem, &["h2"], door.identity.as_ref())
            .await
            .map_err(|error| CallError::Connect(door.address, error))?;
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(TokioIo::new(stream))
            .await?;
        // How it ends, its requests tell.
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self { sender, driver })
    }

    /// Asks, reads the answer to its last byte, and returns how many there were.
    ///
    /// # Errors
    /// [`CallError`], for any answer but 200, too.
    pub async fn get(&mut self, uri: &Uri) -> Result<u64, CallError> {
        let request = Request::get(uri.clone()).body(Empty::new()).expect("a URI that was parsed");
        let response = self.sender.send_request(request).await?;
        let (head, mut body) = response.into_parts();
        if head.status != StatusCode::OK {
            let body = body.collect().await?.to_bytes();
            let body = String::from_utf8_lossy(&body).into_owned();
            return Err(CallError::Refused { uri: uri.clone(), status: head.status, body });
        }
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame?.data_ref().map_or(0, |data| data.len() as u64);
        }
        Ok(bytes)
    }

    /// The same, where the number of bytes is known.
    ///
    /// # Errors
    /// As [`Caller::get`].
    pub async fn get_sized(&mut self, uri: &Uri, expected: u64) -> Result<(), CallError> {
        let got = self.get(uri).await?;
        if got == expected { Ok(()) } else { Err(CallError::Size { uri: uri.clone(), got, expected }) }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
