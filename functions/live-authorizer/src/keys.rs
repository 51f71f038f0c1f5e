//! The keys with which the issuer signs tokens.

use std::{error::Error, sync::Arc, time::Duration};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use jsonwebtoken::jwk::{Jwk, KeyOperations, PublicKeyUse};
use serde::{Deserialize, de::DeserializeOwned};
use tidemark::{Clock, domain::Timestamp};
use tokio::sync::Mutex;
use tracing::warn;

/// The time that the keys are used before they are read again.
const FRESH_MS: u64 = 3_600_000;

/// A token with an unknown key makes the keys be read again, at most once in this time.
const LEAST_BETWEEN_MS: u64 = 30_000;

/// After a failure the keys are not read for this time. So an issuer that does not respond delays few connections.
const REST_MS: u64 = 5_000;

/// The longest time of one request, and the largest response.
const TIMEOUT: Duration = Duration::from_secs(4);
const MOST_BYTES: usize = 1 << 20;

type Source = Box<dyn Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("the keys of the issuer cannot be read: {0}")]
    Http(#[from] Source),
    #[error("the configuration at {0} names another issuer")]
    Issuer(String),
    #[error("the configuration of an https issuer has the keys at {0}")]
    Insecure(String),
    #[error("the keys of the issuer could not be read a moment ago")]
    Resting,
}

pub(crate) struct Keys {
    issuer: String,
    http: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    clock: Arc<dyn Clock>,
    cached: Mutex<Cached>,
}

#[derive(Default)]
struct Cached {
    keys: Option<(Vec<Jwk>, Timestamp)>,
    failed_at: Option<Timestamp>,
}

/// The keys of an issuer as JSON. A key of a kind that this function does not know is left out.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

/// The part of an OpenID configuration that is read.
#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

impl Configuration {
    /// The address of the keys. An issuer with TLS has them behind TLS too.
    fn keys(self) -> Result<String, KeysError> {
        let is_secure = |address: &str| address.starts_with("https:");
        if is_secure(&self.issuer) && !is_secure(&self.jwks_uri) {
            Err(KeysError::Insecure(self.jwks_uri))
        } else {
            Ok(self.jwks_uri)
        }
    }
}

impl Keys {
    pub(crate) fn new(issuer: &str, clock: Arc<dyn Clock>) -> Result<Self, KeysError> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let connector = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider).map_err(Source::from)?;
        let http = Client::builder(TokioExecutor::new()).build(connector.https_or_http().enable_http1().build());
        Ok(Self { issuer: issuer.to_owned(), http, clock, cached: Mutex::default() })
    }

    /// Returns the key with this id. Reads the keys if they are old or lack it. If that fails, known keys stay in use.
    pub(crate) async fn key(&self, id: &str) -> Result<Option<Jwk>, KeysError> {
        let mut cached = self.cached.lock().await;
        let now = self.clock.now();
        let age = |at: Timestamp| now.ms().saturating_sub(at.ms());
        let find = |keys: &[Jwk]| keys.iter().find(|key| key.common.key_id.as_deref() == Some(id)).cloned();
        let known = cached.keys.as_ref().and_then(|(keys, _)| find(keys));
        let read_again = match &cached.keys {
            None => true,
            Some((_, read)) => age(*read) >= FRESH_MS || (known.is_none() && age(*read) >= LEAST_BETWEEN_MS),
        };
        if !read_again {
            return Ok(known);
        }
        let rests = cached.failed_at.is_some_and(|failed| age(failed) < REST_MS);
        match if rests { Err(KeysError::Resting) } else { self.read().await } {
            Ok(keys) => {
                let found = find(&keys);
                *cached = Cached { keys: Some((keys, now)), failed_at: None };
                Ok(found)
            }
            Err(error) => {
                if !rests {
                    warn!(error = &error as &dyn Error, "keys not read, known ones stay in use");
                    cached.failed_at = Some(now);
                }
                if known.is_some() { Ok(known) } else { Err(error) }
            }
        }
    }

    async fn read(&self) -> Result<Vec<Jwk>, KeysError> {
        let address = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let configuration: Configuration = self.get(&address).await?;
        if configuration.issuer != self.issuer {
            return Err(KeysError::Issuer(address));
        }
        let set: KeySet = self.get(&configuration.keys()?).await?;
        Ok(set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).filter(verifies).collect())
    }

    async fn get<T: DeserializeOwned>(&self, address: &str) -> Result<T, Source> {
        let request = async {
            let response = self.http.get(address.parse()?).await?;
            if !response.status().is_success() {
                return Err(Source::from(format!("{address} returned {}", response.status())));
            }
            let body = Limited::new(response.into_body(), MOST_BYTES).collect().await?;
            Ok(serde_json::from_slice(&body.to_bytes())?)
        };
        tokio::time::timeout(TIMEOUT, request).await?
    }
}

/// Whether the issuer lets this key verify signatures (RFC 7517, sections 4.2 and 4.3). A key without a purpose may.
fn verifies(key: &Jwk) -> bool {
    key.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
        && key.common.key_operations.as_ref().is_none_or(|operations| operations.contains(&KeyOperations::Verify))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_with_tls_has_its_keys_behind_tls() {
        let keys = |issuer: &str, keys: &str| {
            Configuration { issuer: format!("{issuer}://issuer/"), jwks_uri: format!("{keys}://issuer/keys") }.keys()
        };
        assert_eq!(keys("https", "https").unwrap(), "https://issuer/keys");
        assert_eq!(keys("http", "http").unwrap(), "http://issuer/keys");
        assert!(matches!(keys("https", "http"), Err(KeysError::Insecure(_))));
    }
}
