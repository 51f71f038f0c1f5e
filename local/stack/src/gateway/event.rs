//! Conversion between HTTP and API Gateway's event (payload format 2.0).

use std::{borrow::Cow, collections::BTreeMap};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::routes::Route;
use crate::{clock, template::ACCOUNT};

/// The caller, as the local stack's replacement for a JWT names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) user: String,
    pub(crate) scopes: Vec<String>,
    /// Other claims. Commas in a value become spaces.
    pub(crate) claims: Vec<(String, String)>,
}

/// Reads `Authorization: Bearer <user> [scopes and claims…]`. The local stack accepts this instead of a signed token.
/// The user is a user id, or any word if claims are `mapped` to user ids. A claim has the form `name=value`.
pub(crate) fn caller(headers: &HeaderMap, mapped: bool) -> Option<Caller> {
    // UTF-8 as in `?token=` of the WebSocket API, so that both accept the same claims.
    let value = std::str::from_utf8(headers.get(header::AUTHORIZATION)?.as_bytes()).ok()?;
    let (scheme, token) = value.trim().split_once(char::is_whitespace)?;
    scheme.eq_ignore_ascii_case("bearer").then(|| named(token, mapped)).flatten()
}

/// Reads a token: `<user> [scopes and claims…]`.
pub(super) fn named(token: &str, mapped: bool) -> Option<Caller> {
    let mut words = token.split_ascii_whitespace();
    let user = words.next()?;
    let valid = mapped || user.bytes().all(|byte| byte.is_ascii_digit()) && !user.starts_with('0') && user.parse::<u64>().is_ok();
    let (claims, scopes): (Vec<&str>, Vec<&str>) = words.partition(|word| word.contains('='));
    let claims = claims.into_iter().filter_map(|claim| claim.split_once('='));
    valid.then(|| Caller {
        user: user.to_owned(),
        scopes: scopes.into_iter().map(str::to_owned).collect(),
        claims: claims.map(|(name, value)| (name.to_owned(), value.replace(',', " "))).collect(),
    })
}

pub(crate) fn request(
    parts: &Parts,
    body: &Bytes,
    route: &Route,
    path_parameters: &BTreeMap<String, String>,
    caller: Option<&Caller>,
    user_claim: &str,
    request_id: &str,
) -> Value {
    let query = parts.uri.query().unwrap_or_default();
    let mut context = request_context(parts, route, request_id);
    if let Some(caller) = caller {
        context["authorizer"] = authorizer(caller, user_claim);
    }
    let mut event = json!({
        "version": "2.0",
        "routeKey": route.key(),
        "rawPath": parts.uri.path(),
        "rawQueryString": query,
        "headers": headers(&parts.headers),
        "requestContext": context,
        "isBase64Encoded": false,
    });
    let cookies = parts.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookies: Vec<&str> = cookies.flat_map(|value| value.split(';').map(str::trim)).collect();
    if !cookies.is_empty() {
        event["cookies"] = json!(cookies);
    }
    let query = query_parameters(query);
    if !query.is_empty() {
        event["queryStringParameters"] = json!(query);
    }
    if !path_parameters.is_empty() {
        event["pathParameters"] = json!(path_parameters);
    }
    if !body.is_empty() {
        match std::str::from_utf8(body) {
            Ok(text) => event["body"] = Value::String(text.to_owned()),
            Err(_) => {
                event["body"] = Value::String(STANDARD.encode(body));
                event["isBase64Encoded"] = Value::Bool(true);
            }
        }
    }
    event
}

/// The context of a request, without its caller.
fn request_context(parts: &Parts, route: &Route, request_id: &str) -> Value {
    let now = clock::now_ms();
    json!({
        "accountId": ACCOUNT,
        "apiId": "local",
        "domainName": text(&parts.headers, &header::HOST),
        "domainPrefix": "local",
        "http": {
            "method": parts.method.as_str(),
            "path": parts.uri.path(),
            "protocol": "HTTP/1.1",
            "sourceIp": "127.0.0.1",
            "userAgent": text(&parts.headers, &header::USER_AGENT),
        },
        "requestId": request_id,
        "routeKey": route.key(),
        "stage": "$default",
        "time": clock::rfc3339(now / 1_000),
        "timeEpoch": now,
    })
}

/// The caller in the form that API Gateway gives a checked JWT.
fn authorizer(caller: &Caller, user_claim: &str) -> Value {
    let mut claims = Map::new();
    claims.insert(user_claim.to_owned(), Value::String(caller.user.clone()));
    claims.extend(caller.claims.iter().map(|(name, value)| (name.clone(), Value::String(value.clone()))));
    if !caller.scopes.is_empty() {
        claims.insert("scope".to_owned(), Value::String(caller.scopes.join(" ")));
    }
    json!({ "jwt": { "claims": claims, "scopes": caller.scopes } })
}

/// The value of a header, or an empty text if it is missing or not ASCII.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn headers(headers: &HeaderMap) -> BTreeMap<Cow<'_, str>, String> {
    let headers = headers.iter().filter(|(name, _)| *name != header::COOKIE);
    joined(headers.map(|(name, value)| (name.as_str().into(), String::from_utf8_lossy(value.as_bytes()))))
}

fn query_parameters(query: &str) -> BTreeMap<Cow<'_, str>, String> {
    joined(form_urlencoded::parse(query.as_bytes()))
}

/// Joins the values of each name with commas.
fn joined<'a>(pairs: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>) -> BTreeMap<Cow<'a, str>, String> {
    let mut out: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (name, value) in pairs {
        out.entry(name).or_default().push(value);
    }
    out.into_iter().map(|(name, values)| (name, values.join(","))).collect()
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    status_code: u16,
    headers: Option<BTreeMap<String, Value>>,
    multi_value_headers: Option<BTreeMap<String, Vec<Value>>>,
    cookies: Option<Vec<String>>,
    body: Option<String>,
    is_base64_encoded: Option<bool>,
}

/// Builds the HTTP response from a function's result. Returns `None` if the result has the wrong shape. A result
/// without a status becomes the body of a 200, as in API Gateway.
pub(crate) fn response(reply: Value) -> Option<Response> {
    if reply.get("statusCode").is_none() {
        let body = reply.as_str().map_or_else(|| reply.to_string(), str::to_owned);
        return Response::builder().header(header::CONTENT_TYPE, "application/json").body(Body::from(body)).ok();
    }
    let reply: Payload = serde_json::from_value(reply).ok()?;
    let body = reply.body.unwrap_or_default();
    let body = if reply.is_base64_encoded == Some(true) { STANDARD.decode(body).ok()? } else { body.into_bytes() };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(reply.status_code).ok()?;
    let single = reply.headers.unwrap_or_default().into_iter().map(|(name, value)| (name, vec![value]));
    let mut headers: BTreeMap<String, Vec<Value>> = single.collect();
    headers.extend(reply.multi_value_headers.unwrap_or_default());
    for (name, value) in headers.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value))) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        response.headers_mut().append(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(&value).ok()?);
    }
    for cookie in reply.cookies.unwrap_or_default() {
        response.headers_mut().append(header::SET_COOKIE, HeaderValue::from_str(&cookie).ok()?);
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(value: &str, mapped: bool) -> Option<Caller> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        caller(&headers, mapped)
    }

    #[test]
    fn a_bearer_is_a_user_id_with_scopes() {
        let (scopes, claims) = (vec!["notices:write".to_owned()], vec![("platforms".to_owned(), "1 2".to_owned())]);
        let expected = Caller { user: "7".to_owned(), scopes, claims };
        assert_eq!(bearer("Bearer 7 notices:write platforms=1,2", false), Some(expected));
        for name in ["alice", "zoë|✓", "a%20b"] {
            assert_eq!(bearer(&format!("Bearer {name}"), true), named(name, true), "{name}");
            assert_eq!(bearer(&format!("Bearer {name}"), true).unwrap().user, name);
        }
        assert!(bearer("bearer 18446744073709551615", false).is_some());
        for wrong in
            ["Bearer 0", "Bearer 07", "Bearer -1", "Bearer +1", "Bearer", "Bearer x", "Basic 7", "Bearer 18446744073709551616"]
        {
            assert_eq!(bearer(wrong, false), None, "{wrong}");
        }
    }

    #[test]
    fn repeated_query_parameters_are_joined() {
        let query = query_parameters("user=1&user=2&q=a%26b+c&flag&empty=");
        let expected = [("empty", ""), ("flag", ""), ("q", "a&b c"), ("user", "1,2")];
        assert_eq!(query, expected.map(|(k, v)| (k.into(), v.to_owned())).into());
    }

    #[test]
    fn a_result_becomes_a_response() {
        let reply = json!({ "statusCode": 201, "headers": { "location": "/v1/posts/1-1", "x-count": 3 }, "multiValueHeaders": {}, "body": "aGk=", "isBase64Encoded": true, "cookies": [] });
        let response = response(reply).unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(response.headers()["location"], "/v1/posts/1-1");
        assert_eq!(response.headers()["x-count"], "3");
        assert!(super::response(json!({ "statusCode": "no" })).is_none());
        assert_eq!(super::response(json!({ "plain": true })).unwrap().status(), StatusCode::OK);
    }
}
