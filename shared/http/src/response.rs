use aws_lambda_events::{
    apigw::ApiGatewayV2httpResponse,
    encodings::Body,
    http::{HeaderMap, HeaderName, HeaderValue},
};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tracing::error;

#[derive(Debug)]
pub struct Response {
    status: u16,
    headers: HeaderMap,
    body: Option<String>,
}

impl Response {
    pub fn json(status: u16, body: &impl Serialize) -> Self {
        let (status, body) = match serde_json::to_string(body) {
            Ok(body) => (status, body),
            Err(error) => {
                error!(%error, "a response could not be encoded");
                (500, "{}".to_owned())
            }
        };
        Self { status, headers: HeaderMap::new(), body: Some(body) }.header("content-type", "application/json")
    }

    pub fn no_content() -> Self {
        Self::empty(204)
    }

    /// A response without a body.
    pub fn empty(status: u16) -> Self {
        Self { status, headers: HeaderMap::new(), body: None }
    }

    /// Adds or replaces a header. A value that is not valid in a header is left out.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// Adds `Degraded: redis` if `degraded`: Redis was unavailable, and the response was made from facts.
    #[must_use]
    pub fn degraded(self, degraded: bool) -> Self {
        if degraded { self.header("degraded", "redis") } else { self }
    }

    pub(super) fn status(&self) -> u16 {
        self.status
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.headers.contains_key("degraded")
    }

    /// Adds an `ETag` that is computed from the body.
    #[must_use]
    pub fn tagged(self) -> Self {
        let body = self.body.as_deref().unwrap_or_default();
        let tag: String = Sha256::digest(body).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        self.header("etag", &format!("\"{tag}\""))
    }

    /// Becomes a 304 if the client already has this response.
    pub(super) fn conditional(mut self, if_none_match: Option<&str>) -> Self {
        let tag = self.headers.get("etag").and_then(|tag| tag.to_str().ok());
        let (Some(tag), Some(known)) = (tag, if_none_match) else { return self };
        let same = known.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|known| known == "*" || known == tag);
        if same && self.status == 200 {
            self.status = 304;
            self.body = None;
            self.headers.remove("content-type");
        }
        self
    }

    pub(super) fn into_response(self) -> ApiGatewayV2httpResponse {
        // Clients must not keep a response, except for one with an `ETag`, which they have to confirm.
        let kept = if self.headers.contains_key("etag") { "private, no-cache" } else { "no-store" };
        let this = self.header("cache-control", kept);
        let mut response = ApiGatewayV2httpResponse::default();
        response.status_code = i64::from(this.status);
        response.headers = this.headers;
        response.body = this.body.map(Body::Text);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_body_has_the_same_tag_and_is_not_sent_again() {
        let response = || Response::json(200, &[1, 2]).tagged();
        let tag = response().headers["etag"].to_str().unwrap().to_owned();
        assert_eq!(response().conditional(Some(&tag)).status, 304);
        assert_eq!(response().conditional(Some(&format!("\"x\", W/{tag}"))).body, None);
        assert_eq!(response().conditional(Some("\"x\"")).status, 200);
        assert_eq!(response().conditional(None).status, 200);
    }
}
