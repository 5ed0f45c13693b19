//! Of a job that may start and whose workers come with allocations of Slurm: what became of those.

use super::Answer;
use crate::slurm::ends;
use windlass_types::slurm::{Allocation, AllocationState};

/// So many are told of one by one.
const SHOWN: usize = 5;

/// The allocations in which a job could run.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a> {
    /// Those of its scheduler, or of all if it names none; by number.
    pub allocations: &'a [Allocation],
    /// An action may still ask for one.
    pub is_to_be_asked: bool,
}

impl Nodes<'_> {
    fn open(&self) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter().filter(|row| !row.state.is_over())
    }

    /// One that does not run yet may bring what those that are there do not have.
    pub(super) fn are_coming(&self) -> bool {
        self.is_to_be_asked || self.open().any(|row| row.state != AllocationState::Running)
    }
}

impl Answer<'_> {
    /// Nobody who is there takes it: which allocations will bring somebody, or why none will.
    pub(super) fn wait_for_nodes(&mut self, nodes: &Nodes<'_>) {
        self.verdict.evidence.clear();
        self.verdict.next.clear();
        let workflow = self.of.workflow.id;
        let list = format!("windlass slurm allocations {workflow}");
        let regenerate = format!("windlass slurm regenerate {workflow} --submit");
        let open: Vec<&Allocation> = nodes.open().collect();
        match (open.as_slice(), nodes.allocations.last()) {
            ([only], _) => self.headline(format!("ready; it waits: {}", ends::in_words(only))),
            ([_, ..], _) => {
                self.headline(format!("ready; it waits for one of {} allocations", open.len()));
                for row in open.iter().take(SHOWN) {
                    self.fact(ends::in_words(row));
                }
            }
            ([], _) if nodes.is_to_be_asked => {
                self.headline("ready; the action that asks for its allocation is about to do so");
            }
            ([], Some(last)) if last.state == AllocationState::Refused => {
                self.headline(format!("ready, but no allocation is left: {}", ends::in_words(last)));
                self.next(list.clone(), "shows what was asked for, and what Slurm said");
                self.next(regenerate, "asks for new ones, when that is put right");
                return;
            }
            ([], last) => {
                self.headline("ready, but no allocation is asked for");
                if let Some(last) = last {
                    self.fact(format!("the last one: {}", ends::in_words(last)));
                }
                self.next(regenerate, "asks for new ones");
                return;
            }
        }
        if let Some(trouble) = self.of.trouble {
            self.fact(trouble);
        }
        self.next(list, "shows all of them");
    }
}
