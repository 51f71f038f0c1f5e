//! The HTTP edge of the functions: API Gateway v2 events in, JSON and problem details out.

pub mod bodies;
mod body;
pub mod live;
mod operation;
mod page;
mod policy;
mod problem;
mod request;
mod response;
mod routes;

use std::{pin::pin, time::Duration};

pub use operation::{Operation, Route, Schemas, operation};
pub use page::Page;
pub use policy::Policy;
pub use problem::{FieldError, Kind, Problem};
pub use request::Request;
pub use response::Response;
pub use tidemark_domain::Budget;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use futures::future::{Either, select};
use lambda_runtime::LambdaEvent;
use tokio::time::timeout;
use tracing::{error, info};

use tidemark_app::{AccessCheck, Callers, Price, Recorder, work};
use tidemark_domain::{StoreError, UserId};

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

/// The tokens that a request takes: one for each subject that it names, in query parameters that may be repeated and in
/// lists in its body. A request that names none takes one.
fn tokens(request: &Request) -> u32 {
    u32::try_from(request.named()).unwrap_or(MOST_TOKENS).clamp(1, MOST_TOKENS)
}

/// No request names more subjects. The script `spend` names it too.
const MOST_TOKENS: u32 = 500;

/// Runs the handler if the caller may call, within the limits. A request beyond a limit reads no facts. A refusal of
/// the caller comes before every other problem of the request. Without Redis every successful response is degraded,
/// also one of a route that reads only facts.
async fn with_access(
    access: &AccessCheck,
    budget: Budget,
    policy: Policy,
    request: Request,
    handler: impl AsyncFnOnce(Request) -> Result<Response, Problem>,
) -> Result<Response, Problem> {
    let (caller, price) = (request.caller()?, Price { budget, tokens: tokens(&request) });
    let spent = access.pass(caller, price, policy.erased);
    // With `?list=`, the facts say whether the caller has the list.
    let (redis_responds, (response, units)) = if policy.own_view && request.query("list").is_none() {
        match select(pin!(spent), Box::pin(work::counted(handler(request)))).await {
            Either::Left((spent, handler)) => (spent?, handler.await),
            Either::Right((response, spent)) => (spent.await?, response),
        }
    } else {
        (spent.await?, Box::pin(work::counted(handler(request))).await)
    };
    access.charge(caller, price, units).await;
    Ok(response?.degraded(!redis_responds))
}

/// A request gets 503 when this part of its function's time is over. The rest is for a process that is late: at the
/// deadline the function is stopped, and API Gateway responds with 500.
const PART_OF_TIME: u32 = 2;

/// Runs the handler of one event, under the policy that `policy_of` returns for its route. Every outcome becomes a
/// response, and a line with its route and status. A 5xx is logged here with its cause. A handler that takes too long
/// is ended, as if the process had been killed.
pub async fn serve(
    admission: &Admission,
    recorder: &Recorder,
    event: Event,
    policy_of: fn(&str) -> Option<Policy>,
    handler: impl AsyncFnOnce(Request) -> Result<Response, Problem>,
) -> GatewayResponse {
    let request = Request::new(event.payload, admission);
    let (route, request_id) = (request.route().to_owned(), request.id().to_owned());
    let invocation = recorder.invocation(&event.context.env_config.function_name, &request_id);
    let etag = request.header("if-none-match").map(str::to_owned);
    let left = recorder.time_until(event.context.deadline).map_or(Duration::MAX, |left| left / PART_OF_TIME);
    let response = timeout(left, response(admission, request, policy_of, handler)).await;
    let response = match response.unwrap_or_else(|late| Err(late.into())) {
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
    policy_of: fn(&str) -> Option<Policy>,
    handler: impl AsyncFnOnce(Request) -> Result<Response, Problem>,
) -> Result<Response, Problem> {
    if request.route() == routes::DEFAULT {
        return request.unrouted();
    }
    let policy = policy_of(request.route()).ok_or_else(|| Problem::of_another_function(request.route()))?;
    request.check_size()?;
    request.identify(admission).await?;
    let handler = async |request: Request| {
        request.check_query()?;
        request.check_no_body()?;
        policy.scope.map_or(Ok(()), |scope| request.require_scope(scope))?;
        handler(request).await
    };
    match policy.budget.zip(admission.access.as_ref()) {
        Some((budget, access)) => with_access(access, budget, policy, request, handler).await,
        None => handler(request).await,
    }
}

/// An error and its sources, on one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
