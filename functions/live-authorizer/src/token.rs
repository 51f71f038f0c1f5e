//! The checks of a token: those of the HTTP API's JWT authorizer.

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};
use tidemark::{AuthorizerSettings, domain::Timestamp, http::live::listed_platforms};

use crate::keys::{Keys, KeysError};

/// The algorithms that API Gateway's JWT authorizers accept.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::RS256, Algorithm::RS384, Algorithm::RS512];

/// The greatest accepted difference between the clocks of issuer and function, in seconds.
const LEEWAY: u64 = 60;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("not a token, or its signature is wrong: {0}")]
    Signature(#[from] jsonwebtoken::errors::Error),
    #[error("the algorithm {0:?} is not accepted")]
    Algorithm(Algorithm),
    #[error("the issuer has no such key")]
    Key,
    #[error("the header has extensions that must be understood")]
    Extensions,
    #[error("the claim {0} is missing or wrong")]
    Claim(&'static str),
    #[error("the keys are unavailable")]
    Keys(#[from] KeysError),
}

/// What the functions need of a verified token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verified {
    /// The claim that says who the caller is.
    pub(crate) claim: String,
    /// The platforms that its claims list.
    pub(crate) platforms: String,
}

pub(crate) async fn verify(token: &str, keys: &Keys, settings: &AuthorizerSettings, now: Timestamp) -> Result<Verified, Refused> {
    let header = decode_header(token)?;
    if !ALGORITHMS.contains(&header.alg) {
        return Err(Refused::Algorithm(header.alg));
    }
    // RFC 7515, section 4.1.11. No extension is known here.
    if header.crit.is_some() {
        return Err(Refused::Extensions);
    }
    let key = keys.key(&header.kid.ok_or(Refused::Key)?).await?.ok_or(Refused::Key)?;
    let mut validation = Validation::new(header.alg);
    // The claims are checked below, at the injected time.
    validation.required_spec_claims.clear();
    (validation.validate_exp, validation.validate_aud) = (false, false);
    let claims: Map<String, Value> = decode(token, &DecodingKey::from_jwk(&key)?, &validation)?.claims;
    check(&claims, settings, now.seconds())
}

fn check(claims: &Map<String, Value>, settings: &AuthorizerSettings, now: u64) -> Result<Verified, Refused> {
    let number = |name: &str| claims.get(name).and_then(Value::as_f64);
    let (latest, earliest) = ((now + LEEWAY) as f64, now.saturating_sub(LEEWAY) as f64);
    let holds = |condition: bool, name: &'static str| if condition { Ok(()) } else { Err(Refused::Claim(name)) };
    holds(claims.get("iss").and_then(Value::as_str) == Some(&settings.issuer), "iss")?;
    holds(number("exp").is_some_and(|expiry| expiry > earliest), "exp")?;
    holds(number("nbf").is_none_or(|from| from <= latest), "nbf")?;
    holds(number("iat").is_none_or(|issued| issued <= latest), "iat")?;
    let audiences = words(claims.get("aud").or_else(|| claims.get("client_id")), &[]);
    holds(audiences.iter().any(|audience| settings.audiences.contains(audience)), "aud")?;
    if let Some(scope) = &settings.scope {
        let mut scopes = ["scope", "scp"].into_iter().flat_map(|name| words(claims.get(name), &[' ']));
        holds(scopes.any(|given| given == *scope), "scope")?;
    }
    let claim = match claims.get(&settings.user_claim) {
        Some(Value::String(user)) if !user.is_empty() => user.clone(),
        Some(Value::Number(user)) => user.to_string(),
        _ => return Err(Refused::Claim("of the user")),
    };
    Ok(Verified { claim, platforms: listed_platforms(claims) })
}

/// The strings of a claim: a list, or a text that is split at these characters.
fn words(claim: Option<&Value>, at: &[char]) -> Vec<String> {
    match claim {
        Some(Value::String(text)) => text.split(at).map(str::to_owned).collect(),
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}
