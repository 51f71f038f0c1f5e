//! Readers' reactions by author, so that a page reads no facts.

use std::collections::HashMap;

use redis::Cmd;
use redis_link::Epoch;
use tidemark_domain::{ReactionState, UserId, reader_state::META_FIELD};

use super::{Function, Result, keys};
use crate::connection::{Views, damaged, ms, token_arg};

/// The maximum number of authors in a view. A view that would exceed it starts empty again.
const MOST_AUTHORS: u64 = 1_000;

/// The reactions of a reader that Redis knows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KnownReactions {
    /// By author. Authors without an entry have to be read from the facts.
    pub of: HashMap<UserId, ReactionState>,
    /// The token of the view; `None` if there is no view.
    pub token: Option<u64>,
}

impl Views {
    /// Returns the token of the reader's view, which is created with `token` if there is none. Facts for
    /// [`Self::fill_reactions`] are read after this call.
    pub async fn open_reactions(&self, user: UserId, token: u64) -> Result<u64> {
        let args = (token_arg(token), ms(keys::REACTIONS_LIFETIME));
        let token: Vec<u8> = self.call(Function::Open, &[keys::reactions(user)], args).await?;
        token_of(&token).ok_or_else(|| damaged("token of reactions"))
    }

    /// Stores facts that were read after the view was opened, unless it is gone or has later versions.
    pub async fn fill_reactions(&self, user: UserId, token: u64, of: &HashMap<UserId, ReactionState>) -> Result<()> {
        self.react(user, token_arg(token), of.iter()).await
    }

    /// Stores a changed state in the view, if there is a view.
    pub async fn change_reactions(&self, user: UserId, author: UserId, state: &ReactionState) -> Result<()> {
        self.react(user, Vec::new(), [(&author, state)].into_iter()).await
    }
}

impl Views {
    async fn react(&self, user: UserId, token: Vec<u8>, of: impl Iterator<Item = (&UserId, &ReactionState)>) -> Result<()> {
        let of: Vec<_> = of.map(|(author, state)| (author.get(), state.encode())).collect();
        let args = (token, ms(keys::REACTIONS_LIFETIME), MOST_AUTHORS, of);
        self.call::<u64>(Function::React, &[keys::reactions(user)], args).await.map(drop)
    }
}

/// The command that reads a reader's reactions to these authors' posts. [`known`] decodes the response.
pub(crate) fn ask(reader: UserId, authors: &[UserId]) -> Cmd {
    let authors: Vec<u64> = authors.iter().map(|author| author.get()).collect();
    Cmd::hmget(keys::reactions(reader), (META_FIELD, authors))
}

/// Reactions that cannot be read count as unknown and come from the facts.
pub(crate) fn known(authors: &[UserId], values: &[Option<Vec<u8>>], epoch: Epoch) -> KnownReactions {
    let Some((Some(token), values)) = values.split_first() else { return KnownReactions::default() };
    let Some(token) = epoch.current(token) else { return KnownReactions::default() };
    let of = authors.iter().zip(values).filter_map(|(&author, value)| Some((author, ReactionState::decode(value.as_deref()?)?)));
    KnownReactions { of: of.collect(), token: token_of(token) }
}

fn token_of(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_domain::Reaction;

    #[test]
    fn unreadable_reactions_count_as_unknown() {
        let authors = [1, 2, 3].map(|id| UserId::new(id).unwrap());
        let state = ReactionState::default().changed(1, Reaction::Like, true).unwrap();
        let [epoch, other] = ["8a31f0c2", "8a31f0c3"].map(|id| Epoch::read(Some(id.to_owned())).unwrap());
        let token = [&7_u64.to_le_bytes()[..], epoch.as_bytes()].concat();
        let values = [Some(token), Some(state.encode()), None, Some(b"damaged".to_vec())];
        let found = known(&authors, &values, epoch);
        assert_eq!(found, KnownReactions { of: HashMap::from([(authors[0], state.clone())]), token: Some(7) });
        assert_eq!(known(&authors, &values, other), KnownReactions::default(), "a record of another epoch");
        assert_eq!(known(&authors, &[None, Some(state.encode()), None, None], epoch), KnownReactions::default());
    }
}
