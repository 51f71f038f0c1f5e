//! Applies posts and the numbers of deleted ones, author by author.

use std::{collections::HashMap, fs::File, os::unix::fs::FileExt};

use anyhow::Context;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use serde_json::value::RawValue;
use tidemark_domain::{Edge, PostId, PostText, Reference, Relation, Seq, SeqSet, StoreError, Timestamp, UserId};
use tidemark_facts::{
    Import as Fence,
    imports::{ImportedContent, ImportedPost, PostImport},
};

use super::{
    Import, Outcome,
    places::{self, BAD, Place, Places},
    reader,
};
use crate::line::{Kind, Line};

/// Posts in one transaction, and the most bytes of their lines.
const POSTS: usize = 31;
const BYTES: u64 = 2_500_000;

/// Followers that are listed at a time, and followers whose read states are written concurrently.
const FOLLOWERS: usize = 1_000;
const MARKED_AT_ONCE: usize = 8;

/// Posts of one author that are not older than a follow from here.
type Told = Vec<(Seq, Timestamp)>;

impl Import<'_> {
    pub(super) async fn posts(&self, file: &File, places: &Places) -> anyhow::Result<()> {
        for authors in places.by_author() {
            let authors = authors?.into_iter().map(|(author, posts)| self.author(file, author, posts).boxed_local());
            stream::iter(authors.collect::<Vec<_>>()).buffer_unordered(self.parallel).try_collect::<()>().await?;
        }
        Ok(())
    }

    /// Imports the posts of one author. If users follow the author here already, a fence keeps new follows from the
    /// posts, and posts that are older than a follow become read.
    async fn author(&self, file: &File, author: UserId, places: Vec<Place>) -> anyhow::Result<()> {
        let has_bad = places.iter().any(|place| place.length == BAD as u64);
        let latest = async || if has_bad { Ok(self.facts.head_of(author).await?.latest_seq) } else { Ok(0) };
        let (places, later) = places::before_bad(places, self.again(latest).await?);
        for place in &later {
            let (kind, _) = read(file, place, self.now)?;
            self.note(place.number, Some(kind), &Outcome::bad("an earlier post of the author is bad"));
        }
        self.bar.add(later.len() as u64);
        let parts = self.again(async || self.facts.follower_parts(author).await).await?;
        let is_known = parts.iter().any(|shard| !shard.is_empty());
        let open = async || if is_known { self.facts.open_imports(&[author]).await } else { Ok(Vec::new()) };
        // One is open if an import was killed.
        let mut fence = self.again(open).await?.pop();
        let mut told = Told::new();
        for places in chunks(&places) {
            let lines = places.iter().map(|place| read(file, place, self.now)).collect::<anyhow::Result<Vec<_>>>()?;
            let outcomes = self.again(async || self.some(author, is_known, &mut fence.clone(), &lines).await).await?;
            let (outcomes, used) = outcomes;
            fence = used.or(fence);
            for ((place, (kind, post)), outcome) in places.iter().zip(&lines).zip(outcomes) {
                if is_known && post.content.is_some() && !matches!(outcome, Outcome::Bad(_)) {
                    told.push((post.seq, post.created_at));
                }
                self.note(place.number, Some(*kind), &outcome);
            }
            self.bar.add(places.len() as u64);
        }
        if let Some(fence) = fence {
            self.again(async || self.settle(author, &told).await).await?;
            self.again(async || self.facts.end_import(fence).await).await?;
        }
        Ok(())
    }

    /// Imports some posts. Returns their outcomes, and the fence if one was raised.
    async fn some(
        &self,
        author: UserId,
        is_known: bool,
        fence: &mut Option<Fence>,
        lines: &[(Kind, ImportedPost)],
    ) -> Result<(Vec<Outcome>, Option<Fence>), StoreError> {
        let gone = || lines.iter().map(|_| Outcome::bad("the user has left")).collect();
        let mut posts: Vec<ImportedPost> = lines.iter().map(|(_, post)| post.clone()).collect();
        posts.dedup_by_key(|post| post.seq);
        if is_known && fence.is_none() {
            let ids: Vec<PostId> = posts.iter().map(|post| PostId::new(author, post.seq)).collect();
            if self.facts.posts(&ids).await?.len() < ids.len() {
                *fence = self.facts.begin_import(author).await?;
                if fence.is_none() {
                    return Ok((gone(), None));
                }
            }
        }
        let followers = if is_known { self.facts.follower_counts(author).await?.iter().sum() } else { 0 };
        let imported = loop {
            let imported = self.facts.import_posts_of(author, *fence, &posts, followers, self.now).await?;
            if !imported.overtaken {
                break imported;
            }
            // Another import of the author has begun. Its posts stay; this one begins again.
            *fence = self.facts.begin_import(author).await?;
        };
        if imported.has_left {
            return Ok((gone(), *fence));
        }
        let outcomes = posts.iter().map(|post| post.seq).zip(imported.outcomes.into_iter().map(told));
        let outcomes: HashMap<Seq, Outcome> = outcomes.collect();
        let mut outcomes: Vec<Outcome> = lines.iter().filter_map(|(_, post)| outcomes.get(&post.seq).cloned()).collect();
        // A second line of the same post.
        for (index, pair) in lines.windows(2).enumerate() {
            if pair[0].1.seq == pair[1].1.seq && outcomes[index + 1] == Outcome::Written {
                outcomes[index + 1] = match pair[0].1 == pair[1].1 {
                    true => Outcome::AlreadyThere,
                    false => Outcome::bad("another line has this post"),
                };
            }
        }
        Ok((outcomes, *fence))
    }

    /// Marks posts read for the followers whose follow is later, and began before it knew the posts.
    async fn settle(&self, author: UserId, told: &Told) -> Result<(), StoreError> {
        let archive = self.facts.head_of(author).await?.deleted;
        let mut last: Option<Relation> = None;
        loop {
            let page = self.facts.followers_by_time(author, last, FOLLOWERS).await?;
            let Some(&oldest) = page.last() else { return Ok(()) };
            let pairs: Vec<(UserId, UserId)> = page.iter().map(|relation| (relation.user, author)).collect();
            let edges = self.facts.live_edges(&pairs).await?;
            let marks = edges.iter().map(|edge| {
                let is_older = |(seq, at): &&(Seq, Timestamp)| *at <= edge.since && *seq > edge.base && !archive.contains(*seq);
                let seqs: SeqSet = told.iter().filter(is_older).map(|(seq, _)| *seq).collect();
                self.mark(edge, seqs).boxed()
            });
            stream::iter(marks.collect::<Vec<_>>()).buffer_unordered(MARKED_AT_ONCE).try_collect::<()>().await?;
            last = Some(oldest);
        }
    }

    async fn mark(&self, edge: &Edge, seqs: SeqSet) -> Result<(), StoreError> {
        if seqs.is_empty() {
            return Ok(());
        }
        self.facts.import_marks(edge.user, edge.author, &seqs, 0, false).await.map(drop)
    }
}

fn told(outcome: PostImport) -> Outcome {
    match outcome {
        PostImport::Written => Outcome::Written,
        PostImport::Existing => Outcome::AlreadyThere,
        PostImport::OtherPost => Outcome::bad("the author has another post with this number"),
        PostImport::NumberGone => Outcome::bad("the author has later posts, and this number counts as deleted"),
        PostImport::RepostedTwice => Outcome::bad("the author reposts the original with another number"),
        PostImport::TooFar => Outcome::bad("more than a million numbers before it are missing"),
    }
}

/// Parts of an author's posts that fit into one transaction.
fn chunks(places: &[Place]) -> impl Iterator<Item = &[Place]> {
    let mut rest = places;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |place: &&Place| {
            bytes += place.length;
            bytes <= BYTES
        };
        let count = rest.iter().take(POSTS).take_while(fits).count().max(1).min(rest.len());
        let (some, others) = rest.split_at(count);
        rest = others;
        (!some.is_empty()).then_some(some)
    })
}

fn read(file: &File, place: &Place, now: Timestamp) -> anyhow::Result<(Kind, ImportedPost)> {
    let mut bytes = vec![0; usize::try_from(place.length)?];
    file.read_exact_at(&mut bytes, place.offset)?;
    let line = reader::text(&bytes).and_then(|text| Line::parse(text, now)).map_err(anyhow::Error::msg);
    let line = line.context("the file changes while it is read")?;
    let (kind, seq) = (line.kind(), place.seq);
    let text = |data: Box<RawValue>| data.get().to_owned();
    Ok(match line {
        Line::Post(post) => {
            let text = PostText { body: post.body, data: post.data.map(text) };
            let (title, revision, edited_at, weight) = (post.title, post.revision, post.edited_at, post.weight);
            let content = Some(ImportedContent { title, text, revision, edited_at, weight });
            (kind, ImportedPost { seq, created_at: post.created_at, of: post.of.map(Reference::Quote), content })
        }
        Line::Repost(post) => {
            let (of, content) = (Some(Reference::Repost(post.of)), Some(ImportedContent::titled(String::new())));
            (kind, ImportedPost { seq, created_at: post.created_at, of, content })
        }
        Line::Deleted(post) => {
            let of = post.of.map(Reference::Repost);
            (kind, ImportedPost { seq, created_at: post.created_at, of, content: None })
        }
        _ => anyhow::bail!("the file changes while it is read"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_few_posts_and_few_bytes() {
        let place = |length| Place { author: 1, seq: 1, number: 1, offset: 0, length };
        let sizes = |places: &[Place]| chunks(places).map(<[Place]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), [] as [usize; 0]);
        assert_eq!(sizes(&[place(100); 64]), [31, 31, 2]);
        assert_eq!(sizes(&[place(1_000_000); 5]), [2, 2, 1]);
        assert_eq!(sizes(&[place(BYTES + 1); 2]), [1, 1]);
    }
}
