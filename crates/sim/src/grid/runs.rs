//! What the lifecycle does with runs: hands them over, stops them, pauses them, looks at them. Each may be done twice.

use super::{FailedAttempt, Failure, Node, NodeState, Unit, Workflow};
use crate::dice::Dice;
use crate::setup::Mistake;
use crate::sim::Sim;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::handlers::{Care, Handler};
use windlass_core::plan::Plan;
use windlass_core::requests::book::{Backend, NodeCounts, RunRow};
use windlass_core::requests::failures::AttemptNews;
use windlass_core::requests::lifecycle::{News, RunNews, RunState, UnitNews};
use windlass_types::payload::{MergeCounts, MergeOutput, MergedFile};
use windlass_types::requests::{NodeRole, UnitName, UnitStatus};
use windlass_types::settings::FailureHandler;
use windlass_types::{Bytes, FailureClass, Ratio, Resources, RunId, WorkflowId};

/// The backend does not answer.
#[derive(Debug)]
pub(crate) struct Refused;

impl Sim {
    fn answers(&self, backend: &Backend) -> Result<(), Refused> {
        let is_there = matches!(backend, Backend::Engine { .. }) || self.grid.is_schedd_up;
        is_there.then_some(()).ok_or(Refused)
    }

    /// As a new workflow, or as the next run of the one that its round has.
    pub(crate) fn hand_over(
        &mut self,
        request: &str,
        run: &RunRow,
        closed: BTreeSet<String>,
    ) -> Result<Backend, Refused> {
        self.answers(&run.backend)?;
        if self.grid.renounced.contains(&run.uuid) {
            self.broken(request, format!("{} is handed over, and was said not to run any more", run.uuid));
        }
        let at = match self.grid.directories.get(&run.submit_dir) {
            Some(&at) => at,
            None => self.make_workflow(request, run),
        };
        let workflow = &mut self.grid.workflows[at];
        if !workflow.runs.contains(&run.uuid) {
            let other = workflow.live.replace(run.uuid.clone());
            workflow.runs.push(run.uuid.clone());
            workflow.closed = closed;
            workflow.is_paused = false;
            if let Some(other) = other {
                self.broken(request, format!("{} begins while {other} is under way", run.uuid));
            }
            self.check_only_run(request, at);
            self.go_on(at);
        }
        Ok(self.called(at, &run.uuid))
    }

    fn check_only_run(&mut self, request: &str, at: usize) {
        let others = self.grid.workflows.iter().enumerate();
        let other = others
            .filter(|(number, other)| *number != at && other.request == request)
            .find_map(|(_, other)| other.live.clone());
        if let Some(other) = other {
            self.broken(request, format!("two rounds at once: {other} is still under way"));
        }
    }

    fn make_workflow(&mut self, request: &str, run: &RunRow) -> usize {
        let plan = Arc::clone(&self.disk[&run.submit_dir]);
        let retries = |role| match role {
            NodeRole::Landing => plan.retries.landing,
            NodeRole::Processing => plan.retries.processing,
            NodeRole::Merge => plan.retries.merge,
            NodeRole::Cleanup => plan.retries.cleanup,
        };
        let most = self.plan_settings.max_memory_per_core * u64::from(plan.resources.cores);
        let handlers = NodeRole::ALL.iter().map(|&role| (role, handler(retries(role), most))).collect();
        let units = plan.units().map(|unit| new_unit(&plan, unit.number())).collect();
        self.grid.workflows.push(Workflow {
            request: request.to_owned(),
            round: run.round,
            is_condor: matches!(run.backend, Backend::Htcondor { .. }),
            plan,
            handlers,
            closed: BTreeSet::new(),
            is_paused: false,
            live: None,
            runs: Vec::new(),
            units,
            told: Vec::new(),
            failed: Vec::new(),
            ended: BTreeMap::new(),
        });
        let at = self.grid.workflows.len() - 1;
        self.grid.directories.insert(run.submit_dir.clone(), at);
        at
    }

    /// What is completed stays. A unit whose site is closed to it, or let it down, looks for another one (DESIGN 6.8).
    fn go_on(&mut self, at: usize) {
        let Workflow { units, closed, failed, plan, .. } = &mut self.grid.workflows[at];
        let let_down: BTreeSet<(u32, &str)> = failed
            .iter()
            .filter(|one| one.failure.class == FailureClass::Infrastructure)
            .filter_map(|one| Some((one.unit, one.site.as_deref()?)))
            .collect();
        for (unit, number) in units.iter_mut().zip(0..) {
            if unit.status == UnitStatus::Completed {
                continue;
            }
            let site = unit.site.map(|site| self.land.sites[site].name.as_str());
            if site.is_some_and(|site| closed.contains(site) || let_down.contains(&(number, site))) {
                *unit = Unit { life: unit.life, ..new_unit(plan, number) };
            }
            unit.life += 1;
            unit.status = UnitStatus::Waiting;
            for node in unit.nodes.iter_mut().filter(|node| node.state != NodeState::Done) {
                (node.state, node.used) = (NodeState::Idle, 0);
            }
        }
        let workflow = &mut self.grid.workflows[at];
        if workflow.count(UnitStatus::Waiting) == 0 {
            workflow.live = None;
        }
        self.begin_units(at);
    }

    /// What the run is called there, if the backend has it.
    pub(crate) fn stop(&mut self, run: &RunRow) -> Result<Option<Backend>, Refused> {
        self.answers(&run.backend)?;
        let known = self.grid.directories.get(&run.submit_dir).copied();
        let Some(at) = known.filter(|&at| self.grid.workflows[at].runs.contains(&run.uuid)) else {
            self.grid.renounced.insert(run.uuid.clone());
            return Ok(None);
        };
        if self.grid.workflows[at].live.as_ref() == Some(&run.uuid) {
            self.cancel(at);
        }
        Ok(Some(self.called(at, &run.uuid)))
    }

    fn cancel(&mut self, at: usize) {
        let workflow = &mut self.grid.workflows[at];
        workflow.live = None;
        let mut killed = Vec::new();
        for (unit, number) in workflow.units.iter_mut().zip(0..) {
            if !matches!(unit.status, UnitStatus::Waiting | UnitStatus::Active) {
                continue;
            }
            let running = unit.nodes.iter().filter_map(|node| match node.state {
                NodeState::Running(attempt) => Some(attempt),
                _ => None,
            });
            killed.extend(running.filter_map(|attempt| Some((unit.site?, attempt))));
            unit.status = UnitStatus::Canceled;
            unit.life += 1;
            workflow.told.push((number, UnitStatus::Canceled));
        }
        let cores = workflow.plan.resources.cores;
        for (site, attempt) in killed {
            if self.land.sites[site].running.remove(&attempt).is_some() {
                self.land.sites[site].free += cores;
            }
            self.fill_slots(site);
        }
    }

    /// Something about the run that is under way, if it is that one.
    pub(crate) fn tell_backend(
        &mut self,
        run: &RunRow,
        how: impl FnOnce(&mut Workflow),
    ) -> Result<(), Refused> {
        self.answers(&run.backend)?;
        let known = self.grid.directories.get(&run.submit_dir).copied();
        if let Some(at) = known.filter(|&at| self.grid.workflows[at].live.as_ref() == Some(&run.uuid)) {
            how(&mut self.grid.workflows[at]);
            self.begin_units(at);
        }
        Ok(())
    }

    /// What the engine keeps in mind only, and forgets with the server.
    pub(crate) fn forget_restraints(&mut self) {
        for at in 0..self.grid.workflows.len() {
            let workflow = &mut self.grid.workflows[at];
            if !workflow.is_condor && workflow.live.is_some() {
                workflow.is_paused = false;
                self.begin_units(at);
            }
        }
    }

    /// What it is called there.
    fn called(&self, at: usize, run: &str) -> Backend {
        let workflow = &self.grid.workflows[at];
        let number = workflow.runs.iter().position(|known| known == run).unwrap_or_default() as i64 + 1;
        if workflow.is_condor {
            Backend::Htcondor { schedd: None, cluster: Some(format!("{at}.{number}")) }
        } else {
            Backend::Engine { workflow: Some(WorkflowId(at as i64)), run: Some(RunId(number)) }
        }
    }

    /// What the backend says about a run that is under way.
    pub(crate) fn look(&self, request: &str, run: &RunRow, read: i64) -> News {
        let mut news = RunNews {
            run: run.uuid.clone(),
            backend: Some(run.backend.clone()),
            state: RunState::Unknown,
            counts: NodeCounts::default(),
            units_completed: run.units_completed,
            units_failed: run.units_failed,
            units: Vec::new(),
            attempts: Vec::new(),
            site_totals: BTreeMap::new(),
            held: Vec::new(),
            reason: None,
        };
        if self.answers(&run.backend).is_ok() {
            let at = self.grid.directories.get(&run.submit_dir).copied();
            match at.filter(|&at| self.grid.workflows[at].runs.contains(&run.uuid)) {
                Some(at) => self.look_at(request, run, at, read, &mut news),
                None => news.state = RunState::Gone,
            }
        }
        News::Run(Box::new(news))
    }

    /// `read`: so far the failed attempts are known.
    fn look_at(&self, request: &str, run: &RunRow, at: usize, read: i64, news: &mut RunNews) {
        let workflow = &self.grid.workflows[at];
        news.backend = Some(self.called(at, &run.uuid));
        news.state = match () {
            () if workflow.live.as_ref() != Some(&run.uuid) => RunState::Over,
            () if workflow.is_paused && workflow.is_condor => RunState::Halted,
            () => RunState::Running,
        };
        news.counts = counts(workflow);
        news.units_completed = workflow.count(UnitStatus::Completed);
        news.units_failed = workflow.count(UnitStatus::Failed);
        let told = workflow.told.iter().zip(1i64..).skip(run.units_read.max(0) as usize);
        for (&(unit, status), seq) in told {
            if unit == 1 && self.makes(Mistake::LoseUnit) {
                continue;
            }
            let status = self.said_of(status);
            let output = Ok((status == UnitStatus::Completed).then(|| self.merged(request, workflow, unit)));
            news.units.push(UnitNews { seq, unit, status, output });
        }
        let failed = workflow.failed.iter().zip(1i64..).skip(read.max(0) as usize);
        news.attempts = failed.map(|(one, seq)| one.news(seq)).collect();
        news.site_totals = workflow.ended.clone();
    }

    fn said_of(&self, status: UnitStatus) -> UnitStatus {
        match status {
            UnitStatus::Failed if self.makes(Mistake::TellOfFailedUnit) => UnitStatus::Completed,
            status => status,
        }
    }

    /// Events of a unit that its jobs have kept. Whether one passes a filter is chance, and the same whoever asks.
    fn kept(&self, request: &str, workflow: &Workflow, number: u32) -> u64 {
        let events = workflow.plan.unit(number).map_or(0, |unit| unit.events());
        let generation = self.books.views.get(request).and_then(|view| view.row.request.generation);
        match generation.map_or(1.0, |generation| generation.filter_efficiency) {
            said if said < 1.0 => {
                let share = said * self.truths[request].wish.filter_factor;
                let unit = format!("filter {request} {} {number}", workflow.round);
                let mut dice = Dice::of(self.setup.seed, &unit);
                (0..events).filter(|_| dice.chance(share)).count() as u64
            }
            _ => events,
        }
    }

    /// What the merge of a unit wrote. Of generated events those are kept that pass the filter.
    fn merged(&self, request: &str, workflow: &Workflow, number: u32) -> MergeOutput {
        let events = self.kept(request, workflow, number);
        let site = workflow.units[number as usize].site;
        let site = site.map_or_else(|| "T2_Nowhere".to_owned(), |site| self.land.sites[site].name.clone());
        let file = |dataset: &str| MergedFile {
            lfn: format!("/store/out{dataset}/{}/{number}.root", workflow.round),
            size: events * 10_000,
            adler32: "00000001".to_owned(),
            events,
            lumis: windlass_types::LumiMask::default(),
            parents: Vec::new(),
        };
        let outputs = &workflow.plan.output_datasets;
        MergeOutput {
            request: request.to_owned(),
            unit: UnitName(number).to_string(),
            number,
            site,
            datasets: outputs.iter().map(|dataset| (dataset.clone(), vec![file(dataset)])).collect(),
            counts: MergeCounts::default(),
        }
    }
}

fn counts(workflow: &Workflow) -> NodeCounts {
    let mut counts = NodeCounts::default();
    for node in workflow.units.iter().flat_map(|unit| &unit.nodes) {
        match node.state {
            NodeState::Idle | NodeState::Queued | NodeState::CoolingOff => counts.idle += 1,
            NodeState::Running(_) => counts.running += 1,
            NodeState::Done => counts.done += 1,
            NodeState::Failed => counts.failed += 1,
        }
    }
    counts
}

/// As production has it for jobs of requests.
fn handler(retries: u32, max_memory_mb: u64) -> Handler {
    let care = Care {
        retries,
        cool_off: Duration::from_mins(1),
        longest_cool_off: Duration::from_mins(10),
        growth: Ratio::from_millionths(1_500_000),
        max_memory: Bytes(max_memory_mb << 20),
        longest_runtime: Duration::from_hours(48),
    };
    let handler = FailureHandler { name: "care".to_owned(), rules: care.rules() };
    Handler::compile(&handler).unwrap_or_else(|bad| panic!("the rules of requests cannot be used: {bad}"))
}

fn new_unit(plan: &Plan, number: u32) -> Unit {
    let asked = |time_sec: u64, memory_mb: u64| Resources {
        cpus: plan.resources.cores,
        memory: Bytes(memory_mb << 20),
        gpus: 0,
        nodes: 1,
        // Nobody is ended for being a little late.
        runtime: Some(Duration::from_secs(3 * time_sec.max(3600))),
    };
    let node = |time_sec, memory_mb| Node {
        state: NodeState::Idle,
        used: 0,
        attempts: 0,
        asked: asked(time_sec, memory_mb),
    };
    let processing = plan.unit(number).into_iter().flat_map(|unit| unit.nodes());
    let nodes = processing.map(|one| node(one.time_sec(), one.memory_mb()));
    let nodes = nodes.chain([node(3600, plan.resources.memory_mb)]).collect();
    Unit { status: UnitStatus::Waiting, life: 0, site: None, landings: 0, nodes }
}

impl FailedAttempt {
    fn news(&self, seq: i64) -> AttemptNews {
        let Failure { class, code, message, bad_files, memory_mb } = &self.failure;
        AttemptNews {
            seq,
            unit: self.unit,
            node: self.node.clone(),
            role: self.role,
            attempt: self.attempt,
            site: self.site.clone(),
            class: *class,
            code: *code,
            signature: (*message).to_owned(),
            message: (*message).to_owned(),
            is_final: self.is_final,
            bad_files: bad_files.clone(),
            log_tail: String::new(),
            memory_mb: *memory_mb,
            at: self.at,
        }
    }
}
