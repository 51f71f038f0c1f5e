//! The keys with which the issuer signs tokens.

use std::{error::Error, sync::Arc, time::Duration};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use jsonwebtoken::jwk::{Jwk, JwkSet};
use serde::{Deserialize, de::DeserializeOwned};
use tidemark::{domain::Timestamp, ports::Clock};
use tokio::sync::Mutex;
use tracing::warn;

/// How long the keys are used before they are read again.
const FRESH_MS: u64 = 3_600_000;

/// A token with an unknown key makes the keys be read again, at most once in this time.
const LEAST_BETWEEN_MS: u64 = 30_000;

/// The longest time of one request, and the largest response.
const TIMEOUT: Duration = Duration::from_secs(4);
const MOST_BYTES: usize = 1 << 20;

type Source = Box<dyn Error + Send + Sync>;

/// The issuer's keys cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("the keys of the issuer cannot be read: {0}")]
    Http(#[from] Source),
    #[error("the configuration at {0} names another issuer")]
    Issuer(String),
}

pub(crate) struct Keys {
    issuer: String,
    http: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    clock: Arc<dyn Clock>,
    cached: Mutex<Option<(JwkSet, Timestamp)>>,
}

/// The part of an OpenID configuration that is read.
#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

impl Keys {
    pub(crate) fn new(issuer: &str, clock: Arc<dyn Clock>) -> Result<Self, KeysError> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let connector = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider).map_err(Source::from)?;
        let http = Client::builder(TokioExecutor::new()).build(connector.https_or_http().enable_http1().build());
        Ok(Self { issuer: issuer.to_owned(), http, clock, cached: Mutex::new(None) })
    }

    /// Returns the key with this id. Reads the keys if they are old or lack it. If that fails, known keys stay in use.
    pub(crate) async fn key(&self, id: &str) -> Result<Option<Jwk>, KeysError> {
        let mut cached = self.cached.lock().await;
        let now = self.clock.now();
        let age = cached.as_ref().map(|(_, read)| now.ms().saturating_sub(read.ms()));
        let known = cached.as_ref().and_then(|(keys, _)| keys.find(id).cloned());
        let read_again = match age {
            None => true,
            Some(age) => age >= FRESH_MS || (known.is_none() && age >= LEAST_BETWEEN_MS),
        };
        if !read_again {
            return Ok(known);
        }
        match self.read().await {
            Ok(keys) => {
                let found = keys.find(id).cloned();
                *cached = Some((keys, now));
                Ok(found)
            }
            Err(error) if known.is_some() => {
                warn!(error = &error as &dyn std::error::Error, "keys not read again, the known ones stay in use");
                Ok(known)
            }
            Err(error) => Err(error),
        }
    }

    async fn read(&self) -> Result<JwkSet, KeysError> {
        let address = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let configuration: Configuration = self.get(&address).await?;
        if configuration.issuer != self.issuer {
            return Err(KeysError::Issuer(address));
        }
        Ok(self.get(&configuration.jwks_uri).await?)
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
