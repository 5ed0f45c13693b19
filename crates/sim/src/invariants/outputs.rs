//! The simulated catalog of outputs. Its steps are idempotent, and it reports violations.

use crate::memory_store::OutputStepKey;
use crate::simulation::RequestSimulation;
use std::collections::BTreeSet;
use windlass_core::requests::rows::{BlockRow, OutputStep, OutputStepKind};
use windlass_types::requests::RequestUnitStatus;

#[derive(Debug)]
pub(crate) struct OutputCatalog {
    pub(crate) is_up: bool,
    done_steps: BTreeSet<OutputStepKey>,
}

impl Default for OutputCatalog {
    fn default() -> Self {
        Self { is_up: true, done_steps: BTreeSet::new() }
    }
}

impl OutputCatalog {
    fn has_step(&self, block: &str, unit: Option<u32>, kind: OutputStepKind) -> bool {
        self.done_steps.contains(&(block.to_owned(), unit, kind))
    }
}

impl RequestSimulation {
    /// Performs a step, and returns its reference.
    pub(crate) fn record_step(
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
                self.record_violation(request, what);
            }
            if step.kind == OutputStepKind::Register {
                self.on_outputs_registered(request, step, block);
            }
        }
        self.catalog.done_steps.insert((step.block.clone(), step.unit, step.kind));
        Ok(Some(format!("{} of {}", step.kind.name(), step.block)))
    }

    /// Checks that a step follows its dependencies.
    fn check_step(&self, step: &OutputStep, block: &BlockRow) -> Result<(), String> {
        let has = |unit, kind| self.catalog.has_step(&block.uuid, unit, kind);
        let needed = match step.kind {
            OutputStepKind::Open | OutputStepKind::Invalidate => true,
            OutputStepKind::Register => has(None, OutputStepKind::Open),
            OutputStepKind::Protect => has(step.unit, OutputStepKind::Register),
            OutputStepKind::Close => return self.check_close(block),
            OutputStepKind::Archive => has(None, OutputStepKind::Close),
        };
        let told = || format!("{} of {} {:?} is too early", step.kind.name(), step.block, step.unit);
        needed.then_some(()).ok_or_else(told)
    }

    /// Checks that a closed block is complete: no more units follow, and all completed units are in it.
    fn check_close(&self, block: &BlockRow) -> Result<(), String> {
        let workflow =
            self.backends.workflow(&crate::simulated_server::round_directory(&block.process, block.round));
        let Some(workflow) = workflow else {
            return Err(format!("{} closes before it was submitted", block.uuid));
        };
        for unit in block.first_unit..=block.last_unit {
            let is_protected = self.catalog.has_step(&block.uuid, Some(unit), OutputStepKind::Protect);
            let status = workflow.units[unit as usize].status;
            if !is_protected && (status == RequestUnitStatus::Completed || workflow.active_run.is_some()) {
                return Err(format!("{} closes without unit {unit}, which is {status}", block.uuid));
            }
        }
        Ok(())
    }

    /// Checks registered outputs of a unit: the unit must be completed, and its events count once.
    fn on_outputs_registered(&mut self, request: &str, step: &OutputStep, block: &BlockRow) {
        let Some(unit) = step.unit else { return };
        if self.catalog.has_step(&block.uuid, step.unit, step.kind) {
            return;
        }
        let directory = crate::simulated_server::round_directory(&block.process, block.round);
        let Some(workflow) = self.backends.workflow(&directory) else {
            return self.record_violation(
                request,
                format!("unit {unit} of {} is registered, but never ran", block.uuid),
            );
        };
        let status = workflow.units[unit as usize].status;
        if status != RequestUnitStatus::Completed {
            return self.record_violation(request, format!("unit {unit} is registered, but is {status}"));
        }
        if self.store.views[request].row.request.output_datasets.first() != Some(&block.dataset) {
            return;
        }
        let data = &self.request_facts[request].data;
        let coverage = self.invariants.coverage.entry(request.to_owned()).or_default();
        coverage.events += step.detail.get("events").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if let Err(what) = coverage.add_unit(&workflow.plan, unit, |lfn| data.file(lfn)) {
            self.record_violation(request, what);
        }
    }
}
