//! What dead agents of this machine left: their processes are ended, and the results that they could not deliver go to
//! the server, in their name.

use crate::home::{Home, Notes};
use crate::journal::{Entry, Journal, is_last_word, key_of};
use crate::{Error, crew};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;
use windlass_client::Client;
use windlass_proc::bury;
use windlass_types::WorkerId;
use windlass_types::fleet::{ActionReport, Comeback, Exchange, Introduction, Welcome};
use windlass_types::work::{AttemptKey, Ended as JobEnd, Report, ReturnReason};
use windlass_worker::read_ends;

/// How long a call may take.
const WITHIN: Duration = Duration::from_secs(20);
/// So many reports go in one exchange.
const BATCH: usize = Exchange::MOST_REPORTS;

/// What one dead agent left, after its processes were ended.
#[derive(Debug)]
pub(crate) struct Legacy {
    home: Home,
    notes: Notes,
    entries: Vec<Entry>,
    /// What had started there lately, or may have.
    started: Vec<AttemptKey>,
    /// The ends that its worker process recorded, whether or not they were delivered.
    ends: HashMap<AttemptKey, JobEnd>,
}

/// An agent that was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Where its server was.
    pub url: String,
    /// Who it was there.
    pub worker: Option<WorkerId>,
}

/// Ends all agents that keep their directories here, alive or dead, with all that they started: for whoever started them
/// for himself, and knows that nobody wants them any more. What they could not deliver stays for the next agent here.
pub fn end_all(state_dir: &Path) -> Result<Vec<Ended>, Error> {
    let mut ended = Vec::new();
    for notes in Home::all_notes(state_dir) {
        // The agent first: it would start its crew anew.
        let processes = notes.agent.iter().chain(&notes.crew);
        let mut buried = processes.map(|process| crew::bury_of(process, &notes.host, &notes.boot_id));
        match buried.try_for_each(|one| one.map(drop)) {
            Ok(()) => ended.push(Ended { url: notes.url, worker: notes.me.map(|me| me.worker) }),
            // The directory is shared with another machine, where nothing can be ended from here.
            Err(bury::Error::OtherHost { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ended)
}

/// Makes sure that nothing of them lives.
pub(crate) fn bury_all(state_dir: &Path) -> Result<Vec<Legacy>, Error> {
    let mut found = Vec::new();
    for home in Home::abandoned(state_dir) {
        // Without notes it had not begun to do anything.
        let Ok(notes) = home.notes() else {
            home.remove();
            continue;
        };
        let mut started = Vec::new();
        let mut is_elsewhere = false;
        for process in notes.crew.iter().chain(&notes.agent) {
            match crew::bury_of(process, &notes.host, &notes.boot_id) {
                Ok(report) => started.extend(report.started.unwrap_or_default()),
                // The directory is shared with another machine, whose agents look after it.
                Err(bury::Error::OtherHost { .. }) => is_elsewhere = true,
                Err(error) => return Err(error.into()),
            }
        }
        let entries = Journal::read(&home.journal());
        // What cannot be read is left alone: it may be read another time.
        if let (false, Ok(entries)) = (is_elsewhere, entries) {
            let ends = notes.crew.iter().flat_map(|crew| read_ends(&crew.ledger)).collect();
            found.push(Legacy { home, notes, entries, started, ends });
        }
    }
    Ok(found)
}

impl Legacy {
    /// Tells the server, if it is the one that the dead agent worked for. Returns how many results it got.
    pub(crate) fn deliver(
        self,
        client: &Client,
        as_me: &Introduction,
    ) -> Result<usize, windlass_client::Error> {
        let here = self.notes.url == client.url();
        let Some(me) = self.notes.me.clone().filter(|_| here) else {
            if self.entries.is_empty() {
                self.home.remove();
            }
            return Ok(0);
        };
        let held = self.reported().chain(self.started.iter().copied()).collect::<HashSet<_>>();
        let ended = self.entries.iter().filter_map(|entry| match entry {
            Entry::Action(report) => Some((report.action, report.attempt)),
            Entry::Report(_) => None,
        });
        let (held, actions) = (held.into_iter().collect(), ended.collect());
        let before = Comeback { worker: me.worker, secret: me.secret, held, actions };
        let who = Introduction {
            before: Some(before),
            labels: Vec::new(),
            workflow: None,
            allocation: None,
            slurm: None,
            ..as_me.clone()
        };
        let welcome = client.introduce(&who, WITHIN)?;
        let (reports, actions) = self.words(&welcome.lost);
        let count = self.entries.len();
        say_all(client, &welcome, &reports, actions)?;
        self.home.remove();
        Ok(count)
    }

    fn reported(&self) -> impl Iterator<Item = AttemptKey> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Report(report) => Some(key_of(report)),
            Entry::Action(_) => None,
        })
    }

    /// All results, also those that come too late: that can then be seen at the server. And what died with its worker.
    fn words(&self, lost: &[AttemptKey]) -> (Vec<Report>, Vec<ActionReport>) {
        let (mut reports, mut actions) = (Vec::new(), Vec::new());
        let mut settled: HashSet<AttemptKey> = lost.iter().copied().collect();
        for entry in &self.entries {
            match entry {
                Entry::Report(report) => {
                    if is_last_word(report) {
                        settled.insert(key_of(report));
                    }
                    reports.push(report.clone());
                }
                Entry::Action(report) => actions.push(report.clone()),
            }
        }
        // What the server still waits for: jobs that ended without its learning of it, and those that died.
        for key in self.started.iter().filter(|key| !settled.contains(key)) {
            let died = || Report::Returned { key: *key, why: ReturnReason::WorkerDied };
            reports.push(self.ends.get(key).cloned().map_or_else(died, Report::Ended));
        }
        (reports, actions)
    }
}

/// In the name of the dead one, which then leaves.
fn say_all(
    client: &Client,
    welcome: &Welcome,
    reports: &[Report],
    actions: Vec<ActionReport>,
) -> Result<(), windlass_client::Error> {
    let mut actions = Some(actions);
    let batches = reports.len().div_ceil(BATCH).max(1);
    for number in 1..=batches {
        let batch = reports.iter().skip((number - 1) * BATCH).take(BATCH);
        let exchange = Exchange {
            worker: welcome.worker,
            secret: welcome.secret.clone(),
            number: number as u64,
            reports: batch.cloned().collect(),
            actions: actions.take().unwrap_or_default(),
            wait: Duration::ZERO,
            time_left: None,
            draining: true,
            leaving: number == batches,
        };
        client.exchange(&exchange, WITHIN)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::work::{EndCause, Exit, Usage};
    use windlass_types::{Attempt, JobId, RunId, Timestamp, WorkflowId};

    fn key(job: i64) -> AttemptKey {
        AttemptKey { workflow: WorkflowId(1), job: JobId(job), run: RunId(1), attempt: Attempt(1) }
    }

    #[test]
    fn ends_that_were_recorded_and_not_delivered_are_delivered_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::create(directory.path()).unwrap();
        let end = |job| JobEnd {
            key: key(job),
            started_at: Timestamp(1),
            ended_at: Timestamp(2),
            wall: Duration::ZERO,
            exit: Exit::Code(0),
            cause: EndCause::Itself,
            usage: Usage::default(),
            files: None,
            last_words: None,
            recovered: None,
        };
        // 1 is with the server already, 2 ended, 3 ran, 4 is in the journal.
        let legacy = Legacy {
            home,
            notes: Notes::default(),
            entries: vec![Entry::Report(Report::Ended(end(4)))],
            started: vec![key(1), key(2), key(3), key(4)],
            ends: [1, 2, 4].map(|job| (key(job), end(job))).into(),
        };
        let (reports, _) = legacy.words(&[key(1)]);
        let died = Report::Returned { key: key(3), why: ReturnReason::WorkerDied };
        assert_eq!(reports, [Report::Ended(end(4)), Report::Ended(end(2)), died]);
        legacy.home.remove();
    }
}
