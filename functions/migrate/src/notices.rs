//! Imports bitmaps of notices as read marks.

use tidemark::domain::{NoticeId, SeqSet, Slot, UserId};

use crate::{
    MigrateError,
    context::{Key, Outcome},
    legacy::{self, LegacyNotice, Reason},
};

/// Bytes that are read at a time.
const PIECE: u64 = 64 * 1024;
/// Bytes whose readers, 8,192 users, are imported and remembered together.
const BLOCK: u64 = 1024;

/// A bitmap with a live notice.
struct Bitmap {
    notice: LegacyNotice,
    id: NoticeId,
    slot: Slot,
}

/// Imports `notice:{platform}:{notice}`. The inner error is the reason why the whole key is refused.
pub(crate) async fn bitmap(key: &mut Key<'_>, notice: LegacyNotice) -> Result<Result<Outcome, Reason>, MigrateError> {
    let run = key.run;
    let Some(id) = run.notices.get(&notice).copied() else { return Ok(Err(Reason::UnknownNotice)) };
    let head = run.app.notices.stores.notices.head(id.platform).await?;
    let Some(slot) = head.find(id.seq, run.now).map(|live| live.slot) else { return Ok(Err(Reason::UnknownNotice)) };
    let bitmap = Bitmap { notice, id, slot };
    let mut at = key.pending.at.unwrap_or_default();
    loop {
        let bytes = run.source.bytes(&key.pending.key, at, PIECE).await?;
        for (block, bytes) in (at / BLOCK..).zip(bytes.chunks(BLOCK as usize)) {
            if bytes.iter().all(|byte| *byte == 0) {
                continue;
            }
            bitmap.import(key, block, bytes).await?;
            if run.is_over() {
                return Ok(Ok(Outcome::GoesOn((block + 1) * BLOCK)));
            }
        }
        if (bytes.len() as u64) < PIECE {
            return Ok(Ok(Outcome::Done));
        }
        at += PIECE;
        if run.is_over() {
            return Ok(Ok(Outcome::GoesOn(at)));
        }
    }
}

impl Bitmap {
    /// Imports the readers in one block. Bits that were imported before are left out, so that a notice that was marked
    /// unread here stays unread.
    async fn import(&self, key: &mut Key<'_>, block: u64, bytes: &[u8]) -> Result<(), MigrateError> {
        let run = key.run;
        let bits: SeqSet = legacy::bits(block * BLOCK * 8, bytes).collect();
        run.has_read(usize::try_from(bits.len()).unwrap_or(usize::MAX));
        let known = run.imports.imported_bits(self.notice, block).await?;
        let new = bits.minus(&known);
        let users: Vec<UserId> = new.iter().filter_map(UserId::new).collect();
        key.tally.found(bits.len() - u64::from(bits.contains(0)) - users.len() as u64);
        let erased = run.app.facts.erased(&users).await?;
        let refused =
            erased.iter().map(|user| (Reason::Erased, user.get())).chain(bits.contains(0).then_some((Reason::NotAnId, 0)));
        refused.for_each(|(reason, bit)| key.refuse(reason, bit.to_string().as_bytes()));
        let readers = users.into_iter().filter(|user| !erased.contains(user));
        let readers: Vec<(UserId, Vec<Slot>)> = readers.map(|user| (user, vec![self.slot])).collect();
        if run.dry_run {
            key.tally.wrote(readers.len() as u64);
            return Ok(());
        }
        let written = run.app.notices.merge_reads(self.id.platform, &readers).await?.iter().sum();
        key.tally.wrote(written);
        key.tally.found(readers.len() as u64 - written);
        if !readers.is_empty() {
            run.imports.remember_bits(self.notice, block, &new).await?;
        }
        Ok(())
    }
}
