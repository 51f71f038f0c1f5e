//! Access to the parts of a request. Every refusal names the field.

use std::{borrow::Cow, str::FromStr};

use aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{Problem, bodies::RequestBody};
use tidemark_app::ports::IdempotencyKey;
use tidemark_domain::{NoticeId, ParseIdError, Platform, PostId, Seq, Timestamp, UserId, ids::parse_decimal};

/// The maximum number of bytes in a body.
const MAX_BODY: usize = 256 * 1024;

/// The maximum number of characters in a title, and of bytes in a text.
const MAX_TITLE: usize = 200;
const MAX_TEXT: usize = 64 * 1024;

/// The maximum number of characters in an idempotency key.
const MAX_KEY: usize = 128;

#[derive(Debug)]
pub struct Request {
    event: ApiGatewayV2httpRequest,
    caller: Option<UserId>,
    query: Vec<(String, String)>,
}

impl Request {
    /// Reads the event. The caller is the user in the claim `user_claim` of the verified token.
    pub fn new(event: ApiGatewayV2httpRequest, user_claim: &str) -> Self {
        let jwt = event.request_context.authorizer.as_ref().and_then(|authorizer| authorizer.jwt.as_ref());
        let caller = jwt.and_then(|jwt| jwt.claims.get(user_claim)).and_then(|claim| claim.parse().ok());
        let raw = event.raw_query_string.as_deref().unwrap_or_default();
        let query = form_urlencoded::parse(raw.as_bytes()).into_owned().collect();
        Self { caller, query, event }
    }

    /// Method and path template, as in the function's events in `template.yaml`.
    pub fn route(&self) -> &str {
        self.event.route_key.as_deref().unwrap_or_default()
    }

    /// The id that API Gateway gave to the request.
    pub fn id(&self) -> &str {
        self.event.request_context.request_id.as_deref().unwrap_or_default()
    }

    /// The path of the request, without the query.
    pub fn path(&self) -> &str {
        self.event.raw_path.as_deref().unwrap_or_default()
    }

    /// The caller; 401 without an identity.
    pub fn caller(&self) -> Result<UserId, Problem> {
        self.caller.ok_or_else(Problem::unauthorized)
    }

    /// Refuses a caller whose token does not have this scope: 401 without an identity, 403 without the scope.
    pub fn require_scope(&self, scope: &str) -> Result<(), Problem> {
        self.caller()?;
        if self.has_scope(scope) { Ok(()) } else { Err(Problem::forbidden(format!("the token lacks the scope {scope}"))) }
    }

    /// Whether the verified token has this scope. It may be in the claim `scope` (RFC 8693), in the claim `scp`, which
    /// API Gateway treats in the same way, or among the scopes that API Gateway found for the route.
    pub fn has_scope(&self, scope: &str) -> bool {
        let Some(jwt) = self.event.request_context.authorizer.as_ref().and_then(|authorizer| authorizer.jwt.as_ref()) else {
            return false;
        };
        let mut claims = ["scope", "scp"].into_iter().filter_map(|name| jwt.claims.get(name));
        claims.any(|claim| scopes(claim).iter().any(|word| word == scope))
            || jwt.scopes.iter().flatten().any(|word| word == scope)
    }

    /// The `Idempotency-Key` header and a fingerprint of the request. `meaning` is the parsed body.
    ///
    /// # Errors
    /// 400 if the key is not 1 to 128 printable ASCII characters.
    pub fn idempotency_key(&self, meaning: &Value) -> Result<Option<IdempotencyKey>, Problem> {
        let Some(key) = self.printable_header("Idempotency-Key", MAX_KEY)? else { return Ok(None) };
        let fingerprint = Sha256::digest(meaning.to_string()).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(IdempotencyKey { key: key.to_owned(), fingerprint }))
    }

    /// The value of a header; `None` if it is absent or not visible ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.event.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// A header of 1 to `max` printable ASCII characters; `None` if it is absent. `name` appears in the refusal.
    ///
    /// # Errors
    /// 400 if the header has any other value.
    pub fn printable_header(&self, name: &'static str, max: usize) -> Result<Option<&str>, Problem> {
        let Some(value) = self.event.headers.get(name) else { return Ok(None) };
        let printable = (1..=max).contains(&value.len()) && value.as_bytes().iter().all(|byte| (0x20..0x7f).contains(byte));
        let text = value.to_str().ok().filter(|_| printable);
        text.map(Some).ok_or_else(|| Problem::invalid(name, format!("must be 1 to {max} printable ASCII characters")))
    }

    /// All query parameters, in order and decoded.
    pub fn query_pairs(&self) -> &[(String, String)] {
        &self.query
    }

    /// The first query parameter with this name.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The user in a path parameter; 400 if it is not a user id.
    pub fn user_parameter(&self, name: &str) -> Result<UserId, Problem> {
        self.parameter(name)
    }

    /// The post in the path; 400 if it is not a post id.
    pub fn post_parameter(&self) -> Result<PostId, Problem> {
        self.parameter("post")
    }

    /// The notice in the path; 400 if it is not a notice id.
    pub fn notice_parameter(&self) -> Result<NoticeId, Problem> {
        self.parameter("notice")
    }

    fn parameter<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<T, Problem> {
        let text = self.event.path_parameters.get(name).map_or("", String::as_str);
        text.parse().map_err(|error: T::Err| Problem::invalid(name, error.to_string()))
    }

    /// The body.
    ///
    /// # Errors
    /// 400 if it is not a JSON object or a field is invalid, 413 if it is too large.
    pub fn body<T: RequestBody>(&self) -> Result<T, Problem> {
        let text = self.event.body.as_deref().unwrap_or_default();
        let bytes = if self.event.is_base64_encoded {
            Cow::Owned(STANDARD.decode(text).map_err(|_| Problem::invalid("body", "must be base64"))?)
        } else {
            Cow::Borrowed(text.as_bytes())
        };
        if bytes.len() > MAX_BODY {
            return Err(Problem::too_large(format!("at most {MAX_BODY} bytes")));
        }
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(fields)) => T::read(&Body { fields }),
            Ok(_) => Err(Problem::invalid("body", "must be a JSON object")),
            Err(error) => Err(Problem::invalid("body", format!("must be a JSON object: {error}"))),
        }
    }
}

/// The fields of a JSON body. `null` counts as absent. A refusal is a 400 with the name of the field.
#[derive(Debug)]
pub struct Body {
    fields: Map<String, Value>,
}

impl Body {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn required(&self, name: &str) -> Result<&Value, Problem> {
        self.get(name).ok_or_else(|| Problem::invalid(name, "is required"))
    }

    /// A string of `min` to `max` characters.
    fn optional_text(&self, name: &str, min: usize, max: usize) -> Result<Option<String>, Problem> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| Problem::invalid(name, "must be a string"))?;
        match (min..=max).contains(&text.chars().count()) {
            true => Ok(Some(text.to_owned())),
            false => Err(Problem::invalid(name, format!("must have {min} to {max} characters"))),
        }
    }

    /// `title`, 1 to 200 characters, and the optional `body`, at most 64 KiB.
    pub(crate) fn title_and_text(&self) -> Result<(String, Option<String>), Problem> {
        let title = self.optional_text("title", 1, MAX_TITLE)?.ok_or_else(|| Problem::invalid("title", "is required"))?;
        let text = self.optional_text("body", 0, MAX_TEXT)?;
        if text.as_ref().is_some_and(|text| text.len() > MAX_TEXT) {
            return Err(Problem::invalid("body", format!("must have at most {MAX_TEXT} bytes")));
        }
        Ok((title, text))
    }

    /// A boolean; false if absent.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        let Some(value) = self.get(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| Problem::invalid(name, "must be true or false"))
    }

    /// A platform, as a number or a decimal string.
    pub(crate) fn platform(&self, name: &str) -> Result<Platform, Problem> {
        parse_platform(name, self.required(name)?)
    }

    /// A list of 1 to `max` platforms, each as a number or a decimal string.
    pub(crate) fn platforms(&self, name: &str, max: usize) -> Result<Vec<Platform>, Problem> {
        self.list(name, max, parse_platform)
    }

    pub(crate) fn user(&self, name: &str) -> Result<UserId, Problem> {
        parse_text(name, self.required(name)?)
    }

    /// A sequence number, as a number or a decimal string.
    pub(crate) fn seq(&self, name: &str) -> Result<Seq, Problem> {
        let value = self.required(name)?;
        let seq = integer(value).or_else(|| value.as_str().and_then(parse_decimal));
        seq.ok_or_else(|| Problem::invalid(name, "must be a sequence number"))
    }

    /// A time, rounded to the nearest [`Timestamp`].
    pub(crate) fn optional_time(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let time = value.as_str().and_then(Timestamp::parse_nearest);
        time.map(Some).ok_or_else(|| Problem::invalid(name, "must be an RFC 3339 time"))
    }

    /// A list of 1 to `max` ids.
    pub(crate) fn ids<T: FromStr<Err: std::fmt::Display>>(&self, name: &str, max: usize) -> Result<Vec<T>, Problem> {
        self.list(name, max, parse_text)
    }

    fn list<T>(&self, name: &str, max: usize, parse: fn(&str, &Value) -> Result<T, Problem>) -> Result<Vec<T>, Problem> {
        let items = self.required(name)?.as_array().filter(|items| (1..=max).contains(&items.len()));
        let items = items.ok_or_else(|| Problem::invalid(name, format!("must be a list of 1 to {max} ids")))?;
        items.iter().enumerate().map(|(index, item)| parse(&format!("{name}[{index}]"), item)).collect()
    }
}

/// The scopes in a claim: words with spaces between them, or a list. Claims in API Gateway's events are strings. API
/// Gateway writes a list as `[one two]`; other sources of events write JSON.
fn scopes(claim: &str) -> Vec<Cow<'_, str>> {
    if let Ok(list) = serde_json::from_str::<Vec<String>>(claim) {
        return list.into_iter().map(Cow::Owned).collect();
    }
    let list = claim.trim().strip_prefix('[').and_then(|list| list.strip_suffix(']'));
    list.unwrap_or(claim).split_ascii_whitespace().map(Cow::Borrowed).collect()
}

/// A number without a fraction, in any notation: `7.0` and `7` are the same number in JSON. Above 2^53 only digits are
/// exact.
fn integer(value: &Value) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = |number: &f64| number.fract() == 0.0 && (0.0..=EXACT).contains(number);
    value.as_u64().or_else(|| value.as_f64().filter(whole).map(|number| number as u64))
}

fn parse_platform(name: &str, value: &Value) -> Result<Platform, Problem> {
    let number = integer(value).map(|number| number.to_string());
    let text = number.as_deref().or_else(|| value.as_str()).ok_or_else(|| Problem::invalid(name, "must be a platform"))?;
    text.parse().map_err(|error: ParseIdError| Problem::invalid(name, error.to_string()))
}

fn parse_text<T: FromStr<Err: std::fmt::Display>>(name: &str, value: &Value) -> Result<T, Problem> {
    let text = value.as_str().ok_or_else(|| Problem::invalid(name, "must be a string"))?;
    text.parse().map_err(|error: T::Err| Problem::invalid(name, error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A request with these claims in its token, and with these scopes of its route.
    fn request(claims: Value, of_route: Value) -> Request {
        let jwt = json!({ "claims": claims, "scopes": of_route });
        let event = json!({ "requestContext": { "http": { "method": "GET" }, "authorizer": { "jwt": jwt } } });
        Request::new(serde_json::from_value(event).unwrap(), "sub")
    }

    #[test]
    fn a_scope_is_found_in_both_claims_as_a_string_and_as_a_list() {
        for claim in ["scope", "scp"] {
            for value in [
                "notices:write",
                "feed notices:write",
                "[notices:write]",
                "[feed notices:write profile]",
                "[\"feed\", \"notices:write\"]",
            ] {
                assert!(request(json!({ "sub": "7", claim: value }), json!(null)).has_scope("notices:write"), "{claim} {value}");
            }
            for value in ["", "[]", "feed", "notices:writer", "xnotices:write", "notices:write,feed", "[feed", "notices"] {
                assert!(!request(json!({ "sub": "7", claim: value }), json!(null)).has_scope("notices:write"), "{claim} {value}");
            }
        }
        assert!(request(json!({ "sub": "7" }), json!(["notices:write"])).has_scope("notices:write"));
        assert!(!request(json!({ "sub": "notices:write" }), json!(["feed"])).has_scope("notices:write"));
        let both = request(json!({ "sub": "7", "scope": "feed", "scp": "[notices:write]" }), json!(null));
        assert!(both.require_scope("notices:write").is_ok());
        assert_eq!(
            request(json!({ "scp": "notices:write" }), json!(null)).require_scope("notices:write").unwrap_err().status(),
            401
        );
    }
}
