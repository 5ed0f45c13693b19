//! The nodes that workers are on: which of them fail what others do not, and get nothing for a while. What is decided, and
//! why, is in [`windlass_core::nodes`].

use super::clock::Moment;
use super::mate::Mate;
use super::office::{Office, Slot, refused};
use super::talk::{Refused, Reply};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};
use windlass_core::classify::NodeRecord;
use windlass_core::nodes::{Outcome, Probe, Records, Standing, Work, is_telling, spell};
use windlass_store::model::{NewEvent, NodeAside, Severity};
use windlass_types::work::{AttemptKey, EndCause};
use windlass_types::{FailureClass, JobId, JobStatus, WorkerId};

/// By whom nodes are set aside that nobody set aside.
const NOBODY: &str = "windlass";

/// The workers that are blamed and set aside together: those of one user on one host. Whoever introduces a worker says on
/// which host it is, so what it does says nothing about the workers of others; unless the operator of the server shares the
/// blame, then all workers on a host are one node, and the user is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeKey {
    host: String,
    user: String,
}

impl NodeKey {
    fn of_all(host: &str) -> Self {
        Self { host: host.to_owned(), user: String::new() }
    }

    /// As records are kept under: hosts have no control characters in them.
    fn name(&self) -> String {
        format!("{}\n{}", self.host, self.user)
    }

    fn user(&self) -> Option<String> {
        (!self.user.is_empty()).then(|| self.user.clone())
    }

    /// What is said of this node concerns the workers of that one.
    fn covers(&self, other: &Self) -> bool {
        self.host == other.host && (self.user.is_empty() || self.user == other.user)
    }
}

#[derive(Default)]
pub(super) struct Nodes {
    workers: BTreeMap<NodeKey, BTreeSet<WorkerId>>,
    records: Records,
    aside: BTreeMap<NodeKey, Aside>,
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
    /// What keeps the workers of a node from jobs, if anything does: what was said of all workers there, or of these.
    fn holding(&self, node: &NodeKey) -> Option<(&NodeKey, &Aside)> {
        let of_all = self.aside.get_key_value(&NodeKey::of_all(&node.host));
        let own = self.aside.get_key_value(node);
        let holds = |aside: &Aside| aside.standing() == Standing::SetAside;
        match (of_all, own) {
            (Some((_, all)), Some((_, one))) if holds(one) && !holds(all) => own,
            (Some(_), _) => of_all,
            (None, _) => own,
        }
    }

    fn standing(&self, node: &NodeKey) -> Standing {
        self.holding(node).map(|(_, aside)| aside.standing()).unwrap_or_default()
    }

    /// Why the node gets nothing, or little.
    pub(super) fn aside(&self, node: &NodeKey) -> Option<&NodeAside> {
        self.holding(node).map(|(_, aside)| &aside.row)
    }

    /// How it did lately, and how others did.
    pub(super) fn record(&self, node: &NodeKey) -> NodeRecord {
        self.records.record(&node.name())
    }

    /// The workers that something said of this node concerns.
    fn concerned<'a>(&'a self, node: &'a NodeKey) -> impl Iterator<Item = WorkerId> + 'a {
        let covered = self.workers.iter().filter(|(other, _)| node.covers(other));
        covered.flat_map(|(_, workers)| workers.iter().copied())
    }

    fn leave(&mut self, node: &NodeKey, worker: WorkerId) {
        let Some(workers) = self.workers.get_mut(node) else { return };
        workers.remove(&worker);
        if workers.is_empty() {
            self.workers.remove(node);
            self.records.forget(&node.name());
        }
    }
}

impl Office {
    /// What the books say.
    pub(super) fn recall_nodes(&mut self) -> Result<(), windlass_store::Error> {
        let now = self.now;
        let rows = self.store.nodes_aside()?.into_iter();
        let key =
            |row: &NodeAside| NodeKey { host: row.host.clone(), user: row.user.clone().unwrap_or_default() };
        self.nodes.aside = rows.map(|row| (key(&row), Aside::new(row, now))).collect();
        Ok(())
    }

    /// The worker is on this node, and stands as it does.
    pub(super) fn settle_on_node(&mut self, worker: WorkerId, host: &str) {
        let Some(mate) = self.mates.get_mut(&worker) else { return };
        let user = if self.options.shares_node_blame { String::new() } else { mate.user.clone() };
        let node = NodeKey { host: host.to_owned(), user };
        let before = std::mem::replace(&mut mate.node, node.clone());
        mate.standing = self.nodes.standing(&node);
        if before != node {
            self.nodes.leave(&before, worker);
        }
        self.nodes.workers.entry(node).or_default().insert(worker);
    }

    pub(super) fn leave_node(&mut self, mate: &Mate, worker: WorkerId) {
        self.nodes.leave(&mate.node, worker);
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
                let name = mate.node.name();
                self.nodes.records.note(&name, outcome);
                if failed.is_some()
                    && let Some(evidence) = self.nodes.records.weigh(&name)
                {
                    let node = mate.node.clone();
                    self.put_aside(&node, evidence.to_string(), serde_json::json!(evidence));
                }
            }
            // What it had before says nothing new.
            Standing::SetAside => {}
            Standing::OnProbation => {
                let node = mate.node.clone();
                self.judge_probe(&node, key, outcome);
            }
        }
    }

    fn judge_probe(&mut self, node: &NodeKey, key: &AttemptKey, outcome: Outcome) {
        let Some((held_by, aside)) = self.nodes.holding(node) else { return };
        let (held_by, is_probe) = (held_by.clone(), aside.probe == Some(key.job));
        let name = node.name();
        let verdict = self.nodes.records.judge_probe(&name, outcome, is_probe);
        self.nodes.records.note(&name, outcome);
        let AttemptKey { workflow, job, .. } = key;
        match verdict {
            Probe::Passed => {
                let why = format!("job {job} of workflow {workflow} went well there");
                // If it cannot be written, the next job that goes well says it again.
                drop(self.trust(&held_by, &why, NOBODY));
            }
            Probe::Failed => {
                let reason = format!("job {job} of workflow {workflow} failed there on probation");
                self.put_aside(
                    &held_by,
                    reason,
                    serde_json::json!({ "probe": job, "class": outcome.failed }),
                );
            }
            Probe::Unclear => {}
        }
    }

    /// Sets a node aside for what it did, unless nobody else could do its work.
    fn put_aside(&mut self, node: &NodeKey, reason: String, evidence: serde_json::Value) {
        if !self.has_stand_in(node) {
            return;
        }
        let since = self.now.wall;
        let before = self.nodes.aside.get(node).map(Aside::spell);
        let row = NodeAside {
            host: node.host.clone(),
            user: node.user(),
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
        let now = self.now;
        let node = NodeKey { host: row.host.clone(), user: row.user.clone().unwrap_or_default() };
        self.store.acting_as(by).set_node_aside(&row, now.wall).map_err(|error| refused(&error))?;
        self.tell_of_commit();
        for covered in self.nodes.workers.keys().filter(|other| node.covers(other)) {
            self.nodes.records.forget(&covered.name());
        }
        self.nodes.aside.insert(node.clone(), Aside::new(row, now));
        self.apply_standing(&node);
        Ok(())
    }

    fn trust(&mut self, node: &NodeKey, why: &str, by: &str) -> Result<bool, Refused> {
        let (store, user) = (self.store.acting_as(by), Some(node.user.as_str()));
        let released = store.release_node(&node.host, user, why, self.now.wall);
        let was_aside = released.map_err(|error| refused(&error))?;
        self.tell_of_commit();
        self.nodes.aside.remove(node);
        self.apply_standing(node);
        Ok(was_aside)
    }

    /// Its workers learn how their node stands. What they have stays theirs.
    fn apply_standing(&mut self, node: &NodeKey) {
        for worker in self.nodes.concerned(node).collect::<Vec<_>>() {
            let Some(mate) = self.mates.get_mut(&worker) else { continue };
            let standing = self.nodes.standing(&mate.node);
            mate.standing = standing;
            if standing != Standing::Trusted {
                self.free_what_was_reserved(worker);
            }
            self.note_waiting(worker);
            self.roused.insert(worker);
        }
    }

    /// Somebody else takes the jobs that this node would get, as far as anybody knows.
    fn has_stand_in(&self, node: &NodeKey) -> bool {
        let mine = self.nodes.concerned(node);
        let crews: HashSet<_> = mine.filter_map(|worker| self.mates.get(&worker)?.crew).collect();
        self.mates.values().any(|mate| {
            // Whoever has not come back to a server that was restarted may yet do so.
            let does_the_same = mate.crew.is_none_or(|crew| crews.contains(&crew));
            mate.node.host != node.host
                && mate.standing == Standing::Trusted
                && mate.is_staying()
                && does_the_same
        })
    }

    /// Those whose time is over are tried with a job; before that those that nobody can stand in for any more.
    pub(super) fn look_at_nodes(&mut self) {
        let now = self.now;
        let mut due = Vec::new();
        for (node, aside) in self.nodes.aside.iter().filter(|(_, aside)| !aside.is_on_probation) {
            let is_here = || self.nodes.concerned(node).next().is_some();
            if aside.row.until <= now.wall || aside.ends <= now.at {
                due.push((node.clone(), "its time is over"));
            } else if !aside.is_by_hand() && is_here() && !self.has_stand_in(node) {
                due.push((node.clone(), "nobody else is left to do its work"));
            }
        }
        for (node, why) in due {
            if let Some(aside) = self.nodes.aside.get_mut(&node) {
                aside.is_on_probation = true;
            }
            self.apply_standing(&node);
            self.note_probation(&node, why);
        }
    }

    fn note_probation(&self, node: &NodeKey, why: &str) {
        let (host, user) = (&node.host, node.user());
        let event = NewEvent {
            workflow: None,
            job: None,
            severity: Severity::Info,
            category: "node_on_probation".to_owned(),
            message: format!("node {host} gets one job at a time until one goes well: {why}"),
            data: Some(serde_json::json!({ "host": host, "user": user, "reason": why })),
        };
        // That it was set aside, and until when, is in the books in any case.
        drop(self.store.acting_as(NOBODY).add_event(&event, self.now.wall));
        self.tell_of_commit();
    }

    /// A job by which the node could be tried is not under way yet.
    pub(super) fn may_be_probed(&self, worker: WorkerId) -> bool {
        let Some(mate) = self.mates.get(&worker) else { return false };
        let Some((node, aside)) = self.nodes.holding(&mate.node) else { return true };
        let mut beside = self.nodes.concerned(node);
        let has = |job| move |mate: &Mate| mate.held.contains_key(&job);
        aside.probe.is_none_or(|job| !beside.any(|worker| self.mates.get(&worker).is_some_and(has(job))))
    }

    /// What was given to the worker since it had these is what its node is tried with.
    pub(super) fn note_probe(&mut self, worker: WorkerId, before: &HashSet<JobId>) {
        let Some(mate) = self.mates.get(&worker) else { return };
        let given = mate.held.keys().find(|job| !before.contains(job)).copied();
        let node = self.nodes.holding(&mate.node).map(|(node, _)| node.clone());
        if let (Some(job), Some(aside)) = (given, node.and_then(|node| self.nodes.aside.get_mut(&node))) {
            aside.probe = Some(job);
        }
    }

    pub(super) fn on_set_node_aside(&mut self, node: NodeAside, by: &str, reply: Reply<NodeAside>) {
        if node.host.is_empty() || node.until <= self.now.wall {
            let detail = "a node has a name, and is set aside until some time to come".to_owned();
            return reply(Err(Refused::Invalid { code: "invalid", detail }));
        }
        let row =
            NodeAside { since: self.now.wall, set_by: by.to_owned(), evidence: None, user: None, ..node };
        reply(self.note_aside(row.clone(), by).map(|()| row));
    }

    pub(super) fn on_release_node(&mut self, host: &str, by: &str, reply: Reply<()>) {
        let why = format!("{by} says so");
        let released = self.store.acting_as(by).release_node(host, None, &why, self.now.wall);
        reply(match released {
            Ok(true) => {
                self.tell_of_commit();
                self.nodes.aside.retain(|node, _| node.host != host);
                self.apply_standing(&NodeKey::of_all(host));
                Ok(())
            }
            Ok(false) => Err(Refused::NotFound(format!("node {host} is not set aside"))),
            Err(error) => Err(refused(&error)),
        });
    }
}
