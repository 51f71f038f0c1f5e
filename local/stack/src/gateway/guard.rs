//! Refuses requests that a web page of another origin makes. A caller of the stack can act as any user, and a browser
//! sends requests of any page to a loopback address.
//!
//! A request without the headers of a browser passes: `curl`, the clients, the functions. API Gateway has no such
//! check, because its callers have tokens that a page of another origin does not know.

use axum::{
    Json,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header, uri::Authority};
use serde_json::json;

use super::live;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// What the stack accepts beside its own origin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    /// Origins of the parameter `CorsOrigins`, or `*`.
    pub(crate) origins: Vec<String>,
    /// Names under which the stack is reachable, beside `localhost` and addresses.
    pub(crate) hosts: Vec<String>,
}

pub(super) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.refusal(request.method(), request.uri(), request.headers()) {
        None => next.run(request).await,
        Some(reason) => (StatusCode::FORBIDDEN, Json(json!({ "message": reason }))).into_response(),
    }
}

impl Guard {
    /// Returns why a request is refused; `None` if it is not.
    fn refusal(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<String> {
        let Ok([host, origin, site]) = once(headers, [header::HOST, header::ORIGIN, SEC_FETCH_SITE]) else {
            return Some("Host, Origin and Sec-Fetch-Site must be given once, as text".to_owned());
        };
        // A page whose name leads to this address (DNS rebinding) is of the same origin for its browser.
        let host = host.or_else(|| uri.authority().map(Authority::as_str));
        if host.is_some_and(|host| !self.is_own(host)) {
            return Some("the Host is not a name of this stack; TIDEMARK_HOSTS names others".to_owned());
        }
        let is_listed = |origin: &str| self.origins.iter().any(|allowed| allowed == "*" || allowed == origin);
        // Only the API may be called from another origin: a deployment has nothing else.
        let is_api = uri.path().starts_with("/v1/");
        let is_same = |origin: &str| host.is_some_and(|host| origin == format!("http://{host}"));
        // API Gateway handles these for any origin. Without its headers a page cannot read the response.
        let is_harmless = is_api && uri.path() != live::PATH && method.is_safe();
        match (origin, site) {
            (Some(origin), _) if is_same(origin) || is_api && is_listed(origin) || is_harmless => None,
            (Some(_), _) => Some("the Origin is not this stack's; CorsOrigins lists origins that may call the API".to_owned()),
            (None, None | Some("same-origin" | "none")) => None,
            // A browser sends no Origin if a page only opens another one, and the opener cannot read that.
            (None, Some(_)) if method == Method::GET && is_navigation(headers) => None,
            (None, Some(_)) => Some("the page that made this request is of another site".to_owned()),
        }
    }

    /// Whether a `Host` can only mean this stack. An address cannot be the name of a page of another origin.
    fn is_own(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
        let address = name.trim_start_matches('[').trim_end_matches(']');
        let is_address = address.parse::<std::net::IpAddr>().is_ok();
        is_address || name == "localhost" || name.ends_with(".localhost") || self.hosts.contains(&name)
    }
}

/// A page that is opened in a window of its own: not in a frame, and not by a script.
fn is_navigation(headers: &HeaderMap) -> bool {
    let is = |name: HeaderName, value: &str| headers.get(name).is_some_and(|known| known == value);
    is(SEC_FETCH_MODE, "navigate") && is(SEC_FETCH_DEST, "document")
}

/// The values of these headers. Fails if one is there twice or is not text.
fn once<const N: usize>(headers: &HeaderMap, names: [HeaderName; N]) -> Result<[Option<&str>; N], ()> {
    let mut found = [None; N];
    for (value, name) in found.iter_mut().zip(names) {
        let mut values = headers.get_all(name).iter();
        *value = values.next().map(|value| value.to_str().map_err(drop)).transpose()?;
        if values.next().is_some() {
            return Err(());
        }
    }
    Ok(found)
}

/// Whether a browser made this request. The stores' endpoints serve none.
pub(crate) fn is_of_a_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN) || headers.contains_key(SEC_FETCH_SITE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers as `name: value; …`.
    fn refuses(guard: &Guard, request: &str) -> bool {
        let (line, headers) = request.split_once(" | ").unwrap();
        let (method, path) = line.split_once(' ').unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers.split("; ").filter_map(|pair| pair.split_once(": ")) {
            map.append(HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        }
        guard.refusal(&method.parse().unwrap(), &path.parse().unwrap(), &map).is_some()
    }

    fn guard() -> Guard {
        Guard { origins: vec!["http://localhost:5173".to_owned()], hosts: vec!["tidemark.test".to_owned()] }
    }

    #[test]
    fn pages_of_other_origins_are_refused_whatever_they_send() {
        let own = "Host: 127.0.0.1:3000";
        let requests = [
            // A page of another site: forms, scripts, pictures, frames, sockets, beacons.
            format!("POST /_local/redis/flush | {own}; Origin: https://evil.example; Content-Type: text/plain"),
            format!("POST /_local/sources/fan-out/pause | {own}; Origin: https://evil.example; Sec-Fetch-Site: cross-site"),
            format!("POST /_local/functions/migrate | {own}; Origin: https://evil.example"),
            format!("POST /_local/schedules/reconcile | {own}; Origin: https://evil.example"),
            format!("PUT /_local/weather | {own}; Origin: https://evil.example"),
            format!("GET /_local/status | {own}; Origin: https://evil.example"),
            format!(
                "GET /_local/environment | {own}; Sec-Fetch-Site: cross-site; Sec-Fetch-Mode: no-cors; Sec-Fetch-Dest: script"
            ),
            format!("GET /_local/metrics | {own}; Sec-Fetch-Site: cross-site; Sec-Fetch-Mode: no-cors; Sec-Fetch-Dest: image"),
            format!("GET / | {own}; Sec-Fetch-Site: cross-site; Sec-Fetch-Mode: navigate; Sec-Fetch-Dest: iframe"),
            format!("POST / | {own}; Sec-Fetch-Site: cross-site; Sec-Fetch-Mode: navigate; Sec-Fetch-Dest: document"),
            format!("GET /v1/live?token=7 | {own}; Origin: https://evil.example; Upgrade: websocket"),
            format!("POST /@connections/a | {own}; Origin: https://evil.example"),
            format!("POST /v1/posts | {own}; Origin: https://evil.example; Content-Type: text/plain; Authorization: Bearer 7"),
            format!("DELETE /v1/me | {own}; Origin: https://evil.example"),
            format!("OPTIONS /_local/redis/flush | {own}; Origin: https://evil.example; Access-Control-Request-Method: POST"),
            format!("POST /v1/posts | {own}; Origin: null"),
            format!("POST /_local/redis/flush | {own}; Origin: null"),
            format!("POST /v1/posts | {own}; Sec-Fetch-Site: same-site; Sec-Fetch-Mode: no-cors"),
            format!("POST /v1/posts | {own}; Sec-Fetch-Site: cross-origin"),
            format!("POST /v1/posts | {own}; Sec-Fetch-Site: "),
            // Origins that resemble the stack's or a listed one.
            format!("POST /v1/posts | {own}; Origin: https://127.0.0.1:3000"),
            format!("POST /v1/posts | {own}; Origin: http://127.0.0.1"),
            format!("POST /v1/posts | {own}; Origin: http://127.0.0.1:30001"),
            format!("POST /v1/posts | {own}; Origin: http://127.0.0.1:3000.evil.example"),
            format!("POST /v1/posts | {own}; Origin: http://localhost:3000"),
            format!("POST /v1/posts | {own}; Origin: http://localhost:5173.evil.example"),
            format!("POST /v1/posts | {own}; Origin: http://localhost:51730"),
            format!("POST /v1/posts | {own}; Origin: http://127.0.0.1:3000; Origin: https://evil.example"),
            // A listed origin may call the API alone.
            format!("POST /_local/redis/flush | {own}; Origin: http://localhost:5173"),
            format!("GET /_local/status | {own}; Origin: http://localhost:5173; Sec-Fetch-Site: same-site"),
            // Rebinding: a name of another owner leads to this address.
            "POST /_local/redis/flush | Host: evil.example:3000; Origin: http://evil.example:3000; Sec-Fetch-Site: same-origin"
                .to_owned(),
            "GET /v1/feed | Host: evil.example:3000".to_owned(),
            "GET / | Host: evil.example; Sec-Fetch-Site: none".to_owned(),
            "GET /v1/feed | Host: 127.0.0.1.evil.example:3000".to_owned(),
            "GET /v1/feed | Host: localhost.evil.example:3000".to_owned(),
            "GET /v1/feed | Host: evillocalhost:3000".to_owned(),
            "GET /v1/feed | Host: 127.0.0.1:3000@evil.example".to_owned(),
            "GET /v1/feed | Host: evil.example\u{23}127.0.0.1".to_owned(),
            "GET /v1/feed | Host: 127.0.0.1:3000; Host: evil.example".to_owned(),
            "GET /v1/live?token=7 | Host: evil.example:3000; Origin: http://evil.example:3000; Upgrade: websocket".to_owned(),
        ];
        assert_eq!(requests.len(), 40);
        let passed: Vec<&String> = requests.iter().filter(|request| !refuses(&guard(), request)).collect();
        assert_eq!(passed, Vec::<&String>::new());
    }

    #[test]
    fn the_stacks_own_page_tools_and_listed_origins_pass() {
        let requests = [
            "GET /v1/health | ",
            "POST /_local/redis/flush | Host: 127.0.0.1:3000",
            "POST /v1/posts | Host: localhost:3000",
            "POST /v1/posts | Host: LOCALHOST.:3000",
            "POST /v1/posts | Host: app.localhost:3000",
            "POST /v1/posts | Host: [::1]:3000",
            "POST /v1/posts | Host: 192.0.2.7:3000",
            "POST /v1/posts | Host: tidemark.test:3000",
            "POST /v1/posts | Host: 127.0.0.1:3000; Sec-Fetch-Mode: cors",
            "GET / | Host: 127.0.0.1:3000; Sec-Fetch-Site: none; Sec-Fetch-Mode: navigate; Sec-Fetch-Dest: document",
            "GET /docs | Host: 127.0.0.1:3000; Sec-Fetch-Site: cross-site; Sec-Fetch-Mode: navigate; Sec-Fetch-Dest: document",
            "GET /app.js | Host: 127.0.0.1:3000; Sec-Fetch-Site: same-origin",
            "POST /v1/posts | Host: 127.0.0.1:3000; Origin: http://127.0.0.1:3000; Sec-Fetch-Site: same-origin",
            "POST /_local/redis/flush | Host: localhost:3000; Origin: http://localhost:3000; Sec-Fetch-Site: same-origin",
            "GET /v1/live?token=7 | Host: 127.0.0.1:3000; Origin: http://127.0.0.1:3000; Upgrade: websocket",
            "POST /v1/posts | Host: 127.0.0.1:3000; Origin: http://localhost:5173; Sec-Fetch-Site: cross-site",
            "OPTIONS /v1/posts | Host: 127.0.0.1:3000; Origin: http://localhost:5173; Access-Control-Request-Method: POST",
            "OPTIONS /v1/posts | Host: 127.0.0.1:3000; Origin: https://evil.example; Access-Control-Request-Method: POST",
            "GET /v1/feed | Host: 127.0.0.1:3000; Origin: https://evil.example; Sec-Fetch-Site: cross-site",
            "GET /v1/live?token=7 | Host: 127.0.0.1:3000; Origin: http://localhost:5173; Upgrade: websocket",
        ];
        let refused: Vec<&&str> = requests.iter().filter(|request| refuses(&guard(), request)).collect();
        assert_eq!(refused, Vec::<&&str>::new());
        let any = Guard { origins: vec!["*".to_owned()], ..Guard::default() };
        assert!(!refuses(&any, "POST /v1/posts | Host: 127.0.0.1:3000; Origin: https://any.example"));
        assert!(refuses(&any, "POST /_local/redis/flush | Host: 127.0.0.1:3000; Origin: https://any.example"));
    }
}
