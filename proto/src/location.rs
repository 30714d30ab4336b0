//! Reads the target of a `Location` header: a place of the server that was asked, or somewhere else.
//!
//! The agent makes a path of a URL that names its API server, because only the agent knows that name. The
//! gateway puts the cluster's prefix before the path, as the caller sees it.

use http::HeaderValue;

/// The port of a URL whose scheme is `https`, where it has none.
const HTTPS_PORT: &str = "443";

/// The target of a `Location` header, split as a URI reference (RFC 3986, section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location<'a> {
    /// A place of the server that was asked: a path from its root, or relative to the request's own.
    Path(PathReference<'a>),
    /// A URL with a host.
    Host {
        /// True if its scheme is `https`, or it has none (`//host/path`); false for `http`.
        is_https: bool,
        /// The host with its port, as they were written.
        authority: &'a str,
        /// The path and what follows it.
        path: PathReference<'a>,
    },
    /// Another scheme, or a text that clients do not read alike. A text with a backslash, a space or a
    /// control character is one of these, because browsers drop or replace such characters.
    Unclear,
}

/// A path with the query and the fragment behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathReference<'a> {
    /// The path. Empty if the reference only changes the query or the fragment.
    path: &'a str,
    /// The query and the fragment, with the characters that begin them.
    rest: &'a str,
}

impl<'a> Location<'a> {
    /// Reads the value of a `Location` header.
    #[must_use]
    pub fn parse(value: &'a HeaderValue) -> Self {
        let Ok(text) = value.to_str() else {
            return Self::Unclear;
        };
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
            return Self::Unclear;
        }
        let (scheme, after_scheme) = match text.find([':', '/', '?', '#']) {
            Some(end) if text[end..].starts_with(':') => (Some(&text[..end]), &text[end + 1..]),
            _ => (None, text),
        };
        let is_https = scheme.is_none_or(|scheme| scheme.eq_ignore_ascii_case("https"));
        if !is_https && !scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("http")) {
            return Self::Unclear;
        }
        match (after_scheme.strip_prefix("//"), scheme) {
            (Some(with_host), _) => {
                let end = with_host.find(['/', '?', '#']).unwrap_or(with_host.len());
                let (authority, path) = with_host.split_at(end);
                // Browsers skip further slashes, and take what follows for the host.
                if authority.is_empty() {
                    return Self::Unclear;
                }
                Self::Host { is_https, authority, path: PathReference::split(path) }
            }
            // Browsers read `https:host` as a host, others as a path.
            (None, Some(_)) => Self::Unclear,
            (None, None) => Self::Path(PathReference::split(after_scheme)),
        }
    }

    /// The host that the target names, if it names one.
    #[must_use]
    pub fn host(&self) -> Option<&'a str> {
        match self {
            Self::Host { authority, .. } => Some(authority),
            Self::Path(_) | Self::Unclear => None,
        }
    }
}

impl<'a> PathReference<'a> {
    /// Returns true if the reference keeps the path of the request.
    #[must_use]
    pub fn keeps_path(&self) -> bool {
        self.path.is_empty()
    }

    /// The absolute path to which the reference leads from `base`, with its query and fragment. Dot segments
    /// are resolved, encoded ones too, because some clients resolve them; none leads above the root.
    #[must_use]
    pub fn resolve(&self, base: &str) -> String {
        let folder = base.rfind('/').map_or("", |end| &base[..end]);
        let from_root = self.path.strip_prefix('/');
        let mut segments: Vec<&str> = Vec::new();
        if from_root.is_none() {
            folder.split('/').skip(1).for_each(|segment| push(&mut segments, segment));
        }
        let path = from_root.unwrap_or(self.path);
        path.split('/').for_each(|segment| push(&mut segments, segment));
        let ends_in_folder = path.rsplit('/').next().is_some_and(|last| dots(last).is_some());
        let mut resolved: String = segments.iter().flat_map(|segment| ["/", *segment]).collect();
        if ends_in_folder || resolved.is_empty() {
            resolved.push('/');
        }
        // An empty segment in front would be read as the beginning of a host.
        let start = resolved.bytes().take_while(|byte| *byte == b'/').count().max(1) - 1;
        format!("{}{}", &resolved[start..], self.rest)
    }

    /// The absolute path to which the reference leads from the root of a server, with its query and fragment.
    /// Dot segments are resolved as in [`Self::resolve`].
    #[must_use]
    pub fn from_root(&self) -> String {
        self.resolve("/")
    }

    fn split(text: &'a str) -> Self {
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let (path, rest) = text.split_at(end);
        Self { path, rest }
    }
}

/// Returns true if both name the same host and port of a server with TLS.
#[must_use]
pub fn is_same_host(one: &str, other: &str) -> bool {
    fn parts(authority: &str) -> (&str, &str) {
        match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                (host, if port.is_empty() { HTTPS_PORT } else { port })
            }
            // A colon within brackets belongs to an address of IPv6.
            Some(_) | None => (authority, HTTPS_PORT),
        }
    }
    let (one, other) = (parts(one), parts(other));
    one.0.eq_ignore_ascii_case(other.0) && one.1 == other.1
}

/// Adds a segment, or resolves it if it is a dot segment.
fn push<'a>(segments: &mut Vec<&'a str>, segment: &'a str) {
    match dots(segment) {
        None => segments.push(segment),
        Some(1) => {}
        Some(_) => drop(segments.pop()),
    }
}

/// The number of dots of a dot segment, encoded or not. `None` for every other segment.
fn dots(segment: &str) -> Option<usize> {
    let decoded = segment.to_ascii_lowercase().replace("%2e", ".");
    matches!(decoded.as_str(), "." | "..").then_some(decoded.len())
}

#[cfg(test)]
mod tests;
