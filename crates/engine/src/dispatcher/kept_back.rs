//! Jobs that the only worker there is can never run, because they ask for too much or belong elsewhere. They are kept back,
//! and all others run.

use super::{Dispatcher, here};
use crate::Error;
use windlass_core::dispatch::Mirror;

impl Dispatcher<'_> {
    /// Before anything is started. If nothing else could run, that is an error.
    pub(super) fn keep_back_at_start(&mut self) -> Result<(), Error> {
        self.keep_back();
        match self.why_kept_back()? {
            Some(why) if self.board.is_stuck() => Err(why),
            Some(why) => {
                self.observer.notice(&format!("{why}: kept back; the other jobs run"));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// After others have changed jobs: what cannot run here since then is told of.
    pub(super) fn keep_back_again(&mut self) -> Result<(), Error> {
        let before = std::mem::take(&mut self.kept_back);
        self.keep_back();
        let is_new = self.kept_back.iter().any(|job| !before.contains(job));
        if let Some(why) = self.why_kept_back()?.filter(|_| is_new) {
            self.observer.notice(&format!("{why}: kept back; the other jobs run"));
        }
        Ok(())
    }

    fn keep_back(&mut self) {
        let empty = Mirror::with_taste(self.host.capacity(), here(self.host.labels()));
        let kept = self.board.keep_back(&empty);
        self.kept_back = kept.into_iter().map(|job| self.board.key(job).job).collect();
    }

    /// The first of those that are left, how many there are, and why they cannot run here.
    pub(super) fn why_kept_back(&mut self) -> Result<Option<Error>, Error> {
        let board = &self.board;
        self.kept_back.retain(|id| board.index(*id).is_some_and(|job| !board.status(job).is_settled()));
        let first = self.kept_back.first().and_then(|id| Some((*id, self.board.index(*id)?)));
        let Some((id, job)) = first else { return Ok(None) };
        let (count, capacity) = (self.kept_back.len(), self.host.capacity());
        let name = self.insist(|store| store.job_names(&[id]))?.pop().unwrap_or_default();
        let demand = self.board.demand(job);
        let taste = here(self.host.labels());
        let labels: Vec<String> = taste.lacks(&demand.place).into_iter().map(str::to_owned).collect();
        if !labels.is_empty() {
            return Ok(Some(Error::Unlabeled { name, count, labels }));
        }
        if !Mirror::<u32>::with_taste(capacity, taste).suits(&demand.place) {
            return Ok(Some(Error::Elsewhere { name, count, sites: demand.place.sites.clone() }));
        }
        let asked = Box::new(*self.board.resources(job));
        Ok(Some(Error::TooLarge { name, count, asked, capacity: Box::new(capacity) }))
    }
}
