//! The HTTP edge of the functions: API Gateway v2 events in, JSON and problem details out.

pub mod bodies;
mod body;
pub mod live;
mod operation;
mod page;
mod problem;
mod request;
mod response;
mod routes;

use std::{pin::pin, time::Duration};

pub use operation::{Operation, Route, Schemas, operation};
pub use page::Page;
pub use problem::{FieldError, Kind, Problem};
pub use request::Request;
pub use response::Response;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use futures::future::{Either, select};
use lambda_runtime::LambdaEvent;
use tokio::time::timeout;
use tracing::{error, info};

use tidemark_app::{AccessCheck, Callers, Recorder, work};
use tidemark_domain::{Budget, StoreError, UserId};

/// A request as API Gateway sends it.
pub type Event = LambdaEvent<ApiGatewayV2httpRequest>;

pub type GatewayResponse = ApiGatewayV2httpResponse;

/// The claims of a token, and the checks of the caller whom they name.
#[derive(Clone)]
pub struct Admission {
    /// The claim that says who the caller is.
    pub user_claim: String,
    /// Gives user ids to claims; `None` if the claim is the user id.
    pub callers: Option<Callers>,
    /// The claim that lists the caller's platforms; `None` if every caller may see every platform.
    pub platforms_claim: Option<String>,
    /// Lets callers in; `None` in tests, which accept every caller.
    pub access: Option<AccessCheck>,
}

impl Admission {
    /// Returns the caller whom a verified claim names; `None` if it names no user.
    pub async fn caller_of(&self, claim: &str) -> Result<Option<UserId>, StoreError> {
        match &self.callers {
            None => Ok(claim.parse().ok()),
            Some(callers) if request::may_be_mapped(claim) => callers.user_of(claim).await.map(Some),
            Some(_) => Ok(None),
        }
    }
}

/// The bucket from which a request of this route is taken.
fn budget(route: &str) -> Budget {
    let (method, path) = route.split_once(' ').unwrap_or_default();
    match path.rsplit_once('/').map(|(_, last)| last) {
        _ if method == "GET" => Budget::Reads,
        Some("like" | "favorite") => Budget::Reactions,
        Some("read" | "reads") => Budget::Marks,
        _ if ["/v1/following", "/v1/mutes", "/v1/blocks", "/v1/lists"].iter().any(|prefix| path.starts_with(prefix)) => {
            Budget::Follows
        }
        _ => Budget::Posts,
    }
}

/// The tokens that a request takes: one for each subject that it names, in query parameters that may be repeated and in
/// lists in its body. A request that names none takes one.
fn tokens(request: &Request) -> u32 {
    u32::try_from(request.named()).unwrap_or(MOST_TOKENS).clamp(1, MOST_TOKENS)
}

/// No request names more subjects. The script `spend` names it too.
const MOST_TOKENS: u32 = 500;

/// Returns whether the request begins with a trip to Redis that reads the caller's own view. The check of the limit
/// shares that trip: both go to the same node, and the check comes first. Other requests may read facts at once.
fn begins_with_own_view(request: &Request) -> bool {
    let own_view = ["/v1/feed", "/v1/unread", "/v1/unread/{author}", "/v1/posts/{post}", "/v1/authors/{author}/posts"];
    let path = request.route().strip_prefix("GET ");
    // The facts say whether the caller has the list.
    path.is_some_and(|path| own_view.contains(&path)) && request.query("list").is_none()
}

/// The routes of a caller who has asked to leave.
const OF_ERASED: [&str; 2] = ["DELETE /v1/me", "GET /v1/me/erasure"];

/// Runs the handler if the caller may call, within the limits. A request beyond a limit reads no facts. A refusal of
/// the caller comes before every other problem of the request. Without Redis every successful response is degraded,
/// also one of a route that reads only facts.
async fn with_access(
    access: &AccessCheck,
    caller: UserId,
    request: Request,
    handler: impl AsyncFnOnce(Request) -> Result<Response, Problem>,
) -> Result<Response, Problem> {
    let bucket = (budget(request.route()), tokens(&request));
    let spent = access.pass(caller, bucket, OF_ERASED.contains(&request.route()));
    let (redis_responds, (response, units)) = if begins_with_own_view(&request) {
        match select(pin!(spent), Box::pin(work::counted(handler(request)))).await {
            Either::Left((spent, handler)) => (spent?, handler.await),
            Either::Right((response, spent)) => (spent.await?, response),
        }
    } else {
        (spent.await?, Box::pin(work::counted(handler(request))).await)
    };
    access.charge(caller, bucket, units).await;
    Ok(response?.degraded(!redis_responds))
}

/// A request gets 503 when this part of its function's time is over. The rest is for a process that is late: at the
/// deadline the function is stopped, and API Gateway responds with 500.
const PART_OF_TIME: u32 = 2;

/// Runs one handler for one event. Every outcome becomes a response, and a line with its route and status. A 5xx is
/// logged here with its cause. A handler that takes too long is ended, as if the process had been killed.
pub async fn serve(
    admission: &Admission,
    recorder: &Recorder,
    event: Event,
    handler: impl AsyncFnOnce(Request) -> Result<Response, Problem>,
) -> GatewayResponse {
    let request = Request::new(event.payload, admission);
    let (route, request_id) = (request.route().to_owned(), request.id().to_owned());
    let invocation = recorder.invocation(&event.context.env_config.function_name, &request_id);
    let etag = request.header("if-none-match").map(str::to_owned);
    let left = recorder.time_until(event.context.deadline).map_or(Duration::MAX, |left| left / PART_OF_TIME);
    let response = match timeout(left, response(admission, request, handler)).await.unwrap_or_else(|late| Err(late.into())) {
        Ok(response) => response.conditional(etag.as_deref()),
        Err(problem) => {
            match problem.cause() {
                Some(cause) if problem.status() >= 500 => {
                    error!(route, request_id, status = problem.status(), error = chain(cause), "request failed");
                }
                _ => info!(route, request_id, status = problem.status(), slug = problem.slug(), "request refused"),
            }
            problem.response(&request_id)
        }
    };
    invocation.responded(route, response.status(), response.is_degraded());
    response.into_response()
}

/// Checks what is the same for all routes, then runs the handler.
async fn response(
    admission: &Admission,
    mut request: Request,
    handler: impl AsyncFnOnce(Request) -> Result<Response, Problem>,
) -> Result<Response, Problem> {
    if request.route() == routes::DEFAULT {
        return request.unrouted();
    }
    request.check_size()?;
    request.identify(admission).await?;
    let handler = async |request: Request| {
        request.check_query()?;
        request.check_no_body()?;
        handler(request).await
    };
    match admission.access.as_ref().zip(request.caller().ok()) {
        Some((access, caller)) => with_access(access, caller, request, handler).await,
        None => handler(request).await,
    }
}

/// An error and its sources, on one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
