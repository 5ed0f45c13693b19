//! Operations of the lifecycle on runs: submit, stop, pause, observe. All are idempotent.

use super::{
    SimulatedAttemptFailure, SimulatedFailedAttempt, SimulatedNode, SimulatedNodeState, SimulatedUnit,
    SimulatedWorkflow,
};
use crate::seeded_random::SeededRandom;
use crate::setup::InjectedFault;
use crate::simulation::RequestSimulation;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::failure_handlers::{CompiledHandler, RequestRetryPolicy};
use windlass_core::requests::failures::FailedAttemptReport;
use windlass_core::requests::lifecycle::{LifecycleEvent, RunReport, RunState, WorkUnitReport};
use windlass_core::requests::rows::{BackendRunRef, NodeCounts, RunRow};
use windlass_core::round_plan::RoundPlan;
use windlass_types::payload::{MergeCounts, MergeOutput, MergedFile};
use windlass_types::requests::{NodeRole, RequestUnitStatus, WorkUnitName};
use windlass_types::settings::FailureHandler;
use windlass_types::{Bytes, FailureClass, Ratio, Resources, RunId, WorkflowId};

/// The backend does not respond.
#[derive(Debug)]
pub(crate) struct BackendUnavailable;

impl RequestSimulation {
    fn check_backend_up(&self, backend: &BackendRunRef) -> Result<(), BackendUnavailable> {
        let is_there = matches!(backend, BackendRunRef::Engine { .. }) || self.backends.is_schedd_up;
        is_there.then_some(()).ok_or(BackendUnavailable)
    }

    /// Submits a run as a new workflow, or as the next run of the workflow of its round.
    pub(crate) fn submit_run(
        &mut self,
        request: &str,
        run: &RunRow,
        closed: BTreeSet<String>,
    ) -> Result<BackendRunRef, BackendUnavailable> {
        self.check_backend_up(&run.backend)?;
        if self.backends.abandoned_runs.contains(&run.uuid) {
            self.record_violation(
                request,
                format!("{} is submitted, but was reported as not running", run.uuid),
            );
        }
        let at = match self.backends.directories.get(&run.submit_dir) {
            Some(&at) => at,
            None => self.create_workflow(request, run),
        };
        let workflow = &mut self.backends.workflows[at];
        if !workflow.runs.contains(&run.uuid) {
            let other = workflow.active_run.replace(run.uuid.clone());
            workflow.runs.push(run.uuid.clone());
            workflow.closed_sites = closed;
            workflow.is_paused = false;
            if let Some(other) = other {
                self.record_violation(request, format!("{} starts while {other} is active", run.uuid));
            }
            self.check_only_run(request, at);
            self.continue_run(at);
        }
        Ok(self.backend_of_run(at, &run.uuid))
    }

    fn check_only_run(&mut self, request: &str, at: usize) {
        let others = self.backends.workflows.iter().enumerate();
        let other = others
            .filter(|(number, other)| *number != at && other.request == request)
            .find_map(|(_, other)| other.active_run.clone());
        if let Some(other) = other {
            self.record_violation(request, format!("two rounds at once: {other} is still active"));
        }
    }

    fn create_workflow(&mut self, request: &str, run: &RunRow) -> usize {
        let plan = Arc::clone(&self.written_plans[&run.submit_dir]);
        let retries = |role| match role {
            NodeRole::Landing => plan.retries.landing,
            NodeRole::Processing => plan.retries.processing,
            NodeRole::Merge => plan.retries.merge,
            NodeRole::Cleanup => plan.retries.cleanup,
        };
        let most = self.plan_settings.max_memory_per_core * u64::from(plan.resources.cores);
        let handlers =
            NodeRole::ALL.iter().map(|&role| (role, failure_handler(retries(role), most))).collect();
        let units = plan.units().map(|unit| new_unit(&plan, unit.number())).collect();
        self.backends.workflows.push(SimulatedWorkflow {
            request: request.to_owned(),
            round: run.round,
            is_condor: matches!(run.backend, BackendRunRef::Htcondor { .. }),
            plan,
            handlers,
            closed_sites: BTreeSet::new(),
            is_paused: false,
            active_run: None,
            runs: Vec::new(),
            units,
            unit_events: Vec::new(),
            failed_attempts: Vec::new(),
            ended_attempts: BTreeMap::new(),
        });
        let at = self.backends.workflows.len() - 1;
        self.backends.directories.insert(run.submit_dir.clone(), at);
        at
    }

    /// Keeps completed units. A unit looks for another site if its site is closed or failed for it (DESIGN
    /// 6.8).
    fn continue_run(&mut self, at: usize) {
        let SimulatedWorkflow { units, closed_sites: closed, failed_attempts: failed, plan, .. } =
            &mut self.backends.workflows[at];
        let let_down: BTreeSet<(u32, &str)> = failed
            .iter()
            .filter(|one| one.failure.class == FailureClass::Infrastructure)
            .filter_map(|one| Some((one.unit, one.site.as_deref()?)))
            .collect();
        for (unit, number) in units.iter_mut().zip(0..) {
            if unit.status == RequestUnitStatus::Completed {
                continue;
            }
            let site = unit.site.map(|site| self.grid.sites[site].name.as_str());
            if site.is_some_and(|site| closed.contains(site) || let_down.contains(&(number, site))) {
                *unit = SimulatedUnit { generation: unit.generation, ..new_unit(plan, number) };
            }
            unit.generation += 1;
            unit.status = RequestUnitStatus::Waiting;
            for node in unit.nodes.iter_mut().filter(|node| node.state != SimulatedNodeState::Done) {
                (node.state, node.attempts_in_run) = (SimulatedNodeState::Idle, 0);
            }
        }
        let workflow = &mut self.backends.workflows[at];
        if workflow.count(RequestUnitStatus::Waiting) == 0 {
            workflow.active_run = None;
        }
        self.start_units(at);
    }

    /// Stops a run; returns its backend reference, if the backend has it.
    pub(crate) fn stop_run(&mut self, run: &RunRow) -> Result<Option<BackendRunRef>, BackendUnavailable> {
        self.check_backend_up(&run.backend)?;
        let known = self.backends.directories.get(&run.submit_dir).copied();
        let Some(at) = known.filter(|&at| self.backends.workflows[at].runs.contains(&run.uuid)) else {
            self.backends.abandoned_runs.insert(run.uuid.clone());
            return Ok(None);
        };
        if self.backends.workflows[at].active_run.as_ref() == Some(&run.uuid) {
            self.cancel_run(at);
        }
        Ok(Some(self.backend_of_run(at, &run.uuid)))
    }

    fn cancel_run(&mut self, at: usize) {
        let workflow = &mut self.backends.workflows[at];
        workflow.active_run = None;
        let mut killed = Vec::new();
        for (unit, number) in workflow.units.iter_mut().zip(0..) {
            if !matches!(unit.status, RequestUnitStatus::Waiting | RequestUnitStatus::Active) {
                continue;
            }
            let running = unit.nodes.iter().filter_map(|node| match node.state {
                SimulatedNodeState::Running(attempt) => Some(attempt),
                _ => None,
            });
            killed.extend(running.filter_map(|attempt| Some((unit.site?, attempt))));
            unit.status = RequestUnitStatus::Canceled;
            unit.generation += 1;
            workflow.unit_events.push((number, RequestUnitStatus::Canceled));
        }
        let cores = workflow.plan.resources.cores;
        for (site, attempt) in killed {
            if self.grid.sites[site].running.remove(&attempt).is_some() {
                self.grid.sites[site].free += cores;
            }
            self.fill_slots(site);
        }
    }

    /// Updates the workflow of a run, if that run is active.
    pub(crate) fn update_backend_run(
        &mut self,
        run: &RunRow,
        how: impl FnOnce(&mut SimulatedWorkflow),
    ) -> Result<(), BackendUnavailable> {
        self.check_backend_up(&run.backend)?;
        let known = self.backends.directories.get(&run.submit_dir).copied();
        if let Some(at) =
            known.filter(|&at| self.backends.workflows[at].active_run.as_ref() == Some(&run.uuid))
        {
            how(&mut self.backends.workflows[at]);
            self.start_units(at);
        }
        Ok(())
    }

    /// Clears what the engine stores only in memory and loses with the server.
    pub(crate) fn clear_restrictions(&mut self) {
        for at in 0..self.backends.workflows.len() {
            let workflow = &mut self.backends.workflows[at];
            if !workflow.is_condor && workflow.active_run.is_some() {
                workflow.is_paused = false;
                self.start_units(at);
            }
        }
    }

    /// Returns the backend reference of a run.
    fn backend_of_run(&self, at: usize, run: &str) -> BackendRunRef {
        let workflow = &self.backends.workflows[at];
        let number = workflow.runs.iter().position(|known| known == run).unwrap_or_default() as i64 + 1;
        if workflow.is_condor {
            BackendRunRef::Htcondor { schedd: None, cluster: Some(format!("{at}.{number}")) }
        } else {
            BackendRunRef::Engine { workflow: Some(WorkflowId(at as i64)), run: Some(RunId(number)) }
        }
    }

    /// Returns the report of the backend about an active run.
    pub(crate) fn observe_run(&self, request: &str, run: &RunRow, read: i64) -> LifecycleEvent {
        let mut news = RunReport {
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
        if self.check_backend_up(&run.backend).is_ok() {
            let at = self.backends.directories.get(&run.submit_dir).copied();
            match at.filter(|&at| self.backends.workflows[at].runs.contains(&run.uuid)) {
                Some(at) => self.observe_workflow(request, run, at, read, &mut news),
                None => news.state = RunState::Gone,
            }
        }
        LifecycleEvent::RunReported(Box::new(news))
    }

    /// `read`: the number of failed attempts that are already known.
    fn observe_workflow(&self, request: &str, run: &RunRow, at: usize, read: i64, news: &mut RunReport) {
        let workflow = &self.backends.workflows[at];
        news.backend = Some(self.backend_of_run(at, &run.uuid));
        news.state = match () {
            () if workflow.active_run.as_ref() != Some(&run.uuid) => RunState::Over,
            () if workflow.is_paused && workflow.is_condor => RunState::Halted,
            () => RunState::Running,
        };
        news.counts = count_nodes(workflow);
        news.units_completed = workflow.count(RequestUnitStatus::Completed);
        news.units_failed = workflow.count(RequestUnitStatus::Failed);
        let told = workflow.unit_events.iter().zip(1i64..).skip(run.units_read.max(0) as usize);
        for (&(unit, status), seq) in told {
            if unit == 1 && self.has_fault(InjectedFault::LoseUnit) {
                continue;
            }
            let status = self.reported_status(status);
            let output =
                Ok((status == RequestUnitStatus::Completed)
                    .then(|| self.merge_output(request, workflow, unit)));
            news.units.push(WorkUnitReport { seq, unit, status, output });
        }
        let failed = workflow.failed_attempts.iter().zip(1i64..).skip(read.max(0) as usize);
        news.attempts = failed.map(|(one, seq)| one.to_attempt_report(seq)).collect();
        news.site_totals = workflow.ended_attempts.clone();
    }

    fn reported_status(&self, status: RequestUnitStatus) -> RequestUnitStatus {
        match status {
            RequestUnitStatus::Failed if self.has_fault(InjectedFault::ReportFailedUnitCompleted) => {
                RequestUnitStatus::Completed
            }
            status => status,
        }
    }

    /// Returns the number of events of a unit that pass the filter. It is random, but the same for each call.
    fn count_kept_events(&self, request: &str, workflow: &SimulatedWorkflow, number: u32) -> u64 {
        let events = workflow.plan.unit(number).map_or(0, |unit| unit.events());
        let generation = self.store.views.get(request).and_then(|view| view.row.request.generation);
        match generation.map_or(1.0, |generation| generation.filter_efficiency) {
            said if said < 1.0 => {
                let share = said * self.request_facts[request].truth.filter_factor;
                let unit = format!("filter {request} {} {number}", workflow.round);
                let mut random = SeededRandom::for_part(self.setup.seed, &unit);
                (0..events).filter(|_| random.chance(share)).count() as u64
            }
            _ => events,
        }
    }

    /// Returns the output of the merge of a unit. Only generated events that pass the filter are kept.
    fn merge_output(&self, request: &str, workflow: &SimulatedWorkflow, number: u32) -> MergeOutput {
        let events = self.count_kept_events(request, workflow, number);
        let site = workflow.units[number as usize].site;
        let site = site.map_or_else(|| "T2_Nowhere".to_owned(), |site| self.grid.sites[site].name.clone());
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
            unit: WorkUnitName(number).to_string(),
            number,
            site,
            datasets: outputs.iter().map(|dataset| (dataset.clone(), vec![file(dataset)])).collect(),
            counts: MergeCounts::default(),
        }
    }
}

fn count_nodes(workflow: &SimulatedWorkflow) -> NodeCounts {
    let mut counts = NodeCounts::default();
    for node in workflow.units.iter().flat_map(|unit| &unit.nodes) {
        match node.state {
            SimulatedNodeState::Idle | SimulatedNodeState::Queued | SimulatedNodeState::CoolingOff => {
                counts.idle += 1;
            }
            SimulatedNodeState::Running(_) => counts.running += 1,
            SimulatedNodeState::Done => counts.done += 1,
            SimulatedNodeState::Failed => counts.failed += 1,
        }
    }
    counts
}

/// Creates the failure handler of production for jobs of requests.
fn failure_handler(retries: u32, max_memory_mb: u64) -> CompiledHandler {
    let care = RequestRetryPolicy {
        retries,
        initial_delay: Duration::from_mins(1),
        max_delay: Duration::from_mins(10),
        memory_growth: Ratio::from_millionths(1_500_000),
        max_memory: Bytes(max_memory_mb << 20),
        max_runtime: Duration::from_hours(48),
    };
    let handler = FailureHandler { name: "care".to_owned(), rules: care.failure_rules() };
    CompiledHandler::compile(&handler)
        .unwrap_or_else(|bad| panic!("the failure rules of requests are invalid: {bad}"))
}

fn new_unit(plan: &RoundPlan, number: u32) -> SimulatedUnit {
    let asked = |time_sec: u64, memory_mb: u64| Resources {
        cpus: plan.resources.cores,
        memory: Bytes(memory_mb << 20),
        gpus: 0,
        nodes: 1,
        // A generous limit, so that slightly slow jobs are not killed.
        runtime: Some(Duration::from_secs(3 * time_sec.max(3600))),
    };
    let node = |time_sec, memory_mb| SimulatedNode {
        state: SimulatedNodeState::Idle,
        attempts_in_run: 0,
        attempts: 0,
        requested: asked(time_sec, memory_mb),
    };
    let processing = plan.unit(number).into_iter().flat_map(|unit| unit.nodes());
    let nodes = processing.map(|one| node(one.time_sec(), one.memory_mb()));
    let nodes = nodes.chain([node(3600, plan.resources.memory_mb)]).collect();
    SimulatedUnit { status: RequestUnitStatus::Waiting, generation: 0, site: None, landings: 0, nodes }
}

impl SimulatedFailedAttempt {
    fn to_attempt_report(&self, seq: i64) -> FailedAttemptReport {
        let SimulatedAttemptFailure { class, code, message, bad_files, memory_mb } = &self.failure;
        FailedAttemptReport {
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
