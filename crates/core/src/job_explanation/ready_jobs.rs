//! Explains ready jobs: which workers accept them, and what keeps them waiting.

use super::{ExplanationBuilder, JobAllocations};
use std::collections::BTreeSet;
use std::time::Duration;
use windlass_types::{Capacity, LOCAL_SITE, Resources, WorkerId, format_duration};

/// Capacity of a worker and the jobs that it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerAvailability {
    /// Displayed name: number and host. Empty if there is only one worker.
    pub name: String,
    /// `None`: the only possible worker.
    pub worker: Option<WorkerId>,
    /// Time since the last contact, if known.
    pub silence: Option<Duration>,
    pub capacity: Capacity,
    pub labels: Vec<String>,
    /// Its site; `None`: unknown.
    pub site: Option<String>,
    pub is_draining: bool,
    /// How long it will stay; `None`: unlimited.
    pub time_left: Option<Duration>,
}

/// Use of a job limit of the workflow.
#[derive(Clone, Copy, Debug)]
pub struct LimitUsage<'a> {
    pub name: &'a str,
    /// Maximum number of claimed jobs.
    pub max_claimed: u32,
    /// Number of claimed jobs: running, or about to run.
    pub claimed: u32,
}

/// Use of the limit of work units, for a job that would begin one.
#[derive(Clone, Copy, Debug)]
pub struct WorkUnitLimitUsage {
    /// Maximum number of active units.
    pub max_active: u32,
    /// Number of units that have begun and not ended.
    pub active_units: u64,
}

impl LimitUsage<'_> {
    fn is_used_up(&self) -> bool {
        self.claimed >= self.max_claimed
    }
}

impl ExplanationBuilder<'_> {
    pub(super) fn explain_ready(&mut self) {
        if self.situation.workflow.is_canceled {
            self.set_headline("ready, but the workflow was canceled before it could start");
            let workflow = self.situation.workflow.id;
            self.suggest_command(
                format!("windlass resume {workflow} --retry-failed"),
                "resumes the workflow",
            );
            return;
        }
        let asked = self.situation.asked.unwrap_or(Resources::DEFAULT);
        if !self.situation.workflow.has_scheduler
            && !self.situation.workflow.has_server
            && self.explain_too_large(&asked)
        {
            return;
        }
        if !self.situation.workflow.has_server && self.explain_location_without_server() {
            return;
        }
        if self.explain_no_scheduler("ready, but no process runs the workflow") {
            return;
        }
        if let Some(wait) =
            self.situation.not_before.map(|at| at.since(self.situation.now)).filter(|wait| !wait.is_zero())
        {
            self.set_headline(format!("ready; it is retried in {}", format_duration(wait)));
            if let Some(reason) = self.situation.outcome.and_then(|outcome| outcome.reason.as_deref()) {
                self.add_fact(reason);
            }
            return;
        }
        let workers = self.situation.workflow.workers;
        if self.situation.workflow.has_server && !self.explain_workers(&asked, workers) {
            if let Some(nodes) = self.situation.allocations.filter(|_| self.situation.labels.is_empty()) {
                self.explain_allocations(&nodes);
            }
            return;
        }
        if workers.is_empty() {
            self.set_headline("ready; the workflow's worker is being started");
            return;
        }
        if let Some(nodes) = self.situation.allocations.filter(JobAllocations::has_pending)
            && self.common_shortages(&asked).is_some()
        {
            self.explain_allocations(&nodes);
            return;
        }
        if self.explain_too_large(&asked) {
            return;
        }
        if let Some(limit) = self.situation.limit.filter(LimitUsage::is_used_up) {
            self.explain_limit(limit);
            return;
        }
        if let Some(units) =
            self.situation.unit_limit.filter(|units| units.active_units >= u64::from(units.max_active))
        {
            self.explain_unit_limit(units);
            return;
        }
        self.set_headline("ready; waiting for resources that other jobs hold");
        self.add_fact(format!("requests {}", describe_resources(&asked)));
        for worker in workers {
            self.add_fact(format!("{} has {}", worker.display_name(), describe_capacity(&worker.capacity)));
        }
        self.suggest_command(
            format!("windlass jobs {} --status running", self.situation.workflow.id),
            "shows what runs now",
        );
    }

    /// A run without a server is at the site `local` and has the labels of its command line. Returns whether that
    /// is why the job waits.
    fn explain_location_without_server(&mut self) -> bool {
        let (labels, sites) = (self.situation.labels, self.situation.sites);
        if !sites.is_empty() && !sites.iter().any(|site| site == LOCAL_SITE) {
            self.set_headline(format!("ready, but it runs only at {}", sites.join(" or ")));
            self.suggest_command("windlass serve".to_owned(), "assigns jobs to workers of their sites");
            self.suggest_worker("starts a worker there");
            return true;
        }
        if labels.is_empty() || self.situation.workflow.has_scheduler {
            return false;
        }
        self.set_headline(format!("ready; it runs only on a machine with the label {}", labels.join(", ")));
        let flags = labels.iter().fold(String::new(), |flags, label| flags + " --label " + label);
        self.suggest_command(
            format!("windlass resume {}{flags}", self.situation.workflow.id),
            "resumes the workflow, if this machine has the label",
        );
        true
    }

    /// A worker with the site and the labels of the job.
    fn suggest_worker(&mut self, does: &str) {
        let (labels, sites) = (self.situation.labels, self.situation.sites);
        let site = sites.first().map(|site| format!(" --site {site}")).unwrap_or_default();
        let flags = labels.iter().fold(site, |flags, label| flags + " --label " + label);
        self.suggest_command(format!("windlass worker{flags}"), does);
    }

    /// Returns what all known workers lack; `None`: one of them can run it, or none is known.
    fn common_shortages(&self, asked: &Resources) -> Option<BTreeSet<String>> {
        let workers = self.situation.workflow.workers;
        let short: Vec<Vec<String>> =
            workers.iter().map(|worker| find_shortages(asked, &worker.capacity)).collect();
        let is_short = !short.is_empty() && short.iter().all(|short| !short.is_empty());
        is_short.then(|| short.into_iter().flatten().collect())
    }

    /// Returns whether it requests more than any worker has, and explains it: another run would not help.
    fn explain_too_large(&mut self, asked: &Resources) -> bool {
        let Some(short) = self.common_shortages(asked) else { return false };
        self.set_headline("ready, but it requests more than any worker has");
        for short in short {
            self.add_fact(short);
        }
        let (workflow, job) = (self.situation.workflow.id, self.situation.id);
        self.suggest_command(
            format!("windlass failures revisions {workflow}"),
            "lists changes; `windlass failures undo N` undoes one",
        );
        self.suggest_command(
            format!("windlass jobs update {job} --memory SIZE --cpus N"),
            "reduces its request",
        );
        if self.situation.workflow.has_server {
            self.suggest_command(
                "windlass worker".to_owned(),
                "on a larger machine, starts a worker for the server",
            );
        }
        true
    }

    fn explain_limit(&mut self, limit: LimitUsage<'_>) {
        let LimitUsage { name, max_claimed: most, claimed } = limit;
        self.set_headline(format!("ready; waiting for the limit `{name}`, which is used up"));
        let who = if claimed == 1 { "job with this limit is" } else { "jobs with this limit are" };
        self.add_fact(format!("{claimed} {who} running or claimed, the maximum is {most}"));
        self.suggest_command(
            format!("windlass jobs {} --status running", self.situation.workflow.id),
            "shows what runs now",
        );
    }

    fn explain_unit_limit(
        &mut self,
        WorkUnitLimitUsage { max_active: most, active_units: under_way }: WorkUnitLimitUsage,
    ) {
        self.set_headline("ready; it would begin a work unit, but the maximum number of units is active");
        let are = if under_way == 1 { "unit is" } else { "units are" };
        self.add_fact(format!("{under_way} {are} active, the maximum (`max_units`) is {most}"));
        self.suggest_command(
            format!("windlass jobs {} --status running", self.situation.workflow.id),
            "shows what runs now",
        );
    }

    /// Returns whether a worker of the server accepts such jobs when it has room. Explains why, if none does.
    fn explain_workers(&mut self, asked: &Resources, workers: &[WorkerAvailability]) -> bool {
        let (labels, sites) = (self.situation.labels, self.situation.sites);
        if workers.is_empty() {
            self.set_headline("ready, but no worker is connected");
            if let Some(trouble) = self.situation.start_problem {
                self.add_fact(trouble);
            }
            if !sites.is_empty() {
                self.add_fact(format!("runs only at {}", sites.join(" or ")));
            }
            self.add_fact("workers of other users are visible to operators only");
            self.suggest_worker("starts a worker for the server on this machine");
            return false;
        }
        let unwilling: Vec<(&WorkerAvailability, String)> = workers
            .iter()
            .filter_map(|worker| Some((worker, worker.refusal_reason(asked, labels, sites)?)))
            .collect();
        if unwilling.len() < workers.len() {
            if let Some(trouble) = self.situation.start_problem {
                self.add_fact(trouble);
            }
            return true;
        }
        if workers.iter().any(|worker| worker.is_at(sites)) {
            self.set_headline("ready, but no connected worker accepts it");
        } else {
            self.set_headline(format!("ready, but no worker is at {}", sites.join(" or ")));
        }
        for (worker, why) in unwilling {
            self.add_fact(format!("{} {why}", worker.display_name()));
        }
        if let Some(trouble) = self.situation.start_problem {
            self.add_fact(trouble);
        }
        self.suggest_worker("starts a worker for the server on this machine");
        self.suggest_command("windlass worker list".to_owned(), "lists the connected workers");
        false
    }
}

impl WorkerAvailability {
    /// Creates a worker that accepts all jobs that fit.
    pub const fn from_capacity(capacity: Capacity) -> Self {
        Self {
            name: String::new(),
            worker: None,
            silence: None,
            capacity,
            labels: Vec::new(),
            site: None,
            is_draining: false,
            time_left: None,
        }
    }

    fn display_name(&self) -> &str {
        if self.name.is_empty() { "a worker" } else { &self.name }
    }

    fn is_at(&self, sites: &[String]) -> bool {
        sites.is_empty() || self.site.as_ref().is_some_and(|site| sites.contains(site))
    }

    /// Returns why it rejects such a job regardless of capacity; missing capacity is reported elsewhere.
    fn refusal_reason(&self, asked: &Resources, labels: &[String], sites: &[String]) -> Option<String> {
        let missing: Vec<&str> =
            labels.iter().filter(|label| !self.labels.contains(label)).map(String::as_str).collect();
        let too_long = asked.runtime.zip(self.time_left).filter(|(asked, left)| asked > left);
        match () {
            () if self.is_draining => Some("accepts no more jobs: it finishes its jobs and stops".to_owned()),
            () if !self.is_at(sites) => Some(match &self.site {
                Some(site) => format!("is at {site}"),
                None => "is at no site".to_owned(),
            }),
            () if !missing.is_empty() => Some(format!("does not have the label {}", missing.join(", "))),
            () if labels.is_empty() && !self.labels.is_empty() => {
                Some(format!("accepts only jobs with labels, of {}", self.labels.join(", ")))
            }
            () => too_long.map(|(asked, left)| {
                let (asked, left) = (format_duration(asked), format_duration(left));
                format!("stays for only {left}, and the job requests {asked}")
            }),
        }
    }
}

/// Returns the resources that a worker lacks for this request.
fn find_shortages(asked: &Resources, has: &Capacity) -> Vec<String> {
    let mut short = Vec::new();
    let mut say = |too_much: bool, text: String| {
        if too_much {
            short.push(text);
        }
    };
    say(asked.cpus > has.cpus, format!("requests {} cpus, a worker has {}", asked.cpus, has.cpus));
    say(
        asked.memory > has.memory,
        format!("requests {} of memory, a worker has {}", asked.memory, has.memory),
    );
    say(asked.gpus > has.gpus, format!("requests {} gpus, a worker has {}", asked.gpus, has.gpus));
    let nodes = has.nodes.max(1);
    say(asked.nodes > nodes, format!("requests {} nodes, a worker has {nodes}", asked.nodes));
    short
}

fn describe_resources(asked: &Resources) -> String {
    let gpus = if asked.gpus > 0 { format!(", {} gpus", asked.gpus) } else { String::new() };
    format!("{} cpus, {} of memory{gpus}", asked.cpus, asked.memory)
}

fn describe_capacity(has: &Capacity) -> String {
    let gpus = if has.gpus > 0 { format!(", {} gpus", has.gpus) } else { String::new() };
    let jobs = has.max_jobs.map(|max| format!(", at most {max} jobs at once")).unwrap_or_default();
    format!("{} cpus, {} of memory{gpus}{jobs}", has.cpus, has.memory)
}
