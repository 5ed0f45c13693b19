//! Jobs that running jobs add to the workflow, through another process and the books.
//!
//! They wait for the job that added them, so it is enough to look when an attempt is over; and it must be then, before the
//! run could be thought to be over. What follows for them is committed together with that end.

use super::Dispatcher;
use crate::{Error, added};
use std::mem;
use std::ops::Range;
use windlass_core::dispatch::Mirror;

impl Dispatcher<'_> {
    /// Takes up what was added since the last time, if an attempt has ended and somebody else has written at all.
    pub(super) fn pick_up_added(&mut self) -> Result<(), Error> {
        if !mem::take(&mut self.something_ended) {
            return Ok(());
        }
        // While a commit is under way nothing waits for this: there is another look when it is done.
        let wait = self.in_flight.is_none();
        let commits = self.store.foreign_commits(wait)?;
        if commits.is_none() {
            self.something_ended = true;
            return Ok(());
        }
        if mem::replace(&mut self.foreign_commits, commits) != commits {
            self.take_up()?;
        }
        self.leave_out_what_nobody_asked_for()
    }

    fn take_up(&mut self) -> Result<(), Error> {
        let new = added::take_up(self.store, self.workflow.id, &mut self.board, &mut self.open.changes)?;
        if new.is_empty() {
            return Ok(());
        }
        self.has_added = true;
        self.give_up_what_never_fits(new)
    }

    fn leave_out_what_nobody_asked_for(&mut self) -> Result<(), Error> {
        let over = mem::take(&mut self.over);
        if self.has_added {
            added::leave_out(self.store, &over, &mut self.board, &mut self.open.changes)?;
        }
        Ok(())
    }

    /// They would wait for ever, and the run with them.
    fn give_up_what_never_fits(&mut self, new: Range<u32>) -> Result<(), Error> {
        let empty = Mirror::new(self.host.capacity());
        for job in new.filter(|job| !empty.pool().could_hold(self.board.resources(*job))).collect::<Vec<_>>()
        {
            let name = self.store.job_names(&[self.board.key(job).job])?.pop().unwrap_or_default();
            self.observer
                .notice(&format!("job `{name}` was added and asks for more than this machine has: canceled"));
            self.board.on_hopeless(job, &mut self.open.changes);
        }
        Ok(())
    }
}
