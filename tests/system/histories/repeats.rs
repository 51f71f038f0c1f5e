//! Requests with an idempotency key, and their repetitions after other operations of a history.

use rand::{Rng, rngs::StdRng};
use serde_json::{Value, json};
use tidemark_tests::{Model, TITLE};

use crate::operations::{self, Callers, post_of};

/// The requests of one history.
#[derive(Default)]
pub(super) struct Repeats(Vec<Keyed>);

/// A request with an idempotency key, and the response to it.
struct Keyed {
    user: u64,
    path: &'static str,
    key: String,
    body: Value,
    first: (u16, Value),
}

impl Keyed {
    async fn send(&self, callers: &Callers<'_>) -> (u16, Value) {
        let response = callers.user(self.user).post_with_key(self.path, &self.key, &self.body).await;
        (response.status, response.body)
    }
}

impl Repeats {
    /// Sends a new request, or an earlier one again. A repetition gets the first response, and changes nothing.
    pub(super) async fn operate(&mut self, callers: &Callers<'_>, rng: &mut StdRng, model: &mut Model, users: &[u64]) {
        if !self.0.is_empty() && rng.random_bool(0.6) {
            let known = &self.0[rng.random_range(0..self.0.len())];
            let again = known.send(callers).await;
            let what = || format!("{} of {} with {}: {:?}, and again {again:?}", known.path, known.user, known.body, known.first);
            return callers.check(again == known.first, what);
        }
        let [user, author] = [(); 2].map(|()| users[rng.random_range(0..users.len())]);
        let (path, body) = match rng.random_range(0..10) {
            0..6 => {
                // May be above the latest number.
                let seq = rng.random_range(1..=model.latest(author) + 2);
                ("/v1/reads", operations::marks(rng, model, user, (author, seq), users))
            }
            6..8 => ("/v1/posts", json!({ "title": TITLE })),
            _ => match model.list(user).map(|(list, _)| format!("/v1/lists/{list}")) {
                None => ("/v1/lists", json!({ "name": "friends" })),
                Some(list) => {
                    callers.user(user).delete(&list).await.ok();
                    return model.delete_list(user);
                }
            },
        };
        let mut new = Keyed { user, path, key: format!("{:x}", rng.random::<u64>()), body, first: Default::default() };
        new.first = new.send(callers).await;
        let (status, response) = &new.first;
        callers.check((200..300).contains(status), || format!("{path} of {user}: {:?}", new.first));
        match path {
            "/v1/posts" => operations::published(callers, model, user, 0, post_of(response).1, 0),
            "/v1/lists" => model.make_list(user, response["id"].as_str().unwrap()),
            _ => {}
        }
        self.0.push(new);
    }

    /// Forgets the requests of a user who left.
    pub(super) fn forget(&mut self, user: u64) {
        self.0.retain(|keyed| keyed.user != user);
    }
}
