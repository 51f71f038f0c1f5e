//! Responses to transactions by `ClientRequestToken`: a request repeated within ten minutes gets the first response.
//!
//! The embedded engine has this too, but goes over all its tokens in each transaction. After ten minutes with a hundred
//! transactions a second, that takes milliseconds for each.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Mutex,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::engine::Response;
use crate::lock::lock;

const KEPT: Duration = Duration::from_secs(600);
/// The longest token. The engine refuses others.
const LONGEST: usize = 36;

#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// The hash of the first request's items, and its response.
    responses: HashMap<String, (u64, Response)>,
    /// The same tokens, in the order in which they came.
    order: VecDeque<(Instant, String)>,
}

impl Tokens {
    fn forget(&mut self, before: Instant) {
        while let Some((_, token)) = self.order.pop_front_if(|(came, _)| *came < before) {
            self.responses.remove(&token);
        }
    }
}

/// Performs a transaction, or returns the first response to its token, without the capacity that was consumed then. A
/// transaction that failed may be repeated. Requests with tokens wait for each other, as in the engine, so two with the
/// same token are one.
pub(super) fn once(tokens: &Mutex<Tokens>, body: &str, perform: impl Fn(&str) -> Response) -> Response {
    let Ok(Value::Object(mut request)) = serde_json::from_str(body) else { return perform(body) };
    let token = match request.remove("ClientRequestToken") {
        Some(Value::String(token)) if token.len() <= LONGEST => token,
        _ => return perform(body),
    };
    let mut hasher = DefaultHasher::new();
    request.get("TransactItems").map(Value::to_string).hash(&mut hasher);
    let (hash, now) = (hasher.finish(), Instant::now());
    let mut tokens = lock(tokens);
    if let Some(before) = now.checked_sub(KEPT) {
        tokens.forget(before);
    }
    match tokens.responses.get(&token) {
        Some((first, response)) if *first == hash => return response.clone(),
        Some(_) => return Response::error("IdempotentParameterMismatchException", "The token belongs to another request"),
        None => {}
    }
    let response = perform(&Value::Object(request).to_string());
    if response.is_ok() {
        let mut body: Value = serde_json::from_str(&response.body).unwrap_or_default();
        body.as_object_mut().map(|fields| fields.remove("ConsumedCapacity"));
        tokens.order.push_back((now, token.clone()));
        tokens.responses.insert(token, (hash, Response { status: response.status, body: body.to_string() }));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[test]
    fn a_token_names_one_request_until_it_is_forgotten() {
        let (tokens, done) = (Mutex::default(), AtomicU32::new(0));
        let send = |body: &str, status: u16| {
            let perform = |body: &str| {
                assert!(!body.contains("ClientRequestToken"), "{body}");
                Response { status, body: done.fetch_add(1, SeqCst).to_string() }
            };
            let response = once(&tokens, body, perform);
            (response.status, response.body)
        };
        let (one, other) =
            (r#"{"ClientRequestToken":"a","TransactItems":[1]}"#, r#"{"ClientRequestToken":"a","TransactItems":[2]}"#);
        assert_eq!(send(one, 400), (400, "0".to_owned()));
        assert_eq!(send(one, 200), (200, "1".to_owned()), "the first one failed");
        assert_eq!(send(one, 200), (200, "1".to_owned()));
        let measured = one.replace('}', r#","ReturnConsumedCapacity":"INDEXES"}"#);
        assert_eq!(send(&measured, 200).1, "1", "the items are the same");
        assert_eq!(send(other, 200).0, 400);
        assert_eq!((send(r#"{"n":1}"#, 200).1, send(r#"{"n":1}"#, 200).1), ("2".to_owned(), "3".to_owned()));
        tokens.lock().unwrap().forget(Instant::now());
        assert_eq!(send(other, 200), (200, "4".to_owned()));
    }
}
