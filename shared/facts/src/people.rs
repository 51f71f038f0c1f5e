//! Profiles, the users who have handles, and user ids of claims.

use std::collections::HashMap;

use tidemark_domain::{Card, Handle, Profile, ProfileContent, Timestamp, UserId, profile::HANDLE_REST_SECONDS};

use super::{
    Facts, Result, attempts, distinct,
    item::{Item, encode, number},
    read,
    schema::{self, HandleItem, IdentityItem, ProfileItem},
    write::{Cancelled, Write, absent, at_most, is, still_number},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileSet {
    /// The profile has the content now, whether or not this call changed it.
    Stands(Profile),
    /// Another user has the handle, or gave it up less than 30 days ago. Nothing changed.
    HandleTaken,
}

impl Facts {
    /// Returns the profiles of these users. Users without one are left out.
    pub async fn profiles(&self, users: &[UserId]) -> Result<HashMap<UserId, Profile>> {
        let keys = distinct(users).into_iter().map(schema::profile).collect();
        let items = self.get("profiles", &self.tables.profiles, keys).await?;
        items.into_iter().map(|item| read_profile(item).map(|profile| (profile.user, profile))).collect()
    }

    /// Replaces profile and handle in one transaction. Writes nothing if the stored profile has this content.
    pub async fn set_profile(&self, user: UserId, content: &ProfileContent, now: Timestamp) -> Result<ProfileSet> {
        let mut attempts = attempts("set_profile");
        loop {
            attempts.next().await?;
            let known = self.profiles(&[user]).await?.remove(&user);
            if let Some(known) = known.as_ref().filter(|known| known.content == *content) {
                return Ok(ProfileSet::Stands(known.clone()));
            }
            attempts.outcome()?;
            let version = known.as_ref().map_or(0, |known| known.version) + 1;
            let next = Profile { user, version, content: content.clone(), updated_at: now };
            let written = self.write_profile(&next, known.and_then(|known| known.content.card.handle), now).await;
            // The handle's condition is the second. The first is that of the profile itself, which another device of
            // the user has changed.
            if let Ok(Err(Cancelled::Conditions(failed))) = &written
                && *failed == [1]
            {
                return Ok(ProfileSet::HandleTaken);
            }
            if attempts.done(written) {
                return Ok(ProfileSet::Stands(next));
            }
        }
    }

    pub async fn user_of_handle(&self, handle: &Handle) -> Result<Option<UserId>> {
        let item = self.get_one("user_of", &self.tables.handles, schema::handle(handle)).await?;
        item.map(read_handle).transpose().map(Option::flatten)
    }
}

impl Facts {
    /// Writes a profile, takes its handle, and gives up the handle `before`.
    pub(crate) async fn write_profile(
        &self,
        next: &Profile,
        before: Option<Handle>,
        now: Timestamp,
    ) -> Result<Result<(), Cancelled>> {
        let (user, after) = (next.user, next.content.card.handle.as_ref());
        let unchanged = still_number(ProfileItem::version, next.version - 1);
        let mut writes = vec![Write::put(&self.tables.profiles, profile_item(next)).when(unchanged)];
        if let Some(handle) = after.filter(|handle| before.as_ref() != Some(handle)) {
            writes.push(self.claim(user, handle, now));
        }
        if let Some(handle) = before.filter(|handle| after != Some(handle)) {
            let expires_at = Some(now.seconds() + HANDLE_REST_SECONDS);
            let given_up = HandleItem { handle: handle.to_string(), user: user.into(), expires_at };
            writes.push(Write::put(&self.tables.handles, encode(&given_up)));
        }
        self.transact("set_profile", writes).await
    }

    /// The write that gives a handle to a user, on condition that no other user has it.
    pub fn claim(&self, user: UserId, handle: &Handle, now: Timestamp) -> Write {
        let taken = HandleItem { handle: handle.to_string(), user: user.into(), expires_at: None };
        let is_free = absent(HandleItem::handle)
            .or(is(HandleItem::user, number(user.get())))
            .or(at_most(HandleItem::expires_at, number(now.seconds())));
        Write::put(&self.tables.handles, encode(&taken)).when(is_free)
    }
}

/// Returns the user of a handle; `None` if the user has given it up, and it becomes free at a later time.
pub fn read_handle(item: Item) -> Result<Option<UserId>> {
    read(item, |item: HandleItem| Ok(item.expires_at.is_none().then(|| item.user.into())))
}

fn profile_item(profile: &Profile) -> Item {
    let ProfileContent { card: Card { name, handle, picture }, bio, data } = profile.content.clone();
    encode(&ProfileItem {
        user: profile.user.into(),
        version: profile.version,
        name,
        updated_at: profile.updated_at.ms(),
        handle: handle.map(|handle| handle.to_string()),
        picture,
        bio,
        data,
    })
}

pub fn read_profile(item: Item) -> Result<Profile> {
    read(item, |ProfileItem { user, version, name, updated_at, handle, picture, bio, data }| {
        let handle = handle.map(|handle| Handle::stored(&handle).ok_or(ProfileItem::handle)).transpose()?;
        let content = ProfileContent { card: Card { name, handle, picture }, bio, data };
        Ok(Profile { user: user.into(), version, content, updated_at: Timestamp::from_ms(updated_at) })
    })
}

impl Facts {
    /// Returns the user id of a claim; `None` if it has none yet.
    pub async fn identity(&self, claim: &str) -> Result<Option<UserId>> {
        let item = self.get_one("identity", &self.tables.identities, schema::identity(claim)).await?;
        item.map(|item| read(item, |item: IdentityItem| item.user.map(UserId::from).ok_or(IdentityItem::user))).transpose()
    }

    /// Gives `candidate` to a claim without a user id. Returns the claim's id; `None` if the candidate is taken.
    pub async fn assign_identity(&self, claim: &str, candidate: UserId) -> Result<Option<UserId>> {
        let identity = IdentityItem { identity: schema::identity_key(claim), user: Some(candidate.into()) };
        let given = IdentityItem { identity: schema::given_key(candidate), user: None };
        let put = |item| Write::put(&self.tables.identities, encode(&item)).when(absent(IdentityItem::identity));
        match self.transact("assign", vec![put(identity), put(given)]).await? {
            Ok(()) => Ok(Some(candidate)),
            // Another request of the claim has assigned a user id, or this one has and its response was lost.
            Err(_) => self.identity(claim).await,
        }
    }
}
