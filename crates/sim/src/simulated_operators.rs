//! Simulated people: operators who look at held requests, and users who change their requests.

use crate::request_generator::FileDefect;
use crate::seeded_random::SeededRandom;
use crate::setup::{InjectedFault, failure_rates};
use crate::simulation::{RequestSimulation, SimulationEvent};
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_core::requests::change::{RequestChange, RequestCommit};
use windlass_core::requests::failures::build_error_report;
use windlass_core::requests::rows::{NewBan, RequestCommand, RequestCommandKind, RequestOverrides};
use windlass_core::requests::versions::{self, TakenNames};
use windlass_types::FailureClass;
use windlass_types::requests::{CleanupPolicy, RequestStatus};

const OPERATOR_NAME: &str = "olga";
/// Maximum number of releases of a request; more are a violation.
const MAX_RELEASES: u32 = 25;

#[derive(Debug)]
pub(crate) struct SimulatedOperators {
    random: SeededRandom,
    /// Changes to commit between the next decision about a request and its commit.
    racing_changes: BTreeMap<String, Vec<RequestChange>>,
    releases: BTreeMap<String, u32>,
}

impl SimulatedOperators {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: SeededRandom::for_part(seed, "people"),
            racing_changes: BTreeMap::new(),
            releases: BTreeMap::new(),
        }
    }
}

impl RequestSimulation {
    /// Schedules an operator for a held request.
    pub(crate) fn schedule_operator(&mut self, request: &str) {
        let (low, high) = failure_rates::OPERATOR_DELAY_HOURS;
        let after = self.operators.random.random_hours(low, high);
        self.schedule_after(after, SimulationEvent::Operator(request.to_owned()));
    }

    /// An operator looks at a held request and acts on it.
    pub(crate) fn on_operator(&mut self, request: &str) {
        let Some(view) = self.store.views.get(request) else { return };
        if view.row.status != RequestStatus::Held {
            return;
        }
        if view.row.wanted.is_some() {
            // A command is already pending.
            return self.schedule_operator(request);
        }
        if self.operators.random.chance(0.1) {
            self.lift_ban();
        }
        // The cause of the failures is fixed by now.
        if let Some(truth) = self.request_facts.get_mut(request) {
            truth.truth.is_broken = false;
        }
        let releases = self.operators.releases.entry(request.to_owned()).or_default();
        *releases += 1;
        if *releases > MAX_RELEASES {
            return self.record_violation(
                request,
                format!("it was released {MAX_RELEASES} times, but is held again"),
            );
        }
        match self.operators.random.number_below(100) {
            0..2 => self.end_request(request, RequestCommandKind::Fail),
            2..3 => self.end_request(request, RequestCommandKind::Abort),
            3..6 => self.clone_request(request),
            _ => self.release_request(request),
        }
    }

    fn release_request(&mut self, request: &str) {
        let mut changes = self.decide_modifications(request);
        let mut wanted =
            RequestCommand::new(RequestCommandKind::Release, OPERATOR_NAME, "have looked at it", self.now);
        wanted.rescue = self.operators.random.chance(0.15);
        changes.push(RequestChange::SetCommand(Some(wanted)));
        self.submit_changes(request, "release", changes);
    }

    /// Returns changes in addition to a release: suggestions of the error report, or random ones.
    fn decide_modifications(&mut self, request: &str) -> Vec<RequestChange> {
        let mut changes = Vec::new();
        let mut now = RequestOverrides::default();
        if self.operators.random.chance(0.2) {
            now.retry_count = Some(self.operators.random.number_within(2, 5) as u32);
            now.max_rescue_attempts = Some(self.operators.random.number_within(1, 5) as u32);
        }
        let view = &self.store.views[request];
        let report = build_error_report(&view.failures);
        if self.operators.random.chance(0.5) {
            let most = self.plan_settings.max_memory_per_core * u64::from(view.row.request.multicore);
            let kinds = view.failures.kinds.iter().filter(|kind| kind.class == FailureClass::Memory);
            let used = kinds.filter_map(|kind| kind.memory_mb).max();
            now.memory_mb = used.map(|used| (used + used / 5).min(most));
        }
        if self.operators.random.chance(0.3) {
            now.excluded_files = report.bad_files.iter().map(|file| file.lfn.clone()).collect();
        }
        if self.operators.releases[request] > 2 {
            now.excluded_files.extend(self.poison_files(request));
        }
        let left_out = self.invariants.excluded_files.entry(request.to_owned()).or_default();
        left_out.extend(now.excluded_files.iter().cloned());
        if !now.is_empty() {
            let overrides = view.row.overrides.clone().merged_with(now);
            changes.push(RequestChange::Overrides(Box::new(overrides)));
        }
        let worst = report.by_site.iter().find(|site| site.blamed >= 3 && 2 * site.blamed > site.ended);
        let worst = worst.map(|site| site.site.clone()).filter(|site| self.can_ban_site(request, site));
        if let Some(site) = worst.filter(|_| self.operators.random.chance(0.5)) {
            changes.push(RequestChange::Ban(Box::new(NewBan {
                site,
                request: Some(request.to_owned()),
                reason: "most of it fails there".to_owned(),
                failure_data: serde_json::Value::Null,
                by: OPERATOR_NAME.to_owned(),
                expires_at: self.now.plus(Duration::from_hours(48)),
            })));
        }
        changes
    }

    /// After several releases the operator identifies the files that crash the jobs.
    fn poison_files(&self, request: &str) -> Vec<String> {
        let defects = self.request_facts[request].data.defects.iter();
        defects.filter(|(_, defect)| **defect == FileDefect::Poison).map(|(lfn, _)| lfn.clone()).collect()
    }

    /// Whether all units have another site, which is required for a ban.
    fn can_ban_site(&self, request: &str, site: &str) -> bool {
        let view = &self.store.views[request];
        let plan = view.run.as_ref().and_then(|run| self.written_plans.get(&run.submit_dir));
        let banned = self.store.banned_sites(request, self.now);
        let has_other = |mut sites: Box<dyn Iterator<Item = &str> + '_>| {
            sites.any(|one| one != site && !banned.contains(one))
        };
        self.grid.find_number(site).is_some()
            && plan.is_some_and(|plan| plan.units().all(|unit| has_other(Box::new(unit.sites()))))
    }

    /// Lifts a ban for all requests.
    fn lift_ban(&mut self) {
        let now = self.now;
        let mut active =
            self.store.bans.iter_mut().filter(|ban| {
                ban.ban.request.is_none() && ban.removed_at.is_none() && ban.ban.expires_at > now
            });
        if let Some(ban) = active.next() {
            ban.removed_at = Some(now);
            ban.removed_by = Some(OPERATOR_NAME.to_owned());
            *self.statistics.operator_actions.entry("unban".to_owned()).or_default() += 1;
        }
    }

    fn end_request(&mut self, request: &str, what: RequestCommandKind) {
        self.invariants.unwanted.insert(request.to_owned());
        let wanted = RequestCommand::new(what, OPERATOR_NAME, "is not worth it", self.now);
        let word = if what == RequestCommandKind::Fail { "fail" } else { "abort" };
        self.submit_changes(request, word, vec![RequestChange::SetCommand(Some(wanted))]);
    }

    /// Fails the request and creates a new version.
    fn clone_request(&mut self, request: &str) {
        let row = &self.store.views[request].row;
        let (old, overrides) = (&row.request, row.overrides.clone());
        let policy = if self.operators.random.chance(0.5) {
            CleanupPolicy::ImmediateCleanup
        } else {
            CleanupPolicy::KeepUntilReplaced
        };
        let new = versions::next_version(
            old,
            policy,
            &TakenNames {
                name: &|name| self.store.views.contains_key(name),
                dataset: &|dataset| {
                    let mut others = self.store.views.values().map(|view| &view.row.request);
                    others.any(|other| other.output_datasets.iter().any(|name| name == dataset))
                },
            },
        );
        self.invariants.unwanted.insert(request.to_owned());
        let wanted = RequestCommand::new(
            RequestCommandKind::Fail,
            OPERATOR_NAME,
            "once more from the beginning",
            self.now,
        );
        let changes = vec![
            RequestChange::SetCommand(Some(wanted)),
            RequestChange::SupersededBy(Some(new.request_name.clone())),
            RequestChange::AddVersion(Box::new(new), Box::new(overrides)),
        ];
        self.submit_changes(request, "restart", changes);
    }

    /// A user changes an open request.
    pub(crate) fn on_random_change(&mut self) {
        let open: Vec<String> = self
            .store
            .views
            .values()
            .filter(|view| !view.row.status.is_terminal() && view.row.wanted.is_none())
            .map(|view| view.row.request.request_name.clone())
            .collect();
        if open.is_empty() {
            return;
        }
        let request = self.operators.random.pick_one(&open).clone();
        let now = self.now;
        let want = |what| {
            RequestChange::SetCommand(Some(RequestCommand::new(
                what,
                OPERATOR_NAME,
                "for the time being",
                now,
            )))
        };
        match self.operators.random.number_below(10) {
            0..4 => self.submit_changes(&request, "stop", vec![want(RequestCommandKind::Stop)]),
            4 => self.submit_changes(&request, "remove", vec![want(RequestCommandKind::Remove)]),
            5 => self.submit_changes(&request, "urgent", vec![RequestChange::Urgent(true)]),
            6 if self.operators.random.chance(0.3) => self.end_request(&request, RequestCommandKind::Abort),
            7 => self.submit_changes(&request, "release", vec![want(RequestCommandKind::Release)]),
            _ => {
                let priority = self.operators.random.number_within(100, 6000) as i64;
                self.submit_changes(&request, "priority", vec![RequestChange::Priority(priority)]);
            }
        }
    }

    /// Submits changes at once, or between a decision and its commit.
    fn submit_changes(&mut self, request: &str, word: &str, changes: Vec<RequestChange>) {
        *self.statistics.operator_actions.entry(word.to_owned()).or_default() += 1;
        self.histories.record(self.now, request, &format!("{OPERATOR_NAME}: {word}"));
        if self.operators.random.chance(0.3) {
            self.operators.racing_changes.entry(request.to_owned()).or_default().extend(changes);
        } else {
            self.commit_changes(request, changes);
        }
        self.wake_server(request);
    }

    fn commit_changes(&mut self, request: &str, changes: Vec<RequestChange>) {
        let Some(view) = self.store.views.get(request) else { return };
        // As in the interface: a request to end is not overridden.
        let is_ending = view.row.wanted.as_ref().is_some_and(|wanted| {
            matches!(wanted.what, RequestCommandKind::Fail | RequestCommandKind::Abort)
        });
        if view.row.status.is_terminal() || is_ending || self.has_fault(InjectedFault::LoseOperatorRequests) {
            return;
        }
        let commit = RequestCommit {
            request: request.to_owned(),
            version: view.row.version,
            changes,
            by: OPERATOR_NAME.to_owned(),
            at: self.now,
        };
        if let Err(refusal) = self.commit(&commit) {
            self.record_violation(
                request,
                format!("the change of {OPERATOR_NAME} was rejected: {refusal:?}"),
            );
        }
    }

    /// Applies the changes that arrive between a decision and its commit.
    pub(crate) fn apply_racing_changes(&mut self, request: &str) {
        if let Some(changes) = self.operators.racing_changes.remove(request) {
            self.commit_changes(request, changes);
            self.wake_server(request);
        }
    }
}
