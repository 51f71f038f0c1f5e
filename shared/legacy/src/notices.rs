//! Imports bitmaps of notices as read marks.

use tidemark::domain::{Platform, SeqSet, Slot, UserId};

use crate::{
    MigrateError,
    context::Key,
    legacy::{self, LegacyNotice, Reason},
};

/// Bytes that are read at a time.
const PIECE: u64 = 64 * 1024;
/// Bytes whose readers, 8,192 users, are imported and remembered together.
const BLOCK: u64 = 1024;

/// Imports `notice:{platform}:{notice}`. Returns the position where the next invocation continues; `None` at the end.
pub(crate) async fn bitmap(key: &mut Key<'_>, notice: LegacyNotice) -> Result<Option<u64>, MigrateError> {
    let run = key.run;
    let unknown = || MigrateError::Refused(Reason::UnknownNotice);
    let id = run.notices.get(&notice).copied().ok_or_else(unknown)?;
    let head = run.app.stores.facts.platform_head(id.platform).await?;
    let slot = head.find(id.seq, run.now).ok_or_else(unknown)?.slot;
    let mut at = key.pending.at.unwrap_or_default();
    loop {
        let bytes = run.source.bytes(&key.pending.key, at, PIECE).await?;
        for (block, bytes) in (at / BLOCK..).zip(bytes.chunks(BLOCK as usize)) {
            if bytes.iter().all(|byte| *byte == 0) {
                continue;
            }
            import(key, notice, (id.platform, slot), block, bytes).await?;
            if run.is_over() {
                return Ok(Some((block + 1) * BLOCK));
            }
        }
        if (bytes.len() as u64) < PIECE {
            return Ok(None);
        }
        at += PIECE;
        if run.is_over() {
            return Ok(Some(at));
        }
    }
}

/// Imports the readers in one block. Bits that were imported before are left out, so that a notice that was marked
/// unread here stays unread.
async fn import(
    key: &mut Key<'_>,
    notice: LegacyNotice,
    (platform, slot): (Platform, Slot),
    block: u64,
    bytes: &[u8],
) -> Result<(), MigrateError> {
    let run = key.run;
    let bits: SeqSet = legacy::bits(block * BLOCK * 8, bytes).collect();
    run.has_read(usize::try_from(bits.len()).unwrap_or(usize::MAX));
    let known = run.imports.imported_bits(notice, block).await?;
    let new = bits.minus(&known);
    let users: Vec<UserId> = new.iter().filter_map(UserId::new).collect();
    key.tally.found(bits.len() - u64::from(bits.contains(0)) - users.len() as u64);
    let erased = run.app.stores.facts.erased(&users).await?;
    let refused = erased.iter().map(|user| (Reason::Erased, user.get())).chain(bits.contains(0).then_some((Reason::NotAnId, 0)));
    refused.for_each(|(reason, bit)| key.refuse(reason, bit.to_string().as_bytes()));
    let readers = users.into_iter().filter(|user| !erased.contains(user));
    let readers: Vec<(UserId, Vec<Slot>)> = readers.map(|user| (user, vec![slot])).collect();
    if run.dry_run {
        key.tally.wrote(readers.len() as u64);
        return Ok(());
    }
    let written = run.app.notices.merge_reads(platform, &readers).await?.iter().sum();
    key.tally.wrote(written);
    key.tally.found(readers.len() as u64 - written);
    if !readers.is_empty() {
        run.imports.remember_bits(notice, block, &new).await?;
    }
    Ok(())
}
