//! Of a job that may start: who would take it, and what keeps it waiting.

use super::{ExplanationBuilder, JobAllocations};
use std::collections::BTreeSet;
use std::time::Duration;
use windlass_types::{Capacity, Resources, WorkerId, format_duration};

/// What a worker can give, and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerAvailability {
    /// As it is shown: its number and its machine. Empty where there is only one.
    pub name: String,
    /// `None`: it is the only one there can be.
    pub worker: Option<WorkerId>,
    /// How long nothing was heard of it, where that is known.
    pub silence: Option<Duration>,
    pub capacity: Capacity,
    pub labels: Vec<String>,
    /// Where it is; `None`: nobody knows.
    pub site: Option<String>,
    pub is_draining: bool,
    /// How long it will be there; `None`: for good.
    pub time_left: Option<Duration>,
}

/// What a workflow allows of the jobs that name a limit.
#[derive(Clone, Copy, Debug)]
pub struct LimitUsage<'a> {
    pub name: &'a str,
    /// So many at once.
    pub max_claimed: u32,
    /// So many are claimed: they run, or are about to.
    pub claimed: u32,
}

/// What a workflow allows of its units, for a job that would begin one.
#[derive(Clone, Copy, Debug)]
pub struct WorkUnitLimitUsage {
    /// So many at once.
    pub max_active: u32,
    /// So many have begun and are not over.
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
                "takes the workflow up again",
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
        if self.explain_no_scheduler("ready, but nothing runs the workflow") {
            return;
        }
        if let Some(wait) =
            self.situation.not_before.map(|at| at.since(self.situation.now)).filter(|wait| !wait.is_zero())
        {
            self.set_headline(format!("ready, and tried again in {}", format_duration(wait)));
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
        self.set_headline("ready; it waits its turn: other jobs hold the resources it asks for");
        self.add_fact(format!("asks for {}", describe_resources(&asked)));
        for worker in workers {
            self.add_fact(format!("{} has {}", worker.display_name(), describe_capacity(&worker.capacity)));
        }
        self.suggest_command(
            format!("windlass jobs {} --status running", self.situation.workflow.id),
            "shows what runs now",
        );
    }

    /// What all workers that are known have too little of; `None`: one of them can run it, or none is known.
    fn common_shortages(&self, asked: &Resources) -> Option<BTreeSet<String>> {
        let workers = self.situation.workflow.workers;
        let short: Vec<Vec<String>> =
            workers.iter().map(|worker| find_shortages(asked, &worker.capacity)).collect();
        let is_short = !short.is_empty() && short.iter().all(|short| !short.is_empty());
        is_short.then(|| short.into_iter().flatten().collect())
    }

    /// Whether it asks for more than any worker can give. Says so, and what helps: another run would not.
    fn explain_too_large(&mut self, asked: &Resources) -> bool {
        let Some(short) = self.common_shortages(asked) else { return false };
        self.set_headline("ready, but it asks for more than any worker can ever give");
        for short in short {
            self.add_fact(short);
        }
        let (workflow, job) = (self.situation.workflow.id, self.situation.id);
        self.suggest_command(
            format!("windlass revisions {workflow}"),
            "lists what was changed; `windlass revisions undo N` takes a change back",
        );
        self.suggest_command(
            format!("windlass jobs update {job} --memory SIZE --cpus N"),
            "lets it ask for less",
        );
        if self.situation.workflow.has_server {
            self.suggest_command(
                "windlass worker".to_owned(),
                "on a larger machine, has that work for the server",
            );
        }
        true
    }

    fn explain_limit(&mut self, limit: LimitUsage<'_>) {
        let LimitUsage { name, max_claimed: most, claimed } = limit;
        self.set_headline(format!("ready; it waits for the limit `{name}`, which is used up"));
        let who = if claimed == 1 { "job that names it is" } else { "jobs that name it are" };
        self.add_fact(format!("{claimed} {who} under way, and it allows {most} at once"));
        self.suggest_command(
            format!("windlass jobs {} --status running", self.situation.workflow.id),
            "shows what runs now",
        );
    }

    fn explain_unit_limit(
        &mut self,
        WorkUnitLimitUsage { max_active: most, active_units: under_way }: WorkUnitLimitUsage,
    ) {
        self.set_headline("ready; it would begin a work unit, and as many as may be are under way");
        let are = if under_way == 1 { "unit is" } else { "units are" };
        self.add_fact(format!("{under_way} {are} under way, and `max_units` allows {most} at once"));
        self.suggest_command(
            format!("windlass jobs {} --status running", self.situation.workflow.id),
            "shows what runs now",
        );
    }

    /// Whether a worker of the server takes such jobs, if it has room. Says why, where none does.
    fn explain_workers(&mut self, asked: &Resources, workers: &[WorkerAvailability]) -> bool {
        let (labels, sites) = (self.situation.labels, self.situation.sites);
        let site = sites.first().map(|site| format!(" --site {site}")).unwrap_or_default();
        let flags = labels.iter().fold(site, |flags, label| flags + " --label " + label);
        if workers.is_empty() {
            self.set_headline("ready, but no worker is there to take it");
            if let Some(trouble) = self.situation.start_problem {
                self.add_fact(trouble);
            }
            if !sites.is_empty() {
                self.add_fact(format!("runs only at {}", sites.join(" or ")));
            }
            self.add_fact("workers of others, who may run it too, are seen by operators only");
            self.suggest_command(format!("windlass worker{flags}"), "has this machine work for the server");
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
            self.set_headline("ready, but no worker that is there takes it");
        } else {
            self.set_headline(format!("ready, but no worker is at {}", sites.join(" or ")));
        }
        for (worker, why) in unwilling {
            self.add_fact(format!("{} {why}", worker.display_name()));
        }
        if let Some(trouble) = self.situation.start_problem {
            self.add_fact(trouble);
        }
        self.suggest_command(format!("windlass worker{flags}"), "has this machine work for the server");
        self.suggest_command("windlass workers".to_owned(), "lists those who are there");
        false
    }
}

impl WorkerAvailability {
    /// Of a worker that takes whatever fits.
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

    /// Why it does not take such a job, however much room it has; what it has too little of is told elsewhere.
    fn refusal_reason(&self, asked: &Resources, labels: &[String], sites: &[String]) -> Option<String> {
        let missing: Vec<&str> =
            labels.iter().filter(|label| !self.labels.contains(label)).map(String::as_str).collect();
        let too_long = asked.runtime.zip(self.time_left).filter(|(asked, left)| asked > left);
        match () {
            () if self.is_draining => {
                Some("takes nothing more: it finishes what it has, and leaves".to_owned())
            }
            () if !self.is_at(sites) => Some(match &self.site {
                Some(site) => format!("is at {site}"),
                None => "is at no site".to_owned(),
            }),
            () if !missing.is_empty() => Some(format!("does not have the label {}", missing.join(", "))),
            () if labels.is_empty() && !self.labels.is_empty() => {
                Some(format!("takes only jobs with labels, of {}", self.labels.join(", ")))
            }
            () => too_long.map(|(asked, left)| {
                let (asked, left) = (format_duration(asked), format_duration(left));
                format!("is there for {left} only, and it asks for {asked}")
            }),
        }
    }
}

/// What a worker can never give to a job that asks for so much.
fn find_shortages(asked: &Resources, has: &Capacity) -> Vec<String> {
    let mut short = Vec::new();
    let mut say = |too_much: bool, text: String| {
        if too_much {
            short.push(text);
        }
    };
    say(asked.cpus > has.cpus, format!("asks for {} cpus, a worker has {}", asked.cpus, has.cpus));
    say(
        asked.memory > has.memory,
        format!("asks for {} of memory, a worker has {}", asked.memory, has.memory),
    );
    say(asked.gpus > has.gpus, format!("asks for {} gpus, a worker has {}", asked.gpus, has.gpus));
    let nodes = has.nodes.max(1);
    say(asked.nodes > nodes, format!("asks for {} nodes, a worker has {nodes}", asked.nodes));
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
