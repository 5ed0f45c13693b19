//! Reads the commands of jobs in the database by job number without holding all of them in memory: whole pages
//! for sequential access, and single jobs for random access (a sweep whose parameters were swapped is compared
//! column by column).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use windlass_store::model::JobCommand;
use windlass_types::JobId;

/// Number of jobs per page, and number of pages kept.
const PAGE_SIZE: usize = 1024;
const MAX_PAGES: usize = 32;
/// Number of sequences that can be read side by side: jobs whose dependencies lie in other entries of the spec.
const MAX_SEQUENCES: usize = 8;

#[derive(Default)]
pub(super) struct JobCommandPages {
    cached: RefCell<HashMap<usize, Rc<Vec<JobCommand>>>>,
    /// The job that was last read on its own.
    single: RefCell<Option<(u32, Rc<Vec<JobCommand>>)>>,
    /// The job numbers requested last, and the total number of requests.
    recent: RefCell<[Option<u32>; MAX_SEQUENCES]>,
    request_count: Cell<usize>,
}

impl JobCommandPages {
    /// Returns the job with that number; `ids` holds the ids of all jobs.
    pub(super) fn get(
        &self,
        number: u32,
        ids: &[JobId],
        read: impl FnOnce(&[JobId]) -> Option<Vec<JobCommand>>,
    ) -> Option<PagedJobCommand> {
        let (page, index) = (number as usize / PAGE_SIZE, number as usize % PAGE_SIZE);
        if let Some(known) = self.cached.borrow().get(&page) {
            self.record_access(number);
            return PagedJobCommand::new(known, index);
        }
        if let Some((_, known)) = self.single.borrow().as_ref().filter(|(known, _)| *known == number) {
            return PagedJobCommand::new(known, 0);
        }
        if !self.is_sequential(number) {
            self.record_access(number);
            let read = Rc::new(read(&[*ids.get(number as usize)?])?);
            *self.single.borrow_mut() = Some((number, Rc::clone(&read)));
            return PagedJobCommand::new(&read, 0);
        }
        self.record_access(number);
        let read = Rc::new(read(ids.chunks(PAGE_SIZE).nth(page)?)?);
        let mut known = self.cached.borrow_mut();
        if known.len() >= MAX_PAGES {
            known.clear();
        }
        known.insert(page, Rc::clone(&read));
        PagedJobCommand::new(&read, index)
    }

    /// Whether the previous job number was requested recently.
    fn is_sequential(&self, number: u32) -> bool {
        number == 0 || self.recent.borrow().contains(&Some(number - 1))
    }

    fn record_access(&self, number: u32) {
        let asked = self.request_count.get();
        self.recent.borrow_mut()[asked % MAX_SEQUENCES] = Some(number);
        self.request_count.set(asked.wrapping_add(1));
    }
}

/// A job in a page.
pub(super) struct PagedJobCommand {
    page: Rc<Vec<JobCommand>>,
    index: usize,
}

impl PagedJobCommand {
    fn new(page: &Rc<Vec<JobCommand>>, index: usize) -> Option<Self> {
        (index < page.len()).then(|| Self { page: Rc::clone(page), index })
    }
}

impl std::ops::Deref for PagedJobCommand {
    type Target = JobCommand;

    fn deref(&self) -> &JobCommand {
        &self.page[self.index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests these jobs, checks that each returned job is the right one, and returns how many jobs were
    /// read.
    fn read(asked: impl IntoIterator<Item = u32>) -> usize {
        let ids: Vec<JobId> = (0..10_000).map(|number| JobId(number + 7)).collect();
        let (pages, count) = (JobCommandPages::default(), Cell::new(0));
        for number in asked {
            let job = pages.get(number, &ids, |ids| {
                count.set(count.get() + ids.len());
                Some(ids.iter().map(|id| JobCommand { id: *id, ..blank() }).collect())
            });
            assert_eq!(job.unwrap().id, JobId(i64::from(number) + 7));
        }
        count.get()
    }

    fn blank() -> JobCommand {
        JobCommand {
            id: JobId(0),
            name: String::new(),
            command: String::new(),
            invocation_script: None,
            env: Vec::new(),
            params: windlass_store::model::JobParameters::default(),
            stdio: None,
            input_files: Vec::new(),
            output_files: Vec::new(),
            hash_files: false,
        }
    }

    #[test]
    fn command_pages_are_read_once_in_any_order() {
        assert_eq!(read(0..10_000), 10_000);
        assert_eq!(read((0..10_000).flat_map(|number| [number, number])), 10_000, "asked twice");
        let transposed = (0..100).flat_map(|y| (0..100).map(move |x| x * 100 + y));
        assert!(read(transposed) <= 11_000);
        let side_by_side = (0..3000).flat_map(|n| [n, n + 3000, n + 6000]);
        assert!(read(side_by_side) <= 11_000);
    }

    #[test]
    fn command_page_beyond_last_job_is_empty() {
        assert!(JobCommandPages::default().get(3, &[JobId(1)], |_| Some(vec![blank()])).is_none());
    }
}
