//! The same routes over HTTP/1.1, with one connection for each request.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::Status;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::{Route, TestRequest, TestResponse};
use crate::caller::SOON;
use crate::dial::dial_name;

/// Headers of one connection, and the length, which chunks may replace.
const OF_THE_CONNECTION: [&str; 3] = ["connection", "content-length", "transfer-encoding"];

/// Header fields that an answer may have.
const FIELDS_MAX: usize = 64;

impl Route {
    /// Sends a request over HTTP/1.1, and reads its complete answer. Headers of the connection are left out.
    ///
    /// # Panics
    /// If the connection breaks, or the bytes are not one complete answer.
    pub async fn ask_http1(&self, ask: &TestRequest) -> TestResponse {
        let dialed =
            dial_name(self.address, &self.host, &self.ca_pem, &["http/1.1"], Some(&self.identity)).await;
        let mut stream = dialed.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let mut request = format!(
            "{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nContent-Length: {}\r\n",
            ask.method,
            self.prefix,
            ask.path,
            self.host,
            self.address.port(),
            ask.body.len()
        );
        ask.headers.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
        let request = [request.as_bytes(), b"\r\n", &ask.body].concat();
        let mut answer = Vec::new();
        let exchange = async {
            stream.write_all(&request).await?;
            stream.read_to_end(&mut answer).await
        };
        let end = timeout(SOON, exchange).await.expect("an answer in time");
        end.unwrap_or_else(|error| panic!("{} {ask:?}: {error} after {} bytes", self.name, answer.len()));
        parse(ask.method, &answer)
    }
}

fn parse(method: &str, answer: &[u8]) -> TestResponse {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let Status::Complete(length) = head.parse(answer).expect("HTTP/1.1") else { panic!("half a head") };
    let mut headers = HeaderMap::new();
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).expect("a name");
        headers.append(name, HeaderValue::from_bytes(field.value).expect("a value"));
    }
    let has = |name, value: &str| headers.get(name).is_some_and(|given| given == value);
    let rest = &answer[length..];
    let body = if has("transfer-encoding", "chunked") { dechunked(rest) } else { rest.to_vec() };
    if method != "HEAD" && headers.contains_key("content-length") {
        assert!(has("content-length", &body.len().to_string()), "{} bytes, {headers:?}", body.len());
    }
    OF_THE_CONNECTION.iter().for_each(|name| drop(headers.remove(*name)));
    TestResponse { status: head.code.expect("a status"), headers, body: Bytes::from(body) }
}

fn dechunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let parsed = httparse::parse_chunk_size(bytes).expect("a chunk");
        let Status::Complete((begin, size)) = parsed else { panic!("half a chunk") };
        let end = begin + usize::try_from(size).expect("a size");
        body.extend_from_slice(&bytes[begin..end]);
        assert_eq!(&bytes[end..end + 2], b"\r\n");
        bytes = &bytes[end + 2..];
        if size == 0 {
            assert!(bytes.is_empty(), "{} bytes behind the last chunk", bytes.len());
            return body;
        }
    }
}
