//! The keys with which the issuer signs tokens.

use std::{sync::Arc, time::Duration};

use jsonwebtoken::jwk::{Jwk, JwkSet};
use serde::Deserialize;
use tidemark::{domain::Timestamp, ports::Clock};
use tokio::sync::Mutex;
use tracing::warn;

/// How long the keys are used before they are read again.
const FRESH_MS: u64 = 3_600_000;

/// A token with an unknown key makes the keys be read again, at most once in this time.
const LEAST_BETWEEN_MS: u64 = 30_000;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(4);

/// The issuer's keys cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("the keys of the issuer cannot be read")]
    Http(#[from] reqwest::Error),
    #[error("the configuration at {0} names another issuer")]
    Issuer(String),
}

pub(crate) struct Keys {
    issuer: String,
    http: reqwest::Client,
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
        // A second call is refused, and the first provider remains.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).timeout(TIMEOUT).build()?;
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
        let configuration: Configuration = self.http.get(&address).send().await?.error_for_status()?.json().await?;
        if configuration.issuer != self.issuer {
            return Err(KeysError::Issuer(address));
        }
        Ok(self.http.get(&configuration.jwks_uri).send().await?.error_for_status()?.json().await?)
    }
}
