//! Keys that belong together, of which one is lost alone: deleted, expired, or replaced by another type. Each key of
//! every view is lost between two changes. Some pairs are lost at their worst moment.

mod moved;

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{
    domain::{Edge, FanOutKind, PostId, PostSummary, PostText, Timestamp, UserId},
    views::{List, Start, Views, keys},
};
use tidemark_tests::{Connection, World, until, user_id, world};

/// The users of one loss: a reader, an author and a follower of the author, and a stranger whom nobody follows.
const READER: u64 = 1;
const AUTHOR: u64 = 2;
const FOLLOWER: u64 = 3;
const STRANGER: u64 = 4;

/// Every kind of key that the scene has, with the user or post in whose name it is. Leases live for moments.
const KINDS: [&str; 28] = [
    "r:1",
    "f:1",
    "k:1",
    "k:1:moves",
    "following:1",
    "following:1:gone",
    "followers:2",
    "followers:2:gone",
    "counters:2",
    "changed:1",
    "a:1",
    "p:2-2",
    "b:2-2",
    "q:2-2",
    "q:2-2:recent",
    "q:2-2:rank",
    "s:2",
    "x:1",
    "h:2",
    "h:4",
    "n:1:P",
    "nP:h",
    "nP:t:1:1",
    "m:1:4",
    "u:2",
    "p:4-1",
    "b:4-1",
    "pages:2-2",
];

/// Kinds that live for seconds.
const MOMENTARY: [&str; 3] = ["changed:1", "q:2-2:recent", "q:2-2:rank"];

/// A scene of its own users, with the kind of key that it loses.
struct Scene<'w> {
    world: &'w World,
    number: u64,
}

impl Scene<'_> {
    fn id(&self, user: u64) -> u64 {
        self.number * 1_000 + user
    }

    fn user(&self, user: u64) -> tidemark_tests::User {
        self.world.user(self.id(user))
    }

    /// The key of a kind, with the numbers of this scene.
    fn key(&self, kind: &str) -> String {
        let (platform, of) = (self.number, |user: u64| user_id(self.id(user)));
        let post = |author: u64, seq: u64| PostId::new(of(author), seq);
        let list = |list| keys::list(list);
        match kind {
            "r:1" => keys::reader_state(of(READER)),
            "f:1" => keys::feed(of(READER)),
            "k:1" => keys::ranked(of(READER))[0].clone(),
            "k:1:moves" => keys::ranked(of(READER))[1].clone(),
            "following:1" => list(List::Following(of(READER)))[0].clone(),
            "following:1:gone" => list(List::Following(of(READER)))[1].clone(),
            "followers:2" => list(List::Followers(of(AUTHOR)))[0].clone(),
            "followers:2:gone" => list(List::Followers(of(AUTHOR)))[1].clone(),
            "counters:2" => keys::counters(of(AUTHOR))[0].clone(),
            "changed:1" => keys::changed(of(READER)),
            "a:1" => keys::access(of(READER)),
            "p:2-2" => keys::post(post(AUTHOR, 2))[0].clone(),
            "b:2-2" => keys::text(post(AUTHOR, 2)),
            "p:4-1" => keys::post(post(STRANGER, 1))[0].clone(),
            "b:4-1" => keys::text(post(STRANGER, 1)),
            "q:2-2" => keys::counts(post(AUTHOR, 2))[0].clone(),
            "q:2-2:recent" => keys::counts(post(AUTHOR, 2))[2].clone(),
            "q:2-2:rank" => keys::counts(post(AUTHOR, 2))[3].clone(),
            "s:2" => keys::moved(of(AUTHOR)),
            "x:1" => keys::reactions(of(READER)),
            "h:2" => keys::head(of(AUTHOR))[0].clone(),
            "h:4" => keys::head(of(STRANGER))[0].clone(),
            "m:1:4" => keys::marks(of(READER), of(STRANGER))[0].clone(),
            "u:2" => keys::card(of(AUTHOR))[0].clone(),
            "n:1:P" => format!("{{{}}}:n:{}:{platform}", of(READER).bucket(), of(READER)),
            "nP:h" => format!("{{n{platform}}}:h"),
            "nP:t:1:1" => keys::notice_title(format!("{platform}-1").parse().unwrap(), 1),
            "pages:2-2" => keys::pages_done(FanOutKind::Deliver, post(AUTHOR, 2)),
            other => panic!("{other}"),
        }
    }

    /// One change of everything that these keys show. `round` is 1 or 2.
    async fn change(&self, round: u64) {
        let [reader, author, follower, stranger] = [READER, AUTHOR, FOLLOWER, STRANGER].map(|user| self.user(user));
        if round == 1 {
            reader.follow([self.id(AUTHOR)]).await;
            follower.follow([self.id(AUTHOR)]).await;
            stranger.publish("not followed").await;
            author.put_body("/v1/me/profile", &json!({ "name": "first" })).await.ok();
            author.publish_all(["one", "two"]).await;
        } else {
            author.publish("three").await;
            author.put_body("/v1/me/profile", &json!({ "name": "second" })).await.ok();
            author.put_body(&format!("/v1/posts/{}-2", self.id(AUTHOR)), &json!({ "title": "edited" })).await.ok();
            author.delete(&format!("/v1/posts/{}-1", self.id(AUTHOR))).await.ok();
        }
        for (user, post) in [(&reader, (AUTHOR, 1 + round)), (&follower, (AUTHOR, 2)), (&reader, (STRANGER, 1))] {
            let path = format!("/v1/posts/{}-{}", self.id(post.0), post.1);
            user.put(&format!("{path}/{}", if round == 1 { "like" } else { "favorite" })).await.ok();
            user.put(&format!("{path}/read")).await.ok();
        }
        // A follow that begins and ends leaves a departure.
        for method in ["PUT", "DELETE"] {
            let path = |followed| format!("{method} /v1/following/{}", self.id(followed));
            reader.request(&path(STRANGER)).await.ok();
            stranger.request(&path(AUTHOR)).await.ok();
        }
        let notice = json!({ "platforms": [self.number], "title": format!("notice {round}") });
        self.world.administrator().post("/v1/notices", &notice).await.ok();
        reader.put(&format!("/v1/notices/{}-{round}/read", self.number)).await.ok();
    }

    /// Everything that these keys show.
    async fn seen(&self) -> BTreeMap<String, Value> {
        let [author, stranger, platform] = [self.id(AUTHOR), self.id(STRANGER), self.number];
        let reader = self.user(READER);
        let mut seen = BTreeMap::new();
        for path in [
            "/v1/feed?order=ranked".to_owned(),
            "/v1/feed".to_owned(),
            "/v1/unread".to_owned(),
            format!("/v1/authors/{author}/posts?include=body"),
            format!("/v1/authors/{stranger}/posts?include=body"),
            format!("/v1/posts/{author}-2"),
            format!("/v1/users/{author}/followers"),
            format!("/v1/users/{author}/counters"),
            format!("/v1/users/{}/following", self.id(READER)),
            "/v1/me/likes".to_owned(),
            format!("/v1/notices?platform={platform}"),
            format!("/v1/notices/unread?platform={platform}"),
            format!("/v1/posts/{author}-2/delivery"),
        ] {
            let response = reader.get(&path).await;
            let status = response.status;
            seen.insert(path, json!([status, response.body]));
        }
        seen
    }

    async fn lose(&self, redis: &mut Connection, kind: &str, loss: Loss) {
        let key = self.key(kind);
        // A busy machine may lose a lease, or take longer than a head lives.
        until(kind, async || {
            let is_there = MOMENTARY.contains(&kind) || redis.exists(&key).await.unwrap();
            if !is_there {
                self.seen().await;
            }
            is_there
        })
        .await;
        let existed: bool = redis.exists(&key).await.unwrap();
        redis.del::<_, ()>(&key).await.unwrap();
        if loss == Loss::OtherType && existed {
            // No key is a stream.
            redis::cmd("XADD").arg(&key).arg("*").arg("x").arg("x").exec_async(redis).await.unwrap();
            redis.expire::<_, ()>(&key, 3_600).await.unwrap();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Deleted,
    OtherType,
}

async fn for_all(scenes: &[(Scene<'_>, &str, Loss)], act: impl AsyncFn(&Scene<'_>)) {
    stream::iter(scenes).for_each_concurrent(8, async |(scene, ..)| act(scene).await).await;
}

/// Each key of every view is lost alone, between two changes of all that it shows. After the changes and a minute of
/// reconcile, every page is as the facts say.
#[test]
fn each_key_that_is_lost_alone_leaves_every_page_as_the_facts_say() {
    world(async |world| {
        let losses = [Loss::Deleted, Loss::OtherType];
        let cases = KINDS.iter().flat_map(|kind| losses.map(|loss| (*kind, loss)));
        let scenes: Vec<(Scene<'_>, &str, Loss)> =
            (1..).zip(cases).map(|(number, (kind, loss))| (Scene { world, number }, kind, loss)).collect();
        for_all(&scenes, async |scene| scene.change(1).await).await;
        world.idle().await;
        for_all(&scenes, async |scene| drop(scene.seen().await)).await;
        let mut redis = world.redis().await;
        for (scene, kind, loss) in &scenes {
            scene.lose(&mut redis, kind, *loss).await;
        }
        for_all(&scenes, async |scene| scene.change(2).await).await;
        world.idle().await;
        let report = world.reconcile(json!({ "job": "minute", "overdue_ms": 0, "settle_ms": 0 })).await;
        assert_eq!(report["failed"], 0, "{report}");
        world.idle().await;
        // The first read may heal a view. The second one shows it.
        let mut before = Vec::new();
        for (scene, ..) in &scenes {
            scene.seen().await;
            before.push(scene.seen().await);
        }
        world.flush_redis().await;
        let mut wrong = Vec::new();
        for ((scene, kind, loss), before) in scenes.iter().zip(before) {
            for (path, right) in scene.seen().await {
                if before[&path] != right {
                    wrong.push(format!("{kind} {loss:?}: {path}\n  {}\n  {right}", before[&path]));
                }
            }
        }
        println!("{} losses", scenes.len());
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    });
}

/// The members of a cached list; `None` if it is not cached.
async fn cached(views: &Views, list: List) -> Option<Vec<UserId>> {
    let slice = views.list_slice(user_id(1), list, Start::Below(None), 10).await.unwrap()?;
    Some(slice.items.into_iter().map(|relation| relation.user).collect())
}

#[test]
fn a_late_follow_does_not_come_back_in_a_list_whose_departures_were_lost() {
    world(async |world| {
        let (views, mut redis) = (world.patient_redis(), world.redis().await);
        let (user, author) = (user_id(1), user_id(2));
        let follow = Edge { following: true, since: Timestamp::from_ms(5), rev: 1, ..Edge::never(user, author) };
        let unfollow = follow.ended(Timestamp::from_ms(9));
        for lost in ["", ":gone"] {
            for list in [List::Following(user), List::Followers(author)] {
                views.lease_list(list, 7).await.unwrap();
                views.fill_list(list, 7, &[], Timestamp::default()).await.unwrap();
            }
            for edge in [&follow, &unfollow] {
                views.apply_edges(std::slice::from_ref(edge)).await.unwrap();
            }
            for list in [List::Following(user), List::Followers(author)] {
                redis.del::<_, ()>(format!("{}{lost}", keys::list(list)[0])).await.unwrap();
            }
            views.apply_edges(std::slice::from_ref(&follow)).await.unwrap();
            for list in [List::Following(user), List::Followers(author)] {
                let members = cached(&views, list).await;
                assert!(members.as_ref().is_none_or(Vec::is_empty), "{list:?} without {lost:?}: {members:?}");
            }
        }
    });
}

#[test]
fn the_followers_of_pages_that_are_done_again_count_once_whatever_redis_has_lost() {
    world(async |world| {
        let (views, mut redis) = (world.patient_redis(), world.redis().await);
        let post: PostId = "7-1".parse().unwrap();
        let kind = FanOutKind::Deliver;
        views.page_done(kind, post, 0, 10).await.unwrap();
        let all: Vec<String> = redis::cmd("KEYS").arg("{7-1}:*").query_async(&mut redis).await.unwrap();
        assert!(!all.is_empty());
        for lost in all {
            redis.del::<_, ()>(&lost).await.unwrap();
            for (page, followers) in [(0, 10), (9, 5), (0, 10)] {
                views.page_done(kind, post, page, followers).await.unwrap();
            }
            let (progress, missing) = views.progress(kind, post, 10).await.unwrap();
            assert_eq!((progress.pages_done, progress.handled), (2, 15), "without {lost}");
            assert_eq!(missing, (1..9).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_summary_from_before_an_edit_is_not_stored_if_the_edited_one_was_lost() {
    world(async |world| {
        let (views, mut redis) = (world.patient_redis(), world.redis().await);
        let id: PostId = "7-1".parse().unwrap();
        let summary = |title: &str, revision: u32| PostSummary {
            title: title.to_owned(),
            revision,
            deleted: false,
            ..PostSummary::tombstone(tidemark::domain::FeedKey { at: Timestamp::from_ms(5), post: id })
        };
        let text = Some(PostText::default());
        for lost in [keys::post(id)[0].clone(), keys::text(id)] {
            world.flush_redis().await;
            views.lease_posts(&[id], 7).await.unwrap();
            views.remember_posts(&[(summary("edited", 2), text.clone())], None).await.unwrap();
            redis.del::<_, ()>(&lost).await.unwrap();
            views.remember_posts(&[(summary("from before", 1), text.clone())], Some(7)).await.unwrap();
            let known = views.summaries(&[id]).await.unwrap().remove(&id);
            assert!(known.as_ref().is_none_or(|known| known.revision == 2), "without {lost}: {known:?}");
        }
    });
}
