//! The outage note, which all processes share: one item of the table `counters`.

use tidemark_domain::Timestamp;

use super::{
    Facts, Result,
    item::number,
    read,
    schema::{self, OutageItem},
    write::{Write, absent, below},
};

impl Facts {
    /// Returns until when the note stands; a time long ago if there is none.
    pub async fn outage_until(&self) -> Result<Timestamp> {
        let note = self.get_one("outage", &self.tables.counters, schema::outage()).await?;
        let until = note.map(|item| read(item, |note: OutageItem| Ok(Timestamp::from_ms(note.until))));
        Ok(until.transpose()?.unwrap_or_default())
    }

    /// Writes a note that stands until this time at least.
    pub async fn note_outage(&self, until: Timestamp) -> Result<()> {
        let until = number(until.ms());
        let note = Write::update(&self.tables.counters, schema::outage()).set(OutageItem::until, until.clone());
        // A failed condition means that a later end is noted already.
        self.send("note_outage", note.when(absent(OutageItem::until).or(below(OutageItem::until, until)))).await.map(drop)
    }
}
