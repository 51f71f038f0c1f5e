//! Profiles, handles that were given up, user ids of claims, and receipts of erasures.

use tidemark_domain::{Erasure, Handle, Profile, ProfileContent, Reaction, Removed, RequestSide, Timestamp, UserId};

use crate::{
    Facts, Result, attempts,
    erasures::Trace,
    heads::still_latest,
    item::encode,
    schema::HandleItem,
    write::{Cancelled, Write, absent},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileImport {
    Written,
    /// The user has a profile here.
    Existing,
    /// Another user has the handle, or has given it up in the last 30 days.
    HandleTaken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityImport {
    Written,
    Existing,
    /// The claim has another user id here.
    OtherUser,
    /// Another claim has the user id.
    Taken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiptImport {
    Written,
    Existing,
    /// The user has posts, followers or something else here. Only the user can ask to leave.
    IsHere,
}

impl Facts {
    /// Stores a profile of another system, with the time of its last change.
    pub async fn import_profile(
        &self,
        user: UserId,
        content: &ProfileContent,
        updated_at: Timestamp,
        now: Timestamp,
    ) -> Result<ProfileImport> {
        let mut attempts = attempts("set_profile");
        loop {
            attempts.next().await?;
            if let Some(known) = self.profiles(&[user]).await?.remove(&user) {
                let own = attempts.outcome().is_err() && known.content == *content && known.updated_at == updated_at;
                return Ok(if own { ProfileImport::Written } else { ProfileImport::Existing });
            }
            attempts.outcome()?;
            let profile = Profile { user, version: 1, content: content.clone(), updated_at };
            let written = self.write_profile(&profile, None, now).await;
            if let Ok(Err(Cancelled::Conditions(failed))) = &written
                && *failed == [1]
            {
                return Ok(ProfileImport::HandleTaken);
            }
            if attempts.done(written) {
                return Ok(ProfileImport::Written);
            }
        }
    }

    /// Keeps a handle that its user has given up from others until a time. Returns false if another user has it.
    pub async fn import_rest(&self, handle: &Handle, user: UserId, until: Timestamp) -> Result<bool> {
        let item = HandleItem { handle: handle.to_string(), user: user.into(), expires_at: Some(until.seconds()) };
        self.send("import_rest", Write::put(&self.tables.handles, encode(&item)).when(absent(HandleItem::handle))).await
    }

    /// Gives a claim the user id that it has elsewhere.
    pub async fn import_identity(&self, claim: &str, user: UserId) -> Result<IdentityImport> {
        let known = |known: UserId| if known == user { IdentityImport::Existing } else { IdentityImport::OtherUser };
        if let Some(stored) = self.identity(claim).await? {
            return Ok(known(stored));
        }
        Ok(match self.assign_identity(claim, user).await? {
            Some(stored) if stored == user => IdentityImport::Written,
            Some(_) => IdentityImport::OtherUser,
            None => IdentityImport::Taken,
        })
    }

    /// Stores the receipt of an erasure that was done elsewhere: the user id stays erased.
    pub async fn import_receipt(&self, user: UserId, receipt: &Erasure) -> Result<ReceiptImport> {
        let mut attempts = attempts("import_receipt");
        loop {
            attempts.next().await?;
            if self.erasure(user).await?.is_some() {
                return Ok(if attempts.outcome().is_err() { ReceiptImport::Written } else { ReceiptImport::Existing });
            }
            if self.is_here(user).await? {
                return Ok(ReceiptImport::IsHere);
            }
            attempts.outcome()?;
            let writes = self.receipt_writes(user, receipt, Some(still_latest(0)));
            if attempts.done(self.transact("import_receipt", writes).await) {
                return Ok(ReceiptImport::Written);
            }
        }
    }

    /// Returns whether the user has ever published, or has anything that an erasure would remove. Others' mutes and
    /// blocks of the user do not count.
    async fn is_here(&self, user: UserId) -> Result<bool> {
        let users = [user];
        let some = async |trace| self.count_some_traces(user, trace, None).await.map(|(count, _)| count > 0);
        let reacted =
            async || Ok(some(Trace::Reactions(Reaction::Like)).await? || some(Trace::Reactions(Reaction::Favorite)).await?);
        let (head, counted, profiles, requests, reacted, has_read, comments) = futures::try_join!(
            self.head_of(user),
            self.count_traces(user),
            self.profiles(&users),
            self.requests(user, RequestSide::Sent, None, 1),
            reacted(),
            some(Trace::Reads),
            some(Trace::Comments)
        )?;
        let nothing = counted == Removed::default() && head.latest_seq == 0 && profiles.is_empty() && requests.is_empty();
        Ok(!nothing || reacted || has_read || comments)
    }
}
