//! Relations of jobs to other jobs, files and user data, stored as lists of numbers.
//!
//! A list that several jobs share is stored once and referred to by its number, so that two consecutive stages
//! cost the sum of their sizes and not the product. Items of single jobs are stored in one long vector.

/// A name that could not be resolved and has been reported.
pub(crate) const UNKNOWN_NUMBER: u32 = u32::MAX;

/// The lists of a whole workflow.
#[derive(Clone, Debug, Default)]
pub(crate) struct RelationLists {
    pool: Vec<u32>,
    /// Start and end of each shared list in `pool`.
    bounds: Vec<(u32, u32)>,
    own: Vec<u32>,
    /// Ends of the lists of varying length in `own`.
    ends: Vec<u32>,
    /// Numbers of shared lists, for jobs of one entry that use different ones.
    each: Vec<u32>,
}

/// One relation of the jobs of an entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryRelation {
    /// Lists that all jobs of the entry share.
    pub(crate) shared: Vec<u32>,
    own: OwnItems,
    /// Start in [`RelationLists::each`] and number of shared lists per job.
    each: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
enum OwnItems {
    #[default]
    None,
    /// `width` items per job, from `start` in [`RelationLists::own`].
    Fixed { start: u32, width: u32 },
    /// Begins at `start`; the ends are in [`RelationLists::ends`] from `ends`.
    Ragged { start: u32, ends: u32 },
}

/// A list of a job. Two jobs with the same `shared` have the same list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListRef<'a> {
    pub(crate) shared: Option<u32>,
    pub(crate) items: &'a [u32],
}

impl RelationLists {
    /// Stores a list for several jobs; returns its number.
    pub(crate) fn add_shared(&mut self, items: impl IntoIterator<Item = u32>) -> u32 {
        let start = self.pool.len() as u32;
        self.pool.extend(items);
        self.bounds.push((start, self.pool.len() as u32));
        self.bounds.len() as u32 - 1
    }

    pub(crate) fn shared(&self, list: u32) -> &[u32] {
        let (start, end) = self.bounds[list as usize];
        &self.pool[start as usize..end as usize]
    }

    pub(crate) fn shared_count(&self) -> usize {
        self.bounds.len()
    }

    /// Adds `width` own items per job of an entry: `items` contains them job after job.
    pub(crate) fn add_own(&mut self, relation: &mut EntryRelation, width: usize, items: &[u32]) {
        if width > 0 {
            relation.own = OwnItems::Fixed { start: self.own.len() as u32, width: width as u32 };
            self.own.extend_from_slice(items);
        }
    }

    /// Adds own items of the jobs of an entry, with their numbers per job in `lengths`.
    pub(crate) fn add_own_of_varying_length(
        &mut self,
        relation: &mut EntryRelation,
        lengths: &[u32],
        items: &[u32],
    ) {
        if items.is_empty() {
            return;
        }
        relation.own = OwnItems::Ragged { start: self.own.len() as u32, ends: self.ends.len() as u32 };
        let mut end = self.own.len() as u32;
        self.ends.extend(lengths.iter().map(|length| {
            end += length;
            end
        }));
        self.own.extend_from_slice(items);
    }

    /// Adds `width` shared lists per job of an entry: `lists` contains their numbers job after job.
    pub(crate) fn add_each(&mut self, relation: &mut EntryRelation, width: usize, lists: &[u32]) {
        if width > 0 {
            relation.each = Some((self.each.len() as u32, width as u32));
            self.each.extend_from_slice(lists);
        }
    }

    /// Stores one number per job of an entry; returns the start.
    pub(crate) fn add_column(&mut self, numbers: &[u32]) -> u32 {
        let start = self.own.len() as u32;
        self.own.extend_from_slice(numbers);
        start
    }

    pub(crate) fn column(&self, start: u32, index: u32) -> u32 {
        self.own[(start + index) as usize]
    }
}

impl EntryRelation {
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.is_empty() && matches!(self.own, OwnItems::None) && self.each.is_none()
    }

    /// Returns the own items of the job with this index, in order.
    pub(crate) fn own<'a>(&self, all: &'a RelationLists, index: u32) -> &'a [u32] {
        let (start, end) = match self.own {
            OwnItems::None => return &[],
            OwnItems::Fixed { start, width } => (start + index * width, start + (index + 1) * width),
            OwnItems::Ragged { start, ends } => {
                let end = |index: u32| all.ends[(ends + index) as usize];
                (if index == 0 { start } else { end(index - 1) }, end(index))
            }
        };
        &all.own[start as usize..end as usize]
    }

    /// Returns the shared lists that only some jobs of the entry have, for the job with this index.
    pub(crate) fn each<'a>(&self, all: &'a RelationLists, index: u32) -> &'a [u32] {
        self.each.map_or(&[], |(start, width)| {
            let start = (start + index * width) as usize;
            &all.each[start..start + width as usize]
        })
    }

    /// Returns the `n`th list of the job with this index. Lists may be empty.
    pub(crate) fn list<'a>(&self, all: &'a RelationLists, index: u32, n: usize) -> Option<ListRef<'a>> {
        let shared = |list: u32| ListRef { shared: Some(list), items: all.shared(list) };
        if let Some(list) = self.shared.get(n) {
            return Some(shared(*list));
        }
        match n - self.shared.len() {
            0 => Some(ListRef { shared: None, items: self.own(all, index) }),
            n => self.each(all, index).get(n - 1).map(|list| shared(*list)),
        }
    }

    /// Returns the number of lists of [`Self::list`].
    pub(crate) fn count(&self) -> usize {
        self.shared.len() + 1 + self.each.map_or(0, |(_, width)| width as usize)
    }
}
