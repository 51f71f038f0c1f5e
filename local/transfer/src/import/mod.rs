//! The import of a file. The first pass over the file checks every line, and notes its kind, and the places of posts,
//! in temporary files. Each further pass applies the lines of one phase, many at once. So the memory does not depend on
//! the number of lines, and lines may be in any order.
//!
//! Each line is applied once: what is there already stays as it is. So the same command completes an import that was
//! killed. Nothing is stored about the import itself.

mod apply;
mod places;
mod posts;
mod reader;

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use futures::{FutureExt, TryStreamExt, stream};
use serde::Serialize;
use tidemark_domain::{StoreError, Timestamp};
use tidemark_facts::{Facts, PostTimes};

use crate::{
    bar::Bar,
    line::{Kind, LAST_PHASE, Line, POSTS},
};
use places::Places;
use reader::{Lines, RawLine};

/// Groups of lines, or authors, that are applied concurrently, unless the operator says otherwise.
pub const PARALLEL: usize = 32;
/// Lines that are read together and grouped by their owners.
const CHUNK: usize = 2_000;
/// The most bytes of such lines.
const CHUNK_BYTES: usize = 8 << 20;
/// Attempts until the stack has responded once: the address or the permissions may be wrong. Then there is no limit.
const ATTEMPTS: u32 = 6;
/// The pause before the second attempt. It doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// In the notes of the first pass, a repost or a quote. It is listed with its original after all posts.
const LISTED: u8 = u8::MAX - 1;

/// In the notes of the first pass, a line that no phase applies.
const NOTHING: u8 = u8::MAX;

/// What became of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    pub read: u64,
    pub written: u64,
    pub already_there: u64,
    pub bad: u64,
}

/// The report of an import. Every line that is not empty counts as written, already there or bad.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    pub read: u64,
    pub written: u64,
    pub already_there: u64,
    pub bad: u64,
    /// The same by kind, without lines of no kind.
    pub kinds: BTreeMap<Kind, Counts>,
}

/// What became of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Written,
    AlreadyThere,
    Bad(String),
}

impl Outcome {
    fn bad(reason: impl Into<String>) -> Self {
        Self::Bad(reason.into())
    }

    fn written(is_written: bool) -> Self {
        if is_written { Self::Written } else { Self::AlreadyThere }
    }
}

/// A line with its number, which begins with 1.
pub(crate) type Numbered<T> = (u64, T);

/// What the passes share.
pub(crate) struct Import<'a> {
    facts: &'a Facts,
    now: Timestamp,
    times: PostTimes,
    bar: Bar,
    parallel: usize,
    patience: Patience,
    report: Mutex<Report>,
    tell: &'a (dyn Fn(u64, &str) + Sync),
}

/// Imports a file, with so many groups of lines at once. Bad lines are printed on stdout as `line N: reason`.
pub async fn from_file(facts: &Facts, path: &Path, parallel: usize) -> anyhow::Result<Report> {
    from_file_telling(facts, path, parallel, &|_, _| {}).await
}

/// The same. `tell` also gets the number of each bad line and the reason.
pub async fn from_file_telling(
    facts: &Facts,
    path: &Path,
    parallel: usize,
    tell: &(dyn Fn(u64, &str) + Sync),
) -> anyhow::Result<Report> {
    let open = || File::open(path).with_context(|| format!("cannot read {}", path.display()));
    let notes = tempfile::tempdir()?;
    let mut import = Import {
        facts,
        now: now(),
        times: PostTimes::default(),
        bar: Bar::start("check", open()?.metadata()?.len()),
        parallel,
        patience: Patience::default(),
        report: Mutex::default(),
        tell,
    };
    let (mut kinds, places, lines) = import.check(open()?, notes.path())?;
    std::mem::replace(&mut import.bar, Bar::start("import", lines)).finish();
    for phase in 0..=LAST_PHASE {
        if phase == POSTS {
            import.posts(&open()?, &places).await?;
            kinds.seek(SeekFrom::Start(0))?;
            import.phase(LISTED, open()?, BufReader::new(&kinds)).await?;
        } else {
            kinds.seek(SeekFrom::Start(0))?;
            import.phase(phase, open()?, BufReader::new(&kinds)).await?;
        }
    }
    import.bar.finish();
    Ok(import.report.into_inner().unwrap_or_default())
}

impl Import<'_> {
    /// The first pass: checks every line. Returns the phase of each line as a byte, the places of posts, and the number
    /// of lines to apply.
    fn check(&self, file: File, notes: &Path) -> anyhow::Result<(File, Places, u64)> {
        let mut phases = BufWriter::new(File::options().create_new(true).read(true).write(true).open(notes.join("phases"))?);
        let (mut places, mut lines) = (Places::create(notes)?, 0);
        for line in Lines::new(file) {
            let RawLine { number, offset, text } = line?;
            self.bar.add(text.len() as u64 + 1);
            let parsed = match &text[..] {
                text if text.iter().all(u8::is_ascii_whitespace) => None,
                text => Some(reader::text(text).and_then(|text| Line::parse(text, self.now))),
            };
            let phase = match parsed {
                None => NOTHING,
                Some(Err(reason)) => {
                    if let Some(id) = reader::text(&text).ok().and_then(Line::post_of_bad) {
                        places.add(id, offset, number, places::BAD)?;
                    }
                    self.note(number, None, &Outcome::Bad(reason));
                    NOTHING
                }
                Some(Ok(line)) => {
                    lines += 1;
                    let post = match &line {
                        Line::Post(post) => Some(post.id),
                        Line::Repost(post) => Some(post.id),
                        Line::Deleted(post) => Some(post.id),
                        _ => None,
                    };
                    if let Some(id) = post {
                        places.add(id, offset, number, text.len())?;
                    }
                    let is_listed = line.reference().is_some();
                    lines += u64::from(is_listed);
                    if is_listed { LISTED } else { line.kind().phase() }
                }
            };
            phases.write_all(&[phase])?;
        }
        Ok((phases.into_inner()?, places.finish()?, lines))
    }

    /// Applies the lines of one phase. Lines of one owner are applied together if they are near one another.
    async fn phase(&self, phase: u8, file: File, mut phases: impl Read) -> anyhow::Result<()> {
        let mut lines = Lines::new(file);
        let mut next = || -> anyhow::Result<Option<Vec<Vec<Numbered<Line>>>>> {
            let (mut groups, mut of_owner) = (Vec::<Vec<Numbered<Line>>>::new(), HashMap::new());
            let (mut count, mut bytes) = (0, 0);
            while count < CHUNK && bytes < CHUNK_BYTES {
                let mut of_line = [NOTHING];
                let Some(line) = lines.next_if(|| {
                    phases.read_exact(&mut of_line)?;
                    Ok(of_line[0] == phase)
                })?
                else {
                    break;
                };
                let RawLine { number, text, .. } = line;
                let parsed = reader::text(&text).and_then(|text| Line::parse(text, self.now));
                let parsed = parsed.map_err(anyhow::Error::msg).context("the file changes while it is read")?;
                (count, bytes) = (count + 1, bytes + text.len());
                let group = *of_owner.entry(parsed.owner()).or_insert_with(|| {
                    groups.push(Vec::new());
                    groups.len() - 1
                });
                groups[group].push((number, parsed));
            }
            Ok((count > 0).then_some(groups))
        };
        let groups = std::iter::from_fn(|| next().transpose());
        let groups = stream::iter(groups).map_ok(|groups| stream::iter(groups.into_iter().map(anyhow::Ok))).try_flatten();
        groups.try_for_each_concurrent(self.parallel, |group| self.group(group).boxed_local()).await
    }

    async fn group(&self, group: Vec<Numbered<Line>>) -> anyhow::Result<()> {
        let kinds: HashMap<u64, Kind> = group.iter().map(|(number, line)| (*number, line.kind())).collect();
        let outcomes = self.again(|| self.apply(&group)).await?;
        for (number, outcome) in outcomes {
            self.note(number, kinds.get(&number).copied(), &outcome);
        }
        self.bar.add(group.len() as u64);
        Ok(())
    }

    /// Does something again while the stack is busy or does not respond.
    async fn again<T>(&self, work: impl AsyncFn() -> Result<T, StoreError>) -> anyhow::Result<T> {
        Ok(self.patience.again(PAUSE, |text| self.bar.say(text), work).await?)
    }

    fn note(&self, number: u64, kind: Option<Kind>, outcome: &Outcome) {
        let mut report = self.report.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut of_kind = kind.and_then(|kind| report.kinds.get(&kind).copied()).unwrap_or_default();
        let mut count = Counts { read: 1, ..Counts::default() };
        match outcome {
            Outcome::Written => count.written = 1,
            Outcome::AlreadyThere => count.already_there = 1,
            Outcome::Bad(reason) => {
                count.bad = 1;
                self.bar.tell(&format!("line {number}: {reason}"));
                (self.tell)(number, reason);
            }
        }
        report.read += 1;
        report.written += count.written;
        report.already_there += count.already_there;
        report.bad += count.bad;
        of_kind.read += 1;
        of_kind.written += count.written;
        of_kind.already_there += count.already_there;
        of_kind.bad += count.bad;
        if let Some(kind) = kind {
            report.kinds.insert(kind, of_kind);
        }
    }
}

/// Whether the stack has responded once. From then on it only is busy.
#[derive(Debug, Default)]
struct Patience(AtomicBool);

impl Patience {
    async fn again<T>(
        &self,
        mut pause: Duration,
        say: impl Fn(&str),
        work: impl AsyncFn() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match work().await {
                Err(error) if error.is_retryable() && (attempts < ATTEMPTS || self.0.load(Ordering::Relaxed)) => {
                    if attempts >= ATTEMPTS {
                        let error = anyhow::Error::from(error);
                        say(&format!("{error:#}; attempt {attempts} has failed, the next is in {} s", pause.as_secs()));
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                done => {
                    self.0.fetch_or(done.is_ok(), Ordering::Relaxed);
                    return done;
                }
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock of a tool")]
pub(crate) fn now() -> Timestamp {
    let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stack_that_is_busy_is_waited_for_and_one_that_never_responded_is_not() {
        let (calls, said) = (Mutex::new(0), Mutex::new(Vec::new()));
        let busy = async || {
            let mut calls = calls.lock().unwrap();
            *calls += 1;
            if *calls % 40 == 0 { Ok(*calls) } else { Err(StoreError::Contention { operation: "test" }) }
        };
        let say = |text: &str| said.lock().unwrap().push(text.to_owned());
        let patience = Patience::default();
        let pause = Duration::ZERO;
        assert!(patience.again(pause, say, busy).await.is_err());
        assert_eq!((*calls.lock().unwrap(), said.lock().unwrap().len()), (ATTEMPTS, 0));
        patience.again(pause, say, async || Ok(())).await.unwrap();
        assert_eq!(patience.again(pause, say, busy).await.unwrap(), 40);
        assert!(said.lock().unwrap()[0].contains("attempt 6 has failed"));
        let damaged = async || Err::<(), _>(StoreError::DamagedView { detail: String::new() });
        assert!(patience.again(pause, say, damaged).await.is_err());
    }
}
