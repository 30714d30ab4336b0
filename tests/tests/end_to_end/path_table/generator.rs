//! Requests that people, programs and attackers might send. A seed always gives the same ones.

/// A request as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    /// HTTP/2's `:authority`; none on HTTP/1.1.
    pub(super) authority: Option<String>,
    /// The value of the `Host` header.
    pub(super) host: Option<String>,
    /// The target in the request line, or in `:path`.
    pub(super) target: String,
}

/// The means by which a request names its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterSelection {
    ByPath,
    ByHost,
}

/// The version of HTTP that a request uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

/// A small generator of numbers (xorshift64*).
#[derive(Debug, Clone)]
pub(super) struct XorshiftRng(u64);

/// Segments that every parser reads as the same name.
const PLAIN: [&str; 34] = [
    "api",
    "v1",
    "apis",
    "apps",
    "namespaces",
    "default",
    "pods",
    "web-0",
    "services",
    "nodes",
    "exec",
    "log",
    "proxy",
    "watch",
    "status",
    "clusters",
    "edge-b",
    "system:node",
    "http:s:80",
    "...",
    "..n",
    "a.b",
    "~",
    "_",
    "a;b",
    "a,b",
    "@",
    "!$&'()*+=",
    "%41bc",
    "system%3Aadmin",
    "a%20b",
    "%F0%9F%8F%9D",
    "%ef%bc%8e%ef%bc%8e",
    "%3f%23",
];

/// Segments that two servers could read in two ways.
const AMBIGUOUS: [&str; 32] = [
    ".",
    "..",
    "%2e",
    "%2E",
    "%2e%2e",
    "%2E.",
    ".%2e",
    "",
    "a%2fb",
    "%2F",
    "..%2f",
    "%252e",
    "%25",
    "%252f",
    "a%5cb",
    "%5C..",
    "a%00",
    "%00",
    "a%0d%0ab",
    "%7f",
    "%c2%85",
    "%c0%ae%c0%ae",
    "%ff",
    "%",
    "%2",
    "%zz",
    "a%2",
    "%+2",
    "..\\x",
    "a\\b",
    "%e2%82",
    "\u{e4}",
];

/// Segments that some parser may refuse, or cut.
const ODD: [&str; 9] = ["a#b", "#", "a\"b", "<x>", "{x}", "a|b", "a^b", "`", "%23#"];

const QUERIES: [&str; 20] = [
    "",
    "",
    "",
    "",
    "?",
    "?watch=1",
    "?limit=500&continue=x%2F..%2F%00",
    "?a=/../&b=//",
    "??",
    "?x=%zz%",
    "?\\",
    "?#x",
    "?a=%2e%2e/",
    "?path=/clusters/edge-b/",
    "?w%61tch=1",
    "?watch=%ff",
    "?a&&b",
    "?a=1;b",
    "?q=%c3%a4+b%20c&q",
    "?limit=1&",
];

const NAMES: [&str; 18] = [
    "",
    "EDGE-A",
    "Edge-a",
    "edge_a",
    "edge%2da",
    "%65dge-a",
    "-a",
    "a-",
    "edge-a.",
    "..",
    "%2e%2e",
    "edge-a%00",
    "edge-a;x",
    "edge-a:80",
    "edge-z",
    "edge-a@edge-b",
    "edge-a%2f",
    "a.edge-a",
];

const PREFIXES: [&str; 9] = [
    "/Clusters/",
    "//clusters/",
    "/%63lusters/",
    "/clusters%2f",
    "clusters/",
    "/x/clusters/",
    "/clusters//",
    "/clusters",
    "/clusters/./",
];

const GATEWAYS: [&str; 4] = ["gateway.test", "gateway.test:8443", "127.0.0.1", "GATEWAY.test."];

const HOSTS: [&str; 14] = [
    "",
    "clusters.test",
    ".clusters.test",
    "a.edge-a.clusters.test",
    "edge_a.clusters.test",
    "-a.clusters.test",
    "edge-a.clusters.test:",
    "edge-a.clusters.test:0",
    "edge-a.clusters.test:x",
    "edge-a.clusters.test:65536",
    "edge-a..clusters.test",
    "edge-z.clusters.test",
    "edge-a.clusters.test..",
    "edge%2da.clusters.test",
];

const FORMS: [&str; 7] = [
    "*",
    "edge-a.clusters.test:443",
    "https://gateway.test/clusters/edge-a/version",
    "https://edge-b.clusters.test/version",
    "http://edge-a/",
    "edge-a/version",
    "?x",
];

impl XorshiftRng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33
    }

    /// True in so many of a hundred.
    fn chance(&mut self, percent: u64) -> bool {
        self.next_u64() % 100 < percent
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next_u64()).expect("31 bits") % count
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// A cluster's own path with its query.
    pub(super) fn own_target(&mut self) -> String {
        let mut path = String::new();
        let ambiguous = if self.chance(60) { 0 } else { 20 };
        match self.below(10) {
            0..=2 => path.push_str(&self.proxied(ambiguous)),
            3 => path.push_str(&self.almost_proxied(ambiguous)),
            _ => {
                for _ in 0..self.below(9) {
                    path.push('/');
                    path.push_str(self.segment(ambiguous));
                }
            }
        }
        if path.is_empty() || self.chance(15) {
            path.push('/');
        }
        path + self.pick(&QUERIES)
    }

    fn segment(&mut self, ambiguous: u64) -> &'static str {
        if self.chance(ambiguous) {
            return self.pick(&AMBIGUOUS);
        }
        if self.chance(2) { self.pick(&ODD) } else { self.pick(&PLAIN) }
    }

    /// A path of a service, pod or node after its `proxy`, followed by any path of the application.
    fn proxied(&mut self, ambiguous: u64) -> String {
        let (namespace, name) = (self.segment(ambiguous / 2), self.segment(ambiguous / 2));
        let mut path = match self.below(3) {
            0 => format!("/api/v1/namespaces/{namespace}/pods/{name}/proxy"),
            1 => format!("/api/v1/namespaces/{namespace}/services/{name}/proxy"),
            _ => format!("/api/v1/nodes/{name}/proxy"),
        };
        for _ in 0..self.below(6) {
            path.push('/');
            path.push_str(self.segment(50));
        }
        path
    }

    /// A path that resembles a `/proxy/` path and is none, so that no part of it is opaque.
    fn almost_proxied(&mut self, ambiguous: u64) -> String {
        const ALMOST: [&str; 10] = [
            "/api/v1/namespaces/n/secrets/s/proxy",
            "/apis/v1/namespaces/n/pods/p/proxy",
            "/api/v2/nodes/n/proxy",
            "/api/v1/nodes/n/p%72oxy",
            "/api/v1/proxy/nodes/n",
            "/API/v1/nodes/n/proxy",
            "/api/v1/namespaces/n/pods/p/proxyx",
            "/%61pi/v1/nodes/n/proxy",
            "/api/v1/namespaces/n/proxy",
            "/x/api/v1/nodes/n/proxy",
        ];
        let mut path = self.pick(&ALMOST).to_owned();
        for _ in 0..self.below(4) {
            path.push('/');
            path.push_str(self.segment(ambiguous));
        }
        path
    }

    /// A request for `own`, a cluster's own target.
    pub(super) fn case(&mut self, selection: ClusterSelection, version: Version, own: &str) -> Case {
        let cluster = match self.below(10) {
            0..=5 => "edge-a",
            6..=8 => "edge-b",
            _ => "edge-c",
        };
        let (output, mut target) = match selection {
            ClusterSelection::ByPath => {
                let name = if self.chance(8) { self.pick(&NAMES) } else { cluster };
                let prefix = if self.chance(4) { self.pick(&PREFIXES) } else { "/clusters/" };
                // A name alone, or with a query at once, is the cluster's root.
                let own = own
                    .strip_prefix('/')
                    .filter(|rest| (rest.is_empty() || rest.starts_with('?')) && self.chance(50))
                    .unwrap_or(own);
                (self.pick(&GATEWAYS).to_owned(), format!("{prefix}{name}{own}"))
            }
            ClusterSelection::ByHost => {
                let host = if self.chance(8) { self.pick(&HOSTS).to_owned() } else { self.host_of(cluster) };
                (host, own.to_owned())
            }
        };
        if self.chance(2) {
            target = self.pick(&FORMS).to_owned();
        }
        if version == Version::Http1 {
            return Case { authority: None, host: Some(output), target };
        }
        let host = match self.below(20) {
            0 => Some(output.clone()),
            1 => Some(output.to_ascii_uppercase()),
            2 => Some(self.host_of("edge-b")),
            3 => Some(self.pick(&HOSTS).to_owned()),
            _ => None,
        };
        Case { authority: Some(output), host, target }
    }

    /// One spelling of a cluster's host name.
    fn host_of(&mut self, cluster: &str) -> String {
        let host = format!("{cluster}.clusters.test");
        match self.below(6) {
            0 => host.to_ascii_uppercase(),
            1 => host + ".",
            2 => host + ":443",
            3 => host + ".:8443",
            _ => host,
        }
    }
}
