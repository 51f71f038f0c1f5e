//! The scenes of the demo.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream};
use rand::Rng;
use serde_json::{Value, json};

use super::{
    sample::{Post, Sample},
    screen::{Screen, bar},
};
use crate::{
    api::{Api, Call},
    text::short,
    verify::{
        feed::{first_page, number},
        latency::FRESH_IDS,
    },
};

const ADA_FOLLOWERS: u64 = 30;
const DELIVERY_LIMIT: Duration = Duration::from_secs(20);
const FEED_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
struct Person {
    id: u64,
    name: &'static str,
}

/// The demo on one stack. Its users have ids that no earlier demo used, so it can be repeated on a used stack.
pub struct Show<'a> {
    api: &'a Api,
    screen: Screen,
    sample: Sample,
    readers: [Person; 2],
    authors: [Person; 3],
    wrong: u32,
}

impl<'a> Show<'a> {
    /// Picks new ids above 10^9.
    pub fn new(api: &'a Api, screen: Screen) -> anyhow::Result<Self> {
        let sample = Sample::load()?;
        let first = FRESH_IDS + rand::rng().random_range(1..1 << 40);
        let people = (first..).zip(&sample.people).map(|(id, profile)| Person { id, name: profile.name });
        let [rita, sam, ada, ben, cho] = people.collect::<Vec<_>>().try_into().ok().context("the sample has five people")?;
        Ok(Self { api, screen, sample, readers: [rita, sam], authors: [ada, ben, cho], wrong: 0 })
    }

    /// The ids of the readers, for the page.
    pub fn readers(&self) -> [u64; 2] {
        self.readers.map(|reader| reader.id)
    }

    fn person(&self, name: &str) -> anyhow::Result<Person> {
        let people = self.readers.iter().chain(&self.authors);
        people.copied().find(|person| person.name == name).with_context(|| format!("the sample has no person {name}"))
    }

    /// Runs all scenes. Returns true if every count was as expected.
    pub async fn play(&mut self) -> anyhow::Result<bool> {
        let [ada, ben, cho] = self.authors;
        let [rita, sam] = self.readers;
        self.screen.heading(1, "Who follows whom");
        self.follow().await?;

        self.screen.heading(2, "Before anything is published");
        for reader in [rita, sam] {
            self.feed(reader, &[]).await?;
        }

        self.screen.heading(3, "Publishing");
        let posts = self.publish_all().await?;
        let of_ada: Vec<&String> =
            self.sample.posts.iter().zip(&posts).filter(|(post, _)| post.author == ada.name).map(|(_, id)| id).collect();

        self.screen.heading(4, "Delivery of Ada's last post");
        let last = of_ada.last().context("Ada published nothing")?;
        self.delivery(ada, last).await?;

        self.screen.heading(5, "Feeds before reading");
        self.feed(rita, &[(ada, 3), (ben, 2), (cho, 1)]).await?;
        self.feed(sam, &[(ada, 3), (ben, 2)]).await?;

        self.screen.heading(6, "Reading");
        let post = of_ada[0];
        self.mark(rita, format!("reads one post, {post}"), Call::put(format!("/v1/posts/{post}/read"))).await?;
        let body = json!({"author": ada.id.to_string(), "through": 2});
        self.mark(sam, "reads Ada through her second post", Call::post("/v1/reads").json(body)).await?;

        self.screen.heading(7, "Feeds after reading");
        self.feed(rita, &[(ada, 2), (ben, 2), (cho, 1)]).await?;
        self.feed(sam, &[(ada, 1), (ben, 2)]).await?;

        self.screen.heading(8, "Everything read");
        self.mark(rita, "marks all as read", Call::post("/v1/reads").json(json!({"all": true}))).await?;
        self.feed(rita, &[]).await?;
        println!();
        let good = self.wrong == 0;
        let line =
            if good { self.screen.good("✓ every count is as expected") } else { self.screen.bad("✗ some counts are wrong") };
        println!("   {line}");
        Ok(good)
    }

    async fn follow(&self) -> anyhow::Result<()> {
        let [ada, ben, cho] = self.authors;
        for (profile, person) in self.sample.people.iter().zip(self.readers.iter().chain(&self.authors)) {
            let body = json!({"name": profile.name, "bio": profile.bio});
            self.api.fetch(Call::put("/v1/me/profile").caller(person.id).json(body), 200).await?;
        }
        let mut follows = Vec::new();
        for (reader, authors) in &self.sample.follows {
            for author in authors {
                follows.push((self.person(reader)?.id, self.person(author)?.id));
            }
        }
        let known = follows.iter().filter(|(_, author)| *author == ada.id).count() as u64;
        follows.extend((known..ADA_FOLLOWERS).map(|number| (cho.id + 1 + number, ada.id)));
        let started = Instant::now();
        let count = follows.len();
        stream::iter(follows)
            .map(|(reader, author)| self.api.fetch(Call::put(format!("/v1/following/{author}")).caller(reader), 200))
            .buffer_unordered(8)
            .try_collect::<Vec<Value>>()
            .await?;
        self.screen.row("Ada", format!("{} {ADA_FOLLOWERS} followers, Rita and Sam among them", self.id(ada)));
        self.screen.row("Ben", format!("{} followed by Rita and Sam", self.id(ben)));
        self.screen.row("Cho", format!("{} followed by Rita", self.id(cho)));
        self.screen.row("", self.screen.dim(format!("{count} follows in {}", short(started.elapsed()))));
        Ok(())
    }

    fn id(&self, person: Person) -> String {
        self.screen.dim(format!("{:<14}", person.id))
    }

    /// Publishes the posts of the sample, with their likes and comments. Returns their ids.
    async fn publish_all(&self) -> anyhow::Result<Vec<String>> {
        let mut ids = Vec::new();
        for post in &self.sample.posts {
            ids.push(self.publish(*post).await?);
        }
        for (reader, post) in &self.sample.likes {
            let call = Call::put(format!("/v1/posts/{}/like", ids[*post]));
            self.api.fetch(call.caller(self.person(reader)?.id), 200).await?;
        }
        for (author, post, text) in &self.sample.comments {
            let call = Call::post(format!("/v1/posts/{}/comments", ids[*post])).json(json!({"text": text}));
            self.api.fetch(call.caller(self.person(author)?.id), 201).await?;
        }
        Ok(ids)
    }

    async fn publish(&self, Post { author, title, body }: Post) -> anyhow::Result<String> {
        let author = self.person(author)?;
        let call = Call::post("/v1/posts").caller(author.id).json(json!({"title": title, "body": body}));
        let started = Instant::now();
        let body = self.api.fetch(call, 201).await?;
        let took = short(started.elapsed());
        let id = body["id"].as_str().context("a post without an id")?.to_owned();
        let mode = body["delivery"]["mode"].as_str().unwrap_or("?");
        self.screen.row(author.name, format!("{title:<30} {} {took:>9}  {mode}", self.screen.dim(format!("{id:<16}"))));
        Ok(id)
    }

    async fn delivery(&mut self, author: Person, post: &str) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut shown = (String::new(), String::new());
        while started.elapsed() < DELIVERY_LIMIT {
            let call = Call::get(format!("/v1/posts/{post}/delivery")).caller(author.id);
            let body = self.api.fetch(call, 200).await?;
            let state = body["state"].as_str().unwrap_or("?");
            let number = |name: &str| body[name].as_u64().unwrap_or(0);
            let (delivered, followers) = (number("delivered"), number("followers"));
            let pages = format!("pages {} of {}", number("pages_done"), number("pages"));
            let line = format!("{} {delivered:>3} of {followers} followers, {pages}", bar(delivered, followers, 20));
            let seen = (state.to_owned(), line);
            if seen != shown {
                let after = self.screen.dim(format!("after {}", short(started.elapsed())));
                self.screen.row(state, format!("{}  {after}", seen.1));
                shown = seen;
            }
            if state == "done" {
                self.expect(followers == ADA_FOLLOWERS, "followers");
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        bail!("the delivery of {post} is not done after {} s", DELIVERY_LIMIT.as_secs())
    }

    /// Shows a reader's feed and unread counts, and waits until the counts are the expected ones.
    async fn feed(&mut self, reader: Person, unread: &[(Person, u64)]) -> anyhow::Result<()> {
        let expected: u64 = unread.iter().map(|(_, count)| count).sum();
        let started = Instant::now();
        let page = loop {
            let page = first_page(self.api, reader.id, "/v1/feed?status=all", 20).await?;
            if page.totals == [expected] || started.elapsed() > FEED_LIMIT {
                break page;
            }
            tokio::time::sleep(POLL).await;
        };
        let counts = self.api.fetch(Call::get("/v1/unread").caller(reader.id), 200).await?;
        let total = page.totals.first().copied().unwrap_or_default();
        let of_author = |author: Person| {
            let rows = counts["authors"].as_array().map(Vec::as_slice).unwrap_or_default();
            let row = rows.iter().find(|row| number(&row["author"]) == Some(author.id));
            row.and_then(|row| number(&row["unread"])).unwrap_or(0)
        };
        let each: Vec<String> = unread.iter().map(|(author, _)| format!("{} {}", author.name, of_author(*author))).collect();
        let each = if each.is_empty() { String::new() } else { self.screen.dim(format!("  ({})", each.join(", "))) };
        let right =
            total == expected && counts["total"] == expected && unread.iter().all(|(author, count)| of_author(*author) == *count);
        self.screen.row(reader.name, format!("{}{each}", self.screen.bold(format!("{total} unread"))));
        for item in &page.items {
            let dot = if item.read { self.screen.dim("○") } else { self.screen.good("●") };
            let post = &item.post;
            let author = self.authors.iter().find(|author| author.id == post.id.author).map_or("?", |author| author.name);
            let time = self.screen.dim(post.created_at.get(11..23).unwrap_or_default());
            println!("      {dot} {author:<4} {:<30} {time}", post.title);
        }
        self.expect(right, &format!("{}'s counts ({expected} expected)", reader.name));
        Ok(())
    }

    async fn mark(&self, reader: Person, what: impl Display, call: Call) -> anyhow::Result<()> {
        let started = Instant::now();
        let body = self.api.fetch(call.caller(reader.id), 200).await?;
        let total = body["total"].as_u64().unwrap_or_default();
        let took = self.screen.dim(short(started.elapsed()));
        self.screen.row(reader.name, format!("{what}: {total} left unread  {took}"));
        Ok(())
    }

    fn expect(&mut self, holds: bool, what: &str) {
        if !holds {
            self.wrong += 1;
            self.screen.row("", self.screen.bad(format!("✗ {what}")));
        }
    }
}
