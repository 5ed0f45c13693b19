//! Dependencies as written, stored and counted: single edges, and dependency groups for "all of these before
//! all of those".

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

/// The dependencies of a workflow between jobs numbered `0..n` in creation order.
///
/// A list of two or more jobs that several jobs wait for is kept once, as a *dependency group* with members and
/// waiters. A thousand jobs that each wait for the same thousand cost two thousand entries, not a million.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DependencyEdges {
    /// `(job, dependency)`.
    pub direct: Vec<(u32, u32)>,
    /// Members of each dependency group; sorted, without duplicates, at least two.
    #[serde(rename = "gates")]
    pub groups: Vec<Vec<u32>>,
    /// `(job, dependency group)`.
    pub waits: Vec<(u32, u32)>,
}

/// Collects dependencies job by job and stores equal lists once.
#[derive(Debug, Default)]
pub struct DependencyEdgesBuilder<'a> {
    edges: DependencyEdges,
    known_groups: FxHashMap<Vec<u32>, u32>,
    /// Groups of lists by address, which is stable while this borrows them.
    seen_slices: FxHashMap<(*const u32, usize), u32>,
    lists: PhantomData<&'a [u32]>,
    scratch: Vec<u32>,
}

impl<'a> DependencyEdgesBuilder<'a> {
    /// Like [`Self::add_dependencies`], for a list that several jobs may share as one slice: it is read only
    /// once.
    pub fn add_shared_dependencies(&mut self, job: u32, on: &'a [u32]) {
        if on.len() < 2 {
            return self.add_dependencies(job, on);
        }
        let place = (on.as_ptr(), on.len());
        if let Some(&group) = self.seen_slices.get(&place) {
            self.edges.waits.push((job, group));
            return;
        }
        let before = self.edges.waits.len();
        self.add_dependencies(job, on);
        if let [(_, group)] = self.edges.waits[before..] {
            self.seen_slices.insert(place, group);
        }
    }

    /// Adds that `job` waits for all of `on`. Duplicates in `on` count once.
    pub fn add_dependencies(&mut self, job: u32, on: &[u32]) {
        if let &[only] = on {
            self.edges.direct.push((job, only));
            return;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(on);
        self.scratch.sort_unstable();
        self.scratch.dedup();
        match *self.scratch.as_slice() {
            [] => {}
            [only] => self.edges.direct.push((job, only)),
            _ => {
                let group = self.find_or_add_group();
                self.edges.waits.push((job, group));
            }
        }
    }

    /// Returns the dependency group of the list in `scratch`; adds it if there is none.
    fn find_or_add_group(&mut self) -> u32 {
        if let Some(&group) = self.known_groups.get(&self.scratch) {
            return group;
        }
        let group = self.edges.groups.len() as u32;
        self.edges.groups.push(self.scratch.clone());
        self.known_groups.insert(self.scratch.clone(), group);
        group
    }

    /// Returns the edges without duplicates.
    pub fn finish(self) -> DependencyEdges {
        let mut edges = self.edges;
        edges.direct.sort_unstable();
        edges.direct.dedup();
        edges.waits.sort_unstable();
        edges.waits.dedup();
        edges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_joined_by_one_dependency_group() {
        let before: Vec<u32> = (0..1000).collect();
        let mut builder = DependencyEdgesBuilder::default();
        for job in 1000..2000 {
            builder.add_dependencies(job, &before);
        }
        let edges = builder.finish();
        assert_eq!((edges.direct.len(), edges.groups.len(), edges.waits.len()), (0, 1, 1000));
        assert_eq!(edges.groups[0].len(), 1000);
    }

    #[test]
    fn equal_lists_share_a_dependency_group() {
        let (list, twice) = ([1, 2], [3, 3]);
        let mut builder = DependencyEdgesBuilder::default();
        for job in [5, 6] {
            builder.add_shared_dependencies(job, &list);
            builder.add_shared_dependencies(job, &twice);
        }
        builder.add_dependencies(7, &[2, 1]);
        let edges = builder.finish();
        assert_eq!(edges.groups, [vec![1, 2]]);
        assert_eq!(edges.waits, [(5, 0), (6, 0), (7, 0)]);
        assert_eq!(edges.direct, [(5, 3), (6, 3)]);
    }

    #[test]
    fn order_and_duplicates_in_a_list_do_not_matter() {
        let mut builder = DependencyEdgesBuilder::default();
        builder.add_dependencies(5, &[1, 2, 2]);
        builder.add_dependencies(6, &[2, 1]);
        builder.add_dependencies(7, &[3, 3]);
        builder.add_dependencies(7, &[3]);
        builder.add_dependencies(8, &[]);
        let edges = builder.finish();
        assert_eq!(edges.groups, [vec![1, 2]]);
        assert_eq!(edges.waits, [(5, 0), (6, 0)]);
        assert_eq!(edges.direct, [(7, 3)]);
    }
}
