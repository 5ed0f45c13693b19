//! What others want done about failed and waiting jobs while the workflow runs: they leave a wish in the books, and only
//! whoever runs the workflow may grant it.
//!
//! The board cannot be wound back, so it is made anew from the rows. For that nothing may be on its way to the disk:
//! nothing more is claimed until all that was decided is there.

use super::Dispatcher;
use crate::{Error, suspicion, takeover};
use std::time::{Duration, Instant};

/// How long a wish may go unnoticed whose owner cannot send a signal, because he is on another machine.
const INTERVAL: Duration = Duration::from_secs(1);

/// What is known of wishes.
pub(super) struct Wishes {
    /// Somebody waits.
    pub(super) are_there: bool,
    looked_at: Instant,
}

impl Wishes {
    pub(super) fn none(now: Instant) -> Self {
        Self { are_there: false, looked_at: now }
    }
}

impl Dispatcher<'_> {
    /// Looks for wishes once in a while.
    pub(super) fn look_for_wishes_in_time(&mut self) -> Result<(), Error> {
        if self.wishes.looked_at.elapsed() < INTERVAL { Ok(()) } else { self.look_for_wishes() }
    }

    pub(super) fn look_for_wishes(&mut self) -> Result<(), Error> {
        self.wishes.looked_at = Instant::now();
        if self.stop.is_none() && !self.wishes.are_there {
            let id = self.workflow.id;
            self.wishes.are_there = !self.insist(|store| store.open_wishes(id))?.is_empty();
        }
        Ok(())
    }

    /// Grants what is wished for, if nothing is on its way to the disk.
    pub(super) fn grant_wishes(&mut self) -> Result<(), Error> {
        let is_quiet = self.open.changes.is_empty() && self.in_flight.is_none() && !self.something_ended;
        if !self.wishes.are_there || !is_quiet {
            return Ok(());
        }
        self.wishes.are_there = false;
        if self.stop.is_some() {
            return Ok(());
        }
        let (id, now) = (self.workflow.id, self.clock.now());
        for wish in self.insist(|store| store.open_wishes(id))? {
            self.insist(|store| store.grant_wish(id, wish, now))?;
        }
        self.remake_board()
    }

    /// The rows know better. Who holds what is the same in both.
    fn remake_board(&mut self) -> Result<(), Error> {
        let mut board = takeover::load(self.store, &self.workflow, self.host.capacity())?;
        board.on_initialize(&mut self.open.changes);
        if self.board.is_halted() {
            board.on_halt();
        }
        self.suspects = suspicion::recall(self.store, &self.workflow, &mut board)?;
        self.board = board;
        self.keep_back_again()?;
        if self.board.has_ready() && self.worker.is_none() {
            self.start_worker()?;
        }
        Ok(())
    }
}
