//! Errors in HTTP responses: RFC 9457 problem details.

use serde::Serialize;
use serde_json::json;
use tidemark_app::ports::{Source, StoreError};
use tidemark_domain::{Platform, ids::LAST_POST, notices::MAX_LIVE};

use super::{Answer, boxed};

/// An error in one field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// The name of the field, parameter or header.
    pub field: String,
    /// The requirement that the field does not meet: `must be 1 to 100`.
    pub message: String,
}

/// The reason for a response other than the requested one.
#[derive(Debug)]
pub struct Problem {
    kind: Kind,
    detail: String,
    errors: Vec<FieldError>,
    cause: Option<Source>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    InvalidRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    TooLarge,
    SelfFollow,
    FollowingLimit,
    NoticeLimit,
    PostLimit,
    KeyReused,
    Internal,
    Unavailable,
}

impl Kind {
    const fn status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::TooLarge => 413,
            Self::SelfFollow | Self::FollowingLimit | Self::NoticeLimit | Self::PostLimit | Self::KeyReused => 422,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }

    const fn slug(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid-request",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not-found",
            Self::TooLarge => "body-too-large",
            Self::SelfFollow => "self-follow",
            Self::FollowingLimit => "following-limit",
            Self::NoticeLimit => "notice-limit",
            Self::PostLimit => "post-limit",
            Self::KeyReused => "idempotency-key-reused",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::InvalidRequest => "The request is not valid",
            Self::Unauthorized => "Authentication is required",
            Self::Forbidden => "The caller may not do this",
            Self::NotFound => "Not found",
            Self::TooLarge => "The body is too large",
            Self::SelfFollow => "Users cannot follow themselves",
            Self::FollowingLimit => "The caller follows the maximum number of authors",
            Self::NoticeLimit => "The platform has the maximum number of notices",
            Self::PostLimit => "The author has published the maximum number of posts",
            Self::KeyReused => "The idempotency key was used for another request",
            Self::Internal => "Internal error",
            Self::Unavailable => "The service is unavailable",
        }
    }
}

impl Problem {
    fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), errors: Vec::new(), cause: None }
    }

    /// 400 with the name of the field.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        let error = FieldError { field: field.into(), message: message.into() };
        let detail = format!("{} {}", error.field, error.message);
        Self { errors: vec![error], ..Self::new(Kind::InvalidRequest, detail) }
    }

    pub fn unauthorized() -> Self {
        Self::new(Kind::Unauthorized, "the token names no user")
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(Kind::Forbidden, detail)
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, detail)
    }

    pub fn too_large(detail: impl Into<String>) -> Self {
        Self::new(Kind::TooLarge, detail)
    }

    /// 422: the caller follows themselves.
    pub fn self_follow() -> Self {
        Self::new(Kind::SelfFollow, "an author is not their own follower")
    }

    /// 422: the caller follows the maximum number of authors.
    pub fn following_limit(limit: u64) -> Self {
        Self::new(Kind::FollowingLimit, format!("a user can follow at most {limit} authors"))
    }

    /// 422: the platform has the maximum number of live notices.
    pub fn notice_limit(platform: Platform) -> Self {
        let detail = format!("platform {platform} has {MAX_LIVE} live notices, the maximum; nothing was published");
        Self::new(Kind::NoticeLimit, detail)
    }

    /// 422: the author has published the maximum number of posts.
    pub fn post_limit() -> Self {
        Self::new(Kind::PostLimit, format!("an author can publish {LAST_POST} posts; nothing was published"))
    }

    /// 422: the idempotency key was used with another body.
    pub fn key_reused() -> Self {
        Self::new(Kind::KeyReused, "the Idempotency-Key was used with another body")
    }

    pub fn status(&self) -> u16 {
        self.kind.status()
    }

    /// The last segment of the problem's type.
    pub fn slug(&self) -> &'static str {
        self.kind.slug()
    }

    /// The underlying error, for the log.
    pub fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }

    /// Type, title, status and detail: the form of a problem inside a batch response.
    pub fn summary(&self) -> serde_json::Value {
        json!({
            "type": format!("/problems/{}", self.slug()),
            "title": self.kind.title(),
            "status": self.status(),
            "detail": self.detail,
        })
    }

    pub fn answer(&self, request_id: &str) -> Answer {
        let mut body = self.summary();
        body["request_id"] = json!(request_id);
        if !self.errors.is_empty() {
            body["errors"] = json!(self.errors);
        }
        let answer = Answer::json(self.status(), &body).header("content-type", "application/problem+json");
        match self.status() {
            401 => answer.header("www-authenticate", "Bearer"),
            503 => answer.header("retry-after", "1"),
            _ => answer,
        }
    }

    fn caused(kind: Kind, detail: &str, cause: Source) -> Self {
        Self { cause: Some(cause), ..Self::new(kind, detail) }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let (kind, detail) = match error.is_retryable() {
            true => (Kind::Unavailable, "storage is unavailable"),
            false => (Kind::Internal, "a stored item cannot be read"),
        };
        Self::caused(kind, detail, boxed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kind after this one, in the order of the enum; `None` after the last.
    fn next(kind: Kind) -> Option<Kind> {
        Some(match kind {
            Kind::InvalidRequest => Kind::Unauthorized,
            Kind::Unauthorized => Kind::Forbidden,
            Kind::Forbidden => Kind::NotFound,
            Kind::NotFound => Kind::TooLarge,
            Kind::TooLarge => Kind::SelfFollow,
            Kind::SelfFollow => Kind::FollowingLimit,
            Kind::FollowingLimit => Kind::NoticeLimit,
            Kind::NoticeLimit => Kind::PostLimit,
            Kind::PostLimit => Kind::KeyReused,
            Kind::KeyReused => Kind::Internal,
            Kind::Internal => Kind::Unavailable,
            Kind::Unavailable => return None,
        })
    }

    #[test]
    fn openapi_has_every_kind_of_problem() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi.yaml");
        let document = std::fs::read_to_string(path).unwrap();
        for kind in std::iter::successors(Some(Kind::InvalidRequest), |kind| next(*kind)) {
            let (slug, status) = (format!("/problems/{}", kind.slug()), format!("status: {{const: {}}}", kind.status()));
            let told = document.lines().any(|line| {
                let (slugs, ends) = (line.split([' ', ',', '[', ']', '}']), line.contains(&status));
                ends && slugs.into_iter().any(|word| word == slug)
            });
            assert!(told, "{slug} with {status}");
        }
    }

    #[test]
    fn a_401_and_a_503_have_their_headers() {
        let header = |problem: Problem, name: &str| {
            let response = problem.answer("r").into_response();
            response.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(header(Problem::unauthorized(), "www-authenticate").as_deref(), Some("Bearer"));
        let away = StoreError::Contention { operation: "test" };
        assert_eq!(header(away.into(), "retry-after").as_deref(), Some("1"));
        assert_eq!(header(Problem::not_found("x"), "retry-after"), None);
    }
}
