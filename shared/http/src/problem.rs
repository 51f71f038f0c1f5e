//! Errors in HTTP responses: RFC 9457 problem details.

use std::fmt::Display;

use serde::Serialize;
use tidemark_app::{Denied, Hiding, MOST_HIDDEN, OverLimit};
use tidemark_domain::{PostId, Source, StoreError, Withheld};
use tokio::time::error::Elapsed;
use utoipa::ToSchema;

use super::Response;

/// An error in one field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// The parameter, header or field of the body; `authors[3]` for an item of a list, `body` if it cannot be parsed.
    #[schema(min_length = 1)]
    pub field: String,
    /// The rule that the value breaks: `must be 1 to 100`.
    #[schema(min_length = 1)]
    pub message: String,
}

/// The reason for a response other than the requested one.
#[derive(Debug)]
pub struct Problem {
    kind: Kind,
    detail: String,
    errors: Vec<FieldError>,
    cause: Option<Source>,
    over: Option<Box<OverLimit>>,
    allow: Vec<&'static str>,
}

/// Problem details (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem, examples(json!({
    "type": "/problems/invalid-request", "title": "The request is not valid", "status": 400,
    "detail": "limit must be 1 to 100", "request_id": "8f14e45f-ceea-467f-9575-6c8d1a5f3d2b",
    "errors": [{ "field": "limit", "message": "must be 1 to 100" }],
})))]
pub(crate) struct ProblemDetails<'a> {
    /// The kind of problem. It is stable.
    #[schema(format = "uri-reference", pattern = "^/problems/[a-z-]+$")]
    r#type: String,
    /// The kind in words.
    title: &'a str,
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The cause in this case.
    detail: &'a str,
    /// The same as in the log.
    #[schema(min_length = 1)]
    request_id: &'a str,
    /// The invalid fields of a request.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(min_items = 1)]
    errors: &'a [FieldError],
}

/// The body of a response that API Gateway makes by itself.
#[derive(ToSchema)]
#[schema(examples(json!({ "message": "Unauthorized" })))]
#[expect(dead_code, reason = "only API Gateway writes it")]
pub(crate) struct GatewayMessage {
    #[schema(min_length = 1)]
    message: String,
}

/// Problem details of one item of a response.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemProblem {
    /// The kind of problem. It is stable.
    #[schema(format = "uri-reference", pattern = "^/problems/[a-z-]+$")]
    r#type: String,
    /// The kind in words.
    title: &'static str,
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The cause in this case.
    detail: String,
}

macro_rules! kinds {
    ($($kind:ident: $status:literal, $slug:literal, $title:literal;)*) => {
        /// A kind of problem: a status, and a slug that is part of the API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind {
            $($kind),*
        }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            pub const fn status(self) -> u16 {
                match self { $(Self::$kind => $status),* }
            }

            /// The last segment of the problem's type.
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$kind => $slug),* }
            }

            pub const fn title(self) -> &'static str {
                match self { $(Self::$kind => $title),* }
            }

            fn uri(self) -> String {
                format!("/problems/{}", self.slug())
            }
        }
    };
}

kinds! {
    InvalidRequest: 400, "invalid-request", "The request is not valid";
    Unauthorized: 401, "unauthorized", "Authentication is required";
    Forbidden: 403, "forbidden", "The caller may not do this";
    Erased: 403, "erased", "The caller has asked to leave";
    Blocked: 403, "blocked", "One of the two users blocks the other";
    Private: 403, "private", "The author is private";
    NotFound: 404, "not-found", "Not found";
    MethodNotAllowed: 405, "method-not-allowed", "The path does not have this method";
    HandleTaken: 409, "handle-taken", "Another user has the handle";
    TooLarge: 413, "body-too-large", "The body is too large";
    SelfFollow: 422, "self-follow", "Users cannot follow themselves";
    FollowingLimit: 422, "following-limit", "The follower follows the maximum number of authors";
    RequestLimit: 422, "request-limit", "The caller has the maximum number of follow requests";
    MuteLimit: 422, "mute-limit", "The caller mutes the maximum number of users";
    ListLimit: 422, "list-limit", "The caller has the maximum number of lists";
    NotFollowing: 422, "not-following", "The caller does not follow the author";
    BlockLimit: 422, "block-limit", "The caller blocks the maximum number of users";
    NoticeLimit: 422, "notice-limit", "The platform has the maximum number of notices";
    PostLimit: 422, "post-limit", "The author has published the maximum number of posts";
    TooMuchText: 422, "too-much-text", "The response would be too large";
    RepostText: 422, "repost-text", "A repost has no text";
    KeyReused: 422, "idempotency-key-reused", "The idempotency key was used for another request";
    TooManyRequests: 429, "too-many-requests", "Too many requests";
    Internal: 500, "internal", "Internal error";
    Unavailable: 503, "unavailable", "The service is unavailable";
}

impl Problem {
    /// A problem of this kind. `detail` says what causes it in this case.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), errors: Vec::new(), cause: None, over: None, allow: Vec::new() }
    }

    /// 400 with the name of the field.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid_fields(vec![FieldError { field: field.into(), message: message.into() }])
    }

    pub(crate) fn invalid_fields(errors: Vec<FieldError>) -> Self {
        let details: Vec<String> = errors.iter().map(|error| format!("{} {}", error.field, error.message)).collect();
        Self { errors, ..Self::new(Kind::InvalidRequest, details.join("; ")) }
    }

    /// 405: the path has these methods only.
    pub(crate) fn method_not_allowed(method: &str, allow: Vec<&'static str>) -> Self {
        let detail = format!("this path does not have {method}, only {}", allow.join(", "));
        Self { allow, ..Self::new(Kind::MethodNotAllowed, detail) }
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

    /// 404: the template sends the route to the wrong function.
    pub fn of_another_function(route: &str) -> Self {
        Self::not_found(format!("another function has the route {route}"))
    }

    pub fn no_post(post: PostId) -> Self {
        Self::not_found(format!("no post {post}"))
    }

    /// The reason why the caller does not see a post, or the posts of an author.
    pub fn withheld(withheld: Withheld, post: impl Display) -> Self {
        match withheld {
            Withheld::Gone => Self::not_found(format!("no post {post}")),
            Withheld::Blocked => Self::blocked(),
            Withheld::Private => Self::new(Kind::Private, "only accepted followers see the posts of this author"),
        }
    }

    /// 403: the caller and the other user, one of them blocks the other.
    pub fn blocked() -> Self {
        Self::new(Kind::Blocked, "the caller blocks this user, or the user blocks the caller")
    }

    pub fn no_list(list: impl Display) -> Self {
        Self::not_found(format!("the caller has no list {list}"))
    }

    /// 422: the caller mutes or blocks the maximum number of users.
    pub fn hidden_limit(hiding: Hiding) -> Self {
        let (kind, hide) = match hiding {
            Hiding::Mute => (Kind::MuteLimit, "mute"),
            Hiding::Block => (Kind::BlockLimit, "block"),
        };
        Self::new(kind, format!("a user can {hide} at most {MOST_HIDDEN} users"))
    }

    pub fn key_reused() -> Self {
        Self::new(Kind::KeyReused, "the Idempotency-Key was used with another body")
    }

    pub fn status(&self) -> u16 {
        self.kind.status()
    }

    pub fn slug(&self) -> &'static str {
        self.kind.slug()
    }

    /// The underlying error, for the log.
    pub(crate) fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }

    /// The form of a problem inside a response with many items.
    pub fn of_item(self) -> ItemProblem {
        ItemProblem { r#type: self.kind.uri(), title: self.kind.title(), status: self.status(), detail: self.detail }
    }

    pub fn response(&self, request_id: &str) -> Response {
        let body = ProblemDetails {
            r#type: self.kind.uri(),
            title: self.kind.title(),
            status: self.status(),
            detail: &self.detail,
            request_id,
            errors: &self.errors,
        };
        let mut reply = Response::json(self.status(), &body).header("content-type", "application/problem+json");
        if let Some(over) = &self.over {
            let OverLimit { budget, per_minute, left, wait, .. } = &**over;
            let (name, wait) = (budget.name(), wait.as_millis().div_ceil(1_000));
            reply = reply
                .header("retry-after", &wait.to_string())
                .header("ratelimit", &format!("\"{name}\";r={left};t={wait}"))
                .header("ratelimit-policy", &format!("\"{name}\";q={per_minute};w=60"));
        }
        match self.status() {
            401 => reply.header("www-authenticate", "Bearer"),
            405 => reply.header("allow", &self.allow.join(", ")),
            503 => reply.header("retry-after", "1"),
            _ => reply,
        }
    }

    fn caused(kind: Kind, detail: &str, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { cause: Some(Box::new(cause)), ..Self::new(kind, detail) }
    }
}

impl From<OverLimit> for Problem {
    fn from(over: OverLimit) -> Self {
        let OverLimit { budget, per_minute, tokens, .. } = over;
        let kind = budget.name();
        let detail = format!("a user has {per_minute} tokens a minute of the kind {kind}, and this request takes {tokens}");
        Self { over: Some(Box::new(over)), ..Self::new(Kind::TooManyRequests, detail) }
    }
}

impl From<Denied> for Problem {
    fn from(refusal: Denied) -> Self {
        match refusal {
            Denied::OverLimit(over) => over.into(),
            Denied::Erased => Self::new(Kind::Erased, "DELETE /v1/me was called; GET /v1/me/erasure has the receipt"),
            Denied::Unknown(error) => error.into(),
        }
    }
}

impl From<Elapsed> for Problem {
    fn from(error: Elapsed) -> Self {
        Self::caused(Kind::Unavailable, "the request took too long, and may be done", error)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let (kind, detail) = match error {
            StoreError::Unavailable { .. } => (Kind::Unavailable, "storage is unavailable; a change may be done"),
            StoreError::Contention { .. } => {
                (Kind::Unavailable, "other requests keep changing the same items; a change may be done")
            }
            StoreError::Undone { .. } => (Kind::Unavailable, "other requests keep changing the same items; nothing is done"),
            StoreError::DamagedItem { .. } | StoreError::DamagedView { .. } => (Kind::Internal, "a stored item cannot be read"),
        };
        Self::caused(kind, detail, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_401_and_a_503_have_their_headers() {
        let header = |problem: Problem, name: &str| {
            let response = problem.response("r").into_response();
            response.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(header(Problem::unauthorized(), "www-authenticate").as_deref(), Some("Bearer"));
        let unavailable = StoreError::Contention { operation: "test" };
        assert_eq!(header(unavailable.into(), "retry-after").as_deref(), Some("1"));
        assert_eq!(header(Problem::not_found("x"), "retry-after"), None);
    }
}
