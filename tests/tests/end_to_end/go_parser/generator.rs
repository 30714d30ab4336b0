//! Requests with framings, paths and headers on which parsers have disagreed, generated from a seed.

use tests::caller::GATEWAY;
use tests::rig::TOKEN;
use tests::rng::Rng;

const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

/// The pieces of a path.
const PIECES: [&str; 18] =
    ["pods", "a", "-", "~", "%20", "%41", ":", "@", "!", "$", "&", "'", "(x)", "*", "+", ",", "=", "proxy"];

/// The pieces of a path that are usually refused.
const ODD_PIECES: [&str; 8] = ["%2F", "//", "..", "%2e", ";", "\\", "%00", "\u{e9}"];

/// Lines of heads that parsers have read in two ways; most are let through.
const LINES: [&str; 16] = [
    "X-A: b",
    "x-a:b",
    "X-A:  b \t",
    "X-A:",
    "X-A: a\r\nX-A: b",
    "X-A: a, b",
    "X-A: \u{e9}",
    "X-Long: llllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll",
    "Accept: */*",
    "TE: trailers",
    "Trailer: X-T",
    "Expect: 100-continue",
    "Connection: x-a",
    "Connection: keep-alive",
    "Keep-Alive: timeout=5",
    "Accept-Encoding: gzip",
];

/// Lines of heads that are seldom let through.
const ODD_LINES: [&str; 9] = [
    "X-A: b\r\n c",
    "X-A : b",
    ": b",
    "X A: b",
    "X-A: b\rc",
    "X-A: b\0c",
    "X-\u{e9}: b",
    "X-A",
    "Host: other.test",
];

/// Headers that declare a body's length. `{n}` is the right length, `{more}` and `{less}` are wrong;
/// `{chunked}` is for chunks.
const FRAMINGS: [(&str, Body); 24] = [
    ("", Body::None),
    ("Content-Length: 0", Body::None),
    ("Content-Length: {n}", Body::Plain),
    ("Content-Length: {n}", Body::Plain),
    ("content-length:{n}", Body::Plain),
    ("Content-Length: {n}\r\nContent-Length: {n}", Body::Plain),
    ("Content-Length: 00{n}", Body::Plain),
    ("Transfer-Encoding: chunked", Body::Chunked),
    ("Transfer-Encoding: chunked", Body::Chunked),
    ("transfer-encoding: Chunked", Body::Chunked),
    ("Transfer-Encoding:\tchunked", Body::Chunked),
    ("Content-Length: {more}", Body::Plain),
    ("Content-Length: {less}", Body::Plain),
    ("Content-Length: {n}, {n}", Body::Plain),
    ("Content-Length: {n}\r\nContent-Length: {less}", Body::Plain),
    ("Content-Length: +{n}", Body::Plain),
    ("Content-Length: 0x{n}", Body::Plain),
    ("Content-Length: {n} ", Body::Plain),
    ("Content-Length: {n}\r\nTransfer-Encoding: chunked", Body::Chunked),
    ("Transfer-Encoding: chunked\r\nContent-Length: {less}", Body::Chunked),
    ("Transfer-Encoding: chunked, chunked", Body::Chunked),
    ("Transfer-Encoding: gzip, chunked", Body::Chunked),
    ("Transfer-Encoding: \"chunked\"", Body::Chunked),
    ("Transfer-Encoding: identity", Body::Plain),
];

/// The encoding of the bytes after a head.
#[derive(Debug, Clone, Copy)]
enum Body {
    None,
    Plain,
    Chunked,
}

/// Of one seed, always the same.
pub(super) struct Generator {
    rng: Rng,
    number: usize,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), number: 0 }
    }

    /// The bytes of one connection: two requests of any kind and a plain one that asks for the end.
    pub(super) fn connection(&mut self) -> Vec<u8> {
        let mut bytes = self.request();
        bytes.extend(self.request());
        self.number += 1;
        let auth = authorization();
        bytes.extend(
            format!(
                "GET /clusters/edge-a/last/{} HTTP/1.1\r\nHost: {GATEWAY}\r\n{auth}Connection: close\r\n\r\n",
                self.number
            )
            .bytes(),
        );
        bytes
    }

    fn request(&mut self) -> Vec<u8> {
        self.number += 1;
        let method = self.one_of(&METHODS);
        let path = self.path();
        let mut lines = format!("Host: {GATEWAY}\r\n{}", authorization());
        for _ in 0..self.rng.below(4) {
            lines.push_str(self.one_of(&LINES));
            lines.push_str("\r\n");
        }
        if self.is_odd() {
            lines.push_str(self.one_of(&ODD_LINES));
            lines.push_str("\r\n");
        }
        let body = self.body();
        let (framing, how) = self.one_of(&FRAMINGS);
        let (more, less) = (body.len() + 1 + self.below(40), body.len().saturating_sub(1));
        let framing = framing.replace("{n}", &body.len().to_string());
        let framing = framing.replace("{more}", &more.to_string()).replace("{less}", &less.to_string());
        if !framing.is_empty() {
            lines.push_str(&framing);
            lines.push_str("\r\n");
        }
        let version = if self.is_odd() { "HTTP/1.0" } else { "HTTP/1.1" };
        let mut bytes = format!("{method} {path} {version}\r\n{lines}\r\n").into_bytes();
        match how {
            Body::None => {}
            Body::Plain => bytes.extend(body),
            Body::Chunked => self.chunks(&body, &mut bytes),
        }
        bytes
    }

    /// Every request has a path of its own.
    fn path(&mut self) -> String {
        let mut path = format!("/clusters/edge-a/n{}", self.number);
        for _ in 0..self.rng.below(4) {
            path.push('/');
            path.push_str(self.one_of(&PIECES));
        }
        if self.is_odd() {
            path.push('/');
            path.push_str(self.one_of(&ODD_PIECES));
        }
        if self.rng.below(4) == 0 {
            path.push_str("?watch=0&x=%2F/?");
        }
        path
    }

    /// Bytes of a body that could be mistaken for a request.
    fn body(&mut self) -> Vec<u8> {
        match self.rng.below(4) {
            0 => b"ab".to_vec(),
            1 => {
                format!("GET /clusters/edge-a/smuggled HTTP/1.1\r\nHost: x\r\n{}\r\n", authorization()).into()
            }
            2 => b"0\r\n\r\n".to_vec(),
            _ => vec![b'x'; self.below(5_000)],
        }
    }

    fn chunks(&mut self, body: &[u8], bytes: &mut Vec<u8>) {
        let size = 1 + self.below(2_000);
        for chunk in body.chunks(size) {
            let length = match self.rng.below(6) {
                0 => format!("{:X}", chunk.len()),
                1 => format!("000{:x}", chunk.len()),
                2 => format!("{:x};a=\"b\"", chunk.len()),
                _ => format!("{:x}", chunk.len()),
            };
            let end =
                if self.is_odd() { self.one_of(&["\n", "\r", " \r\n", "\r\n\r\n", ""]) } else { "\r\n" };
            bytes.extend(length.bytes().chain(end.bytes()));
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
        }
        if self.is_odd() {
            let ends = [
                "ffffffffffffffff1\r\n",
                "-1\r\n",
                "0\r\nX-T: 1\r\n\r\n",
                "0\r\nContent-Length: 5\r\n\r\n",
                "0\r\n",
            ];
            bytes.extend(self.one_of(&ends).bytes());
        } else {
            bytes.extend(b"0\r\n\r\n");
        }
    }

    /// Seldom, so that most of what has one oddity has no other.
    fn is_odd(&mut self) -> bool {
        self.rng.below(12) == 0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).expect("below a usize")
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

fn authorization() -> String {
    format!("Authorization: Bearer {TOKEN}\r\n")
}
