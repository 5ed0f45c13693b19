//! Of a job that may start and whose workers come with allocations of Slurm: what became of those.

use super::ExplanationBuilder;
use crate::slurm::allocation_ends;
use windlass_types::slurm::{Allocation, AllocationState};

/// So many are told of one by one.
const MAX_SHOWN: usize = 5;

/// The allocations in which a job could run.
#[derive(Clone, Copy, Debug)]
pub struct JobAllocations<'a> {
    /// Those of its scheduler, or of all if it names none; by number.
    pub allocations: &'a [Allocation],
    /// An action may still ask for one.
    pub has_pending_action: bool,
}

impl JobAllocations<'_> {
    fn open_allocations(&self) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter().filter(|row| !row.state.is_over())
    }

    /// One that does not run yet may bring what those that are there do not have.
    pub(super) fn has_pending(&self) -> bool {
        self.has_pending_action || self.open_allocations().any(|row| row.state != AllocationState::Running)
    }
}

impl ExplanationBuilder<'_> {
    /// Nobody who is there takes it: which allocations will bring somebody, or why none will.
    pub(super) fn explain_allocations(&mut self, nodes: &JobAllocations<'_>) {
        self.explanation.evidence.clear();
        self.explanation.next.clear();
        let workflow = self.situation.workflow.id;
        let list = format!("windlass slurm allocations {workflow}");
        let regenerate = format!("windlass slurm regenerate {workflow} --submit");
        let open: Vec<&Allocation> = nodes.open_allocations().collect();
        match (open.as_slice(), nodes.allocations.last()) {
            ([only], _) => {
                self.set_headline(format!("ready; it waits: {}", allocation_ends::describe_end(only)));
            }
            ([_, ..], _) => {
                self.set_headline(format!("ready; it waits for one of {} allocations", open.len()));
                for row in open.iter().take(MAX_SHOWN) {
                    self.add_fact(allocation_ends::describe_end(row));
                }
            }
            ([], _) if nodes.has_pending_action => {
                self.set_headline("ready; the action that asks for its allocation is about to do so");
            }
            ([], Some(last)) if last.state == AllocationState::Refused => {
                self.set_headline(format!(
                    "ready, but no allocation is left: {}",
                    allocation_ends::describe_end(last)
                ));
                self.suggest_command(list.clone(), "shows what was asked for, and what Slurm said");
                self.suggest_command(regenerate, "asks for new ones, when that is put right");
                return;
            }
            ([], last) => {
                self.set_headline("ready, but no allocation is asked for");
                if let Some(last) = last {
                    self.add_fact(format!("the last one: {}", allocation_ends::describe_end(last)));
                }
                self.suggest_command(regenerate, "asks for new ones");
                return;
            }
        }
        if let Some(trouble) = self.situation.start_problem {
            self.add_fact(trouble);
        }
        self.suggest_command(list, "shows all of them");
    }
}
