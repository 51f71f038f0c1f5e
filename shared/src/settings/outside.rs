//! Settings of the functions outside of the VPC. They get neither the address of Redis nor names of tables.

use super::{AwsOverrides, SettingsError, process_environment};

/// The settings of `live-sender`.
#[derive(Debug, Clone)]
pub struct SenderSettings {
    /// `LIVE_QUEUE_URL`.
    pub live_queue_url: String,
    /// `LIVE_POSTS_QUEUE_URL`.
    pub live_posts_queue_url: String,
    /// `LIVE_ENDPOINT`: the address under which API Gateway accepts messages to connections.
    pub live_endpoint: String,
    /// `METRICS_NAMESPACE` (`Tidemark`).
    pub metrics_namespace: String,
    /// As for the other functions.
    pub aws: AwsOverrides,
}

impl SenderSettings {
    /// Reads the process environment.
    pub fn from_env() -> Result<Self, SettingsError> {
        let mut settings = Self::from_lookup(process_environment)?;
        // The client of connections has an address of its own, which a variable of the SDK would not replace.
        let connections_endpoint = settings.aws.connections_endpoint.take();
        settings.aws = AwsOverrides { connections_endpoint, ..AwsOverrides::default() };
        Ok(settings)
    }

    /// Reads variables with `lookup` instead of the process environment.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        Ok(Self {
            live_queue_url: required(&lookup, "LIVE_QUEUE_URL")?,
            live_posts_queue_url: required(&lookup, "LIVE_POSTS_QUEUE_URL")?,
            live_endpoint: required(&lookup, "LIVE_ENDPOINT")?,
            metrics_namespace: lookup("METRICS_NAMESPACE").unwrap_or_else(|| "Tidemark".to_owned()),
            aws: AwsOverrides::from_lookup(&lookup),
        })
    }
}

/// The settings of `live-authorizer`. They are those of the HTTP API's authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizerSettings {
    /// `JWT_ISSUER`: the issuer (`iss`) of accepted tokens.
    pub issuer: String,
    /// `JWT_AUDIENCE`: accepted audiences (`aud`, or `client_id`), separated by commas.
    pub audiences: Vec<String>,
    /// `JWT_SCOPE`: the scope that a token needs; may be absent.
    pub scope: Option<String>,
    /// `USER_CLAIM` (`sub`): the claim that says who the caller is.
    pub user_claim: String,
    /// `METRICS_NAMESPACE` (`Tidemark`).
    pub metrics_namespace: String,
}

impl AuthorizerSettings {
    /// Reads the process environment.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::from_lookup(process_environment)
    }

    /// Reads variables with `lookup` instead of the process environment.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        Ok(Self {
            issuer: required(&lookup, "JWT_ISSUER")?,
            audiences: required(&lookup, "JWT_AUDIENCE")?.split(',').map(|name| name.trim().to_owned()).collect(),
            scope: lookup("JWT_SCOPE").filter(|scope| !scope.is_empty()),
            user_claim: lookup("USER_CLAIM").unwrap_or_else(|| "sub".to_owned()),
            metrics_namespace: lookup("METRICS_NAMESPACE").unwrap_or_else(|| "Tidemark".to_owned()),
        })
    }
}

fn required(lookup: &impl Fn(&str) -> Option<String>, name: &'static str) -> Result<String, SettingsError> {
    lookup(name).filter(|value| !value.is_empty()).ok_or(SettingsError::Missing(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_outside_of_the_vpc_needs_no_redis_and_no_table() {
        let lookup = |name: &str| match name {
            "LIVE_QUEUE_URL" | "LIVE_POSTS_QUEUE_URL" | "LIVE_ENDPOINT" | "JWT_ISSUER" => Some(name.to_owned()),
            "JWT_AUDIENCE" => Some("web, app".to_owned()),
            _ => None,
        };
        assert_eq!(SenderSettings::from_lookup(lookup).unwrap().live_endpoint, "LIVE_ENDPOINT");
        let settings = AuthorizerSettings::from_lookup(lookup).unwrap();
        assert_eq!((settings.audiences, settings.scope), (vec!["web".to_owned(), "app".to_owned()], None));
        let error = AuthorizerSettings::from_lookup(|_| None).unwrap_err();
        assert_eq!(error.to_string(), "environment variable JWT_ISSUER is not set");
    }
}
