//! Logins with IAM, as ElastiCache offers them: the password of a connection is a token that the caller's AWS
//! credentials sign.
//!
//! A token is the URL of a request that is never sent, signed in advance (Signature Version 4). It is valid for 15
//! minutes, and is needed for a login only. ElastiCache closes a connection 12 hours after its last login, so a
//! connection logs in again long before. Signing needs no network.

use std::{
    error::Error,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use aws_credential_types::{
    Credentials,
    provider::{ProvideCredentials, SharedCredentialsProvider},
};
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign},
    sign::v4,
};
use futures::{Stream, StreamExt as _, stream};
use redis::{
    AsyncConnectionConfig, ErrorKind, RedisError,
    auth::{BasicAuth, StreamingCredentialsProvider},
};

/// The lifetime of a token. ElastiCache accepts no longer one.
const VALID_FOR: Duration = Duration::from_secs(15 * 60);

/// The time after which a connection logs in again: a twelfth of what ElastiCache allows, because a frozen function is
/// late.
const RENEW_AFTER: Duration = Duration::from_secs(60 * 60);

/// A login with IAM in place of a password.
#[derive(Clone, Debug)]
pub struct IamLogin {
    /// The id of the replication group.
    pub cache: String,
    /// The region of the replication group.
    pub region: String,
    /// They need the permission `elasticache:Connect` for the cache and the user.
    pub credentials: SharedCredentialsProvider,
    /// The wall clock.
    pub now: fn() -> SystemTime,
    /// The time after which a connection logs in again.
    pub renew_after: Duration,
}

impl IamLogin {
    /// A login at this replication group that is renewed every hour.
    pub fn new(cache: String, region: String, credentials: SharedCredentialsProvider, now: fn() -> SystemTime) -> Self {
        Self { cache, region, credentials, now, renew_after: RENEW_AFTER }
    }

    /// The token of `user` at the time `at`.
    ///
    /// # Errors
    /// The names are no parts of a URL.
    pub fn token(
        &self,
        user: &str,
        credentials: Credentials,
        at: SystemTime,
    ) -> Result<String, Box<dyn Error + Send + Sync + 'static>> {
        let mut settings = SigningSettings::default();
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(VALID_FOR);
        let identity = credentials.into();
        let builder = v4::SigningParams::builder().identity(&identity).region(&self.region).name("elasticache");
        let params = builder.time(at).settings(settings).build()?.into();
        let url = format!("http://{}/?Action=connect&User={user}", self.cache);
        let request = SignableRequest::new("GET", url.as_str(), std::iter::empty(), SignableBody::empty())?;
        let (instructions, _signature) = sign(request, &params)?.into_parts();
        let mut signed = http::Request::get(&url).body(())?;
        instructions.apply_to_request_http1x(&mut signed);
        Ok(signed.uri().to_string().trim_start_matches("http://").to_owned())
    }

    async fn credentials_of(&self, user: &str) -> Result<BasicAuth, RedisError> {
        let failed = |error: Box<dyn Error + Send + Sync>| {
            RedisError::from((ErrorKind::AuthenticationFailed, "no token of IAM could be made", error.to_string()))
        };
        let credentials = self.credentials.provide_credentials().await.map_err(|error| failed(error.into()))?;
        let token = self.token(user, credentials, (self.now)()).map_err(failed)?;
        Ok(BasicAuth::new(user.to_owned(), token))
    }
}

/// The settings of new connections.
#[derive(Clone)]
pub(crate) struct Handshake {
    config: AsyncConnectionConfig,
    /// A login with IAM, and its user. `None`: what the URL says.
    login: Option<Arc<(IamLogin, String)>>,
}

impl Handshake {
    pub(crate) fn new(config: AsyncConnectionConfig, login: Option<(IamLogin, String)>) -> Self {
        Self { config, login: login.map(Arc::new) }
    }

    /// The settings of one new connection.
    pub(crate) fn config(&self) -> AsyncConnectionConfig {
        match &self.login {
            None => self.config.clone(),
            Some(login) => {
                let logins = Logins { login: login.clone(), has_begun: AtomicBool::new(false) };
                self.config.clone().set_credentials_provider(logins)
            }
        }
    }
}

/// The logins of one connection. The `redis` crate subscribes twice: for the first login, and for those that follow. A
/// second login right after the first would make the first command wait.
struct Logins {
    login: Arc<(IamLogin, String)>,
    has_begun: AtomicBool,
}

impl StreamingCredentialsProvider for Logins {
    fn subscribe(&self) -> Pin<Box<dyn Stream<Item = Result<BasicAuth, RedisError>> + Send + 'static>> {
        let is_first = !self.has_begun.swap(true, Ordering::Relaxed);
        let logins = stream::unfold((self.login.clone(), is_first), |(login, is_first)| async move {
            if !is_first {
                tokio::time::sleep(login.0.renew_after).await;
            }
            Some((login.0.credentials_of(&login.1).await, (login, false)))
        });
        logins.boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const AT: Duration = Duration::from_secs(1_440_938_160);

    fn login() -> (IamLogin, Credentials) {
        // The keys of AWS's own examples.
        let credentials = Credentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None, None, "test");
        let provider = SharedCredentialsProvider::new(credentials.clone());
        let now = || SystemTime::UNIX_EPOCH + AT;
        (IamLogin::new("tidemark-views".to_owned(), "us-east-1".to_owned(), provider, now), credentials)
    }

    #[test]
    fn a_token_is_a_signed_url_without_its_scheme() {
        let (login, credentials) = login();
        let token = login.token("tidemark-iam", credentials, (login.now)()).unwrap();
        // As botocore's `SigV4QueryAuth` signs it.
        let expected = "tidemark-views/?Action=connect&User=tidemark-iam&X-Amz-Algorithm=AWS4-HMAC-SHA256\
            &X-Amz-Credential=AKIDEXAMPLE%2F20150830%2Fus-east-1%2Felasticache%2Faws4_request&X-Amz-Date=20150830T123600Z\
            &X-Amz-Expires=900&X-Amz-SignedHeaders=host\
            &X-Amz-Signature=c2ef86d7208b8a94de8ed5cd7eb6f9fe410eb084bd9c68b8f497b04206e931e6";
        assert_eq!(token, expected);
    }

    #[test]
    fn the_token_of_a_role_names_its_session() {
        let (login, credentials) = login();
        let role = Credentials::new("AKIDEXAMPLE", "secret", Some("a/session+token=".to_owned()), None, "test");
        let token = login.token("tidemark-iam", role, (login.now)()).unwrap();
        assert!(token.contains("&X-Amz-Security-Token=a%2Fsession%2Btoken%3D"), "{token}");
        assert!(login.token("no part of a URL", credentials, (login.now)()).is_err());
    }

    #[tokio::test]
    async fn a_connection_logs_in_at_once_and_then_after_each_period() {
        const PERIOD: Duration = Duration::from_millis(30);
        let login = IamLogin { renew_after: PERIOD, ..login().0 };
        let logins = Logins { login: Arc::new((login, "tidemark-iam".to_owned())), has_begun: AtomicBool::new(false) };
        let first = logins.subscribe().next().await.unwrap().unwrap();
        assert_eq!(first.username(), "tidemark-iam");
        let mut renewals = logins.subscribe();
        for _ in 0..3 {
            let waiting_since = Instant::now();
            assert!(renewals.next().await.unwrap().is_ok());
            assert!(waiting_since.elapsed() >= PERIOD);
        }
    }
}
