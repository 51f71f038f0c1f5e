//! Random operations of a few users through the API, and a comparison of everything that the API shows a reader with
//! the model.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use futures::future::join_all;
use rand::{Rng, rngs::StdRng};
use reqwest::Method;
use serde_json::{Value, json};
use tidemark::domain::{Timestamp, feed::FeedCap, reader_state::RECENT_FIELDS};
use tidemark_tests::{ACCEPTED, FOLLOWS, Group, Kind, Model, Post, REQUESTS, Response, TITLE, User, World, has, ids};

/// Of 100 random numbers, those below this one are operations of [`operate`]. The highest of them are bursts.
pub(crate) const OPERATIONS: u32 = 88;

/// The callers, and the reaction to a response that differs from the model.
pub(crate) struct Callers<'a> {
    pub(crate) world: &'a World,
    /// In weather: callers repeat each request until it has a final response, and differences are recorded here.
    pub(crate) findings: Option<&'a RefCell<Vec<String>>>,
    /// In weather: counts the attempts without a final response.
    pub(crate) unanswered: Arc<AtomicUsize>,
}

impl Callers<'_> {
    pub(crate) fn user(&self, id: u64) -> User {
        self.as_in_weather(self.world.user(id))
    }

    pub(crate) fn as_in_weather(&self, user: User) -> User {
        if self.findings.is_none() {
            return user;
        }
        user.patiently(self.world.stack.open_requests(), Arc::clone(&self.unanswered))
    }

    pub(crate) fn check(&self, right: bool, what: impl FnOnce() -> String) {
        match self.findings {
            _ if right => {}
            Some(findings) => findings.borrow_mut().push(what()),
            None => panic!("{}", what()),
        }
    }

    fn check_response(&self, right: bool, path: &str, user: u64, response: &Response) {
        self.check(right, || format!("{path} of {user}: {} {}", response.status, response.body));
    }
}

/// The number of finished operations.
#[derive(Default)]
pub(crate) struct Done(pub(crate) Cell<usize>);

impl Done {
    pub(crate) fn add_one(&self) {
        self.0.set(self.0.get() + 1);
    }

    pub(crate) async fn reached(&self, operations: usize) {
        while self.0.get() < operations {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

pub(crate) async fn put_or_delete(caller: &User, path: &str, put: bool) -> Response {
    if put { caller.put(path).await } else { caller.delete(path).await }
}

/// One operation. `dice` is below [`OPERATIONS`].
pub(crate) async fn operate(callers: &Callers<'_>, rng: &mut StdRng, model: &mut Model, users: &[u64], dice: u32) {
    let [user, author] = [(); 2].map(|()| users[rng.random_range(0..users.len())]);
    let seq = rng.random_range(1..=model.latest(author).max(1));
    let caller = callers.user(user);
    match rng.random_range(0..40) {
        0..5 => return present(callers, rng, model, user, (author, seq), users).await,
        5..9 => return answer(callers, rng, model, (user, author)).await,
        _ => {}
    }
    match dice {
        0..16 if user != author => follow(callers, rng, model, user, author).await,
        16..18 => follow_many(callers, model, user, users).await,
        18..20 => {
            callers.user(author).delete(&format!("/v1/followers/{user}")).await.ok();
            model.remove_follower(author, user);
        }
        20..26 => {
            caller.delete(&format!("/v1/following/{author}")).await.ok();
            model.unfollow(user, author);
        }
        26..46 => publish(callers, rng, model, user).await,
        46..52 => {
            let (kind, name) = if rng.random() { (Kind::Like, "like") } else { (Kind::Favorite, "favorite") };
            let given = rng.random_bool(0.7);
            let path = format!("/v1/posts/{author}-{seq}/{name}");
            let response = put_or_delete(&caller, &path, given).await;
            let possible = model.may_react(user, (author, seq), given);
            callers.check_response((response.status == 200) == possible, &path, user, &response);
            model.react(user, (author, seq), kind, given);
        }
        52..57 if model.latest(user) > 0 => {
            let seq = rng.random_range(1..=model.latest(user));
            caller.delete(&format!("/v1/posts/{user}-{seq}")).await.ok();
            model.delete((user, seq));
        }
        57..66 => {
            let read = rng.random_bool(0.7);
            let path = format!("/v1/posts/{author}-{seq}/read");
            let response = put_or_delete(&caller, &path, read).await;
            let possible = model.may_see(user, (author, seq));
            callers.check_response((response.status == 200) == possible, &path, user, &response);
            if possible {
                model.mark(user, (author, seq), read);
            }
        }
        66..78 => {
            let body = marks(rng, model, user, (author, seq), users);
            caller.post("/v1/reads", &body).await.ok();
        }
        78..83 => {
            let paths = ["/v1/feed?limit=3", "/v1/feed?limit=100", "/v1/feed?order=ranked&limit=3", "/v1/feed?order=ranked"];
            drop(caller.get(paths[rng.random_range(0..paths.len())]).await.ok());
        }
        _ => burst(callers, rng, model, user, author).await,
    }
}

/// A body of `POST /v1/reads` in one of its three forms. The model has done it.
pub(crate) fn marks(rng: &mut StdRng, model: &mut Model, user: u64, (author, seq): Post, users: &[u64]) -> Value {
    match rng.random_range(0..12) {
        0..4 => {
            let posts: Vec<Post> = users.iter().map(|&author| (author, rng.random_range(1..8))).collect();
            posts.iter().for_each(|&post| model.mark(user, post, true));
            json!({ "posts": posts.iter().map(|(author, seq)| format!("{author}-{seq}")).collect::<Vec<_>>() })
        }
        4..9 => {
            model.through(user, author, seq);
            json!({ "author": author.to_string(), "through": seq })
        }
        _ => {
            model.all(user);
            json!({ "all": true })
        }
    }
}

async fn follow(callers: &Callers<'_>, rng: &mut StdRng, model: &mut Model, user: u64, author: u64) {
    let path = format!("/v1/following/{author}");
    let preference = rng.random_bool(0.4).then(|| rng.random_range(-10..=10));
    let body = preference.map(|preference| json!({ "preference": preference }).to_string());
    let response = callers.user(user).send(Method::PUT, &path, &[], body).await;
    let possible = !model.are_apart(user, author);
    callers.check_response((response.status == 200) == possible, &path, user, &response);
    model.follow(user, author);
    let states = [model.follows(user, author), model.requests(user, author)];
    let found = ["following", "requested"].map(|state| response.body[state] == true);
    callers.check_response(found == states, &path, user, &response);
    if let Some(preference) = preference.filter(|_| possible) {
        callers.check_response(response.body["preference"] == preference, &path, user, &response);
        model.prefer(user, author, preference);
    }
}

async fn follow_many(callers: &Callers<'_>, model: &mut Model, user: u64, users: &[u64]) {
    let authors: Vec<String> = users.iter().map(u64::to_string).collect();
    let response = callers.user(user).post("/v1/following", &json!({ "authors": authors })).await.ok();
    let results = response["results"].as_array().unwrap();
    users.iter().for_each(|&author| model.follow(user, author));
    let states = users.iter().map(|&author| [model.follows(user, author), model.requests(user, author)]);
    let found = results.iter().map(|result| ["following", "requested"].map(|state| result[state] == true));
    callers.check(found.eq(states), || format!("{user} follows many: {response}"));
}

/// A change of the privacy of `user`, or an answer of theirs to a request, of `other` if nobody asks.
async fn answer(callers: &Callers<'_>, rng: &mut StdRng, model: &mut Model, (user, other): (u64, u64)) {
    let caller = callers.user(user);
    if rng.random_ratio(1, 4) {
        let private = rng.random();
        let response = caller.put_body("/v1/me/privacy", &json!({ "private": private })).await.ok();
        callers.check(response == json!({ "private": private }), || format!("privacy of {user}: {response}"));
        return model.set_private(user, private);
    }
    let [received, _] = model.requests_of(user);
    let asking = received.into_iter().next().unwrap_or(other);
    let (path, accepts) = (format!("/v1/follow-requests/{asking}"), rng.random_bool(0.7));
    let response = put_or_delete(&caller, &path, accepts).await;
    if accepts {
        let follows = model.accept(user, asking);
        callers.check_response((response.status == 200) == follows, &path, user, &response);
    } else {
        callers.check_response(response.status == 200, &path, user, &response);
        model.end_request(asking, user);
    }
}

/// A change of a title, a profile, a mute, a block or a list, a repost, a quote or a comment, or a deletion by a
/// moderator.
async fn present(callers: &Callers<'_>, rng: &mut StdRng, model: &mut Model, user: u64, post: Post, users: &[u64]) {
    let caller = callers.user(user);
    match rng.random_range(0..38) {
        21..27 => refer(callers, rng, model, user, post).await,
        33..38 => read_inbox(callers, rng, model, user).await,
        0..5 => {
            let post = (user, rng.random_range(1..=model.latest(user).max(1)));
            let (path, title) = (format!("/v1/posts/{}-{}", post.0, post.1), format!("title {}", rng.random_range(0..3)));
            let response = caller.put_body(&path, &json!({ "title": title })).await;
            let possible = model.is_live(post) && !model.is_repost(post);
            callers.check_response((response.status == 200) == possible, &path, user, &response);
            model.edit(post, &title);
        }
        5..9 => {
            let name = format!("name {}", rng.random_range(0..3));
            let handle = rng.random::<bool>().then(|| format!("handle_{}_{}", users[0], rng.random_range(0..3)));
            let path = "/v1/me/profile";
            let response = caller.put_body(path, &json!({ "name": name, "handle": handle })).await;
            let free = model.set_profile(user, &name, handle.as_deref());
            callers.check_response((response.status == 200) == free, path, user, &response);
        }
        9..13 if user != post.0 => {
            let (path, muted) = (format!("/v1/mutes/{}", post.0), rng.random_bool(0.6));
            let response = put_or_delete(&caller, &path, muted).await;
            callers.check_response(response.body["muted"] == muted, &path, user, &response);
            model.mute(user, post.0, muted);
        }
        // A block ends follows, so most blocks end soon.
        13..17 if user != post.0 => {
            let (path, blocked) = (format!("/v1/blocks/{}", post.0), !model.blocks(user, post.0) && rng.random_bool(0.5));
            let response = put_or_delete(&caller, &path, blocked).await;
            callers.check_response(response.body["blocked"] == blocked, &path, user, &response);
            model.block(user, post.0, blocked);
        }
        17..21 => match model.list(user).map(|(id, _)| format!("/v1/lists/{id}")) {
            None => {
                let key = format!("{:x}", rng.random::<u64>());
                let made = caller.post_with_key("/v1/lists", &key, &json!({ "name": "friends" })).await.ok();
                model.make_list(user, made["id"].as_str().unwrap());
            }
            Some(list) => {
                let (path, member) = (format!("{list}/authors/{}", post.0), rng.random_bool(0.7));
                let response = put_or_delete(&caller, &path, member).await;
                let possible = model.set_member(user, post.0, member);
                callers.check_response((response.status == 200) == possible, &path, user, &response);
            }
        },
        27..33 => comment(callers, rng, model, user, post).await,
        _ => {
            let moderator = callers.as_in_weather(callers.world.stranger(Some("900 posts:moderate")));
            let path = format!("/v1/posts/{}-{}", post.0, post.1);
            let (response, known) = (moderator.delete(&path).await, post.1 <= model.latest(post.0));
            callers.check_response((response.status == 204) == known, &path, 900, &response);
            model.delete(post);
        }
    }
}

/// A repost of a post or its withdrawal, or a quote.
async fn refer(callers: &Callers<'_>, rng: &mut StdRng, model: &mut Model, user: u64, post: Post) {
    let (caller, target) = (callers.user(user), model.target(post));
    let path = format!("/v1/posts/{}-{}/repost", post.0, post.1);
    let possible = model.may_refer(user, post);
    match rng.random_range(0..3) {
        0 => {
            let (key, body) =
                (format!("{:x}", rng.random::<u64>()), json!({ "title": TITLE, "of": format!("{}-{}", post.0, post.1) }));
            let response = caller.post_with_key("/v1/posts", &key, &body).await;
            callers.check_response((response.status == 201) == possible, &format!("quote of {post:?}"), user, &response);
            if possible {
                let seq = model.quote(user, post);
                callers.check_response(response.body["seq"] == seq, &format!("quote of {post:?}"), user, &response);
            }
        }
        1 => {
            let response = caller.put(&path).await;
            callers.check_response((response.status == 200) == possible, &path, user, &response);
            if possible {
                let repost = model.repost_by(user, target).unwrap_or_else(|| (user, model.repost(user, target)));
                let expected = json!({
                    "reposted": true, "post": format!("{}-{}", repost.0, repost.1), "reposts": model.reposts_of(target),
                });
                callers.check_response(response.body == expected, &path, user, &response);
            }
        }
        _ => {
            let response = caller.delete(&path).await;
            // Of a repost that the user may not see, the user does not learn what it is of.
            let possible = !model.is_repost(post) || model.may_see_author(user, post.0);
            if possible && let Some(repost) = model.repost_by(user, target) {
                model.delete(repost);
            }
            // Of a private author, the user does not learn whether there is such a post.
            let known = target.1 <= model.latest(target.0) || model.is_kept_out(user, target.0);
            let status = if !possible {
                403
            } else if known {
                200
            } else {
                404
            };
            callers.check_response(response.status == status, &path, user, &response);
        }
    }
}

/// Comments on a post, or withdraws a comment. The key makes a repetition the same comment.
async fn comment(callers: &Callers<'_>, rng: &mut StdRng, model: &mut Model, user: u64, post: Post) {
    let (caller, path) = (callers.user(user), format!("/v1/posts/{}-{}/comments", post.0, post.1));
    let target = model.target(post);
    let numbers = model.comment_numbers(target);
    if !numbers.is_empty() && rng.random_bool(0.3) {
        let number = numbers[rng.random_range(0..numbers.len())];
        let response = caller.delete(&format!("{path}/{number}")).await;
        // Of a repost that the user may not see, the user does not learn what it is of.
        let is_found = !model.is_repost(post) || model.may_see_author(user, post.0);
        let possible = is_found && model.withdraw(user, target, number);
        return callers.check_response((response.status == 204) == possible, &path, user, &response);
    }
    let (key, text) = (format!("{:x}", rng.random::<u64>()), format!("comment {}", rng.random_range(0..9)));
    let response = caller.post_with_key(&path, &key, &json!({ "text": text })).await;
    let possible = model.may_react(user, post, true);
    callers.check_response((response.status == 201) == possible, &path, user, &response);
    if possible {
        let id = response.body["id"].as_str().and_then(|id| id.rsplit_once('-')).and_then(|(_, number)| number.parse().ok());
        let is_new = id.is_some_and(|number| model.comment(user, target, number, &text));
        callers.check_response(is_new, &path, user, &response);
    }
}

/// Reads a group that the inbox shows, or the whole inbox.
async fn read_inbox(callers: &Callers<'_>, rng: &mut StdRng, model: &mut Model, user: u64) {
    let caller = callers.user(user);
    if rng.random_ratio(1, 3) {
        caller.post("/v1/inbox/reads", &json!({ "before": "2099-01-01T00:00:00Z" })).await.ok();
        return model.read_inbox(user);
    }
    let groups = caller.get("/v1/inbox?limit=100").await.items();
    let Some(group) = groups.get(rng.random_range(0..groups.len().max(1))) else { return };
    let path = format!("/v1/inbox/{}/read", group["id"].as_str().unwrap());
    let response = caller.put(&path).await;
    // The acts may have been taken back since.
    callers.check_response(matches!(response.status, 200 | 404), &path, user, &response);
    if response.status == 200 {
        model.read_group(user, &group_name(group));
    }
}

/// The name that the model has for a group.
fn group_name(group: &Value) -> String {
    let id = group["id"].as_str().unwrap();
    let of_pairs = [FOLLOWS, REQUESTS, ACCEPTED].into_iter().find(|kind| group["kind"] == **kind);
    of_pairs.unwrap_or(id).to_owned()
}

/// Publishes a post, with or without an `Idempotency-Key`. A request without a key is not repeated if it has no
/// response. The number of the next post, which has a key, shows whether it was published.
async fn publish(callers: &Callers<'_>, rng: &mut StdRng, model: &mut Model, user: u64) {
    let (keyed, key) = (rng.random::<bool>(), format!("{:x}", rng.random::<u64>()));
    let weight = if rng.random_bool(0.3) { rng.random_range(-100..=100) } else { 0 };
    let (caller, body) = (callers.user(user), json!({ "title": TITLE, "weight": weight }).to_string());
    let seq = |response: Response| {
        let (author, seq) = post_of(&response.ok());
        assert_eq!(author, user);
        seq
    };
    let mut ghosts = 0;
    if !keyed {
        let response = caller.send_once(Method::POST, "/v1/posts", &[], Some(body.clone())).await;
        if response.is_final() || callers.findings.is_none() {
            return published(callers, model, user, weight, seq(response), 0);
        }
        callers.world.stack.open_requests().end().await;
        ghosts = 1;
    }
    let response = caller.send(Method::POST, "/v1/posts", &[("idempotency-key", &key)], Some(body)).await;
    published(callers, model, user, weight, seq(response), ghosts);
}

/// Checks the number of a post. Up to `ghosts` posts without a response may precede it.
pub(crate) fn published(callers: &Callers<'_>, model: &mut Model, user: u64, weight: i64, seq: u64, ghosts: u64) {
    let expected = model.latest(user) + 1;
    callers.check((expected..=expected + ghosts).contains(&seq), || format!("{user} published {expected}, and it is {seq}"));
    while model.latest(user) < seq {
        let seq = model.publish(user);
        model.weigh((user, seq), weight);
    }
}

/// Concurrent changes of several devices and the author. Marks and deletions have the same result in any order.
async fn burst(callers: &Callers<'_>, rng: &mut StdRng, model: &mut Model, user: u64, author: u64) {
    let (reader, writer, latest) = (callers.user(user), callers.user(author), model.latest(author));
    // A repeated like is refused after a deletion in between, although it was counted before. The expected result
    // would be unknown.
    let kinds = if callers.findings.is_some() || model.are_apart(user, author) { 8 } else { 10 };
    if latest == 0 || !model.may_see_author(user, author) {
        return;
    }
    let plan: Vec<(u8, u64)> =
        (0..rng.random_range(2..9)).map(|_| (rng.random_range(0..kinds), rng.random_range(1..=latest))).collect();
    for &(kind, seq) in &plan {
        match kind {
            0 => model.delete((author, seq)),
            1 => model.through(user, author, seq),
            8.. => {}
            _ => model.mark(user, (author, seq), true),
        }
    }
    let liked = join_all(plan.into_iter().map(async |(kind, seq)| {
        // A concurrent deletion may come first.
        let put = async |what: &str| {
            let status = reader.put(&format!("/v1/posts/{author}-{seq}/{what}")).await.status;
            // A repost stands for its original, whose author may be in a block with the user.
            assert!(matches!(status, 200 | 403 | 404), "{status}");
            status == 200
        };
        match kind {
            0 => drop(writer.delete(&format!("/v1/posts/{author}-{seq}")).await.ok()),
            1 => drop(reader.post("/v1/reads", &json!({ "author": author.to_string(), "through": seq })).await.ok()),
            8.. => return put("like").await.then_some(seq),
            _ => drop(put("read").await),
        }
        None
    }))
    .await;
    for seq in liked.into_iter().flatten() {
        model.react_before_deletion(user, model.target((author, seq)), Kind::Like, true);
    }
}

/// Many posts of one author, deletions of many, the end of a follow, a mute or its end, or a read of a feed.
pub(crate) async fn fill_or_empty(callers: &Callers<'_>, rng: &mut StdRng, model: &mut Model, users: &[u64]) {
    let [user, author] = [(); 2].map(|()| users[rng.random_range(0..users.len())]);
    let caller = callers.user(user);
    match rng.random_range(0..10) {
        0..4 => {
            for _ in 0..rng.random_range(3..15) {
                publish(callers, rng, model, user).await;
            }
        }
        4 => {
            let latest = model.latest(user);
            for seq in latest.saturating_sub(rng.random_range(3..15)) + 1..=latest {
                caller.delete(&format!("/v1/posts/{user}-{seq}")).await.ok();
                model.delete((user, seq));
            }
        }
        5 if user != author => {
            caller.delete(&format!("/v1/following/{author}")).await.ok();
            model.unfollow(user, author);
        }
        6 if user != author => {
            let muted = !model.mutes(user, author);
            put_or_delete(&caller, &format!("/v1/mutes/{author}"), muted).await.ok();
            model.mute(user, author, muted);
        }
        _ => {
            let list = model.list(user).map_or(String::new(), |(list, _)| format!("&list={list}"));
            let order = ["order=time", "order=ranked", "status=unread", "order=ranked&status=unread"][rng.random_range(0..4)];
            let list = if rng.random() { list } else { String::new() };
            drop(caller.get(&format!("/v1/feed?limit={}&{order}{list}", rng.random_range(1..30))).await.ok());
        }
    }
}

/// Compares everything that the API shows a reader with the model. `page` is the page size of feeds, and `cap` the size
/// of the views.
pub(crate) async fn compare(caller: &User, model: &Model, user: u64, seed: u64, (page, cap): (usize, FeedCap)) {
    // Counts come first, because a page that meets a deleted post corrects them.
    assert_eq!(caller.unread_total_once().await, model.unread_total(user), "seed {seed}, count of {user}");
    // A page by time may refill a view. So the ranked feed comes before it or after it.
    let early = if (seed ^ user).is_multiple_of(2) { Some(ranked_feeds(caller, model, user, page).await) } else { None };
    let (feed, unread) = (caller.walk("/v1/feed", page).await, caller.walk("/v1/feed?status=unread", page).await);
    let keys: Vec<(&str, Post)> = feed.iter().map(|item| (item["created_at"].as_str().unwrap(), post_of(item))).collect();
    assert!(keys.is_sorted_by(|newer, older| newer > older), "seed {seed}, order of the feed of {user}: {keys:?}");
    let (mut found, mut expected) = (posts_and_flags(&feed), model.feed(user));
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "seed {seed}, feed of {user}");
    assert_eq!(unread, with(&feed, |item| item["read"] == false), "seed {seed}, unread of {user}");
    assert_eq!(caller.unread_total().await, model.unread_total(user), "seed {seed}, total of {user}");
    assert_items(&feed, model, user, seed);
    compare_list(caller, model, user, seed, page, &feed).await;
    compare_own_and_oldest(caller, model, (user, seed), (page, cap), &feed).await;
    let ranked = match early {
        Some(early) => early,
        None => ranked_feeds(caller, model, user, page).await,
    };
    for (list, [all, unread]) in ranked {
        let of_list = with(&feed, |item| list.as_ref().is_none_or(|list| list.contains(&post_of(item).0)));
        let unread_of_list = with(&of_list, |item| item["read"] == false);
        assert_ranked(all, &of_list, model, (user, seed), cap);
        assert_ranked(unread, &unread_of_list, model, (user, seed), cap);
    }
    let page_of_feed = caller.get("/v1/feed?limit=100").await.ok();
    let named = |item: &Value| {
        let original = model.original(post_of(item)).filter(|original| model.is_available(user, *original));
        [Some(post_of(item).0), original.map(|original| original.0)]
    };
    let shown: BTreeSet<u64> = feed.iter().take(100).flat_map(named).flatten().collect();
    assert_profiles(&page_of_feed, model, shown, seed);
    for (kind, list) in [(Kind::Like, "likes"), (Kind::Favorite, "favorites")] {
        let items = caller.walk(&format!("/v1/me/{list}"), page).await;
        let posts: Vec<Post> = items.iter().map(post_of).collect();
        let expected = model.reacted(user, kind);
        assert_eq!(posts.len(), expected.len(), "seed {seed}, {list} of {user}: {posts:?}");
        assert_eq!(BTreeSet::from_iter(posts), expected, "seed {seed}, {list} of {user}");
        assert_items(&items, model, user, seed);
    }
    let counters = caller.get(&format!("/v1/users/{user}/counters")).await.ok();
    let expected = json!({
        "followings": model.following(user).len(),
        "followers": model.followers(user),
        "posts": model.posts(user),
        "likes_received": model.received(user, Kind::Like),
        "favorites_received": model.received(user, Kind::Favorite),
    });
    assert_eq!(counters, expected, "seed {seed}, counters of {user}");
    if let Some(item) = feed.first() {
        compare_post(caller, model, (user, seed), item, page).await;
    }
    compare_authors(caller, model, user, seed).await;
    compare_requests(caller, model, user, seed).await;
    compare_inbox(caller, model, (user, seed), page).await;
}

async fn compare_requests(caller: &User, model: &Model, user: u64, seed: u64) {
    for (direction, expected) in ["received", "sent"].into_iter().zip(model.requests_of(user)) {
        let pages = caller.pages(&format!("/v1/follow-requests?direction={direction}"), 2).await;
        let found: Vec<&Value> = pages.iter().flat_map(|page| page["items"].as_array().unwrap()).collect();
        let users: BTreeSet<u64> = found.iter().map(|entry| entry["user"].as_str().unwrap().parse().unwrap()).collect();
        assert_eq!((users, found.len()), (expected.clone(), expected.len()), "seed {seed}, {direction} requests of {user}");
        let is_total = |page: &Value| page["total"] == expected.len();
        assert!(pages.iter().all(is_total), "seed {seed}, {direction} requests of {user}: {pages:?}");
    }
}

/// Compares the groups of an inbox. Those of a kind are left out while there are two of them, for two days.
async fn compare_inbox(caller: &User, model: &Model, (user, seed): (u64, u64), page: usize) {
    let found = caller.walk("/v1/inbox", page).await;
    let unread = with(&found, |group| group["read"] == false);
    assert_eq!(caller.walk("/v1/inbox?status=unread", page).await, unread, "seed {seed}, unread inbox of {user}");
    assert_eq!(caller.get("/v1/inbox/unread").await.ok()["unread"], unread.len(), "seed {seed}, inbox of {user}");
    let of_two_days = [FOLLOWS, ACCEPTED].map(|kind| (kind, with(&found, |group| group["kind"] == kind).len() > 1));
    let is_compared = |name: &str| !of_two_days.contains(&(name, true));
    let shown = |group: &Value| {
        let users = group["users"].as_array().unwrap().iter().map(|user| user.as_str().unwrap().parse().unwrap()).collect();
        (Group { name: group_name(group), users, read: group["read"] == true }, group["count"].as_u64().unwrap())
    };
    let mut groups: Vec<(Group, u64)> = found.iter().map(shown).filter(|(group, _)| is_compared(&group.name)).collect();
    groups.sort();
    let mut expected = model.inbox(user);
    expected.retain(|group| is_compared(&group.name));
    let expected: Vec<(Group, u64)> = expected
        .into_iter()
        .map(|mut group| {
            let count = group.users.len() as u64;
            group.users.truncate(3);
            (group, count)
        })
        .collect();
    assert_eq!(groups, expected, "seed {seed}, inbox of {user}");
}

async fn compare_post(caller: &User, model: &Model, (user, seed): (u64, u64), item: &Value, page: usize) {
    let post = caller.get(&format!("/v1/posts/{}", item["id"].as_str().unwrap())).await.ok();
    let target = model.target(post_of(item));
    let is_shown = target == post_of(item) || model.is_available(user, target);
    let [likes, favorites] = [Kind::Like, Kind::Favorite].map(|kind| model.reactions_to(target, kind));
    let counts = if is_shown { [likes, favorites, model.reposts_of(target)] } else { [0; 3] };
    assert_eq!(json!([post["likes"], post["favorites"], post["reposts"]]), json!(counts), "seed {seed}, {}", item["id"]);
    assert_eq!(post["comments"], if is_shown { model.comments(target).len() } else { 0 }, "seed {seed}, {}", item["id"]);
    if model.may_see(user, target) {
        compare_likers(caller, model, (user, seed), item, page).await;
        compare_comments(caller, model, (user, seed), &post, page).await;
    }
    assert_eq!(post["revision"], model.title(post_of(item)).1, "seed {seed}, {}", item["id"]);
    assert_items(&[post], model, user, seed);
}

async fn compare_likers(caller: &User, model: &Model, (user, seed): (u64, u64), item: &Value, page: usize) {
    for (kind, list) in [(Kind::Like, "likes"), (Kind::Favorite, "favorites")] {
        let likers = caller.walk(&format!("/v1/posts/{}/{list}", item["id"].as_str().unwrap()), page).await;
        let likers: Vec<u64> = likers.iter().map(|liker| liker["user"].as_str().unwrap().parse().unwrap()).collect();
        let expected = model.likers(user, model.target(post_of(item)), kind);
        assert_eq!(likers.len(), expected.len(), "seed {seed}, {list} of {} for {user}: {likers:?}", item["id"]);
        assert_eq!(BTreeSet::from_iter(likers), expected, "seed {seed}, {list} of {} for {user}", item["id"]);
    }
    let reposters = caller.walk(&format!("/v1/posts/{}/reposts", item["id"].as_str().unwrap()), page).await;
    let users: Vec<u64> = reposters.iter().map(|entry| entry["user"].as_str().unwrap().parse().unwrap()).collect();
    let expected = model.reposters(user, model.target(post_of(item)));
    assert_eq!((users.len(), BTreeSet::from_iter(users)), (expected.len(), expected), "seed {seed}, reposts of {}", item["id"]);
}

async fn compare_comments(caller: &User, model: &Model, (user, seed): (u64, u64), post: &Value, page: usize) {
    let all = model.comments(model.target(post_of(post))).into_iter();
    let mut expected: Vec<(u64, u64, String)> = all.filter(|(_, by, _)| !model.are_apart(user, *by)).collect();
    for order in ["oldest", "newest"] {
        let path = format!("/v1/posts/{}/comments?order={order}", post["id"].as_str().unwrap());
        let pages = caller.pages(&path, page).await;
        let found = pages.iter().flat_map(|page| page["items"].as_array().unwrap()).map(|item| {
            let number = item["id"].as_str().unwrap().rsplit_once('-').unwrap().1.parse().unwrap();
            (number, item["author"].as_str().unwrap().parse().unwrap(), item["text"].as_str().unwrap().to_owned())
        });
        assert_eq!(found.collect::<Vec<_>>(), expected, "seed {seed}, {order} comments on {} for {user}", post["id"]);
        assert!(pages.iter().all(|page| page["total"] == expected.len()), "seed {seed}, {order} of {} for {user}", post["id"]);
        expected.reverse();
    }
}

async fn compare_authors(caller: &User, model: &Model, user: u64, seed: u64) {
    for author in model.authors() {
        let refused = caller.get(&format!("/v1/authors/{author}/posts")).await.status == 403;
        assert_eq!(refused, !model.may_see_author(user, author), "seed {seed}, timeline of {author} for {user}");
    }
    for author in model.following(user) {
        let count = caller.get(&format!("/v1/unread/{author}")).await.ok();
        assert_eq!(count["unread"], model.unread_of(user, author), "seed {seed}, {user} of {author}");
        for status in ["all", "unread"] {
            let page = caller.get(&format!("/v1/authors/{author}/posts?status={status}&limit=100")).await.ok();
            let items = page["items"].as_array().unwrap();
            assert_items(items, model, user, seed);
            let mut wanted = model.timeline(user, author);
            wanted.retain(|(_, read)| status == "all" || !read);
            assert_eq!(posts_and_flags(items), wanted, "seed {seed}, {status} of {author} for {user}");
            assert_eq!(page["total"], wanted.len(), "seed {seed}, {status} of {author} for {user}");
        }
    }
}

async fn compare_list(caller: &User, model: &Model, user: u64, seed: u64, page: usize, feed: &[Value]) {
    let lists: Vec<&str> = model.list(user).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids(&caller.walk("/v1/lists", page).await), lists, "seed {seed}, lists of {user}");
    let Some((list, authors)) = model.list(user) else { return };
    let of_list = caller.walk(&format!("/v1/feed?list={list}"), page).await;
    assert_eq!(of_list, with(feed, |item| authors.contains(&post_of(item).0)), "seed {seed}, list of {user}");
    let total: u64 = authors.iter().map(|&author| model.unread_of(user, author)).sum();
    assert_eq!(caller.get(&format!("/v1/unread?list={list}")).await.ok()["total"], total, "seed {seed}, list of {user}");
    let members = caller.walk(&format!("/v1/lists/{list}/authors"), page).await;
    let members: BTreeSet<u64> = members.iter().map(|member| member["user"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(members, *authors, "seed {seed}, authors on the list of {user}");
}

/// Compares the feed with own posts, and the feeds from the oldest post on, with the model and the feed by time.
async fn compare_own_and_oldest(
    caller: &User,
    model: &Model,
    (user, seed): (u64, u64),
    (page, cap): (usize, FeedCap),
    feed: &[Value],
) {
    let own = caller.walk("/v1/feed?own=true", page).await;
    let (mut found, mut expected) = (posts_and_flags(&own), model.feed_with_own(user));
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "seed {seed}, feed of {user} with own posts");
    assert_items(&own, model, user, seed);
    assert_eq!(with(&own, |item| post_of(item).0 != user), feed, "seed {seed}, feed of {user} with own posts");
    let (id, listed) = model.list(user).map_or(("", BTreeSet::new()), |(id, authors)| (id, authors.clone()));
    let mut walks = vec![
        (String::new(), feed.to_vec()),
        ("&status=unread&own=true".to_owned(), with(feed, |item| item["read"] == false)),
        ("&own=true".to_owned(), own.clone()),
    ];
    if !id.is_empty() {
        let of_list = with(&own, |item| listed.contains(&post_of(item).0) || post_of(item).0 == user);
        assert_eq!(caller.walk(&format!("/v1/feed?list={id}&own=true"), page).await, of_list, "seed {seed}, own list of {user}");
        walks.push((format!("&list={id}&own=true"), of_list));
    }
    for (selection, mut by_time) in walks {
        by_time.reverse();
        let oldest = caller.walk(&format!("/v1/feed?order=oldest{selection}"), page).await;
        assert_eq!(oldest, by_time, "seed {seed}, oldest{selection} of {user}");
    }
    let ranked = caller.walk("/v1/feed?order=ranked&own=true", page).await;
    assert_ranked(ranked, &own, model, (user, seed), cap);
}

/// The ranked feed and its unread posts, of all followed authors and of the user's list.
async fn ranked_feeds(caller: &User, model: &Model, user: u64, page: usize) -> Vec<(Option<BTreeSet<u64>>, [Vec<Value>; 2])> {
    let mut feeds = vec![(None, String::new())];
    feeds.extend(model.list(user).map(|(list, authors)| (Some(authors.clone()), format!("&list={list}"))));
    let walk = async |query: String| caller.walk(&format!("/v1/feed?order=ranked{query}"), page).await;
    let mut ranked = Vec::new();
    for (authors, list) in feeds {
        ranked.push((authors, [walk(list.clone()).await, walk(format!("&status=unread{list}")).await]));
    }
    ranked
}

/// Compares a ranked feed with the model, and with the same feed by time. It has the newest posts of that: all of them,
/// or at least the cap, and at most as many as a view stores.
fn assert_ranked(mut ranked: Vec<Value>, by_time: &[Value], model: &Model, (user, seed): (u64, u64), cap: FeedCap) {
    assert!(ranked.is_sorted_by(|a, b| a["score"].as_f64() >= b["score"].as_f64()), "seed {seed}, ranks of {user}: {ranked:?}");
    for item in &mut ranked {
        let at = Timestamp::parse(item["created_at"].as_str().unwrap()).unwrap().ms() as f64;
        let score = item.as_object_mut().unwrap().remove("score").unwrap().as_f64().unwrap();
        let points = score - at / (12.0 * 3_600_000.0);
        let expected = model.points(user, post_of(item));
        let right = expected.iter().any(|expected| (points - *expected as f64).abs() < 1e-9);
        assert!(right, "seed {seed}, score of {} for {user}: {points}, not {expected:?}", item["id"]);
    }
    let (least, most) = (by_time.len().min(cap.least()), by_time.len().min(cap.most() + RECENT_FIELDS.len()));
    let size = ranked.len();
    assert!((least..=most).contains(&size), "seed {seed}, ranked feed of {user}: {size} posts of {}", by_time.len());
    let sorted = |items: &[Value]| items.iter().map(|item| (post_of(item), item.to_string())).collect::<BTreeSet<_>>();
    assert_eq!((sorted(&ranked), size), (sorted(&by_time[..size]), size), "seed {seed}, ranked feed of {user}");
}

/// Compares the profiles on a page that names these users.
fn assert_profiles(page: &Value, model: &Model, users: BTreeSet<u64>, seed: u64) {
    let profile = |user: u64| {
        let (name, handle) = model.profile(user)?;
        Some((user.to_string(), json!({ "name": name, "handle": handle, "picture": null })))
    };
    let expected: Value = users.into_iter().filter_map(profile).collect();
    assert_eq!(page["profiles"], expected, "seed {seed}");
}

fn assert_items(items: &[Value], model: &Model, user: u64, seed: u64) {
    for item in items {
        let (post, target) = (post_of(item), model.target(post_of(item)));
        let is_shown = target == post || model.is_available(user, target);
        let expected = [Kind::Like, Kind::Favorite].map(|kind| is_shown && model.has_reacted(user, target, kind));
        assert_eq!(json!([item["liked"], item["favorited"]]), json!(expected), "seed {seed}, {} for {user}", item["id"]);
        let title = if target == post { json!(model.title(post).0) } else { Value::Null };
        assert_eq!(item["title"], title, "seed {seed}, {} for {user}", item["id"]);
        let of = model.original(post).map_or(Value::Null, |original| {
            let (id, (title, revision)) = (format!("{}-{}", original.0, original.1), model.title(original));
            match model.is_available(user, original) {
                true => json!({ "id": id, "title": title, "revision": revision, "author": original.0.to_string() }),
                false => json!({ "id": id, "unavailable": true }),
            }
        });
        let found = &item["of"];
        let is_right = if found.is_null() || of.is_null() { *found == of } else { has(found, &of) };
        let has_no_more = found["unavailable"] != true || found.get("title").is_none();
        assert!(is_right && has_no_more, "seed {seed}, original of {} for {user}: {found}, not {of}", item["id"]);
    }
}

fn with(items: &[Value], condition: impl Fn(&Value) -> bool) -> Vec<Value> {
    items.iter().filter(|item| condition(item)).cloned().collect()
}

/// The post in each item, and true if it is read.
pub(crate) fn posts_and_flags(items: &[Value]) -> Vec<(Post, bool)> {
    items.iter().map(|item| (post_of(item), item["read"] == true)).collect()
}

pub(crate) fn post_of(item: &Value) -> Post {
    let (author, seq) = item["id"].as_str().unwrap().split_once('-').unwrap();
    (author.parse().unwrap(), seq.parse().unwrap())
}
