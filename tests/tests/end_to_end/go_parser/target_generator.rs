//! Targets with paths and queries that two parsers could read in two ways, generated from a seed.

use tests::rng::Rng;

const METHODS: [&str; 12] =
    ["GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

const PREFIXES: [&str; 14] = [
    "/api/v1",
    "/api/v1",
    "/api/v1",
    "/apis/apps/v1",
    "/apis/apps/v1",
    "/apis/example.com/v1beta1",
    "/%61pi/v1",
    "/API/v1",
    "/api",
    "/apis",
    "/apis/apps",
    "/version",
    "/x",
    "",
];

const SEGMENTS: [&str; 24] = [
    "pods",
    "pods",
    "secrets",
    "services",
    "nodes",
    "namespaces",
    "namespaces",
    "n%61mespaces",
    "shop",
    "x",
    "x%20y",
    "system%3Aadmin",
    "watch",
    "w%61tch",
    "proxy",
    "exec",
    "%65xec",
    "log",
    "status",
    "finalize",
    "ephemeralcontainers",
    "scale",
    "Pods",
    "%c3%a4",
];

const NAMES: [&str; 24] = [
    "watch",
    "watch",
    "watch",
    "watch",
    "w%61tch",
    "%77%61%74%63%68",
    "Watch",
    "watch%20",
    "fieldSelector",
    "fieldSelector",
    "labelSelector",
    "limit",
    "timeoutSeconds",
    "timeout",
    "resourceVersion",
    "resourceVersionMatch",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "continue",
    "pretty",
    "shardSelector",
    "command",
    "",
    "a",
];

const VALUES: [&str; 30] = [
    "1",
    "1",
    "true",
    "TRUE",
    "0",
    "0",
    "%30",
    "false",
    "False",
    "fAlSe",
    "fals%65",
    "fal%C5%BFe",
    "FAL%c5%bfE",
    "no",
    "",
    "",
    "+",
    "%20",
    "x",
    "-1",
    "5",
    "99999999999999999999",
    "metadata.name%3Dx",
    "metadata.name=x",
    "metadata.name%3D..",
    "metadata.namespace%3Dshop",
    "a+in+%28b%2Cc%29",
    "a in (b",
    "%ff",
    "%c0%80",
];

/// The most parameters of a generated query.
const PAIRS_MAX: u64 = 20_000;

/// Generates methods and targets from a seed.
pub(super) struct TargetGenerator(Rng);

impl TargetGenerator {
    pub(super) fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// A method, and the raw bytes of a target.
    pub(super) fn next(&mut self) -> (&'static str, Vec<u8>) {
        let method = self.one_of(&METHODS);
        let mut target = self.one_of(&PREFIXES).as_bytes().to_vec();
        for _ in 0..self.0.below(6) {
            target.extend(b"/");
            if self.is_one_in(12) {
                self.noise(&mut target);
            } else {
                target.extend(self.one_of(&SEGMENTS).bytes());
            }
        }
        if target.is_empty() || self.is_one_in(8) {
            target.push(b'/');
        }
        if !self.is_one_in(8) {
            target.push(b'?');
            let pairs = self.pairs();
            for number in 0..pairs {
                if number > 0 {
                    self.separator(pairs, &mut target);
                }
                self.pair(pairs, &mut target);
            }
        }
        (method, target)
    }

    /// Mostly a few, seldom so many that one of the parsers gives up.
    fn pairs(&mut self) -> u64 {
        match self.0.below(2_000) {
            0 => 4_990 + self.0.below(20),
            1 => 9_990 + self.0.below(20),
            2 => self.0.below(PAIRS_MAX),
            3..=100 => self.0.below(60),
            _ => self.0.below(5),
        }
    }

    /// In a query of very many pairs oddities are seldom, so that some are accepted.
    fn is_odd(&mut self, pairs: u64) -> bool {
        self.is_one_in(if pairs > 100 { 50_000 } else { 40 })
    }

    fn separator(&mut self, pairs: u64, target: &mut Vec<u8>) {
        if self.is_odd(pairs) {
            match self.0.below(4) {
                0 => target.extend(b"&&"),
                1 => target.push(b';'),
                2 => target.extend(b"&amp;"),
                _ => target.push(self.byte()),
            }
        } else {
            target.push(b'&');
        }
    }

    fn pair(&mut self, pairs: u64, target: &mut Vec<u8>) {
        if pairs > 100 {
            // Short, because what is too long is refused for its length.
            target.push(b'a');
            if self.is_odd(pairs) {
                self.noise(target);
            }
            return;
        }
        if self.is_one_in(10) {
            self.noise(target);
        } else {
            target.extend(self.one_of(&NAMES).bytes());
        }
        match self.0.below(20) {
            0 | 1 => return,
            2 => target.extend(b"=="),
            3 => self.noise(target),
            _ => target.push(b'='),
        }
        if self.is_one_in(6) {
            self.noise(target);
        } else {
            target.extend(self.one_of(&VALUES).bytes());
        }
    }

    /// Some bytes of any value, mostly percent-encoded, and mostly those of one character.
    fn noise(&mut self, target: &mut Vec<u8>) {
        for _ in 0..=self.0.below(3) {
            match self.0.below(12) {
                0 => target.push(self.byte()),
                1 => target.extend(format!("%{:02x}", self.byte()).bytes()),
                _ => {
                    let code = u32::try_from(self.0.below(0x3000)).expect("below 12,288");
                    let character = char::from_u32(code).expect("below the surrogates");
                    let mut bytes = [0; 4];
                    for byte in character.encode_utf8(&mut bytes).bytes() {
                        target.extend(format!("%{byte:02X}").bytes());
                    }
                }
            }
        }
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.0.below(256)).expect("below 256")
    }

    fn is_one_in(&mut self, count: u64) -> bool {
        self.0.below(count) == 0
    }

    fn one_of(&mut self, of: &[&'static str]) -> &'static str {
        of[usize::try_from(self.0.below(of.len() as u64)).expect("below a usize")]
    }
}
