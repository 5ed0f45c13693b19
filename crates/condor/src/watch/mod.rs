//! A running DAG, followed from where it was read last.
//!
//! [`Watch`] reads what DAGMan writes into the directory of a run and asks nobody: a look at a run with thousands of
//! nodes costs a few system calls when nothing has happened. What single nodes do is not remembered; [`nodes`] finds it
//! out for whoever asks.
//!
//! | file | what it is read for |
//! |---|---|
//! | `workflow.dag.dagman.log` | whether DAGMan is in the queue, held, removed, ended |
//! | `workflow.dag.metrics` | how it went |
//! | `workflow.jobstate` | which units are over: tailed |
//! | `workflow.status` | units that the log does not mention, since DAGMan may leave lines out when it recovers |
//! | `mg_N/group.status` | how many nodes are done, running, held: the head of those that run |
//! | `workflow.dag.dagman.out` | why it was not accepted |
//! | `attempts.jsonl` | attempts that failed, and how many ended where: tailed |
//!
//! *Numbers of news* ([`UnitNews::seq`]) are made from the place of a line in the job state log, which DAGMan only ever
//! appends to, rescues included. So whoever keeps the last number that he has dealt with loses nothing and gets little
//! twice, also when either of us dies in between.

mod attempts;
mod files;
mod groups;
mod judge;
mod ledger;
mod nodes;
mod tail;

pub use attempts::FailedAttempt;
pub use judge::{DagState, Outcome};
pub use nodes::{FailedNode, HeldNode, NodeLogs, NodeState, NodeView, SITE_ATTRIBUTE, failures, logs, nodes};

use self::attempts::Attempts;
use self::files::{Remembered, ending, whole};
use self::groups::{Groups, counts, read_head, really_failed};
use self::judge::{Evidence, Life, Verdict, judge};
use self::ledger::Ledger;
use self::nodes::held_nodes;
use self::tail::{Piece, Tail};
use crate::layout;
use crate::pausing;
use crate::read::events::{self, Event, Hold};
use crate::read::metrics::{self, Metrics};
use crate::read::status::{self, Head};
use crate::read::{dagman_out, jobstate};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use windlass_core::requests::book::NodeCounts;
use windlass_core::requests::failures::ByRole;
use windlass_types::requests::{UnitName, UnitStatus};

/// Of what DAGMan says, which grows for as long as it runs. If it was not accepted it has not said much.
const LAST_WORDS: u64 = 1024 * 1024;
/// Room between the numbers of two lines for news that no line tells.
const BETWEEN_LINES: u32 = 20;

/// Follows the DAG in the directory of a run.
#[derive(Debug)]
pub struct Watch {
    run: PathBuf,
    /// The DAGMan that is asked about. `None`: the one that was submitted last.
    cluster: Option<u64>,
    has_units: bool,
    life: Remembered<Vec<Event>>,
    metrics: Remembered<Metrics>,
    status: Remembered<Head>,
    tail: Tail,
    ledger: Ledger,
    groups: Groups,
    /// `None`: nobody wants to know of them.
    attempts: Option<Attempts>,
    news: Vec<UnitNews>,
    /// The number of the last news that was told, here or before a restart.
    told: i64,
    /// Added to numbers, so that they go on growing although the log is another one.
    shift: i64,
}

/// What is known now, and what is new.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    pub state: DagState,
    /// The DAGMan that this is about.
    pub cluster: Option<u64>,
    /// Why DAGMan itself is held, if it is.
    pub dagman_held: Option<Hold>,
    /// Nothing more of it begins.
    pub is_paused: bool,
    /// Nodes inside the units that have begun; those of the others are not known here.
    pub counts: NodeCounts,
    /// Units that are over since the last look, ascending.
    pub units: Vec<UnitNews>,
    /// Those of runs before a rescue included.
    pub units_completed: u32,
    /// In this run.
    pub units_failed: u32,
    /// Attempts that failed since the last look, ascending.
    pub failed: Vec<FailedAttempt>,
    /// How many attempts have ended at each site, in all runs of this directory.
    pub ended: BTreeMap<String, ByRole>,
    /// Nodes that are held now.
    pub held: Vec<HeldNode>,
    /// What could not be read, and why. What is told is then what was known before.
    pub trouble: Option<String>,
}

impl Look {
    /// What waits for a person, and why; in words.
    pub fn tell_held(&self) -> Vec<String> {
        let dagman = self.dagman_held.iter().map(|hold| format!("DAGMan is held: {hold}"));
        // Whoever holds the one pauses the other.
        let is_paused = self.is_paused && self.dagman_held.is_none();
        let paused = is_paused.then(|| "it is paused: nothing more of it begins".to_owned());
        let nodes = self.held.iter().map(|held| {
            let unit = held.unit.map(|unit| format!("{}/", UnitName(unit))).unwrap_or_default();
            format!("{unit}{} is held: {}", held.node, held.hold)
        });
        dagman.chain(paused).chain(nodes).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitNews {
    /// Grows from one to the next, also over restarts and rescues. What is completed may be told twice, with another.
    pub seq: i64,
    pub number: u32,
    /// `Completed` or `Failed`. What failed may be completed by a rescue.
    pub status: UnitStatus,
}

impl Watch {
    /// Whatever DAGMan was last submitted there, from the beginning.
    pub fn new(run: &Path) -> Self {
        Self::of(run, None, 0)
    }

    /// A certain DAGMan, so that nothing of the run before a rescue is taken for its end, and only news after `told`.
    pub fn of(run: &Path, cluster: Option<u64>, told: i64) -> Self {
        Self {
            run: run.to_owned(),
            cluster,
            has_units: layout::unit_directory(run, 0).is_dir(),
            life: Remembered::default(),
            metrics: Remembered::default(),
            status: Remembered::default(),
            tail: Tail::new(run.join(layout::OUTER_JOBSTATE)),
            ledger: Ledger::default(),
            groups: Groups::new(run),
            attempts: Some(Attempts::new(run)),
            news: Vec::new(),
            told,
            shift: 0,
        }
    }

    /// Of failed attempts, too, only those after `told` are news.
    #[must_use]
    pub fn after_failure(mut self, told: i64) -> Self {
        if let Some(attempts) = &mut self.attempts {
            attempts.after(told);
        }
        self
    }

    /// For whoever only wants to know how it stands: attempts are not read, of which there may be a hundred thousand.
    #[must_use]
    pub fn without_attempts(mut self) -> Self {
        self.attempts = None;
        self
    }

    /// The units that failed in the last run of this DAG, of those that were looked at.
    pub(crate) fn failed_units(&self) -> impl Iterator<Item = u32> {
        let is_failed = |(unit, status): (u32, UnitStatus)| (status == UnitStatus::Failed).then_some(unit);
        self.ledger.units().filter_map(is_failed)
    }

    /// Whether the newest rescue file is of the last run: not if that one was removed while it was held, or was lost.
    pub(crate) fn has_last_words(&self) -> bool {
        self.ledger.dagman().is_none() || self.ledger.is_finished()
    }

    /// Reads what has changed. Never fails: what cannot be read is `Unknown`, and the next look tries again.
    pub fn look(&mut self) -> Look {
        let (state, mut trouble) = match self.look_at_dag() {
            Ok(state) => (state, None),
            Err(error) => (DagState::Unknown, Some(error.to_string())),
        };
        let over = matches!(state, DagState::Over(_));
        let counted = self.count(over);
        let (counts, held) = counted.unwrap_or_else(|error| {
            trouble.get_or_insert(error.to_string());
            (self.groups.counts(), Vec::new())
        });
        // After its state: what is over has no more of them.
        if let Err(error) = self.read_attempts() {
            trouble.get_or_insert(error.to_string());
        }
        let told = self.told;
        self.told = self.news.iter().map(|news| news.seq).fold(told, i64::max);
        Look {
            state,
            cluster: self.current(),
            dagman_held: self.dagman_held(),
            is_paused: pausing::is_paused(&self.run),
            counts,
            units: self.news.drain(..).filter(|news| news.seq > told).collect(),
            units_completed: self.ledger.completed(),
            units_failed: self.ledger.failed(),
            failed: self.attempts.as_mut().map(Attempts::take_news).unwrap_or_default(),
            ended: self.attempts.as_ref().map(|attempts| attempts.ended().clone()).unwrap_or_default(),
            held,
            trouble,
        }
    }

    fn read_attempts(&mut self) -> io::Result<()> {
        let Some(attempts) = &mut self.attempts else { return Ok(()) };
        attempts.read()?;
        let is_over = |unit| matches!(self.ledger.status(unit), UnitStatus::Completed | UnitStatus::Failed);
        attempts.forget(is_over);
        Ok(())
    }

    fn look_at_dag(&mut self) -> Result<DagState, Unreadable> {
        let file = |suffix: &str| self.run.join(format!("{}{suffix}", layout::OUTER_DAG));
        let (log, metrics) = (file(layout::DAGMAN_LOG), file(layout::METRICS));
        let status = self.run.join(layout::OUTER_STATUS);
        std::fs::metadata(&self.run).map_err(unreadable(&self.run))?;
        self.life.refresh(&log, |path| Ok(Some(events::parse(&whole(path)?)))).map_err(unreadable(&log))?;
        self.status.refresh(&status, read_head).map_err(unreadable(&status))?;
        self.read_log()?;
        self.metrics
            .refresh(&metrics, |path| Ok(metrics::parse(&whole(path)?)))
            .map_err(unreadable(&metrics))?;
        let state = self.judge()?;
        if matches!(state, DagState::Over(_)) {
            // What was written between reading the log and its end: these are all.
            self.read_log()?;
        }
        self.complete_from_status(&status).map_err(unreadable(&status))?;
        self.check_all_told(&state)?;
        Ok(state)
    }

    fn judge(&self) -> Result<DagState, Unreadable> {
        let cluster = self.current();
        let metrics = self.metrics.get().filter(|metrics| cluster.is_some() && metrics.cluster == cluster);
        let evidence = Evidence {
            life: self.own_life(),
            metrics,
            begun: cluster.is_some() && self.ledger.dagman() == cluster,
            status: self.status.get(),
        };
        match judge(&evidence) {
            Verdict::State(state) => Ok(state),
            Verdict::ReadItsWords { without_metrics } => {
                let path = self.run.join(format!("{}{}", layout::OUTER_DAG, layout::DAGMAN_OUT));
                let words = ending(&path, LAST_WORDS).map_err(unreadable(&path))?;
                let outcome = judge::by_words(&dagman_out::last_run(&words), without_metrics);
                let missing = || io::Error::other("DAGMan has ended, and how is not to be seen yet");
                outcome.map(DagState::Over).ok_or_else(missing).map_err(unreadable(&path))
            }
        }
    }

    /// The DAGMan that is asked about.
    fn current(&self) -> Option<u64> {
        let submitted = || judge::last_submitted(self.life.get()?);
        self.cluster.or_else(submitted).or(self.ledger.dagman())
    }

    fn own_life(&self) -> Option<Life> {
        judge::life(self.life.get()?, self.current()?)
    }

    fn dagman_held(&self) -> Option<Hold> {
        match self.own_life()? {
            Life::Held(hold) => Some(hold),
            _ => None,
        }
    }

    fn read_log(&mut self) -> Result<(), Unreadable> {
        let Self { tail, ledger, groups, news, told, shift, run, .. } = self;
        let outcome = tail.read(|piece| match piece {
            Piece::Anew => {
                *ledger = Ledger::default();
                *groups = Groups::new(run);
                *shift = news.iter().map(|news: &UnitNews| news.seq).fold(*told, i64::max);
            }
            Piece::Line { end, text } => {
                let over = jobstate::parse_line(text).and_then(|line| ledger.take(&line));
                if let Some((number, status)) = over {
                    news.push(UnitNews { seq: shift.saturating_add(seq_of(end)), number, status });
                    if status == UnitStatus::Completed {
                        groups.completed(number);
                    }
                }
            }
        });
        outcome.map_err(unreadable(self.tail.path()))?;
        self.has_units |= self.ledger.units().next().is_some();
        self.mind_another_log();
        Ok(())
    }

    /// What was told before a restart lies beyond the end of the log: it is another one, and all of it is news.
    fn mind_another_log(&mut self) {
        if self.shift == 0 && self.tail.offset() > 0 && self.told >= seq_of(self.tail.offset() + 1) {
            self.shift = self.told;
            for news in &mut self.news {
                news.seq = news.seq.saturating_add(self.shift);
            }
        }
    }

    /// The status file was read before the log. If it knows of more units that are done, the log has lost some.
    fn complete_from_status(&mut self, path: &Path) -> io::Result<()> {
        let done = self.status.get().map_or(0, |head| head.done);
        if !self.has_units || done <= u64::from(self.ledger.completed()) {
            return Ok(());
        }
        let Some(status) = status::parse(&whole(path)?) else { return Ok(()) };
        let done = status.nodes.iter().filter(|node| node.state == status::NodeState::Done);
        for unit in done.filter_map(|node| layout::unit_number(&node.name)) {
            if self.ledger.complete(unit) {
                self.groups.completed(unit);
                let last = self.news.iter().map(|news| news.seq).fold(self.told, i64::max);
                let seq = last.max(self.shift.saturating_add(seq_of(self.tail.offset()))).saturating_add(1);
                self.news.push(UnitNews { seq, number: unit, status: UnitStatus::Completed });
            }
        }
        Ok(())
    }

    /// Whoever hears that all is done takes it that he has heard of every unit.
    fn check_all_told(&self, state: &DagState) -> Result<(), Unreadable> {
        let by_status = || self.status.get().filter(|_| self.has_units).map(|head| head.done);
        let by_metrics = self.metrics.get().map(|metrics| metrics.dags.succeeded);
        let done = by_metrics.or_else(by_status).unwrap_or_default();
        let known = self.ledger.completed();
        if *state != DagState::Over(Outcome::Completed) || done <= u64::from(known) {
            return Ok(());
        }
        let lost = format!("DAGMan says that {done} units are done, and only {known} of them can be found");
        Err(unreadable(self.tail.path())(io::Error::other(lost)))
    }

    fn count(&mut self, over: bool) -> io::Result<(NodeCounts, Vec<HeldNode>)> {
        if self.has_units {
            self.groups.look(&self.ledger, over)?;
            return Ok((self.groups.counts(), self.groups.held().cloned().collect()));
        }
        let Some(head) = self.status.get() else { return Ok(Default::default()) };
        let counts = counts(head, really_failed(&self.run, layout::OUTER_DAG, head)?);
        let held = if counts.held > 0 { held_nodes(&self.run, None)? } else { Vec::new() };
        Ok((counts, held))
    }
}

fn seq_of(end: u64) -> i64 {
    i64::try_from(end).ok().and_then(|end| end.checked_mul(1 << BETWEEN_LINES)).unwrap_or(i64::MAX)
}

/// A file that is there, or should be, and cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
struct Unreadable {
    path: PathBuf,
    source: io::Error,
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Unreadable {
    let path = path.to_owned();
    move |source| Unreadable { path, source }
}

#[cfg(test)]
mod tests;
