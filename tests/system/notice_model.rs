//! A model of the notices of one platform.

use std::collections::{BTreeMap, BTreeSet};

use tidemark::domain::Seq;

#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) expires_at: Option<u64>,
    /// The operation that published the notice or gave it a new slot.
    pub(crate) notified: usize,
    pub(crate) read_by: BTreeSet<u64>,
}

/// The expected state of one platform.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) latest: Seq,
    pub(crate) notices: BTreeMap<Seq, Live>,
    /// For each reader, the highest marked notice, and the operation that marked it.
    pub(crate) through: BTreeMap<u64, (Seq, usize)>,
}

impl Model {
    pub(crate) fn live(&self, now: u64) -> impl DoubleEndedIterator<Item = (Seq, &Live)> {
        let live = self.notices.iter().filter(move |(_, notice)| notice.expires_at.is_none_or(|at| at > now));
        live.map(|(&seq, notice)| (seq, notice))
    }

    pub(crate) fn is_live(&self, seq: Seq, now: u64) -> bool {
        self.live(now).any(|(live, _)| live == seq)
    }

    pub(crate) fn list(&self, user: u64, now: u64) -> Vec<(Seq, bool)> {
        self.live(now).rev().map(|(seq, notice)| (seq, notice.read_by.contains(&user))).collect()
    }

    pub(crate) fn mark(&mut self, user: u64, seq: Seq, read: bool, now: u64) {
        if !self.is_live(seq, now) {
            return;
        }
        let readers = &mut self.notices.get_mut(&seq).unwrap().read_by;
        if read {
            readers.insert(user)
        } else {
            readers.remove(&user)
        };
    }

    pub(crate) fn mark_through(&mut self, user: u64, seq: Seq, step: usize, now: u64) {
        let seq = seq.min(self.latest);
        let (reached, when) = self.through.get(&user).copied().unwrap_or_default();
        let live: Vec<Seq> = self.live(now).map(|(seq, _)| seq).filter(|&live| live <= seq).collect();
        for live in live {
            let notice = self.notices.get_mut(&live).unwrap();
            if seq >= reached || notice.notified > when {
                notice.read_by.insert(user);
            }
        }
        if seq >= reached {
            self.through.insert(user, (seq, step));
        }
    }
}
