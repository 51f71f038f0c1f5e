//! The address of the stack. The tools write, kill and flush, so they accept only addresses of this machine.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use anyhow::{Context, bail};

/// A loopback address with a port, read from `TIDEMARK_ADDR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(SocketAddr);

impl Address {
    /// A port of 127.0.0.1.
    pub fn local(port: u16) -> Self {
        Self(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// `http://host:port`, without a slash at the end.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Address {
    type Err = String;

    /// Accepts `host:port`, with or without `http://`. `localhost` and the unspecified addresses (such as 0.0.0.0, on
    /// which a stack may listen) mean this machine. Fails for every other host.
    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.trim().trim_start_matches("http://").trim_end_matches('/');
        let numeric = match bare.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => bare.to_owned(),
        };
        let mut address: SocketAddr = numeric.parse().map_err(|_| format!("{text:?} is not host:port of this machine"))?;
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        if !address.ip().is_loopback() {
            return Err(format!("{text} is not this machine; only loopback addresses are accepted"));
        }
        Ok(Self(address))
    }
}

/// Returns a URL that a stack reported (`redis_url`, `sqs_endpoint`) if it has the scheme and a loopback host.
pub(crate) fn require_loopback(url: &str, scheme: &str) -> anyhow::Result<()> {
    let parsed = reqwest::Url::parse(url).with_context(|| format!("the stack reports {url:?}, which is not a URL"))?;
    if parsed.scheme() != scheme {
        bail!("{url} is not a {scheme}:// address");
    }
    let host = parsed.host_str().unwrap_or_default().trim_matches(['[', ']']);
    if host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) {
        bail!("{url} is not on this machine; only loopback addresses are accepted");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_of_a_loopback_address_is_accepted() {
        for (given, url) in [
            ("127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://127.0.0.1:3000/", "http://127.0.0.1:3000"),
            ("localhost:3000", "http://127.0.0.1:3000"),
            ("0.0.0.0:3000", "http://127.0.0.1:3000"),
            ("[::1]:3000", "http://[::1]:3000"),
            ("127.9.9.9:1", "http://127.9.9.9:1"),
        ] {
            assert_eq!(given.parse::<Address>().map(|a| a.base_url()), Ok(url.to_owned()));
        }
    }

    #[test]
    fn other_hosts_and_invalid_texts_are_refused() {
        for given in ["10.0.0.1:3000", "example.com:80", "127.0.0.1", "https://127.0.0.1:3000", "", "[2001:db8::1]:80"] {
            assert!(given.parse::<Address>().is_err(), "{given}");
        }
    }

    #[test]
    fn reported_urls_must_be_loopback_too() {
        assert!(require_loopback("redis://127.0.0.1:6379/0", "redis").is_ok());
        assert!(require_loopback("redis://:pw@localhost:6379", "redis").is_ok());
        assert!(require_loopback("redis://[::1]:6379", "redis").is_ok());
        assert!(require_loopback("redis://cache.example.com:6379", "redis").is_err());
        assert!(require_loopback("redis://127.0.0.1.example.com", "redis").is_err());
        assert!(require_loopback("rediss://127.0.0.1:6379", "redis").is_err());
        assert!(require_loopback("http://10.1.2.3:4100", "http").is_err());
    }
}
