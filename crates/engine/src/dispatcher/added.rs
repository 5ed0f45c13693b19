//! Jobs that running jobs add to the workflow, through another process and the books.
//!
//! They wait for the job that added them, so it is enough to look when an attempt is over; and it must be then, before the
//! run could be thought to be over. What follows for them is committed together with that end.

use super::{Dispatcher, here};
use crate::{Error, added};
use std::ops::Range;
use windlass_core::dispatch::Mirror;

impl Dispatcher<'_> {
    /// Takes up what was added since the last time, if an attempt has ended and somebody else has written at all. While the
    /// books cannot be read it is put off, and with it the commit of what has ended.
    pub(super) fn pick_up_added(&mut self) -> Result<(), Error> {
        if !self.something_ended || self.is_lock_away {
            return Ok(());
        }
        match self.look_for_added() {
            Err(Error::Store(error)) if error.is_transient() => {
                self.in_trouble(error.to_string());
                Ok(())
            }
            looked => looked,
        }
    }

    fn look_for_added(&mut self) -> Result<(), Error> {
        // While a commit is under way nothing waits for this: there is another look when it is done.
        let wait = self.in_flight.is_none();
        let commits = self.store.foreign_commits(wait)?;
        if commits.is_none() {
            return Ok(());
        }
        if self.foreign_commits != commits {
            self.take_up()?;
            self.foreign_commits = commits;
        }
        self.leave_out_what_nobody_asked_for()?;
        self.something_ended = false;
        Ok(())
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
        if self.has_added {
            added::leave_out(self.store, &self.over, &mut self.board, &mut self.open.changes)?;
        }
        self.over.clear();
        Ok(())
    }

    /// They would wait for ever, and the run with them.
    fn give_up_what_never_fits(&mut self, new: Range<u32>) -> Result<(), Error> {
        let taste = here(self.host.labels());
        let empty: Mirror = Mirror::new(self.host.capacity());
        for job in new {
            let fits = empty.pool().could_hold(self.board.resources(job));
            let lacking = taste.lacks(&self.board.demand(job).place);
            let why = match (fits, lacking.as_slice()) {
                (true, []) => continue,
                (false, _) => "asks for more than this machine has".to_owned(),
                (true, lacking) => {
                    format!("has the label `{}`, which this machine lacks", lacking.join("`, `"))
                }
            };
            let id = self.board.key(job).job;
            let name = self.insist(|store| store.job_names(&[id]))?.pop().unwrap_or_default();
            self.observer.notice(&format!("job `{name}` was added and {why}: canceled"));
            self.board.on_hopeless(job, &mut self.open.changes);
        }
        Ok(())
    }
}
