//! The catalog that outputs are recorded in. It takes everything twice without harm, and notices what must not be.

use crate::books::StepKey;
use crate::sim::Sim;
use std::collections::BTreeSet;
use windlass_core::requests::book::{BlockRow, OutputStep, StepKind};
use windlass_types::requests::UnitStatus;

#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) is_up: bool,
    done: BTreeSet<StepKey>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self { is_up: true, done: BTreeSet::new() }
    }
}

impl Catalog {
    fn has(&self, block: &str, unit: Option<u32>, kind: StepKind) -> bool {
        self.done.contains(&(block.to_owned(), unit, kind))
    }
}

impl Sim {
    /// Does a step, and returns what it is called there.
    pub(crate) fn record(
        &mut self,
        request: &str,
        step: &OutputStep,
        block: Option<&BlockRow>,
    ) -> Result<Option<String>, String> {
        if !self.catalog.is_up {
            return Err("503: come back later".to_owned());
        }
        if let Some(block) = block {
            if let Err(what) = self.check_step(step, block) {
                self.broken(request, what);
            }
            if step.kind == StepKind::Register {
                self.registered(request, step, block);
            }
        }
        self.catalog.done.insert((step.block.clone(), step.unit, step.kind));
        Ok(Some(format!("{} of {}", step.kind.name(), step.block)))
    }

    /// Nothing before what it depends on.
    fn check_step(&self, step: &OutputStep, block: &BlockRow) -> Result<(), String> {
        let has = |unit, kind| self.catalog.has(&block.uuid, unit, kind);
        let needed = match step.kind {
            StepKind::Open | StepKind::Invalidate => true,
            StepKind::Register => has(None, StepKind::Open),
            StepKind::Protect => has(step.unit, StepKind::Register),
            StepKind::Close => return self.check_close(block),
            StepKind::Archive => has(None, StepKind::Close),
        };
        let told = || format!("{} of {} {:?} comes too early", step.kind.name(), step.block, step.unit);
        needed.then_some(()).ok_or_else(told)
    }

    /// Nothing more comes to it, and all that is done is in it.
    fn check_close(&self, block: &BlockRow) -> Result<(), String> {
        let workflow = self.grid.workflow(&crate::server::directory(&block.process, block.round));
        let Some(workflow) = workflow else { return Err(format!("{} closes before it began", block.uuid)) };
        for unit in block.first_unit..=block.last_unit {
            let is_protected = self.catalog.has(&block.uuid, Some(unit), StepKind::Protect);
            let status = workflow.units[unit as usize].status;
            if !is_protected && (status == UnitStatus::Completed || workflow.live.is_some()) {
                return Err(format!("{} closes without unit {unit}, which is {status}", block.uuid));
            }
        }
        Ok(())
    }

    /// Outputs of a unit are there: only if it is completed, and its events count once.
    fn registered(&mut self, request: &str, step: &OutputStep, block: &BlockRow) {
        let Some(unit) = step.unit else { return };
        if self.catalog.has(&block.uuid, step.unit, step.kind) {
            return;
        }
        let directory = crate::server::directory(&block.process, block.round);
        let Some(workflow) = self.grid.workflow(&directory) else {
            return self
                .broken(request, format!("unit {unit} of {} is registered, and never ran", block.uuid));
        };
        let status = workflow.units[unit as usize].status;
        if status != UnitStatus::Completed {
            return self.broken(request, format!("unit {unit} is registered, and is {status}"));
        }
        if self.books.views[request].row.request.output_datasets.first() != Some(&block.dataset) {
            return;
        }
        let data = &self.truths[request].data;
        let coverage = self.watch.coverage.entry(request.to_owned()).or_default();
        coverage.events += step.detail.get("events").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if let Err(what) = coverage.add(&workflow.plan, unit, |lfn| data.file(lfn)) {
            self.broken(request, what);
        }
    }
}
