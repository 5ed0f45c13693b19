//! The quarantine of nodes: a node whose workers fail jobs that succeed elsewhere gets no jobs for a while. The
//! rules are in [`windlass_core::node_quarantine`].

use super::call_types::{CallError, CallReply};
use super::clock::TimePoint;
use super::scheduler::{Scheduler, WorkflowSlot, store_call_error};
use super::worker_session::WorkerSession;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};
use windlass_core::classify::NodeFailureCounts;
use windlass_core::node_quarantine::{
    ComparableWork, NodeAttemptHistory, NodeAttemptOutcome, NodeEligibility, ProbeResult, concerns_node,
    quarantine_duration,
};
use windlass_store::model::{EventSeverity, NewEvent, NodeQuarantineRow};
use windlass_types::worker_messages::{AttemptEndCause, AttemptKey};
use windlass_types::{FailureClass, JobId, JobStatus, WorkerId};

/// The user recorded for automatic quarantines.
const AUTOMATIC_USER: &str = "windlass";

/// The workers that are quarantined together: those of one user on one host. The client that registers a worker
/// states its host, so its failures must not affect workers of other users; unless the operator of the server
/// shares the blame: then all workers on a host are one node, and the user is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeKey {
    host: String,
    user: String,
}

impl NodeKey {
    fn for_all_users(host: &str) -> Self {
        Self { host: host.to_owned(), user: String::new() }
    }

    /// The key of its records: hosts contain no control characters.
    fn name(&self) -> String {
        format!("{}\n{}", self.host, self.user)
    }

    fn user(&self) -> Option<String> {
        (!self.user.is_empty()).then(|| self.user.clone())
    }

    /// Whether a quarantine of this node applies to workers of that one.
    fn includes(&self, other: &Self) -> bool {
        self.host == other.host && (self.user.is_empty() || self.user == other.user)
    }
}

#[derive(Default)]
pub(super) struct NodeRegistry {
    workers: BTreeMap<NodeKey, BTreeSet<WorkerId>>,
    records: NodeAttemptHistory,
    quarantined: BTreeMap<NodeKey, ActiveQuarantine>,
}

struct ActiveQuarantine {
    row: NodeQuarantineRow,
    /// The latest end on the monotonic clock, so that changes of the wall clock do not prolong it.
    ends_at: Instant,
    /// The probe job, which decides whether it is trusted again.
    probe_job: Option<JobId>,
    /// Its time has expired, and probation was announced.
    is_on_probation: bool,
}

impl ActiveQuarantine {
    fn new(row: NodeQuarantineRow, now: TimePoint) -> Self {
        let is_on_probation =
            NodeEligibility::from_quarantine(Some(row.until), now.timestamp) == NodeEligibility::OnProbation;
        let left = row.until.since(now.timestamp).min(row.until.since(row.since));
        Self { row, ends_at: now.instant + left, probe_job: None, is_on_probation }
    }

    fn duration(&self) -> Duration {
        self.row.until.since(self.row.since)
    }

    const fn is_manual(&self) -> bool {
        self.row.evidence.is_none()
    }

    const fn standing(&self) -> NodeEligibility {
        if self.is_on_probation { NodeEligibility::OnProbation } else { NodeEligibility::Quarantined }
    }
}

impl NodeRegistry {
    /// The quarantine that applies to the workers of a node, if any: that of all workers on the host, or of
    /// this node.
    fn find_quarantine(&self, node: &NodeKey) -> Option<(&NodeKey, &ActiveQuarantine)> {
        let of_all = self.quarantined.get_key_value(&NodeKey::for_all_users(&node.host));
        let own = self.quarantined.get_key_value(node);
        let holds = |quarantine: &ActiveQuarantine| quarantine.standing() == NodeEligibility::Quarantined;
        match (of_all, own) {
            (Some((_, all)), Some((_, one))) if holds(one) && !holds(all) => own,
            (Some(_), _) => of_all,
            (None, _) => own,
        }
    }

    fn standing(&self, node: &NodeKey) -> NodeEligibility {
        self.find_quarantine(node).map(|(_, quarantine)| quarantine.standing()).unwrap_or_default()
    }

    /// The quarantine of the node, for display.
    pub(super) fn quarantine_of(&self, node: &NodeKey) -> Option<&NodeQuarantineRow> {
        self.find_quarantine(node).map(|(_, quarantine)| &quarantine.row)
    }

    /// The recent failure counts of the node and of others.
    pub(super) fn failure_record(&self, node: &NodeKey) -> NodeFailureCounts {
        self.records.failure_counts(&node.name())
    }

    /// The workers that a quarantine of this node applies to.
    fn affected_workers<'a>(&'a self, node: &'a NodeKey) -> impl Iterator<Item = WorkerId> + 'a {
        let covered = self.workers.iter().filter(|(other, _)| node.includes(other));
        covered.flat_map(|(_, workers)| workers.iter().copied())
    }

    fn remove_worker(&mut self, node: &NodeKey, worker: WorkerId) {
        let Some(workers) = self.workers.get_mut(node) else { return };
        workers.remove(&worker);
        if workers.is_empty() {
            self.workers.remove(node);
            self.records.forget_node(&node.name());
        }
    }
}

impl Scheduler {
    /// Loads the quarantines from the database.
    pub(super) fn load_quarantined_nodes(&mut self) -> Result<(), windlass_store::StoreError> {
        let now = self.now;
        let rows = self.store.quarantined_nodes()?.into_iter();
        let key = |row: &NodeQuarantineRow| NodeKey {
            host: row.host.clone(),
            user: row.user.clone().unwrap_or_default(),
        };
        self.nodes.quarantined = rows.map(|row| (key(&row), ActiveQuarantine::new(row, now))).collect();
        Ok(())
    }

    /// Records the node of a worker, and takes over the node's standing.
    pub(super) fn assign_to_node(&mut self, worker: WorkerId, host: &str) {
        let Some(session) = self.sessions.get_mut(&worker) else { return };
        let user = if self.options.shares_node_blame { String::new() } else { session.user.clone() };
        let node = NodeKey { host: host.to_owned(), user };
        let before = std::mem::replace(&mut session.node, node.clone());
        session.standing = self.nodes.standing(&node);
        if before != node {
            self.nodes.remove_worker(&before, worker);
        }
        self.nodes.workers.entry(node).or_default().insert(worker);
    }

    pub(super) fn leave_node(&mut self, session: &WorkerSession, worker: WorkerId) {
        self.nodes.remove_worker(&session.node, worker);
    }

    /// Records the end of an attempt as evidence about the node.
    pub(super) fn record_node_attempt(
        &mut self,
        worker: WorkerId,
        key: &AttemptKey,
        (status, cause): (JobStatus, &AttemptEndCause),
        class: Option<FailureClass>,
    ) {
        if !concerns_node(status, cause) {
            return;
        }
        let failed = (status == JobStatus::Failed).then(|| class.unwrap_or(FailureClass::Unknown));
        let (Some(WorkflowSlot::Active(active)), Some(session)) =
            (self.workflows.get(&key.workflow), self.sessions.get(&worker))
        else {
            return;
        };
        if session.attached.is_some() {
            // No other node could do its work.
            return;
        }
        let Some(job) = active.state.job_index(key.job) else { return };
        let work = ComparableWork::new(key.workflow, &active.state.demand(job).location);
        let outcome = NodeAttemptOutcome { work, job: key.job, failure_class: failed };
        match session.standing {
            NodeEligibility::Trusted => {
                let name = session.node.name();
                self.nodes.records.record_attempt(&name, outcome);
                if failed.is_some()
                    && let Some(evidence) = self.nodes.records.find_evidence(&name)
                {
                    let node = session.node.clone();
                    self.quarantine_if_replaceable(&node, evidence.to_string(), serde_json::json!(evidence));
                }
            }
            // Jobs from before the quarantine prove nothing new.
            NodeEligibility::Quarantined => {}
            NodeEligibility::OnProbation => {
                let node = session.node.clone();
                self.decide_probe(&node, key, outcome);
            }
        }
    }

    fn decide_probe(&mut self, node: &NodeKey, key: &AttemptKey, outcome: NodeAttemptOutcome) {
        let Some((held_by, quarantine)) = self.nodes.find_quarantine(node) else { return };
        let (held_by, is_probe) = (held_by.clone(), quarantine.probe_job == Some(key.job));
        let name = node.name();
        let probe_result = self.nodes.records.decide_probe(&name, outcome, is_probe);
        self.nodes.records.record_attempt(&name, outcome);
        let AttemptKey { workflow, job, .. } = key;
        match probe_result {
            ProbeResult::Passed => {
                let why = format!("job {job} of workflow {workflow} succeeded there");
                // If it cannot be written, the next job that succeeds repeats it.
                drop(self.end_quarantine(&held_by, &why, AUTOMATIC_USER));
            }
            ProbeResult::Failed => {
                let reason = format!("job {job} of workflow {workflow} failed there on probation");
                self.quarantine_if_replaceable(
                    &held_by,
                    reason,
                    serde_json::json!({ "probe": job, "class": outcome.failure_class }),
                );
            }
            ProbeResult::Unclear => {}
        }
    }

    /// Quarantines a node for its failures, unless no other node could do its work.
    fn quarantine_if_replaceable(&mut self, node: &NodeKey, reason: String, evidence: serde_json::Value) {
        if !self.has_replacement(node) {
            return;
        }
        let since = self.now.timestamp;
        let before = self.nodes.quarantined.get(node).map(ActiveQuarantine::duration);
        let row = NodeQuarantineRow {
            host: node.host.clone(),
            user: node.user(),
            since,
            until: since.plus(quarantine_duration(before)),
            set_by: AUTOMATIC_USER.to_owned(),
            reason,
            evidence: Some(evidence),
        };
        // If it cannot be written, its next failure repeats it.
        drop(self.store_quarantine(row, AUTOMATIC_USER));
    }

    /// In the database first, so that a restarted service knows it too.
    fn store_quarantine(&mut self, row: NodeQuarantineRow, by: &str) -> Result<(), CallError> {
        let now = self.now;
        let node = NodeKey { host: row.host.clone(), user: row.user.clone().unwrap_or_default() };
        self.store
            .acting_as(by)
            .quarantine_node(&row, now.timestamp)
            .map_err(|error| store_call_error(&error))?;
        self.notify_commit();
        for covered in self.nodes.workers.keys().filter(|other| node.includes(other)) {
            self.nodes.records.forget_node(&covered.name());
        }
        self.nodes.quarantined.insert(node.clone(), ActiveQuarantine::new(row, now));
        self.apply_node_standing(&node);
        Ok(())
    }

    fn end_quarantine(&mut self, node: &NodeKey, why: &str, by: &str) -> Result<bool, CallError> {
        let (store, user) = (self.store.acting_as(by), Some(node.user.as_str()));
        let released = store.release_quarantined_node(&node.host, user, why, self.now.timestamp);
        let was_aside = released.map_err(|error| store_call_error(&error))?;
        self.notify_commit();
        self.nodes.quarantined.remove(node);
        self.apply_node_standing(node);
        Ok(was_aside)
    }

    /// Applies the standing of a node to its workers. They keep their jobs.
    fn apply_node_standing(&mut self, node: &NodeKey) {
        for worker in self.nodes.affected_workers(node).collect::<Vec<_>>() {
            let Some(session) = self.sessions.get_mut(&worker) else { continue };
            let standing = self.nodes.standing(&session.node);
            session.standing = standing;
            if standing != NodeEligibility::Trusted {
                self.release_reserved_worker(worker);
            }
            self.update_waiting(worker);
            self.dirty_workers.insert(worker);
        }
    }

    /// Whether other workers accept the jobs of this node, as far as known.
    fn has_replacement(&self, node: &NodeKey) -> bool {
        let mine = self.nodes.affected_workers(node);
        let groups: HashSet<_> = mine.filter_map(|worker| self.sessions.get(&worker)?.group).collect();
        self.sessions.values().any(|session| {
            // A worker that has not yet returned after a restart of the server may still do so.
            let does_the_same = session.group.is_none_or(|group| groups.contains(&group));
            session.node.host != node.host
                && session.standing == NodeEligibility::Trusted
                && session.is_staying()
                && does_the_same
        })
    }

    /// Starts the probation of nodes whose time has expired, and earlier of nodes without a replacement.
    pub(super) fn update_quarantines(&mut self) {
        let now = self.now;
        let mut due = Vec::new();
        for (node, quarantine) in
            self.nodes.quarantined.iter().filter(|(_, quarantine)| !quarantine.is_on_probation)
        {
            let is_here = || self.nodes.affected_workers(node).next().is_some();
            if quarantine.row.until <= now.timestamp || quarantine.ends_at <= now.instant {
                due.push((node.clone(), "its time has expired"));
            } else if !quarantine.is_manual() && is_here() && !self.has_replacement(node) {
                due.push((node.clone(), "no other node can do its work"));
            }
        }
        for (node, why) in due {
            if let Some(quarantine) = self.nodes.quarantined.get_mut(&node) {
                quarantine.is_on_probation = true;
            }
            self.apply_node_standing(&node);
            self.record_probation(&node, why);
        }
    }

    fn record_probation(&self, node: &NodeKey, why: &str) {
        let (host, user) = (&node.host, node.user());
        let event = NewEvent {
            workflow: None,
            job: None,
            severity: EventSeverity::Info,
            category: "node_on_probation".to_owned(),
            message: format!(
                "node {host} is on probation and gets one job at a time until one succeeds: {why}"
            ),
            data: Some(serde_json::json!({ "host": host, "user": user, "reason": why })),
        };
        // The quarantine and its end are in the database in any case.
        drop(self.store.acting_as(AUTOMATIC_USER).add_event(&event, self.now.timestamp));
        self.notify_commit();
    }

    /// Whether no probe job of the node is under way.
    pub(super) fn may_be_probed(&self, worker: WorkerId) -> bool {
        let Some(session) = self.sessions.get(&worker) else { return false };
        let Some((node, quarantine)) = self.nodes.find_quarantine(&session.node) else { return true };
        let mut beside = self.nodes.affected_workers(node);
        let has = |job| move |session: &WorkerSession| session.held_jobs.contains_key(&job);
        quarantine
            .probe_job
            .is_none_or(|job| !beside.any(|worker| self.sessions.get(&worker).is_some_and(has(job))))
    }

    /// Records the job that the worker got in addition to these as the probe of its node.
    pub(super) fn record_probe(&mut self, worker: WorkerId, before: &HashSet<JobId>) {
        let Some(session) = self.sessions.get(&worker) else { return };
        let given = session.held_jobs.keys().find(|job| !before.contains(job)).copied();
        let node = self.nodes.find_quarantine(&session.node).map(|(node, _)| node.clone());
        if let (Some(job), Some(quarantine)) =
            (given, node.and_then(|node| self.nodes.quarantined.get_mut(&node)))
        {
            quarantine.probe_job = Some(job);
        }
    }

    pub(super) fn on_quarantine_node(
        &mut self,
        node: NodeQuarantineRow,
        by: &str,
        reply: CallReply<NodeQuarantineRow>,
    ) {
        if node.host.is_empty() || node.until <= self.now.timestamp {
            let detail = "a quarantine needs the name of a node and an end time in the future".to_owned();
            return reply(Err(CallError::Invalid { code: "invalid", detail }));
        }
        let row = NodeQuarantineRow {
            since: self.now.timestamp,
            set_by: by.to_owned(),
            evidence: None,
            user: None,
            ..node
        };
        reply(self.store_quarantine(row.clone(), by).map(|()| row));
    }

    pub(super) fn on_release_node(&mut self, host: &str, by: &str, reply: CallReply<()>) {
        let why = format!("requested by {by}");
        let released =
            self.store.acting_as(by).release_quarantined_node(host, None, &why, self.now.timestamp);
        reply(match released {
            Ok(true) => {
                self.notify_commit();
                self.nodes.quarantined.retain(|node, _| node.host != host);
                self.apply_node_standing(&NodeKey::for_all_users(host));
                Ok(())
            }
            Ok(false) => Err(CallError::NotFound(format!("node {host} is not in quarantine"))),
            Err(error) => Err(store_call_error(&error)),
        });
    }
}
