//! [`Reactions`] on DynamoDB.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem, Update};
use tidemark_app::ports::{Reacted, Reactions, StoreError};
use tidemark_domain::{PostId, Reaction, ReactionCounts, ReactionState, UserId, ids::SHARDS};

use super::{
    ATTEMPTS, Cancelled, DynamoFacts, back_off, build, distinct,
    item::{Item, Reader},
    number,
    posts::read_post,
    schema,
    windows::bits_of,
};

#[async_trait]
impl Reactions for DynamoFacts {
    async fn reactions(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, ReactionState>, StoreError> {
        let keys = distinct(authors).into_iter().map(|author| schema::reaction(user, author)).collect();
        let found = self.batch_get("reactions", vec![(self.tables.reactions.clone(), keys)]).await?;
        found.iter().flatten().map(|item| read_reactions(item).map(|(_, author, state)| (author, state))).collect()
    }

    /// The transaction does not check the post. A check would make every like of a popular post lock one item, and
    /// would delay the post's deletion. No other data depends on the check: a reaction that overlaps the deletion
    /// counts as one from before it.
    async fn react(&self, user: UserId, post: PostId, reaction: Reaction, given: bool) -> Result<Reacted, StoreError> {
        for attempt in 0..ATTEMPTS {
            let wanted = vec![
                (self.tables.reactions.clone(), vec![schema::reaction(user, post.author)]),
                (self.tables.posts.clone(), vec![schema::post(post)]),
            ];
            let found = self.batch_get("react", wanted).await?;
            let live = found[1].first().map(read_post).transpose()?.is_some_and(|post| !post.deleted);
            if !live {
                return Ok(Reacted::Unknown);
            }
            let known = found[0].first().map(read_reactions).transpose()?.map(|(_, _, state)| state).unwrap_or_default();
            let Some(next) = known.changed(post.seq, reaction, given) else { return Ok(Reacted::Stands(known)) };
            match self.write_reaction(user, post, &next, reaction, given).await? {
                Ok(()) => return Ok(Reacted::Stands(next)),
                // Another device of the user, or another user of the same shard, has written first.
                Err(_) => back_off(attempt).await,
            }
        }
        Err(StoreError::Contention { operation: "react" })
    }

    async fn counts(&self, post: PostId) -> Result<ReactionCounts, StoreError> {
        let keys = (0..SHARDS).map(|shard| schema::post_reactions(post, shard)).collect();
        self.sum("reaction_counts", keys).await
    }

    async fn received(&self, author: UserId) -> Result<ReactionCounts, StoreError> {
        let keys = (0..SHARDS).map(|shard| schema::author_reactions(author, shard)).collect();
        self.sum("reactions_received", keys).await
    }
}

impl DynamoFacts {
    async fn sum(&self, operation: &'static str, keys: Vec<Item>) -> Result<ReactionCounts, StoreError> {
        let found = self.batch_get(operation, vec![(self.tables.reactions.clone(), keys)]).await?;
        Ok(found.iter().flatten().map(read_counts).sum())
    }

    async fn write_reaction(
        &self,
        user: UserId,
        post: PostId,
        state: &ReactionState,
        reaction: Reaction,
        given: bool,
    ) -> Result<Result<(), Cancelled>, StoreError> {
        const OPERATION: &str = "react";
        let mut item = schema::reaction(user, post.author);
        item.extend([
            ("version".to_owned(), number(state.version.into())),
            ("liked".to_owned(), bits_of(&state.liked)),
            ("favorited".to_owned(), bits_of(&state.favorited)),
        ]);
        let put = Put::builder().table_name(&self.tables.reactions).set_item(Some(item));
        let put = match state.version.saturating_sub(1) {
            0 => put.condition_expression("attribute_not_exists(version)"),
            known => put.condition_expression("version = :known").expression_attribute_values(":known", number(known.into())),
        };
        let mut transaction = self
            .client
            .transact_write_items()
            .transact_items(TransactWriteItem::builder().put(build(OPERATION, put.build())?).build());
        for key in [schema::post_reactions(post, user.shard()), schema::author_reactions(post.author, user.shard())] {
            let count = Update::builder()
                .table_name(&self.tables.reactions)
                .set_key(Some(key))
                .update_expression("ADD #count :change, #changes :one")
                .expression_attribute_names("#count", count_name(reaction))
                .expression_attribute_names("#changes", "changes")
                .expression_attribute_values(":one", number(1))
                .expression_attribute_values(":change", AttributeValue::N(if given { "1" } else { "-1" }.to_owned()));
            transaction =
                transaction.transact_items(TransactWriteItem::builder().update(build(OPERATION, count.build())?).build());
        }
        Self::transact(OPERATION, transaction).await
    }
}

pub fn count_name(reaction: Reaction) -> &'static str {
    match reaction {
        Reaction::Like => "likes",
        Reaction::Favorite => "favorites",
    }
}

fn read_counts(item: &Item) -> ReactionCounts {
    let reader = Reader { table: "reactions", item };
    let count = |reaction| reader.count(count_name(reaction));
    ReactionCounts { likes: count(Reaction::Like), favorites: count(Reaction::Favorite) }
}

/// User, author and the user's reactions to the author's posts.
pub fn read_reactions(item: &Item) -> Result<(UserId, UserId, ReactionState), StoreError> {
    let reader = Reader { table: "reactions", item };
    let author = schema::shard_author(reader.text("shard")?).ok_or_else(|| reader.damaged("shard"))?;
    let user = schema::reacting_user(reader.text("item")?).ok_or_else(|| reader.damaged("item"))?;
    let state =
        ReactionState { version: reader.small("version")?, liked: reader.seqs("liked")?, favorited: reader.seqs("favorited")? };
    Ok((user, author, state))
}
