//! Compares the responses for a reader with the independent model.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Debug,
};

use serde_json::Value;

use super::{
    feed::{Walk, number},
    ledger::Checks,
    model::{Item, Post, PostId, Reader},
};

/// The size of a backfill: after a follow, the feed shows this number of the author's earlier posts.
const BACKFILL: usize = 100;

/// For each publishing author, all posts that the stack had before this run.
pub type Earlier = HashMap<u64, BTreeSet<PostId>>;

/// Compares a whole feed. It must have this run's posts of the followed authors, each once, newest first, with title,
/// time and flag. After them it may have only earlier posts, all of them read. Every page must have the same unread
/// total.
pub fn feed(checks: &mut Checks, reader: &Reader, following: &[u64], earlier: &Earlier, walk: &Walk) {
    order(checks, "feed", &walk.items);
    let mut wanted: BTreeMap<PostId, _> = reader.items.iter().map(|item| (item.post.id, item)).collect();
    let mut old: BTreeSet<PostId> = BTreeSet::new();
    for item @ Item { post, read } in &walk.items {
        if let Some(wanted) = wanted.remove(&post.id) {
            let name = format!("feed item {}", post.id);
            let shown = |Item { post, read }: &Item| (post.title.clone(), post.created_at.clone(), *read);
            checks.equal(&name, shown(wanted), shown(item));
            checks.holds("order", old.is_empty(), || ("earlier posts after all of this run's".to_owned(), name.clone()));
        } else {
            let known = earlier.get(&post.id.author).is_none_or(|posts| posts.contains(&post.id));
            let allowed = known && following.contains(&post.id.author) && *read && old.insert(post.id);
            let seen = || format!("{} ({}, read: {read})", post.id, post.title);
            checks.holds("feed", allowed, || ("posts of followed authors, each once, earlier ones read".to_owned(), seen()));
        }
    }
    let missing: Vec<String> = wanted.keys().map(PostId::to_string).collect();
    checks.equal("posts missing from the feed", Vec::new(), missing);
    for (author, posts) in earlier.iter().filter(|(author, posts)| following.contains(author) && posts.len() <= BACKFILL) {
        let lost: Vec<String> = posts.difference(&old).map(PostId::to_string).collect();
        checks.equal(&format!("earlier posts of {author} missing from the feed"), Vec::new(), lost);
    }
    totals(checks, "feed", reader.unread_total(), walk);
}

/// Compares `status=unread`: exactly the posts that count in the total.
pub(crate) fn unread_feed(checks: &mut Checks, reader: &Reader, walk: &Walk) {
    order(checks, "unread feed", &walk.items);
    unread_items(checks, "unread feed", reader.unread().collect(), walk);
    totals(checks, "unread feed", reader.unread_total(), walk);
}

/// Compares the unread posts of one author's timeline.
pub(crate) fn unread_timeline(checks: &mut Checks, reader: &Reader, author: u64, walk: &Walk) {
    let name = format!("unread timeline of {author}");
    order(checks, &name, &walk.items);
    unread_items(checks, &name, reader.unread().filter(|id| id.author == author).collect(), walk);
    totals(checks, &name, reader.unread_of(author), walk);
}

/// Compares `GET /v1/unread`: the total, each author's count, and the authors' order.
pub fn unread_counts(checks: &mut Checks, reader: &Reader, body: &Value) {
    checks.equal("unread: total", Some(reader.unread_total()), number(&body["total"]));
    let rows: Vec<(Option<u64>, Option<u64>)> = body["authors"]
        .as_array()
        .map(|rows| rows.iter().map(|row| (number(&row["author"]), number(&row["unread"]))).collect())
        .unwrap_or_default();
    let listed: BTreeSet<(Option<u64>, Option<u64>)> = rows.iter().copied().collect();
    let counts = reader.unread_by_author().into_iter();
    let expected = counts.map(|(author, count)| (Some(author), Some(count))).collect();
    same_elements(checks, "unread: authors with counts", &expected, &listed);
    checks.equal("unread: distinct authors", rows.len(), listed.len());
    // "Most recent post first" may mean the author's newest post or the newest unread one. Both orders are accepted.
    let newest_first = |unread_only: bool| {
        let times: Vec<Option<i64>> = rows.iter().map(|(author, _)| reader.newest_of((*author)?, unread_only)).collect();
        times.is_sorted_by(|one, next| one >= next)
    };
    checks.holds("unread: order of authors", newest_first(false) || newest_first(true), || {
        ("most recent post first".to_owned(), format!("{rows:?}"))
    });
}

fn unread_items(checks: &mut Checks, name: &str, wanted: BTreeSet<PostId>, walk: &Walk) {
    let got: BTreeSet<PostId> = walk.items.iter().map(|item| item.post.id).collect();
    same_elements(checks, name, &wanted, &got);
    let flagged: Vec<String> = walk.items.iter().filter(|item| item.read).map(|item| item.post.id.to_string()).collect();
    checks.equal(&format!("{name}: items flagged as read"), Vec::new(), flagged);
}

/// Compares two sets. A mismatch shows only the elements that differ.
fn same_elements<T: Ord + Debug>(checks: &mut Checks, name: &str, expected: &BTreeSet<T>, got: &BTreeSet<T>) {
    checks.holds(name, expected == got, || {
        let only = |one: &BTreeSet<T>, other: &BTreeSet<T>| {
            let elements: Vec<&T> = one.difference(other).collect();
            format!("{elements:?} in addition to the common elements")
        };
        (only(expected, got), only(got, expected))
    });
}

/// Checks the order: newest first, within one millisecond by falling number of the same author, each item once.
fn order(checks: &mut Checks, name: &str, items: &[Item]) {
    let falls = |one: &Post, next: &Post| {
        one.at > next.at || (one.at == next.at && (one.id.author != next.id.author || one.id.seq > next.id.seq))
    };
    let broken = items.windows(2).find(|pair| !falls(&pair[0].post, &pair[1].post));
    let shown = |Item { post, .. }: &Item| format!("{} at {}", post.id, post.created_at);
    checks.holds(&format!("{name}: order"), broken.is_none(), || {
        let pair: Vec<String> = broken.unwrap_or_default().iter().map(shown).collect();
        ("newest first".to_owned(), pair.join(" before "))
    });
    let distinct: BTreeSet<PostId> = items.iter().map(|item| item.post.id).collect();
    checks.equal(&format!("{name}: distinct items"), items.len(), distinct.len());
}

fn totals(checks: &mut Checks, name: &str, expected: u64, walk: &Walk) {
    let right = !walk.totals.is_empty() && walk.totals.iter().all(|total| *total == expected);
    checks.holds(&format!("{name}: unread total on every page"), right, || (expected.to_string(), format!("{:?}", walk.totals)));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::model::tests::post;
    use super::*;

    fn item(author: u64, seq: u64, at: i64, read: bool) -> Item {
        Item { post: post(author, seq, at), read }
    }

    fn reader() -> Reader {
        let mut reader = Reader::new(1, [post(10, 4, 400), post(10, 5, 500), post(20, 1, 450)]);
        reader.mark(PostId { author: 10, seq: 4 }, true);
        reader
    }

    fn right() -> Vec<Item> {
        vec![item(10, 5, 500, false), item(20, 1, 450, false), item(10, 4, 400, true)]
    }

    fn compared(compare: impl FnOnce(&mut Checks)) -> u64 {
        let mut checks = Checks::of(1);
        compare(&mut checks);
        checks.made.mismatched
    }

    fn mismatches(items: Vec<Item>, totals: Vec<u64>) -> u64 {
        let earlier = Earlier::from([(20, BTreeSet::new())]);
        compared(|checks| feed(checks, &reader(), &[10, 20, 30], &earlier, &Walk { items, totals }))
    }

    #[test]
    fn a_right_feed_has_no_mismatch_and_each_kind_of_error_is_one() {
        assert_eq!(mismatches(right(), vec![2]), 0);
        let edit = |change: &dyn Fn(&mut Vec<Item>)| {
            let mut items = right();
            change(&mut items);
            mismatches(items, vec![2])
        };
        assert!(edit(&|items| drop(items.remove(1))) > 0, "missing");
        assert!(edit(&|items| items.swap(0, 1)) > 0, "order");
        assert!(edit(&|items| items.insert(1, item(10, 5, 500, false))) > 0, "twice");
        assert!(edit(&|items| items[0].read = true) > 0, "flag");
        assert!(edit(&|items| Arc::make_mut(&mut items[0].post).title.clear()) > 0, "title");
        assert!(edit(&|items| items.push(item(40, 1, 10, true))) > 0, "not followed");
        assert!(edit(&|items| items.push(item(20, 9, 10, true))) > 0, "never published");
        assert!(edit(&|items| items.push(item(30, 1, 10, false))) > 0, "earlier but unread");
        assert!(edit(&|items| items.insert(0, item(30, 1, 600, true))) > 0, "earlier but on top");
        assert!(mismatches(right(), vec![2, 3]) > 0, "total");
        assert!(mismatches(right(), vec![]) > 0, "no total");
    }

    #[test]
    fn earlier_posts_of_followed_authors_may_follow_and_known_ones_must() {
        let earlier = Earlier::from([(10, BTreeSet::from([PostId { author: 10, seq: 3 }]))]);
        let compare =
            |items| compared(|checks| feed(checks, &reader(), &[10, 20, 30], &earlier, &Walk { items, totals: vec![2] }));
        let with = |more: Vec<Item>| right().into_iter().chain(more).collect::<Vec<_>>();
        assert_eq!(compare(with(vec![item(10, 3, 90, true), item(30, 8, 80, true)])), 0);
        assert_eq!(compare(with(vec![item(30, 8, 80, true)])), 1);
    }

    #[test]
    fn unread_counts_are_compared_by_author_and_order() {
        let check = |body: Value| compared(|checks| unread_counts(checks, &reader(), &body));
        let row = |author: &str, unread: u64| json!({"author": author, "unread": unread});
        assert_eq!(check(json!({"total": 2, "authors": [row("10", 1), row("20", 1)]})), 0);
        assert_eq!(check(json!({"total": 2, "authors": [row("20", 1), row("10", 1)]})), 1);
        assert_eq!(check(json!({"total": 2, "authors": [row("10", 2)]})), 1);
        assert_eq!(check(json!({"total": 3, "authors": [row("10", 1), row("20", 1)]})), 1);
    }

    #[test]
    fn the_unread_list_has_the_posts_that_count_as_unread() {
        let check = |items| compared(|checks| unread_feed(checks, &reader(), &Walk { items, totals: vec![2] }));
        assert_eq!(check(vec![item(10, 5, 500, false), item(20, 1, 450, false)]), 0);
        assert_eq!(check(vec![item(10, 5, 500, false)]), 1);
        assert!(check(right()) > 0);
    }
}
