//! Plans rounds from the remaining input, and credits them at the end, by the functions of production.

use super::StartedEffect;
use super::effects::transient_problem;
use crate::setup::InjectedFault;
use crate::simulation::RequestSimulation;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::adaptive::{self, RoundRecord};
use windlass_core::requests::input_files::{self, FilePart, RemainingInput, RoundUnitOutcome, UnitInput};
use windlass_core::requests::lifecycle::{EffectFailure, LifecycleEvent, PlannedRound, PlannedRun};
use windlass_core::requests::rows::{
    BackendRunRef, RequestFileCounts, RequestFileRow, RequestProgress, RoundExtent, RunRow, RunTotals,
};
use windlass_core::requests::{derived_uuids, rounds};
use windlass_core::round_plan::{PlanBlock, PlanInput, PlanJobInput, RoundPlan, RoundStart, plan_round};
use windlass_types::{LumiMask, Timestamp};

/// Returns the directory that all runs of a round share and are found by.
pub(crate) fn round_directory(process: &str, round: u32) -> String {
    format!("{process}/{round}")
}

impl RequestSimulation {
    pub(super) fn import_input(&mut self, request: &str) -> Vec<LifecycleEvent> {
        if !self.catalog.is_up {
            return vec![LifecycleEvent::ImportFailed(transient_problem("the catalog does not respond"))];
        }
        let Some(view) = self.store.views.get(request) else { return Vec::new() };
        let generation = view.row.request.generation;
        vec![LifecycleEvent::Imported(Box::new(RequestProgress {
            uuid: derived_uuids::process_uuid(request, view.row.created_at),
            request_name: request.to_owned(),
            round: 0,
            next_first_event: generation.map_or(1, |generation| generation.first_event),
            next_first_lumi: generation.map_or(1, |generation| generation.first_lumi),
            next_block: 0,
            more_input: false,
            excluded: 0,
            settled: 0,
            files: RequestFileCounts::default(),
            extent: RoundExtent::default(),
            events_produced: 0,
            events_of_round: 0,
            empty_rounds: 0,
            category_throttles: BTreeMap::new(),
            step_metrics: None,
            created_at: self.now,
            updated_at: self.now,
        }))]
    }

    pub(super) fn plan_effect(&mut self, request: &str, begun: &StartedEffect, round: u32) -> LifecycleEvent {
        if !self.catalog.is_up {
            return LifecycleEvent::PlanFailed(transient_problem("the catalog does not respond"));
        }
        let Some(process) = &begun.process else {
            return LifecycleEvent::PlanFailed(permanent_problem("it has no process"));
        };
        match self.plan_round(request, process, begun.run.as_ref(), round) {
            Ok(Some(planned)) => LifecycleEvent::Planned(Box::new(planned)),
            Ok(None) => LifecycleEvent::NothingToPlan,
            Err(trouble) => LifecycleEvent::PlanFailed(trouble),
        }
    }

    fn plan_round(
        &mut self,
        request: &str,
        process: &RequestProgress,
        last: Option<&RunRow>,
        round: u32,
    ) -> Result<Option<PlannedRound>, EffectFailure> {
        let mut experience = self.load_experience(process, last, round);
        let remaining = self.remaining_input(request, round);
        let view = &self.store.views[request];
        let definition = &view.row.request;
        let wanted = definition.generation.map(|all| all.events.saturating_sub(process.events_produced));
        if wanted == Some(0) || definition.input_dataset.is_some() && remaining.files.is_empty() {
            return Ok(None);
        }
        let banned = self.store.banned_sites(request, self.now);
        let sites = self.grid.sites.iter().filter(|site| !banned.contains(&site.name));
        let sites = sites.map(|site| (site.name.clone(), Some(u64::from(site.slots)))).collect();
        let start = RoundStart {
            first_event: if self.has_fault(InjectedFault::RepeatNumbers) {
                1
            } else {
                process.next_first_event
            },
            first_lumi: process.next_first_lumi,
            first_block: process.next_block,
        };
        let excluded = view.row.overrides.excluded_files.len() as u64;
        let mut settings = self.plan_settings.clone();
        if let Some(retries) = view.row.overrides.retry_count {
            settings.retries.processing = retries;
        }
        let done = if wanted.is_some() { process.events_produced } else { process.files.processed };
        let size = adaptive::decide_round_size(&settings.adaptive, definition.adaptive, Some(&experience));
        let input = PlanInput {
            request: definition,
            files: &remaining.files,
            attempted: &remaining.attempted,
            remaining: &remaining.left,
            sites: &sites,
            settings: &settings,
            start,
            events_wanted: wanted,
            memory_mb: view.row.overrides.memory_mb,
            time_per_event: view.row.overrides.time_per_event_sec,
            metrics: Some(&experience),
            max_units: size.map(|size| size.units),
            max_jobs: size.and_then(|size| size.jobs),
            until_step: size
                .and_then(|_| rounds::amount_until_next_step(definition, done, remaining.files.len() as u64)),
        };
        let plan = plan_round(&input).map_err(|faults| EffectFailure::from_plan_problems(&faults))?;
        if plan.units().len() == 0 {
            return Ok(None);
        }
        let is_condor = self.request_facts[request].truth.is_condor;
        let mut planned = build_planned(process, round, &plan, is_condor, self.now);
        planned.process.extent = rounds::round_extent(definition, process, &plan);
        planned.process.excluded = excluded;
        experience.record_round(RoundRecord { round, asked: plan.asked, measured: None });
        planned.process.step_metrics = serde_json::to_value(experience).ok();
        self.written_plans.insert(planned.run.submit_dir.clone(), Arc::new(plan));
        Ok(Some(planned))
    }

    /// Credits the processed input of a round; idempotent.
    pub(super) fn credit_round(&mut self, request: &str, run: &RunRow) -> LifecycleEvent {
        let RunRow { round, process, submit_dir, .. } = run;
        let failed =
            |reason: &str| LifecycleEvent::SettleFailed { round: *round, failure: permanent_problem(reason) };
        let Some(plan) = self.written_plans.get(submit_dir).cloned() else {
            return failed("it was never planned");
        };
        let mut outcome = RoundUnitOutcome {
            completed: self.store.registered_units(&self.store.views[request], *round),
            bad_files: self.store.bad_files(process, *round),
        };
        let readings = plan_readings(&plan);
        self.inject_credit_fault(&mut outcome, &readings);
        let rows = self.store.files.entry(request.to_owned()).or_default();
        let earlier: Vec<RequestFileRow> = rows.values().cloned().collect();
        match input_files::settle_files(*round, readings, &outcome, &earlier) {
            Ok(settled) => rows.extend(settled.into_iter().map(|row| (row.lfn.clone(), row))),
            Err(mixed) => return failed(&mixed.to_string()),
        }
        let rows: Vec<RequestFileRow> = rows.values().cloned().collect();
        LifecycleEvent::Settled {
            round: *round,
            run: run.uuid.clone(),
            files: input_files::count_files(&rows),
        }
    }

    /// Injects a fault.
    fn inject_credit_fault(&self, outcome: &mut RoundUnitOutcome, readings: &[UnitInput]) {
        let failed = readings.iter().find(|reading| !outcome.completed.contains(&reading.unit));
        let Some(failed) = failed else { return };
        if self.has_fault(InjectedFault::CreditFailedUnit) {
            outcome.completed.insert(failed.unit);
        }
        if self.has_fault(InjectedFault::ExcludeGoodFile) {
            let of_unit = readings.iter().filter(|reading| reading.unit == failed.unit);
            outcome
                .bad_files
                .entry(failed.unit)
                .or_default()
                .extend(of_unit.map(|reading| reading.lfn.clone()));
        }
    }

    /// Returns the remaining input, and records excluded files.
    fn remaining_input(&mut self, request: &str, round: u32) -> RemainingInput {
        let view = &self.store.views[request];
        if view.row.request.input_dataset.is_none() {
            return RemainingInput::default();
        }
        let unwanted: BTreeMap<String, String> = view
            .row
            .overrides
            .excluded_files
            .iter()
            .map(|lfn| (lfn.clone(), "a person".to_owned()))
            .collect();
        let rows = self.store.files.entry(request.to_owned()).or_default();
        let mut known: Vec<RequestFileRow> = rows.values().cloned().collect();
        if self.setup.fault == Some(InjectedFault::ForgetFileRows) {
            known.clear();
        }
        let remaining = input_files::remaining_input(
            self.request_facts[request].data.files.clone(),
            known,
            &unwanted,
            round,
        );
        for row in &remaining.excluded {
            rows.insert(row.lfn.clone(), row.clone());
        }
        remaining
    }
}

/// Returns the input of a round by work unit.
fn plan_readings(plan: &RoundPlan) -> Vec<UnitInput> {
    let mut readings = Vec::new();
    for unit in plan.units() {
        let inputs = unit.nodes().flat_map(|node| node.inputs());
        readings.extend(inputs.map(|input| UnitInput {
            unit: unit.number(),
            lfn: input.file().lfn.clone(),
            part: part_of_input(&input),
        }));
    }
    readings
}

fn part_of_input(input: &PlanJobInput<'_>) -> FilePart {
    match (input.event_window(), input.lumi_ranges()) {
        (Some((first, last)), _) => FilePart::Events(first, last),
        (None, Some(ranges)) => {
            let mut mask = LumiMask::default();
            for range in ranges {
                mask.insert_range(range.run.into(), (range.first.into(), range.last.into()));
            }
            FilePart::Lumis(mask)
        }
        (None, None) => FilePart::Whole,
    }
}

fn build_planned(
    process: &RequestProgress,
    round: u32,
    plan: &RoundPlan,
    is_condor: bool,
    now: Timestamp,
) -> PlannedRound {
    let backend = if is_condor {
        BackendRunRef::Htcondor { schedd: None, cluster: None }
    } else {
        BackendRunRef::Engine { workflow: None, run: None }
    };
    let directory = round_directory(&process.uuid, round);
    let totals = RunTotals { units: plan.units().len() as u32, ..RunTotals::default() };
    let place = PlannedRun { uuid: directory.clone(), submit_dir: directory, backend, totals };
    let name_block = |block: &PlanBlock<'_>| format!("{}/{}/{}", process.uuid, block.dataset, block.index);
    PlannedRound::new(process, round, plan, place, name_block, now)
}

fn permanent_problem(reason: &str) -> EffectFailure {
    EffectFailure { reason: reason.to_owned(), is_retryable: false }
}
