//! The events that have left a stack, and what they say when they are folded.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{World, aws_config};

impl World {
    /// The events that left after the one with this id, or all, oldest first. Waits for nothing.
    pub async fn events_after(&self, after: Option<&str>) -> Vec<Value> {
        let mut request = self.http.get(format!("{}/_local/events", self.stack.base_url()));
        request = request.query(&after.map(|after| ("after", after)).as_slice());
        let response = request.send().await.expect("the gateway responds").error_for_status().expect("events");
        let body: Value = response.json().await.expect("a JSON body");
        body["items"].as_array().expect("a list of events").clone()
    }

    /// The messages in the failure queue of the projector, at most ten.
    pub async fn given_up(&self) -> Vec<String> {
        let sqs = aws_sdk_sqs::Client::new(&aws_config(self.stack.sqs_endpoint()).await);
        let url = &self.stack.queue("ProjectorFailuresQueue").expect("the template has the queue").url;
        let received = sqs.receive_message().queue_url(url).max_number_of_messages(10).send().await.expect("messages");
        received.messages().iter().filter_map(|message| message.body().map(str::to_owned)).collect()
    }

    /// All events, when no work is left.
    pub async fn events(&self) -> Vec<Value> {
        self.idle().await;
        self.events_after(None).await
    }
}

/// What a consumer knows after some events, in any order and repeated. It keeps the newest event of each subject, and
/// nothing that names a user who was erased.
#[derive(Debug, Default)]
pub struct Folded {
    newest: BTreeMap<(String, String), Value>,
    erased: BTreeSet<String>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Folded {
    pub fn fold(&mut self, event: &Value) {
        let (name, detail) = (text(&event["detail-type"]), &event["detail"]);
        assert_eq!(event["id"], detail["id"], "{event}");
        if name == "user.erased" {
            self.erased.insert(text(&detail["user"]).to_owned());
            return;
        }
        let kind = name.split('.').next().unwrap_or_default();
        let named: &[&str] = match kind {
            "follow" | "read" => &["user", "author"],
            "reaction" => &["user", "post", "reaction"],
            "profile" | "privacy" => &["user"],
            "post" => &["post"],
            "comment" => &["comment"],
            other => panic!("an event of {other}"),
        };
        let subject = named.iter().map(|field| text(&detail[*field])).collect::<Vec<_>>().join("/");
        let revision = |event: &Value| event["detail"]["revision"].as_u64().expect("a revision");
        let known = self.newest.entry((kind.to_owned(), subject)).or_insert_with(|| event.clone());
        if revision(event) > revision(known) {
            *known = event.clone();
        } else if revision(event) == revision(known) {
            assert_eq!(event["id"], known["id"], "two events of one revision");
        }
    }

    /// The lines of the export of a user that events tell, without preferences of follows.
    pub fn export_of(&self, user: u64) -> BTreeMap<String, Value> {
        let user = user.to_string();
        let mut lines = BTreeMap::new();
        for ((_, subject), event) in &self.newest {
            let (name, detail) = (text(&event["detail-type"]), &event["detail"]);
            let [by, author] = ["user", "author"].map(|field| text(&detail[field]));
            // The author of a post that a comment or a reaction is on.
            let owner = text(&detail["post"]).split('-').next().unwrap_or_default();
            if [by, author, owner].iter().any(|name| self.erased.contains(*name)) {
                continue;
            }
            let [is_user, is_author] = [by, author].map(|name| name == user);
            let line = match name {
                "follow.began" if is_user => json!({ "kind": "follow", "user": detail["author"], "since": detail["since"] }),
                "post.published" | "post.edited" if is_author => post_line(detail),
                "comment.added" if is_author => json!({
                    "kind": "comment", "id": detail["comment"], "post": detail["post"], "text": detail["text"],
                    "created_at": detail["created_at"],
                }),
                "reaction.given" if is_user => {
                    json!({ "kind": detail["reaction"], "post": detail["post"], "at": detail["at"] })
                }
                "read.changed" if is_user => json!({
                    "kind": "read", "author": detail["author"], "through": detail["through"], "ranges": detail["ranges"],
                }),
                "profile.changed" if is_user => profile_line(&detail["profile"], self.is_private(&user)),
                "privacy.changed" if is_user && self.is_private(&user) => {
                    // With a profile, its event has the line.
                    let has_profile = self.newest.contains_key(&("profile".to_owned(), user.clone()));
                    if has_profile { Value::Null } else { profile_line(&Value::Null, true) }
                }
                _ => Value::Null,
            };
            if name == "follow.began" && is_author {
                let follower = json!({ "kind": "follower", "user": detail["user"], "since": detail["since"] });
                lines.insert(format!("follower {subject}"), follower);
            }
            if !line.is_null() {
                lines.insert(format!("{} {subject}", text(&line["kind"])), line);
            }
        }
        lines
    }

    fn is_private(&self, user: &str) -> bool {
        let privacy = self.newest.get(&("privacy".to_owned(), user.to_owned()));
        privacy.is_some_and(|event| event["detail"]["private"] == true)
    }
}

fn post_line(detail: &Value) -> Value {
    if detail["title"].is_null() {
        let [id, of, created_at] = ["post", "of", "created_at"].map(|field| &detail[field]);
        return json!({ "kind": "repost", "id": id, "of": of, "created_at": created_at });
    }
    let mut line = json!({ "kind": "post", "id": detail["post"], "revision": detail["revision"] });
    if let Some(original) = detail.get("of") {
        line["of"] = original.clone();
    }
    for field in ["title", "body", "data", "created_at", "edited_at", "weight"] {
        line[field] = detail.get(field).cloned().unwrap_or_else(|| json!("absent"));
    }
    line
}

fn profile_line(profile: &Value, private: bool) -> Value {
    let mut line = json!({ "kind": "profile", "private": private });
    for field in ["name", "handle", "picture", "bio", "data", "updated_at"] {
        line[field] = profile[field].clone();
    }
    line
}

/// The lines of an export that events tell, each under the name that [`Folded::export_of`] gives it.
pub fn told_lines(user: u64, export: Vec<Value>) -> BTreeMap<String, Value> {
    let mut lines = BTreeMap::new();
    for mut line in export {
        let kind = text(&line["kind"]).to_owned();
        let subject = match kind.as_str() {
            "follow" => {
                line.as_object_mut().expect("an object").remove("preference");
                format!("{user}/{}", text(&line["user"]))
            }
            "follower" => format!("{}/{user}", text(&line["user"])),
            "post" | "repost" | "comment" => text(&line["id"]).to_owned(),
            "like" | "favorite" => format!("{user}/{}/{kind}", text(&line["post"])),
            "read" => format!("{user}/{}", text(&line["author"])),
            "profile" => user.to_string(),
            // Nobody is told of these.
            _ => continue,
        };
        lines.insert(format!("{kind} {subject}"), line);
    }
    lines
}
