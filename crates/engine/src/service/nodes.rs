//! The nodes that workers are on: which of them fail what others do not, and get nothing for a while. What is decided, and
//! why, is in [`windlass_core::nodes`].

use super::clock::Moment;
use super::mate::Mate;
use super::office::{Office, Slot, refused};
use super::talk::{Refused, Reply};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};
use windlass_core::classify::NodeRecord;
use windlass_core::nodes::{Outcome, Probe, Records, Standing, Work, is_telling, spell};
use windlass_store::model::{NewEvent, NodeAside, Severity};
use windlass_types::work::{AttemptKey, EndCause};
use windlass_types::{FailureClass, JobId, JobStatus, WorkerId};

/// By whom nodes are set aside that nobody set aside.
const NOBODY: &str = "windlass";

#[derive(Default)]
pub(super) struct Nodes {
    workers: HashMap<String, BTreeSet<WorkerId>>,
    records: Records,
    aside: BTreeMap<String, Aside>,
}

struct Aside {
    row: NodeAside,
    /// The latest end of its time: it is no longer than it was meant to be, whatever the wall clock does.
    ends: Instant,
    /// The job that decides whether it is trusted again.
    probe: Option<JobId>,
    /// It was said that its time is over.
    is_on_probation: bool,
}

impl Aside {
    fn new(row: NodeAside, now: Moment) -> Self {
        let is_on_probation = Standing::of(Some(row.until), now.wall) == Standing::OnProbation;
        let left = row.until.since(now.wall).min(row.until.since(row.since));
        Self { row, ends: now.at + left, probe: None, is_on_probation }
    }

    fn spell(&self) -> Duration {
        self.row.until.since(self.row.since)
    }

    const fn is_by_hand(&self) -> bool {
        self.row.evidence.is_none()
    }

    const fn standing(&self) -> Standing {
        if self.is_on_probation { Standing::OnProbation } else { Standing::SetAside }
    }
}

impl Nodes {
    fn standing(&self, host: &str) -> Standing {
        self.aside.get(host).map(Aside::standing).unwrap_or_default()
    }

    /// Why the node gets nothing, or little.
    pub(super) fn aside(&self, host: &str) -> Option<&NodeAside> {
        self.aside.get(host).map(|aside| &aside.row)
    }

    /// How it did lately, and how others did.
    pub(super) fn record(&self, host: &str) -> NodeRecord {
        self.records.record(host)
    }

    fn leave(&mut self, host: &str, worker: WorkerId) {
        let Some(workers) = self.workers.get_mut(host) else { return };
        workers.remove(&worker);
        if workers.is_empty() {
            self.workers.remove(host);
            self.records.forget(host);
        }
    }
}

impl Office {
    /// What the books say.
    pub(super) fn recall_nodes(&mut self) -> Result<(), windlass_store::Error> {
        let now = self.now;
        let rows = self.store.nodes_aside()?.into_iter();
        self.nodes.aside = rows.map(|row| (row.host.clone(), Aside::new(row, now))).collect();
        Ok(())
    }

    /// The worker is on this node, and stands as it does.
    pub(super) fn settle_on_node(&mut self, worker: WorkerId, host: &str) {
        let Some(mate) = self.mates.get_mut(&worker) else { return };
        let before = std::mem::replace(&mut mate.host, host.to_owned());
        mate.standing = self.nodes.standing(host);
        if before != host {
            self.nodes.leave(&before, worker);
        }
        self.nodes.workers.entry(host.to_owned()).or_default().insert(worker);
    }

    pub(super) fn leave_node(&mut self, mate: &Mate, worker: WorkerId) {
        self.nodes.leave(&mate.host, worker);
    }

    /// An attempt ended: what that says of the node.
    pub(super) fn weigh_node(
        &mut self,
        worker: WorkerId,
        key: &AttemptKey,
        (status, cause): (JobStatus, &EndCause),
        class: Option<FailureClass>,
    ) {
        if !is_telling(status, cause) {
            return;
        }
        let failed = (status == JobStatus::Failed).then(|| class.unwrap_or(FailureClass::Unknown));
        let (Some(Slot::Open(desk)), Some(mate)) = (self.slots.get(&key.workflow), self.mates.get(&worker))
        else {
            return;
        };
        let Some(job) = desk.board.index(key.job) else { return };
        let work = Work::of(key.workflow, &desk.board.demand(job).place);
        let outcome = Outcome { work, job: key.job, failed };
        match mate.standing {
            Standing::Trusted => {
                self.nodes.records.note(&mate.host, outcome);
                if failed.is_some()
                    && let Some(evidence) = self.nodes.records.weigh(&mate.host)
                {
                    let host = mate.host.clone();
                    self.put_aside(&host, evidence.to_string(), serde_json::json!(evidence));
                }
            }
            // What it had before says nothing new.
            Standing::SetAside => {}
            Standing::OnProbation => {
                let host = mate.host.clone();
                self.judge_probe(&host, key, outcome);
            }
        }
    }

    fn judge_probe(&mut self, host: &str, key: &AttemptKey, outcome: Outcome) {
        let is_probe = self.nodes.aside.get(host).is_some_and(|aside| aside.probe == Some(key.job));
        let verdict = self.nodes.records.judge_probe(host, outcome, is_probe);
        self.nodes.records.note(host, outcome);
        let AttemptKey { workflow, job, .. } = key;
        match verdict {
            Probe::Passed => {
                let why = format!("job {job} of workflow {workflow} went well there");
                // If it cannot be written, the next job that goes well says it again.
                drop(self.trust(host, &why, NOBODY));
            }
            Probe::Failed => {
                let reason = format!("job {job} of workflow {workflow} failed there on probation");
                self.put_aside(host, reason, serde_json::json!({ "probe": job, "class": outcome.failed }));
            }
            Probe::Unclear => {}
        }
    }

    /// Sets a node aside for what it did, unless nobody else could do its work.
    fn put_aside(&mut self, host: &str, reason: String, evidence: serde_json::Value) {
        if !self.has_stand_in(host) {
            return;
        }
        let since = self.now.wall;
        let before = self.nodes.aside.get(host).map(Aside::spell);
        let row = NodeAside {
            host: host.to_owned(),
            since,
            until: since.after(spell(before)),
            set_by: NOBODY.to_owned(),
            reason,
            evidence: Some(evidence),
        };
        // If it cannot be written, its next failure says it again.
        drop(self.note_aside(row, NOBODY));
    }

    /// In the books first: whoever starts this service again is to know it too.
    fn note_aside(&mut self, row: NodeAside, by: &str) -> Result<(), Refused> {
        let (now, host) = (self.now, row.host.clone());
        self.store.acting_as(by).set_node_aside(&row, now.wall).map_err(|error| refused(&error))?;
        self.tell_of_commit();
        self.nodes.records.forget(&host);
        self.nodes.aside.insert(host.clone(), Aside::new(row, now));
        self.apply_standing(&host);
        Ok(())
    }

    fn trust(&mut self, host: &str, why: &str, by: &str) -> Result<bool, Refused> {
        let store = self.store.acting_as(by);
        let was_aside = store.release_node(host, why, self.now.wall).map_err(|error| refused(&error))?;
        self.tell_of_commit();
        self.nodes.aside.remove(host);
        self.apply_standing(host);
        Ok(was_aside)
    }

    /// Its workers learn how their node stands. What they have stays theirs.
    fn apply_standing(&mut self, host: &str) {
        let standing = self.nodes.standing(host);
        for worker in self.nodes.workers.get(host).cloned().unwrap_or_default() {
            let Some(mate) = self.mates.get_mut(&worker) else { continue };
            mate.standing = standing;
            if standing != Standing::Trusted {
                self.free_what_was_reserved(worker);
            }
            self.note_waiting(worker);
            self.roused.insert(worker);
        }
    }

    /// Somebody else takes the jobs that this node would get, as far as anybody knows.
    fn has_stand_in(&self, host: &str) -> bool {
        let mine = self.nodes.workers.get(host).into_iter().flatten();
        let crews: HashSet<_> = mine.filter_map(|worker| self.mates.get(worker)?.crew).collect();
        self.mates.values().any(|mate| {
            // Whoever has not come back to a server that was restarted may yet do so.
            let does_the_same = mate.crew.is_none_or(|crew| crews.contains(&crew));
            mate.host != host && mate.standing == Standing::Trusted && mate.is_staying() && does_the_same
        })
    }

    /// Those whose time is over are tried with a job; before that those that nobody can stand in for any more.
    pub(super) fn look_at_nodes(&mut self) {
        let now = self.now;
        let mut due = Vec::new();
        for (host, aside) in self.nodes.aside.iter().filter(|(_, aside)| !aside.is_on_probation) {
            let is_here = || self.nodes.workers.contains_key(host);
            if aside.row.until <= now.wall || aside.ends <= now.at {
                due.push((host.clone(), "its time is over"));
            } else if !aside.is_by_hand() && is_here() && !self.has_stand_in(host) {
                due.push((host.clone(), "nobody else is left to do its work"));
            }
        }
        for (host, why) in due {
            if let Some(aside) = self.nodes.aside.get_mut(&host) {
                aside.is_on_probation = true;
            }
            self.apply_standing(&host);
            self.note_probation(&host, why);
        }
    }

    fn note_probation(&self, host: &str, why: &str) {
        let event = NewEvent {
            workflow: None,
            job: None,
            severity: Severity::Info,
            category: "node_on_probation".to_owned(),
            message: format!("node {host} gets one job at a time until one goes well: {why}"),
            data: Some(serde_json::json!({ "host": host, "reason": why })),
        };
        // That it was set aside, and until when, is in the books in any case.
        drop(self.store.acting_as(NOBODY).add_event(&event, self.now.wall));
        self.tell_of_commit();
    }

    /// A job by which the node could be tried is not under way yet.
    pub(super) fn may_be_probed(&self, worker: WorkerId) -> bool {
        let Some(mate) = self.mates.get(&worker) else { return false };
        let probe = self.nodes.aside.get(&mate.host).and_then(|aside| aside.probe);
        let mut beside = self.nodes.workers.get(&mate.host).into_iter().flatten();
        let has = |job| move |mate: &Mate| mate.held.contains_key(&job);
        probe.is_none_or(|job| !beside.any(|worker| self.mates.get(worker).is_some_and(has(job))))
    }

    /// What was given to the worker since it had these is what its node is tried with.
    pub(super) fn note_probe(&mut self, worker: WorkerId, before: &HashSet<JobId>) {
        let Some(mate) = self.mates.get(&worker) else { return };
        let given = mate.held.keys().find(|job| !before.contains(job)).copied();
        if let (Some(job), Some(aside)) = (given, self.nodes.aside.get_mut(&mate.host)) {
            aside.probe = Some(job);
        }
    }

    pub(super) fn on_set_node_aside(&mut self, node: NodeAside, by: &str, reply: Reply<NodeAside>) {
        if node.host.is_empty() || node.until <= self.now.wall {
            let detail = "a node has a name, and is set aside until some time to come".to_owned();
            return reply(Err(Refused::Invalid { code: "invalid", detail }));
        }
        let row = NodeAside { since: self.now.wall, set_by: by.to_owned(), evidence: None, ..node };
        reply(self.note_aside(row.clone(), by).map(|()| row));
    }

    pub(super) fn on_release_node(&mut self, host: &str, by: &str, reply: Reply<()>) {
        reply(match self.trust(host, &format!("{by} says so"), by) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refused::NotFound(format!("node {host} is not set aside"))),
            Err(why) => Err(why),
        });
    }
}
