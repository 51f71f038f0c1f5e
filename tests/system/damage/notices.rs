//! Damage of notices: heads, read states, and the views of both.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{
    domain::{IdempotencyKey, NoticeReads, PlatformHead, Slot},
    facts::{NoticesPublished, schema},
    notices::NoticesEdited,
    views::{
        NoticeRecord, NoticeView,
        keys::{self, View},
    },
};
use tidemark_tests::{
    items::{n, s, with_attributes},
    while_leased,
};

use super::{Damage, Scene, scene::seqs, views::whole};
use crate::notices::content;

/// Publishes four notices on the scene's platform and deletes the second. The reader reads the third and has a view.
pub(super) async fn board(scene: &Scene<'_>) {
    let notices = &scene.app.notices;
    for title in ["one", "two", "three", "four"] {
        notices.publish(scene.author, &[scene.platform], &content(title, None), None).await.unwrap();
    }
    notices.remove(&[scene.notice(2)]).await.unwrap();
    notices.mark(scene.reader, scene.notice(3), true).await.unwrap().unwrap();
    scene.until_cached(&format!("/v1/notices?platform={}", scene.platform), &reads_key(scene)).await;
}

/// A difference in type or lifetime of a key.
fn of_key(view: View, field: &str, key: &str) -> Value {
    json!({ "kind": "view-damaged", "view": view, "field": field, "key": key })
}

fn reads_key(scene: &Scene<'_>) -> String {
    let [key, _] = keys::notice_record(NoticeRecord::Reads(scene.reader, scene.platform));
    key
}

fn head_key(scene: &Scene<'_>) -> String {
    let [key, _] = keys::notice_record(NoticeRecord::Head(scene.platform));
    key
}

async fn fact(scene: &Scene<'_>) -> (PlatformHead, NoticeReads) {
    scene.app.stores.facts.notice_state(scene.platform, scene.reader).await.unwrap()
}

async fn replace(scene: &Scene<'_>, view: NoticeView) {
    let ([key, lease], view) = (keys::notice_record(view.record()), [view]);
    while_leased(async || {
        scene.redis().del::<_, ()>(&[&key, &lease]).await.unwrap();
        assert_eq!(scene.app.stores.views.lease_notices(&[view[0].record()], 7).await.unwrap().len(), 1);
        scene.app.stores.views.fill_notices(&view, 7).await.unwrap();
    })
    .await;
    // A cached head lives for a minute, which is long enough for this test.
    scene.redis().expire::<_, ()>(key, 3_600).await.unwrap();
}

/// Changes the cached read state. Returns the difference.
async fn reads(scene: &Scene<'_>, change: impl FnOnce(&mut NoticeReads)) -> Value {
    let (_, mut reads) = fact(scene).await;
    change(&mut reads);
    replace(scene, NoticeView::Reads(scene.reader, scene.platform, reads)).await;
    whole("view-differs", View::NoticeReads(scene.reader, scene.platform))
}

/// Caches a title. Returns the difference.
async fn title(scene: &Scene<'_>, kind: &str, seq: u64, revision: u64, title: &str) -> Value {
    let mut stored = scene.app.stores.facts.notices(&[scene.notice(1)]).await.unwrap()[&scene.notice(1)].clone();
    (stored.id, stored.revision) = (scene.notice(seq), revision);
    title.clone_into(&mut stored.content.title);
    scene.app.stores.views.remember_titles(&[stored]).await.unwrap();
    whole(kind, View::Title(scene.notice(seq), revision))
}

/// Writes the item of a notice that the head does not have. Returns the difference.
async fn put(scene: &Scene<'_>, seq: u64, revision: u64, more: &[(&str, AttributeValue)]) -> Value {
    let item = [("title", s("put")), ("at", n(1_700_000_000_000_u64)), ("revision", n(revision))];
    scene.put("NoticesTable", with_attributes(schema::notice(scene.notice(seq)), &item), more).await;
    json!({ "kind": "notice-left", "notice": scene.notice(seq) })
}

/// Writes the attributes of a head as a restored backup would have them.
async fn put_back(scene: &Scene<'_>, head: &PlatformHead) {
    let live = AttributeValue::B(Blob::new(head.encode_live()));
    let set =
        [("version", n(head.version)), ("latest_seq", n(head.latest_seq)), ("latest_slot", n(head.latest_slot)), ("live", live)];
    scene.set("NoticesTable", schema::platform_head(scene.platform), &set).await;
    scene.redis().del::<_, ()>(head_key(scene)).await.unwrap();
}

/// Damage of a board.
pub(super) const OF_A_BOARD: &[Damage] = &[
    ("a notice in the head without an item", &async |scene: &Scene| {
        scene.world.delete_item("NoticesTable", schema::notice(scene.notice(4))).await;
        json!({ "kind": "notice-missing", "notice": scene.notice(4) })
    }),
    ("a notice that is not in the head", &async |scene: &Scene| put(scene, 2, 2, &[]).await),
    ("a notice beyond the head's last, where the next one would go", &async |scene: &Scene| put(scene, 5, 9, &[]).await),
    ("an edit of many notices that nobody has written to them", &async |scene: &Scene| {
        let edited = scene.app.notices.edit(&[scene.notice(1)], &content("new", None), false, None).await.unwrap();
        assert!(matches!(edited, NoticesEdited::Stand(_)));
        // The notice as it was before the edit.
        scene.set("NoticesTable", schema::notice(scene.notice(1)), &[("title", s("one")), ("revision", n(1))]).await;
        let (head, _) = fact(scene).await;
        let pending = [("title", s("new"))];
        scene.put("NoticesTable", with_attributes(schema::pending_edit(scene.platform, head.version), &pending), &[]).await;
        json!({ "kind": "edit-pending", "platform": scene.platform, "revision": head.version })
    }),
    ("an expired notice that is not removed", &async |scene: &Scene| {
        put(scene, 2, 2, &[("until", n(scene.now().ms() - 20 * 24 * 3_600_000))]).await
    }),
    ("an old head, below a slot that was given and read", &async |scene: &Scene| {
        let (head, _) = fact(scene).await;
        let edited = scene.app.notices.edit(&[scene.notice(1)], &content("one", None), true, None).await.unwrap();
        assert!(matches!(edited, NoticesEdited::Stand(_)));
        scene.app.notices.mark(scene.reader, scene.notice(1), true).await.unwrap().unwrap();
        put_back(scene, &head).await;
        // The cached head expires after a minute. A later head would show the title of its revision.
        scene.redis().del::<_, ()>(keys::notice_title(scene.notice(1), head.version + 1)).await.unwrap();
        json!({ "kind": "slots-behind", "platform": scene.platform, "seen": 4, "right": 5 })
    }),
    ("slots read that were never given", &async |scene: &Scene| {
        let set = [("read", seqs([3, 9, 70_000])), ("version", n(2))];
        scene.set("NoticeReadsTable", schema::notice_reads(scene.reader, scene.platform), &set).await;
        replace(scene, NoticeView::Reads(scene.reader, scene.platform, fact(scene).await.1)).await;
        json!({ "kind": "notice-reads-beyond", "user": scene.reader, "platform": scene.platform, "latest": 4 as Slot })
    }),
    ("a platform marked through a notice above its last", &async |scene: &Scene| {
        let set = [("through", n(8)), ("through_slot", n(9))];
        scene.set("NoticeReadsTable", schema::notice_reads(scene.reader, scene.platform), &set).await;
        json!({ "kind": "notice-reads-beyond", "user": scene.reader, "platform": scene.platform, "latest": 4 as Slot })
    }),
    ("an idempotency record of notices that do not exist", &async |scene: &Scene| {
        // A record whose notices exist, one of them deleted since, is not damage.
        let record = IdempotencyKey { key: "k".to_owned(), fingerprint: "f".to_owned() };
        let published = scene.app.notices.publish(scene.author, &[scene.platform], &content("five", None), Some(&record)).await;
        let Ok(NoticesPublished::Created(_)) = published else { panic!("{published:?}") };
        scene.app.notices.remove(&[scene.notice(5)]).await.unwrap();
        let key = format!("{}#notices#ghost", scene.author);
        let expires_at = n(scene.now().seconds() + 3_600);
        let ids = s(format!("{} {}", scene.notice(1), scene.notice(6)));
        let says = [("fingerprint", s("f")), ("notices", ids), ("at", n(1_700_000_000_000_u64)), ("expires_at", expires_at)];
        scene.put("IdempotencyTable", schema::record(&key), &says).await;
        json!({ "kind": "record-of-nothing", "record": key })
    }),
    ("a notice read view older than the fact", &async |scene: &Scene| {
        reads(scene, |reads| *reads = NoticeReads::default()).await
    }),
    ("notices read in the view and not in the fact", &async |scene: &Scene| {
        reads(scene, |reads| reads.read = [1, 3].into_iter().collect()).await
    }),
    ("a notice read view with a version above the fact", &async |scene: &Scene| reads(scene, |reads| reads.version = 70).await),
    ("an unreadable notice read view", &async |scene: &Scene| {
        scene.redis().set_ex::<_, _, ()>(reads_key(scene), "bad", 3_600).await.unwrap();
        whole("view-damaged", View::NoticeReads(scene.reader, scene.platform))
    }),
    ("a notice read view of the wrong type", &async |scene: &Scene| {
        let key = reads_key(scene);
        scene.redis().del::<_, ()>(&key).await.unwrap();
        scene.redis().sadd::<_, _, ()>(&key, 3).await.unwrap();
        scene.redis().expire::<_, ()>(&key, 3_600).await.unwrap();
        of_key(View::NoticeReads(scene.reader, scene.platform), "type", &key)
    }),
    ("a notice read view without expiry", &async |scene: &Scene| {
        scene.persist(View::NoticeReads(scene.reader, scene.platform), &reads_key(scene)).await
    }),
    ("a notice read view in another bucket than its user's", &async |scene: &Scene| {
        let (user, platform) = (scene.reader, scene.platform);
        let key = format!("{{{}}}:n:{user}:{platform}", (user.bucket() + 1) % 4096);
        scene.redis().set_ex::<_, _, ()>(&key, "x", 3_600).await.unwrap();
        json!({ "kind": "view-orphan", "view": { "key": key }, "field": "bucket" })
    }),
    ("a head view newer than its platform", &async |scene: &Scene| {
        let (mut head, _) = fact(scene).await;
        head.publish(scene.now(), None).unwrap();
        replace(scene, NoticeView::Head(scene.platform, head)).await;
        whole("view-differs", View::Platform(scene.platform))
    }),
    ("a head view older than its platform, without expiry", &async |scene: &Scene| {
        replace(scene, NoticeView::Head(scene.platform, PlatformHead::default())).await;
        let view = View::Platform(scene.platform);
        json!([whole("view-differs", view.clone()), scene.persist(view, &head_key(scene)).await])
    }),
    ("an unreadable head view", &async |scene: &Scene| {
        scene.redis().set_ex::<_, _, ()>(head_key(scene), "bad", 3_600).await.unwrap();
        whole("view-damaged", View::Platform(scene.platform))
    }),
    ("another title than the notice's", &async |scene: &Scene| title(scene, "view-differs", 1, 1, "not what it was").await),
    ("an unreadable title", &async |scene: &Scene| {
        scene.redis().set_ex::<_, _, ()>(keys::notice_title(scene.notice(3), 3), "x", 3_600).await.unwrap();
        whole("view-damaged", View::Title(scene.notice(3), 3))
    }),
    ("another text than the notice's", &async |scene: &Scene| {
        let mut stored = scene.app.stores.facts.notices(&[scene.notice(1)]).await.unwrap()[&scene.notice(1)].clone();
        stored.content.body = Some("not what it was".to_owned());
        scene.app.stores.views.remember_notice_bodies(&[stored]).await.unwrap();
        whole("view-differs", View::NoticeBody(scene.notice(1), 1))
    }),
    ("an unreadable text", &async |scene: &Scene| {
        scene.redis().set_ex::<_, _, ()>(keys::notice_body(scene.notice(3), 3), "x", 3_600).await.unwrap();
        whole("view-damaged", View::NoticeBody(scene.notice(3), 3))
    }),
    ("titles of a future revision and of a future notice", &async |scene: &Scene| {
        let kind = "view-orphan";
        json!([title(scene, kind, 1, 6, "one").await, title(scene, kind, 5, 1, "one").await])
    }),
    ("a title of the wrong type without expiry", &async |scene: &Scene| {
        let view = View::Title(scene.notice(4), 4);
        let (key, _) = keys::of_view(&view).remove(0);
        scene.redis().del::<_, ()>(&key).await.unwrap();
        scene.redis().rpush::<_, _, ()>(&key, "x").await.unwrap();
        of_key(view, "type", &key)
    }),
];

pub(super) const ALL: &[Damage] = &[
    ("an unreadable idempotency record of notices", &async |scene: &Scene| {
        let key = format!("{}#notices#half", scene.author);
        let says = [("fingerprint", s("f")), ("notices", s("none")), ("at", n(1)), ("expires_at", n(u64::from(u32::MAX)))];
        scene.put("IdempotencyTable", schema::record(&key), &says).await;
        json!({ "kind": "record-damaged", "record": key })
    }),
    ("leases without expiry, of a missing head and a missing read state", &async |scene: &Scene| {
        let (user, platform) = (scene.reader, scene.platform);
        let leases = [
            (NoticeRecord::Head(platform), View::Platform(platform)),
            (NoticeRecord::Reads(user, platform), View::NoticeReads(user, platform)),
        ];
        let mut differences = Vec::new();
        for (record, view) in leases {
            let [_, lease] = keys::notice_record(record);
            scene.redis().set::<_, _, ()>(&lease, 7).await.unwrap();
            differences.push(of_key(view, "lifetime", &lease));
        }
        json!(differences)
    }),
];
