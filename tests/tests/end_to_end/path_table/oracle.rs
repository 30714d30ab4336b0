//! The expected result of a request, by the rules in the documentation. No code of the product is used.
//!
//! The rules: any segment that decodes to `.` or `..`, or contains `/`, `\`, `%` or a control character, is
//! refused in the path up to and including a service's, pod's or node's `/proxy/`; what follows is opaque.
//! All else of a path is kept byte for byte. A query loses its empty parameters, and is refused if it has a raw `;`, or an escape that
//! is wrong or no UTF-8. Otherwise it arrives encoded anew. The query of such a `/proxy` is opaque too.

use super::generator::Case;

/// Clusters that the caller may reach, and that are there.
pub(super) const REACHED: [&str; 2] = ["edge-a", "edge-b"];

const SUFFIX: &str = ".clusters.test";
const TARGET_BYTES_MAX: usize = 63 * 1024;

/// The characters that RFC 3986 does not allow. A server that meets one raw may refuse it, or pass it on
/// unchanged.
const DELIMITERS: &[u8] = b"<>\"^`{|}";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Refused,
    Forwarded { cluster: String, target: String },
    RefusedOrForwarded { cluster: String, target: String },
}

impl Verdict {
    pub(super) fn allows(&self, answered: bool, arrived: &[(String, String)]) -> bool {
        let arrived_as = |cluster: &str, target: &str| {
            answered && matches!(arrived, [(to, as_)] if to == cluster && is_same(target, as_))
        };
        let refused = !answered && arrived.is_empty();
        match self {
            Self::Refused => refused,
            Self::Forwarded { cluster, target } => arrived_as(cluster, target),
            Self::RefusedOrForwarded { cluster, target } => refused || arrived_as(cluster, target),
        }
    }
}

/// Returns true if the target arrived unchanged, except for the parameters that the gateway adds to watches.
fn is_same(target: &str, arrived: &str) -> bool {
    let more = arrived.strip_prefix(target);
    more.is_some_and(|more| ["", "&allowWatchBookmarks=true"].contains(&more))
}

/// The expected result of a case.
pub(super) fn expected_outcome(case: &Case) -> Verdict {
    let Some((cluster, sent)) = forwarded(case) else {
        return Verdict::Refused;
    };
    let Some(target) = with_canonical_query(&sent) else {
        return Verdict::Refused;
    };
    if sent.bytes().any(|byte| DELIMITERS.contains(&byte)) {
        Verdict::RefusedOrForwarded { cluster, target }
    } else {
        Verdict::Forwarded { cluster, target }
    }
}

fn forwarded(case: &Case) -> Option<(String, String)> {
    let host = agreed_host(case)?;
    // A fragment never belongs to a request's target.
    let target = case.target.split('#').next()?;
    let graphic = target.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'\\');
    if !target.starts_with('/') || !graphic || target.len() > TARGET_BYTES_MAX {
        return None;
    }
    let (cluster, own) = match cluster_of_host(&host)? {
        Some(cluster) => {
            let path = target.split('?').next()?;
            let first = path.trim_start_matches('/').split('/').next()?;
            if decoded(first)? == "clusters" {
                return None;
            }
            (cluster, target.to_owned())
        }
        None => by_path(target)?,
    };
    let may = REACHED.contains(&cluster.as_str());
    if decoded(own[1..].split(['/', '?']).next()?)? == "clusters" {
        return None;
    }
    (may && is_safe(own.split('?').next()?)).then_some((cluster, own))
}

/// The host of `Host` or `:authority`, which must not differ.
fn agreed_host(case: &Case) -> Option<String> {
    let host = case.host.as_ref().map(|host| host.to_ascii_lowercase());
    match (&case.authority, host) {
        (Some(authority), Some(host)) => (authority.to_ascii_lowercase() == host).then_some(host),
        (Some(authority), None) => Some(authority.to_ascii_lowercase()),
        (None, host) => host,
    }
}

/// The cluster that a host names, or none if it is the gateway's own; `None` where it is not a host at all.
fn cluster_of_host(host: &str) -> Option<Option<String>> {
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let port_fits = |port: &str| {
        !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && (1..=65_535).contains(&port.parse::<u64>().unwrap_or(0))
    };
    if port.is_some_and(|port| !port_fits(port)) {
        return None;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.split('.').any(str::is_empty) || !name.bytes().all(fits) {
        return None;
    }
    match name.strip_suffix(SUFFIX) {
        Some(label) => is_label(label).then(|| Some(label.to_owned())),
        None => Some(None),
    }
}

/// The cluster and its own target of `/clusters/NAME…`.
fn by_path(target: &str) -> Option<(String, String)> {
    let rest = target.strip_prefix("/clusters/")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (name, own) = rest.split_at(end);
    let own = if own.starts_with('/') { own.to_owned() } else { format!("/{own}") };
    is_label(name).then(|| (name.to_owned(), own))
}

/// Returns true if the name is a DNS-1123 label.
fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Returns true if every checked segment is one unambiguous name. The last one may be followed by a slash.
fn is_safe(path: &str) -> bool {
    let mut segments: Vec<&str> = path[1..].split('/').collect();
    if segments.last() == Some(&"") {
        segments.pop();
    }
    let looked_at = application_from(&segments).unwrap_or(segments.len());
    segments[..looked_at].iter().all(|segment| {
        let Some(text) = decoded(segment) else { return false };
        let hidden = |c: char| ['/', '\\', '%'].contains(&c) || c.is_control();
        !text.is_empty() && text != "." && text != ".." && !text.contains(hidden)
    })
}

/// The index of the first segment that belongs to an application.
fn application_from(segments: &[&str]) -> Option<usize> {
    match segments {
        ["api", "v1", "namespaces", _, "pods" | "services", _, "proxy", ..] => Some(7),
        ["api", "v1", "nodes", _, "proxy", ..] => Some(5),
        _ => None,
    }
}

/// The target with its query encoded anew, or `None` where the query could be read in two ways.
fn with_canonical_query(target: &str) -> Option<String> {
    let Some((path, query)) = target.split_once('?') else {
        return Some(target.to_owned());
    };
    if is_proxied(path) {
        return Some(target.to_owned());
    }
    let mut pairs = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        if pair.contains(';') {
            return None;
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let encoded = |text: &str| decoded(&text.replace('+', " ")).map(|text| encoded(&text));
        pairs.push(format!("{}={}", encoded(name)?, encoded(value)?));
    }
    Some(if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) })
}

/// Returns true if Kubernetes sends a request on to an application: the subresource is `proxy`, in any spelling, or the
/// deprecated prefix is.
fn is_proxied(path: &str) -> bool {
    let segments = path.trim_matches('/').split('/').take(9);
    let segments: Vec<String> =
        segments.map(|segment| decoded(segment).unwrap_or_else(|| segment.to_owned())).collect();
    let read: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (["api", _, own @ ..] | ["apis", _, _, own @ ..]) = read.as_slice() else {
        return false;
    };
    // A verb may stand before the resource, which is deprecated.
    let (own, has_verb) = match own {
        ["watch", own @ ..] => (own, true),
        own => (own, false),
    };
    match own {
        ["proxy", ..] if !has_verb => true,
        ["namespaces", _, "status" | "finalize", ..] => false,
        ["namespaces", _, _, _, subresource, ..] => *subresource == "proxy",
        ["namespaces", ..] => false,
        [_, _, subresource, ..] => *subresource == "proxy",
        _ => false,
    }
}

/// A text with every byte but RFC 3986's unreserved ones percent-encoded, and `+` for a space.
fn encoded(text: &str) -> String {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let one = |byte: u8| match byte {
        b' ' => "+".to_owned(),
        byte if is_unreserved(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// A segment decoded once; `None` where it is not valid percent-encoding of UTF-8.
fn decoded(segment: &str) -> Option<String> {
    let mut pieces = segment.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let digits = piece.get(..2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}
