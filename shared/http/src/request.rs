//! Access to the parts of a request. Every refusal names the field.

use std::{borrow::Cow, collections::HashMap, str::FromStr};

use aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Serialize, de::IgnoredAny};
use serde_json::{Map, Value, json, value::RawValue};
use sha2::{Digest, Sha256};

use super::{Admission, FieldError, Kind, Problem, Response, bodies::RequestBody, body::Body, routes};
use tidemark_app::reader::Status;
use tidemark_domain::{GroupId, IdempotencyKey, ListId, Platform, UserId, Viewer};

/// The maximum number of bytes in a body.
const MAX_BODY: usize = 256 * 1024;

/// The maximum number of characters in an idempotency key.
const MAX_KEY: usize = 128;

/// The most unknown fields that one response names.
const MOST_UNKNOWN: usize = 20;

/// The maximum number of characters in a claim that has a user id.
const MAX_CLAIM: usize = 255;

/// Returns whether a claim can have a user id.
pub(crate) fn may_be_mapped(claim: &str) -> bool {
    (1..=MAX_CLAIM).contains(&claim.chars().count())
}

#[derive(Debug)]
pub struct Request {
    event: ApiGatewayV2httpRequest,
    caller: Option<UserId>,
    /// The platforms whose notices the caller may see; `None` if all.
    platforms: Option<Vec<Platform>>,
    query: Vec<(String, String)>,
}

impl Request {
    /// Reads the event and the claims of its verified token. Finds the route if the event has none.
    pub fn new(mut event: ApiGatewayV2httpRequest, admission: &Admission) -> Self {
        if event.route_key.as_deref().is_none_or(|key| key == routes::DEFAULT) {
            let path = event.raw_path.as_deref().unwrap_or_default();
            let found = routes::find(event.request_context.http.method.as_str(), path);
            event.route_key = Some(found.as_ref().map_or(routes::DEFAULT, |(entry, _)| entry.key).to_owned());
            event.path_parameters.extend(found.into_iter().flat_map(|(_, parameters)| parameters));
        }
        let caller = claim(&event, &admission.user_claim).filter(|_| admission.callers.is_none()).and_then(|id| id.parse().ok());
        let platforms =
            admission.platforms_claim.as_deref().map(|name| claim(&event, name).map(platforms_in).unwrap_or_default());
        let raw = event.raw_query_string.as_deref().unwrap_or_default();
        let query = form_urlencoded::parse(raw.as_bytes()).into_owned().collect();
        Self { caller, platforms, query, event }
    }

    /// Finds out the user id of the caller, if claims have user ids of their own.
    pub(crate) async fn identify(&mut self, admission: &Admission) -> Result<(), Problem> {
        if let Some(claim) = claim(&self.event, &admission.user_claim).filter(|_| admission.callers.is_some()) {
            self.caller = admission.caller_of(claim).await?;
        }
        Ok(())
    }

    /// Returns the response to a request that no route matches: 404 or 405, or 204 for `OPTIONS`.
    ///
    /// If `CorsOrigins` is given, API Gateway sends a browser's preflight request here and adds its headers. The
    /// browser expects a 2xx, even for an unknown path, so that it can then show the 404.
    pub(crate) fn unrouted(&self) -> Result<Response, Problem> {
        let (path, method) = (self.path(), self.event.request_context.http.method.as_str());
        let methods = routes::methods(path);
        let preflight = self.header("access-control-request-method").is_some();
        match method {
            "OPTIONS" if preflight || !methods.is_empty() => Ok(Response::no_content().header("allow", &methods.join(", "))),
            _ if !methods.is_empty() => Err(Problem::method_not_allowed(method, methods)),
            _ => {
                let hint = routes::similar(path).map_or_else(String::new, |path| format!("; did you mean {path}?"));
                Err(Problem::not_found(format!("no route has the path {path}{hint}")))
            }
        }
    }

    pub(crate) fn check_size(&self) -> Result<(), Problem> {
        let text = self.event.body.as_deref().unwrap_or_default();
        let size = if self.event.is_base64_encoded { text.trim_end_matches('=').len() * 3 / 4 } else { text.len() };
        let detail = || format!("a body may have at most {MAX_BODY} bytes");
        if size > MAX_BODY { Err(Problem::new(Kind::TooLarge, detail())) } else { Ok(()) }
    }

    /// Refuses query parameters that the route does not have, and repeated ones of which it takes one.
    pub(crate) fn check_query(&self) -> Result<(), Problem> {
        let Some(route) = routes::of_key(self.route()) else { return Ok(()) };
        let names: Vec<&str> = route.parameters.iter().map(|(name, _)| *name).collect();
        let mut errors: Vec<FieldError> = Vec::new();
        for (index, (name, _)) in self.query.iter().enumerate() {
            let message = match route.parameters.iter().find(|(known, _)| known == name) {
                Some((_, repeated)) if *repeated || !self.query[..index].iter().any(|(before, _)| before == name) => continue,
                Some(_) => "must be given once".to_owned(),
                None if names.is_empty() => "is not a parameter: this route has none".to_owned(),
                None => format!("is not a parameter: this route has {}", names.join(", ")),
            };
            let field = if name.is_empty() { "query" } else { name };
            if !errors.iter().any(|error| error.field == field) {
                errors.push(FieldError { field: field.to_owned(), message });
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(Problem::invalid_fields(errors)) }
    }

    /// Refuses a body if the route takes none. A client may send nothing, `null` or `{}`.
    pub(crate) fn check_no_body(&self) -> Result<(), Problem> {
        if self.event.body.is_none() || routes::of_key(self.route()).is_none_or(|route| !route.fields.is_empty()) {
            return Ok(());
        }
        let body = self.raw_body()?;
        match serde_json::from_slice(&body) {
            Ok(Value::Object(fields)) => self.check_fields(&fields),
            Ok(Value::Null) => Ok(()),
            Err(_) if body.trim_ascii().is_empty() => Ok(()),
            _ => Err(Problem::invalid("body", "must be empty")),
        }
    }

    /// Refuses fields that the route does not know.
    fn check_fields(&self, fields: &Map<String, Value>) -> Result<(), Problem> {
        let Some(route) = routes::of_key(self.route()) else { return Ok(()) };
        let known = match &route.fields[..] {
            [] => "no body".to_owned(),
            names => names.join(", "),
        };
        let unknown = fields.keys().filter(|name| !route.fields.contains(&name.as_str())).take(MOST_UNKNOWN);
        let error = |name: &String| FieldError {
            field: if name.is_empty() { "body".to_owned() } else { name.clone() },
            message: format!("is not a field: this route takes {known}"),
        };
        let errors: Vec<FieldError> = unknown.map(error).collect();
        if errors.is_empty() { Ok(()) } else { Err(Problem::invalid_fields(errors)) }
    }

    /// Refuses a caller who may not see the notices of a platform.
    pub fn require_platform(&self, platform: Platform) -> Result<(), Problem> {
        match &self.platforms {
            Some(platforms) if !platforms.contains(&platform) => {
                Err(Problem::forbidden(format!("the token does not list platform {platform}")))
            }
            _ => Ok(()),
        }
    }

    /// Method and path template, as in the function's events in `template.yaml`.
    pub fn route(&self) -> &str {
        self.event.route_key.as_deref().unwrap_or_default()
    }

    /// Whether the request sets what its path names. If not, it is the `DELETE` that ends it.
    pub fn is_put(&self) -> bool {
        self.route().starts_with("PUT ")
    }

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

    /// The caller, as a viewer of posts; 401 without an identity.
    pub fn viewer(&self) -> Result<Viewer, Problem> {
        Ok(Viewer { user: self.caller()?, moderates: self.moderates() })
    }

    /// Whether the caller moderates the posts of all authors.
    pub fn moderates(&self) -> bool {
        self.has_scope("posts:moderate")
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
        claims.any(|claim| words(claim).iter().any(|word| word == scope)) || jwt.scopes.iter().flatten().any(|word| word == scope)
    }

    /// The body of a request that may have an `Idempotency-Key`, and the key with a fingerprint of the route, the path,
    /// the query and all that was read of the body; 400 if the key is not valid.
    pub fn keyed_body<T: RequestBody + Serialize>(&self) -> Result<(T, Option<IdempotencyKey>), Problem> {
        let body = self.body()?;
        let key = self.idempotency_key(&body)?;
        Ok((body, key))
    }

    /// The `Idempotency-Key` of a request without a body, with a fingerprint of the route, the path and the query.
    pub fn key_without_body(&self) -> Result<Option<IdempotencyKey>, Problem> {
        self.idempotency_key(&Value::Null)
    }

    fn idempotency_key(&self, body: &impl Serialize) -> Result<Option<IdempotencyKey>, Problem> {
        let Some(value) = self.event.headers.get("Idempotency-Key") else { return Ok(None) };
        let printable = (1..=MAX_KEY).contains(&value.len()) && value.as_bytes().iter().all(|byte| (0x20..0x7f).contains(byte));
        let Some(key) = value.to_str().ok().filter(|_| printable) else {
            return Err(Problem::invalid("Idempotency-Key", format!("must be 1 to {MAX_KEY} printable ASCII characters")));
        };
        let content = match self.query_pairs() {
            [] => json!([self.route(), self.path(), body]),
            query => json!([self.route(), self.path(), query, body]),
        };
        let fingerprint = format!("{:x}", Sha256::digest(content.to_string()));
        Ok(Some(IdempotencyKey { key: key.to_owned(), fingerprint }))
    }

    /// The value of a header; `None` if it is absent or not visible ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.event.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// All query parameters, in order and decoded.
    pub(crate) fn query_pairs(&self) -> &[(String, String)] {
        &self.query
    }

    /// The first query parameter with this name.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The id in a path parameter; 400 if it is not one.
    pub fn parameter<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<T, Problem> {
        self.path_parameter(name).parse().map_err(|error: T::Err| Problem::invalid(name, error.to_string()))
    }

    /// The list in the path; 404 if it is not a list id: clients do not know what such an id looks like.
    pub fn list_parameter(&self) -> Result<ListId, Problem> {
        list_id(self.path_parameter("list"))
    }

    /// The group of the inbox in the path; 404 if it is not the id of one: clients do not know what such an id looks
    /// like.
    pub fn group_parameter(&self) -> Result<GroupId, Problem> {
        let text = self.path_parameter("group");
        text.parse().map_err(|_| Problem::not_found(format!("no group {text} in the inbox")))
    }

    /// `?list=`; 404 if it is not a list id.
    pub fn list_query(&self) -> Result<Option<ListId>, Problem> {
        self.query("list").map(list_id).transpose()
    }

    /// `?profiles=true|false`. The default is true.
    pub fn wants_profiles(&self) -> Result<bool, Problem> {
        self.flag("profiles", true)
    }

    /// A query parameter that is `true` or `false`.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool, Problem> {
        match self.query(name) {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(_) => Err(Problem::invalid(name, "must be true or false")),
        }
    }

    /// `?status=all|unread`. The default is all.
    pub fn status(&self) -> Result<Status, Problem> {
        match self.query("status") {
            None | Some("all") => Ok(Status::All),
            Some("unread") => Ok(Status::Unread),
            Some(_) => Err(Problem::invalid("status", "must be all or unread")),
        }
    }

    /// A query parameter that is given 1 to `max` times.
    pub fn many<T: FromStr<Err: std::fmt::Display>>(&self, name: &str, max: usize) -> Result<Vec<T>, Problem> {
        let given = self.query.iter().filter(|(key, _)| key == name);
        let parsed = given.map(|(_, text)| text.parse().map_err(|error: T::Err| Problem::invalid(name, error.to_string())));
        let parsed: Vec<T> = parsed.collect::<Result<_, _>>()?;
        match (1..=max).contains(&parsed.len()) {
            true => Ok(parsed),
            false => Err(Problem::invalid(name, format!("must be given 1 to {max} times"))),
        }
    }

    /// The number of subjects that the request names: values of query parameters that may be repeated, and items of
    /// lists in the body.
    pub(crate) fn named(&self) -> usize {
        let Some(route) = routes::of_key(self.route()) else { return 0 };
        let is_list = |name: &str| route.parameters.iter().any(|(known, repeated)| *repeated && *known == name);
        let in_query = self.query.iter().filter(|(name, _)| is_list(name)).count();
        // A body that cannot be read is refused later.
        let body = self.raw_body().unwrap_or_default();
        let fields: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(&body).unwrap_or_default();
        let items = |field: &&RawValue| serde_json::from_str::<Vec<IgnoredAny>>(field.get()).map_or(0, |items| items.len());
        in_query + fields.values().map(items).sum::<usize>()
    }

    /// A path parameter as text; empty if the path has none of this name.
    pub fn path_parameter(&self, name: &str) -> &str {
        self.event.path_parameters.get(name).map_or("", String::as_str)
    }

    /// The body, or the default without one. Some generated clients send `null` for none.
    pub fn optional_body<T: RequestBody + Default>(&self) -> Result<T, Problem> {
        match self.event.body.as_deref().map(str::trim) {
            None | Some("" | "null") => Ok(T::default()),
            Some(_) => self.body(),
        }
    }

    /// The body as it was sent.
    fn raw_body(&self) -> Result<Cow<'_, [u8]>, Problem> {
        let text = self.event.body.as_deref().unwrap_or_default();
        match self.event.is_base64_encoded {
            true => Ok(Cow::Owned(STANDARD.decode(text).map_err(|_| Problem::invalid("body", "must be base64"))?)),
            false => Ok(Cow::Borrowed(text.as_bytes())),
        }
    }

    /// The body; 400 if it is not a JSON object, or a field is unknown or invalid.
    pub fn body<T: RequestBody>(&self) -> Result<T, Problem> {
        let bytes = self.raw_body()?;
        match serde_json::from_slice(&bytes) {
            _ if bytes.is_empty() => Err(Problem::invalid("body", "must be a JSON object, and the request has none")),
            Ok(Value::Object(fields)) => {
                self.check_fields(&fields)?;
                T::read(&Body { fields, raw: &bytes })
            }
            Ok(_) => Err(Problem::invalid("body", "must be a JSON object")),
            Err(error) => Err(Problem::invalid("body", format!("must be a JSON object: {error}"))),
        }
    }
}

fn list_id(text: &str) -> Result<ListId, Problem> {
    text.parse().map_err(|_| Problem::no_list(text))
}

fn claim<'a>(event: &'a ApiGatewayV2httpRequest, name: &str) -> Option<&'a str> {
    event.request_context.authorizer.as_ref()?.jwt.as_ref()?.claims.get(name).map(String::as_str)
}

/// The platforms that a claim lists. What is not a platform is left out.
pub(crate) fn platforms_in(claim: &str) -> Vec<Platform> {
    words(claim).iter().filter_map(|word| word.parse().ok()).collect()
}

/// The scopes or platforms in a claim: words with spaces between them, or a list. Claims in API Gateway's events are
/// strings. API Gateway writes a list as `[one two]`; other sources of events write JSON.
fn words(claim: &str) -> Vec<Cow<'_, str>> {
    if let Ok(list) = serde_json::from_str::<Vec<Value>>(claim) {
        let word = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        return list.into_iter().map(word).map(Cow::Owned).collect();
    }
    let list = claim.trim().strip_prefix('[').and_then(|list| list.strip_suffix(']'));
    list.unwrap_or(claim).split_ascii_whitespace().map(Cow::Borrowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(claims: Value, of_route: Value) -> Request {
        let jwt = json!({ "claims": claims, "scopes": of_route });
        let event = json!({ "requestContext": { "http": { "method": "GET" }, "authorizer": { "jwt": jwt } } });
        let admission = Admission {
            user_claim: "sub".to_owned(),
            callers: None,
            platforms_claim: Some("platforms".to_owned()),
            access: None,
        };
        Request::new(serde_json::from_value(event).unwrap(), &admission)
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

    #[test]
    fn platforms_are_found_in_every_form_of_a_claim() {
        let may_see = |claims: Value, platform: &str| request(claims, json!(null)).require_platform(platform.parse().unwrap());
        for list in ["1 7", "[1 7]", "[1, 7]", "[\"1\", \"7\"]"] {
            let claims = json!({ "sub": "7", "platforms": list });
            assert!(may_see(claims.clone(), "7").is_ok(), "{list}");
            assert_eq!(may_see(claims, "2").unwrap_err().status(), 403, "{list}");
        }
        assert_eq!(may_see(json!({ "sub": "7" }), "1").unwrap_err().status(), 403);
    }
}
