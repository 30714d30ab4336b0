//! The configured carriers of tunnels, and the proxy for those over TCP.

use daemon::config::KeyError;
use transport::{Carrier, Proxies, ProxiesError};

use super::CarrierChoice;
use super::raw::RawProxy;

/// Looks a variable of the environment up.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Most hosts that are reached without the proxy.
const NO_PROXY_MAX: usize = 256;

pub(super) fn choice(flag: Option<String>, raw: Option<String>) -> Result<CarrierChoice, KeyError> {
    match flag.or(raw).as_deref() {
        None | Some("auto") => Ok(CarrierChoice::Auto),
        Some("quic") => Ok(CarrierChoice::Only(Carrier::Quic)),
        Some("http2") => Ok(CarrierChoice::Only(Carrier::Http2)),
        Some(other) => Err(KeyError::new("carrier", other, "auto, quic or http2")),
    }
}

/// The proxy by the usual environment variables, or else by the file.
pub(super) fn proxies(raw: Option<RawProxy>, environment: Environment<'_>) -> Result<Proxies, KeyError> {
    let RawProxy { url, no_proxy } = raw.unwrap_or_default();
    // The value is not shown, because it may contain a password.
    let proxies = Proxies::by_environment(url, no_proxy, environment)
        .map_err(|ProxiesError { key, reason }| KeyError::new(key, "another text", reason.to_string()))?;
    if proxies.except.len() > NO_PROXY_MAX {
        let value = format!("a list of {}", proxies.except.len());
        return Err(KeyError::new("proxy.noProxy", value, format!("at most {NO_PROXY_MAX}")));
    }
    Ok(proxies)
}

impl CarrierChoice {
    /// The carriers to dial, the preferred one first.
    #[must_use]
    pub fn carriers(self) -> Vec<Carrier> {
        match self {
            Self::Auto => vec![Carrier::Quic, Carrier::Http2],
            Self::Only(carrier) => vec![carrier],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_wins_over_the_file_and_an_empty_variable_does_not() {
        let raw = || {
            let no_proxy = Some(vec!["file.test".to_owned()]);
            Some(RawProxy { url: Some("http://file:1".to_owned()), no_proxy })
        };
        let none = proxies(raw(), &|name| (name == "HTTPS_PROXY").then(String::new)).unwrap();
        assert_eq!(none.to("x.test", 1).map(ToString::to_string).as_deref(), Some("http://file:1"));
        assert_eq!(none.to("file.test", 1), None);

        let environment = |name: &str| match name {
            "https_proxy" => Some("http://user:secret@variable:2".to_owned()),
            "NO_PROXY" => Some("a.test, b.test,".to_owned()),
            _ => None,
        };
        let both = proxies(raw(), &environment).unwrap();
        assert_eq!(both.to("file.test", 1).map(ToString::to_string).as_deref(), Some("http://variable:2"));
        assert_eq!(both.to("b.test", 1), None);
    }

    #[test]
    fn a_proxy_that_cannot_be_read_is_named_without_its_password() {
        let environment = |name: &str| (name == "HTTPS_PROXY").then(|| "socks5://me:secret@p:1".to_owned());
        let error = proxies(None, &environment).unwrap_err().to_string();
        assert!(error.contains("HTTPS_PROXY") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn an_unescaped_password_of_a_proxy_is_answered_with_its_encoding() {
        for (variable, url) in [
            (true, "http://me:12#secret@p:1"),
            (true, "me:12/secret@p:1"),
            (false, "http://me:12?secret@p:1"),
        ] {
            let environment = |name: &str| (variable && name == "HTTPS_PROXY").then(|| url.to_owned());
            let raw = RawProxy { url: Some(url.to_owned()), no_proxy: None };
            let error = proxies(Some(raw), &environment).unwrap_err().to_string();
            let key = if variable { "HTTPS_PROXY" } else { "proxy.url" };
            assert!(
                error.contains(key) && error.contains("%-encoded") && error.contains("# is %23"),
                "{error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
