//! Cards, so that a page reads no facts. User ids of claims, so that a request reads none: they never change, so a
//! stored one is always right.

use std::{collections::HashMap, time::Duration};

use integer_encoding::VarInt;
use redis::{Cmd, Value};
use redis_link::{Consistency, Epoch};
use tidemark_domain::{Card, Handle, Profile, UserId};

use super::{
    Result, keys,
    record::{self, current, store},
};
use crate::connection::{Views, set};

/// A version of a card; `None` if the user has no profile. The version is then 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CardVersion {
    pub version: u32,
    pub card: Option<Card>,
}

impl CardVersion {
    pub fn of(profile: Option<Profile>) -> Self {
        profile.map_or_else(Self::default, |profile| Self { version: profile.version, card: Some(profile.content.card) })
    }
}

impl Views {
    /// Returns the known cards. The value is `None` for a user who is known to have no profile.
    pub async fn cards(&self, users: &[UserId]) -> Result<HashMap<UserId, Option<Card>>> {
        let values = self.strings("cards", &card_keys(users), Consistency::Eventual).await?;
        Ok(known(users, values))
    }

    pub async fn lease_cards(&self, users: &[UserId], token: u64) -> Result<Vec<UserId>> {
        self.free_leases("lease_cards", users, keys::card, token).await
    }

    pub async fn fill_cards(&self, cards: &[(UserId, CardVersion)], token: u64) -> Result<()> {
        let store = |(user, card): &(_, CardVersion)| store(keys::card(*user), token, encode(card), lifetime(card));
        self.each::<Value>("fill_cards", cards.iter().map(store).collect()).await.map(drop)
    }

    pub async fn replace_card(&self, user: UserId, card: &CardVersion) -> Result<()> {
        self.replace(keys::card(user), card.version.into(), encode(card), lifetime(card)).await
    }
}

fn lifetime(card: &CardVersion) -> Duration {
    if card.card.is_some() { keys::CARD_LIFETIME } else { keys::NO_CARD_LIFETIME }
}

pub(crate) fn card_keys(users: &[UserId]) -> Vec<String> {
    users.iter().map(|&user| keys::card(user)[0].clone()).collect()
}

/// A card that cannot be read counts as unknown. The facts replace it.
pub(crate) fn known(users: &[UserId], values: Vec<Option<(Vec<u8>, Epoch)>>) -> HashMap<UserId, Option<Card>> {
    users.iter().zip(values).filter_map(|(&user, value)| Some((user, current(value, decode)?.card))).collect()
}

/// The version; then, if there is a profile, name, handle and picture, each after its length. An absent one is empty.
fn encode(card: &CardVersion) -> Vec<u8> {
    let mut bytes = record::start(card.version.into());
    if let Some(Card { name, handle, picture }) = &card.card {
        let handle = handle.as_ref().map_or("", |handle| handle.as_str());
        for text in [name.as_str(), handle, picture.as_deref().unwrap_or_default()] {
            bytes.extend(text.len().encode_var_vec());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

pub fn decode(bytes: &[u8]) -> Option<CardVersion> {
    let (version, mut rest) = record::version(bytes)?;
    let version = u32::try_from(version).ok()?;
    if rest.is_empty() {
        return (version == 0).then_some(CardVersion { version, card: None });
    }
    let mut next = || {
        let (length, at) = usize::decode_var(rest)?;
        let (text, after) = rest[at..].split_at_checked(length)?;
        rest = after;
        String::from_utf8(text.to_vec()).ok()
    };
    let (name, handle, picture) = (next()?, next()?, next()?);
    let handle = if handle.is_empty() { None } else { Some(Handle::stored(&handle)?) };
    Some(CardVersion { version, card: Some(Card { name, handle, picture: Some(picture).filter(|picture| !picture.is_empty()) }) })
}

impl Views {
    pub async fn known_identity(&self, claim: &str) -> Result<Option<UserId>> {
        let record: Option<String> = self.query("known_identity", Cmd::get(keys::identity(claim))).await?;
        // The record repeats the claim, of which the key has only a hash.
        Ok(record.and_then(|record| record.split_once(' ').filter(|(_, of)| *of == claim)?.0.parse().ok()))
    }

    pub async fn remember_identity(&self, claim: &str, user: UserId) -> Result<()> {
        let set = set(&keys::identity(claim), format!("{user} {claim}"), keys::IDENTITY_LIFETIME);
        self.query::<Value>("remember_identity", set).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::VERSION;

    #[test]
    fn cards_round_trip_and_damaged_cards_are_unknown() {
        let card = |handle: Option<&str>, picture: Option<&str>| CardVersion {
            version: 7,
            card: Some(Card {
                name: "Grüße".to_owned(),
                handle: handle.map(|handle| handle.parse().unwrap()),
                picture: picture.map(str::to_owned),
            }),
        };
        let long = format!("https://example.org/{}", "x".repeat(2_000));
        for card in [CardVersion::default(), card(None, None), card(Some("ada"), None), card(None, Some(&long))] {
            let bytes = encode(&card);
            assert_eq!(decode(&bytes), Some(card));
            for length in (0..bytes.len()).filter(|length| *length != VERSION || bytes.len() == VERSION) {
                assert_eq!(decode(&bytes[..length]), None, "{length} of {} bytes", bytes.len());
            }
        }
        assert_eq!(decode(&encode(&card(None, None))[..VERSION]), None);
    }
}
