//! Explains ready jobs whose workers come with Slurm allocations, from the state of the allocations.

use super::ExplanationBuilder;
use crate::slurm::allocation_ends;
use windlass_types::slurm::{Allocation, AllocationState};

/// Maximum number of allocations listed individually.
const MAX_SHOWN: usize = 5;

/// The allocations in which a job could run.
#[derive(Clone, Copy, Debug)]
pub struct JobAllocations<'a> {
    /// Those of its scheduler, or all if it names none; by number.
    pub allocations: &'a [Allocation],
    /// An action may still request one.
    pub has_pending_action: bool,
}

impl JobAllocations<'_> {
    fn open_allocations(&self) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter().filter(|row| !row.state.is_over())
    }

    /// Whether a pending allocation may bring what the present workers lack.
    pub(super) fn has_pending(&self) -> bool {
        self.has_pending_action || self.open_allocations().any(|row| row.state != AllocationState::Running)
    }
}

impl ExplanationBuilder<'_> {
    /// No present worker takes the job: explains which allocations will bring one, or why none will.
    pub(super) fn explain_allocations(&mut self, nodes: &JobAllocations<'_>) {
        self.explanation.evidence.clear();
        self.explanation.next.clear();
        let workflow = self.situation.workflow.id;
        let list = format!("windlass slurm allocations {workflow}");
        let regenerate = format!("windlass slurm regenerate {workflow} --submit");
        let open: Vec<&Allocation> = nodes.open_allocations().collect();
        match (open.as_slice(), nodes.allocations.last()) {
            ([only], _) => {
                self.set_headline(format!("ready; waiting: {}", allocation_ends::describe_end(only)));
            }
            ([_, ..], _) => {
                self.set_headline(format!("ready; waiting for one of {} allocations", open.len()));
                for row in open.iter().take(MAX_SHOWN) {
                    self.add_fact(allocation_ends::describe_end(row));
                }
            }
            ([], _) if nodes.has_pending_action => {
                self.set_headline("ready; the action that requests its allocation is due");
            }
            ([], Some(last)) if last.state == AllocationState::Refused => {
                self.set_headline(format!(
                    "ready, but no allocation is left: {}",
                    allocation_ends::describe_end(last)
                ));
                self.suggest_command(
                    list.clone(),
                    "shows the requested allocations and the messages of Slurm",
                );
                self.suggest_command(regenerate, "requests new ones, once the cause is fixed");
                return;
            }
            ([], last) => {
                self.set_headline("ready, but no allocation is requested");
                if let Some(last) = last {
                    self.add_fact(format!("the last one: {}", allocation_ends::describe_end(last)));
                }
                self.suggest_command(regenerate, "requests new ones");
                return;
            }
        }
        if let Some(trouble) = self.situation.start_problem {
            self.add_fact(trouble);
        }
        self.suggest_command(list, "shows all of them");
    }
}
