//! The authorizer of `$connect`: verifies the JWT in `?token=` as the HTTP API verifies the one in `Authorization`.
//!
//! WebSocket APIs have no JWT authorizer. This function runs outside of the VPC, because it reads the issuer's keys.

mod keys;
mod token;

use std::{collections::BTreeMap, sync::Arc};

use lambda_runtime::LambdaEvent;
use serde::Deserialize;
use serde_json::{Value, json};
use tidemark::{
    AuthorizerSettings, Clock, Failure, Recorder,
    http::live::{CLAIM, PLATFORMS, TOKEN},
    metrics::Metrics,
};
use tracing::info;

use keys::Keys;
pub use keys::KeysError;
use token::{Refused, Verified};

/// The part of the event that the authorizer reads.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectRequest {
    /// The ARN of the called method: the route `$connect` of one stage.
    pub method_arn: String,
    pub query_string_parameters: Option<BTreeMap<String, String>>,
}

pub struct Authorizer {
    settings: AuthorizerSettings,
    keys: Keys,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
}

impl Authorizer {
    /// Reads no key yet. Fails if the HTTP client cannot be built.
    pub fn new(settings: AuthorizerSettings, clock: Arc<dyn Clock>, metrics: Arc<dyn Metrics>) -> Result<Self, KeysError> {
        let keys = Keys::new(&settings.issuer, Arc::clone(&clock))?;
        Ok(Self { keys, recorder: Recorder::new(metrics, Arc::clone(&clock)), clock, settings })
    }
}

/// Returns a policy that allows the connection, with the caller's claim and platforms, or denies it, which API Gateway
/// turns into a 403. Fails if the issuer's keys cannot be read; API Gateway then refuses the connection with a 500.
pub async fn handle(authorizer: &Authorizer, event: LambdaEvent<ConnectRequest>) -> Result<Value, Failure> {
    let LambdaEvent { payload, context } = event;
    let invocation = authorizer.recorder.invocation(&context.env_config.function_name, &context.request_id);
    let token = payload.query_string_parameters.unwrap_or_default().remove(TOKEN).unwrap_or_default();
    let verified = token::verify(&token, &authorizer.keys, &authorizer.settings, authorizer.clock.now()).await;
    let response = match verified {
        Ok(verified) => policy("Allow", &payload.method_arn, Some(&verified)),
        Err(Refused::Keys(error)) => return Err(Failure::new("KeysUnavailable", error)),
        Err(refused) => {
            info!(request_id = context.request_id, reason = %refused, "connection refused");
            policy("Deny", &payload.method_arn, None)
        }
    };
    invocation.worked(1, 0);
    Ok(response)
}

fn policy(effect: &str, method: &str, verified: Option<&Verified>) -> Value {
    let mut response = json!({
        "principalId": verified.map_or("nobody", |verified| &verified.claim),
        "policyDocument": {
            "Version": "2012-10-17",
            "Statement": [{ "Action": "execute-api:Invoke", "Effect": effect, "Resource": method }],
        },
    });
    if let Some(Verified { claim, platforms }) = verified {
        response["context"] = json!({ CLAIM: claim, PLATFORMS: platforms });
    }
    response
}

#[cfg(test)]
mod tests;
