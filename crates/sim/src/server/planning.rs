//! A round is planned from what is left, and credited when it is over; with the functions of production.

use super::Begun;
use super::effects::passing;
use crate::setup::Mistake;
use crate::sim::Sim;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::adaptive::{self, RoundRecord};
use windlass_core::plan::{InputView, Plan, PlanBlock, PlanInput, Start, plan};
use windlass_core::requests::book::{Backend, Extent, FileCounts, FileRow, Process, RunRow, RunTotals};
use windlass_core::requests::files::{self, Outcome, Part, Reading, Remaining};
use windlass_core::requests::lifecycle::{News, Place, Planned, Trouble};
use windlass_core::requests::{names, rounds};
use windlass_types::{LumiMask, Timestamp};

/// What all runs of a round have in common, and what is found again by it.
pub(crate) fn directory(process: &str, round: u32) -> String {
    format!("{process}/{round}")
}

impl Sim {
    pub(super) fn import(&mut self, request: &str) -> Vec<News> {
        if !self.catalog.is_up {
            return vec![News::ImportFailed(passing("the catalog is away"))];
        }
        let Some(view) = self.books.views.get(request) else { return Vec::new() };
        let generation = view.row.request.generation;
        vec![News::Imported(Box::new(Process {
            uuid: names::process(request, view.row.created_at),
            request_name: request.to_owned(),
            round: 0,
            next_first_event: generation.map_or(1, |generation| generation.first_event),
            next_first_lumi: generation.map_or(1, |generation| generation.first_lumi),
            next_block: 0,
            more_input: false,
            excluded: 0,
            settled: 0,
            files: FileCounts::default(),
            extent: Extent::default(),
            events_produced: 0,
            events_of_round: 0,
            empty_rounds: 0,
            category_throttles: BTreeMap::new(),
            step_metrics: None,
            created_at: self.now,
            updated_at: self.now,
        }))]
    }

    pub(super) fn plan(&mut self, request: &str, begun: &Begun, round: u32) -> News {
        if !self.catalog.is_up {
            return News::PlanFailed(passing("the catalog is away"));
        }
        let Some(process) = &begun.process else { return News::PlanFailed(lasting("it has no process")) };
        match self.plan_round(request, process, begun.run.as_ref(), round) {
            Ok(Some(planned)) => News::Planned(Box::new(planned)),
            Ok(None) => News::NothingToPlan,
            Err(trouble) => News::PlanFailed(trouble),
        }
    }

    fn plan_round(
        &mut self,
        request: &str,
        process: &Process,
        last: Option<&RunRow>,
        round: u32,
    ) -> Result<Option<Planned>, Trouble> {
        let mut experience = self.experience(process, last, round);
        let remaining = self.remaining(request, round);
        let view = &self.books.views[request];
        let wish = &view.row.request;
        let wanted = wish.generation.map(|all| all.events.saturating_sub(process.events_produced));
        if wanted == Some(0) || wish.input_dataset.is_some() && remaining.files.is_empty() {
            return Ok(None);
        }
        let banned = self.books.banned(request, self.now);
        let sites = self.land.sites.iter().filter(|site| !banned.contains(&site.name));
        let sites = sites.map(|site| (site.name.clone(), Some(u64::from(site.slots)))).collect();
        let start = Start {
            first_event: if self.makes(Mistake::RepeatNumbers) { 1 } else { process.next_first_event },
            first_lumi: process.next_first_lumi,
            first_block: process.next_block,
        };
        let excluded = view.row.overrides.excluded_files.len() as u64;
        let mut settings = self.plan_settings.clone();
        if let Some(retries) = view.row.overrides.retry_count {
            settings.retries.processing = retries;
        }
        let done = if wanted.is_some() { process.events_produced } else { process.files.processed };
        let size = adaptive::round_size(&settings.adaptive, wish.adaptive, Some(&experience));
        let input = PlanInput {
            request: wish,
            files: &remaining.files,
            attempted: &remaining.attempted,
            left: &remaining.left,
            sites: &sites,
            settings: &settings,
            start,
            events_wanted: wanted,
            memory_mb: view.row.overrides.memory_mb,
            time_per_event: view.row.overrides.time_per_event_sec,
            metrics: Some(&experience),
            max_units: size.map(|size| size.units),
            max_jobs: size.and_then(|size| size.jobs),
            until_step: size.and_then(|_| rounds::until_next_step(wish, done, remaining.files.len() as u64)),
        };
        let plan = plan(&input).map_err(|faults| Trouble::of_plan(&faults))?;
        if plan.units().len() == 0 {
            return Ok(None);
        }
        let is_condor = self.truths[request].wish.is_condor;
        let mut planned = planned(process, round, &plan, is_condor, self.now);
        planned.process.extent = rounds::extent(wish, process, &plan);
        planned.process.excluded = excluded;
        experience.record(RoundRecord { round, asked: plan.asked, measured: None });
        planned.process.step_metrics = serde_json::to_value(experience).ok();
        self.disk.insert(planned.run.submit_dir.clone(), Arc::new(plan));
        Ok(Some(planned))
    }

    /// What a round has done of its input is noted; twice is as good as once.
    pub(super) fn settle(&mut self, request: &str, run: &RunRow) -> News {
        let RunRow { round, process, submit_dir, .. } = run;
        let failed = |reason: &str| News::SettleFailed { round: *round, trouble: lasting(reason) };
        let Some(plan) = self.disk.get(submit_dir).cloned() else { return failed("it was never planned") };
        let mut outcome = Outcome {
            completed: self.books.registered_units(&self.books.views[request], *round),
            bad: self.books.bad_files(process, *round),
        };
        let readings = readings(&plan);
        self.misjudge(&mut outcome, &readings);
        let rows = self.books.files.entry(request.to_owned()).or_default();
        let earlier: Vec<FileRow> = rows.values().cloned().collect();
        match files::settle(*round, readings, &outcome, &earlier) {
            Ok(settled) => rows.extend(settled.into_iter().map(|row| (row.lfn.clone(), row))),
            Err(mixed) => return failed(&mixed.to_string()),
        }
        let rows: Vec<FileRow> = rows.values().cloned().collect();
        News::Settled { round: *round, run: run.uuid.clone(), files: files::count(&rows) }
    }

    /// Mistakes that are made on purpose.
    fn misjudge(&self, outcome: &mut Outcome, readings: &[Reading]) {
        let failed = readings.iter().find(|reading| !outcome.completed.contains(&reading.unit));
        let Some(failed) = failed else { return };
        if self.makes(Mistake::CreditFailedUnit) {
            outcome.completed.insert(failed.unit);
        }
        if self.makes(Mistake::ExcludeGoodFile) {
            let of_unit = readings.iter().filter(|reading| reading.unit == failed.unit);
            outcome.bad.entry(failed.unit).or_default().extend(of_unit.map(|reading| reading.lfn.clone()));
        }
    }

    /// What is still to be read; what will not be any more is noted.
    fn remaining(&mut self, request: &str, round: u32) -> Remaining {
        let view = &self.books.views[request];
        if view.row.request.input_dataset.is_none() {
            return Remaining::default();
        }
        let unwanted: BTreeMap<String, String> = view
            .row
            .overrides
            .excluded_files
            .iter()
            .map(|lfn| (lfn.clone(), "a person".to_owned()))
            .collect();
        let rows = self.books.files.entry(request.to_owned()).or_default();
        let mut known: Vec<FileRow> = rows.values().cloned().collect();
        if self.setup.mistake == Some(Mistake::ForgetFileRows) {
            known.clear();
        }
        let remaining = files::remaining(self.truths[request].data.files.clone(), known, &unwanted, round);
        for row in &remaining.excluded {
            rows.insert(row.lfn.clone(), row.clone());
        }
        remaining
    }
}

/// What a round reads, and in which work units.
fn readings(plan: &Plan) -> Vec<Reading> {
    let mut readings = Vec::new();
    for unit in plan.units() {
        let inputs = unit.nodes().flat_map(|node| node.inputs());
        readings.extend(inputs.map(|input| Reading {
            unit: unit.number(),
            lfn: input.file().lfn.clone(),
            part: part(&input),
        }));
    }
    readings
}

fn part(input: &InputView<'_>) -> Part {
    match (input.window(), input.lumis()) {
        (Some((first, last)), _) => Part::Events(first, last),
        (None, Some(ranges)) => {
            let mut mask = LumiMask::default();
            for range in ranges {
                mask.insert_range(range.run.into(), (range.first.into(), range.last.into()));
            }
            Part::Lumis(mask)
        }
        (None, None) => Part::Whole,
    }
}

fn planned(process: &Process, round: u32, plan: &Plan, is_condor: bool, now: Timestamp) -> Planned {
    let backend = if is_condor {
        Backend::Htcondor { schedd: None, cluster: None }
    } else {
        Backend::Engine { workflow: None, run: None }
    };
    let directory = directory(&process.uuid, round);
    let totals = RunTotals { units: plan.units().len() as u32, ..RunTotals::default() };
    let place = Place { uuid: directory.clone(), submit_dir: directory, backend, totals };
    let name_block = |block: &PlanBlock<'_>| format!("{}/{}/{}", process.uuid, block.dataset, block.index);
    Planned::new(process, round, plan, place, name_block, now)
}

fn lasting(reason: &str) -> Trouble {
    Trouble { reason: reason.to_owned(), again: false }
}
