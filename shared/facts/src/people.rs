//! [`Profiles`] and [`Identities`] on DynamoDB.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{Put, TransactWriteItem, Update};
use tidemark_app::ports::{Identities, ProfileSet, Profiles, StoreError};
use tidemark_domain::{Card, Handle, Profile, ProfileContent, Timestamp, UserId, profile::HANDLE_REST_SECONDS};

use super::{
    ATTEMPTS, Cancelled, DynamoFacts, back_off, build, distinct,
    item::{Item, Reader},
    number, schema, string,
};

#[async_trait]
impl Profiles for DynamoFacts {
    async fn profiles(&self, users: &[UserId]) -> Result<HashMap<UserId, Profile>, StoreError> {
        let keys = distinct(users).into_iter().map(schema::profile).collect();
        let found = self.batch_get("profiles", vec![(self.tables.profiles.clone(), keys)]).await?;
        found.iter().flatten().map(|item| read_profile(item).map(|profile| (profile.user, profile))).collect()
    }

    async fn set_profile(&self, user: UserId, content: &ProfileContent, now: Timestamp) -> Result<ProfileSet, StoreError> {
        for attempt in 0..ATTEMPTS {
            let known = self.profiles(&[user]).await?.remove(&user);
            if let Some(known) = known.as_ref().filter(|known| known.content == *content) {
                return Ok(ProfileSet::Stands(known.clone()));
            }
            let version = known.as_ref().map_or(0, |known| known.version) + 1;
            let next = Profile { user, version, content: content.clone(), updated_at: now };
            match self.write_profile(&next, known.and_then(|known| known.content.card.handle), now).await? {
                Ok(()) => return Ok(ProfileSet::Stands(next)),
                // The handle's condition is the second. The first is that of the profile itself, which another device
                // of the user has changed.
                Err(Cancelled::Conditions(failed)) if failed == [1] => return Ok(ProfileSet::HandleTaken),
                Err(_) => back_off(attempt).await,
            }
        }
        Err(StoreError::Contention { operation: "set_profile" })
    }

    async fn user_of(&self, handle: &Handle) -> Result<Option<UserId>, StoreError> {
        let found = self.batch_get("user_of", vec![(self.tables.handles.clone(), vec![schema::handle(handle)])]).await?;
        // A handle that was given up has the time at which it becomes free.
        let held = found.iter().flatten().next().filter(|item| !item.contains_key("expires_at"));
        held.map(|item| Reader { table: "handles", item }.user("user")).transpose()
    }
}

impl DynamoFacts {
    /// Writes a profile, takes its handle, and gives up the handle `before`.
    async fn write_profile(
        &self,
        next: &Profile,
        before: Option<Handle>,
        now: Timestamp,
    ) -> Result<Result<(), Cancelled>, StoreError> {
        const OPERATION: &str = "set_profile";
        let profile = Put::builder().table_name(&self.tables.profiles).set_item(Some(profile_item(next)));
        let profile = match next.version - 1 {
            0 => profile.condition_expression("attribute_not_exists(version)"),
            known => profile.condition_expression("version = :known").expression_attribute_values(":known", number(known.into())),
        };
        let mut transaction = self
            .client
            .transact_write_items()
            .transact_items(TransactWriteItem::builder().put(build(OPERATION, profile.build())?).build());
        let after = next.content.card.handle.as_ref();
        if let Some(handle) = after.filter(|handle| before.as_ref() != Some(handle)) {
            let mut item = schema::handle(handle);
            item.insert("user".to_owned(), number(next.user.get()));
            let take = Put::builder()
                .table_name(&self.tables.handles)
                .set_item(Some(item))
                .condition_expression("attribute_not_exists(#handle) OR #user = :user OR expires_at <= :now")
                .expression_attribute_names("#handle", "handle")
                .expression_attribute_names("#user", "user")
                .expression_attribute_values(":user", number(next.user.get()))
                .expression_attribute_values(":now", number(now.seconds()));
            transaction = transaction.transact_items(TransactWriteItem::builder().put(build(OPERATION, take.build())?).build());
        }
        if let Some(handle) = before.as_ref().filter(|handle| after != Some(*handle)) {
            let give_up = Update::builder()
                .table_name(&self.tables.handles)
                .set_key(Some(schema::handle(handle)))
                .update_expression("SET expires_at = :free, #user = :user")
                .expression_attribute_names("#user", "user")
                .expression_attribute_values(":user", number(next.user.get()))
                .expression_attribute_values(":free", number(now.seconds() + HANDLE_REST_SECONDS));
            transaction =
                transaction.transact_items(TransactWriteItem::builder().update(build(OPERATION, give_up.build())?).build());
        }
        Self::transact(OPERATION, transaction).await
    }
}

fn profile_item(profile: &Profile) -> Item {
    let ProfileContent { card, bio, data } = &profile.content;
    let mut item = schema::profile(profile.user);
    item.extend([
        ("version".to_owned(), number(profile.version.into())),
        ("name".to_owned(), string(&card.name)),
        ("updated_at".to_owned(), number(profile.updated_at.ms())),
    ]);
    let handle = card.handle.as_ref().map(Handle::as_str);
    let optional = [("handle", handle), ("picture", card.picture.as_deref()), ("bio", bio.as_deref()), ("data", data.as_deref())];
    item.extend(optional.into_iter().filter_map(|(name, text)| Some((name.to_owned(), string(text?)))));
    item
}

fn read_profile(item: &Item) -> Result<Profile, StoreError> {
    let reader = Reader { table: "profiles", item };
    let text = |name| reader.optional_text(name).map(|text| text.map(str::to_owned));
    let handle = reader.optional_text("handle")?.map(str::parse).transpose().map_err(|_| reader.damaged("handle"))?;
    Ok(Profile {
        user: reader.user("user")?,
        version: reader.small("version")?,
        content: ProfileContent {
            card: Card { name: reader.text("name")?.to_owned(), handle, picture: text("picture")? },
            bio: text("bio")?,
            data: text("data")?,
        },
        updated_at: reader.time("updated_at")?,
    })
}

#[async_trait]
impl Identities for DynamoFacts {
    async fn identity(&self, claim: &str) -> Result<Option<UserId>, StoreError> {
        let wanted = vec![(self.tables.identities.clone(), vec![schema::identity(claim)])];
        let found = self.batch_get("identity", wanted).await?;
        found.iter().flatten().next().map(|item| Reader { table: "identities", item }.user("user")).transpose()
    }

    async fn assign(&self, claim: &str, candidate: UserId) -> Result<Option<UserId>, StoreError> {
        const OPERATION: &str = "assign";
        let mut identity = schema::identity(claim);
        identity.insert("user".to_owned(), number(candidate.get()));
        let mut transaction = self.client.transact_write_items();
        for item in [identity, schema::identified(candidate)] {
            let put = Put::builder()
                .table_name(&self.tables.identities)
                .set_item(Some(item))
                .condition_expression("attribute_not_exists(#identity)")
                .expression_attribute_names("#identity", "identity");
            transaction = transaction.transact_items(TransactWriteItem::builder().put(build(OPERATION, put.build())?).build());
        }
        match Self::transact(OPERATION, transaction).await? {
            Ok(()) => Ok(Some(candidate)),
            // Another request of the claim has assigned a user id, or this one has and its response was lost.
            Err(_) => self.identity(claim).await,
        }
    }
}
