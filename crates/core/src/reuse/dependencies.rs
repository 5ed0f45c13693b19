//! Dependencies of jobs as digests of names, for comparison when a spec changes.
//!
//! The same dependencies may be written as single edges or as one or several overlapping groups. They are equal
//! if the sets are, so every name counts once.

use super::NameSetDigest;
use crate::dependency_edges::DependencyEdges;
use rustc_hash::FxHashSet;

/// Returns the digests by job number. `name` returns the digest of one name.
pub fn dependency_digests(
    jobs: u32,
    edges: &DependencyEdges,
    name: impl Fn(u32) -> NameSetDigest,
) -> Vec<NameSetDigest> {
    let (direct, waits) = (sort_pairs(&edges.direct), sort_pairs(&edges.waits));
    let mut united = GroupUnion::default();
    (0..jobs)
        .map(|job| {
            united.replace_with(pairs_of_job(&waits, job), edges, &name);
            let others = pairs_of_job(&direct, job).iter().filter(|(_, on)| !united.members.contains(on));
            others.fold(united.digest, |digest, (_, on)| digest + name(*on))
        })
        .collect()
}

/// The union of several dependency groups. Consecutive jobs often have the same one, so the last union is kept.
#[derive(Default)]
struct GroupUnion {
    groups: Vec<u32>,
    members: FxHashSet<u32>,
    digest: NameSetDigest,
}

impl GroupUnion {
    fn replace_with(
        &mut self,
        waits: &[(u32, u32)],
        edges: &DependencyEdges,
        name: impl Fn(u32) -> NameSetDigest,
    ) {
        if waits.iter().map(|(_, group)| group).eq(&self.groups) {
            return;
        }
        self.groups.clear();
        self.groups.extend(waits.iter().map(|(_, group)| group));
        self.members.clear();
        self.digest = NameSetDigest::default();
        for &member in self.groups.iter().flat_map(|group| &edges.groups[*group as usize]) {
            if self.members.insert(member) {
                self.digest = self.digest + name(member);
            }
        }
    }
}

fn sort_pairs(pairs: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut pairs = pairs.to_vec();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Returns the pairs that begin with `job`.
fn pairs_of_job(sorted: &[(u32, u32)], job: u32) -> &[(u32, u32)] {
    let start = sorted.partition_point(|pair| pair.0 < job);
    let length = sorted[start..].partition_point(|pair| pair.0 == job);
    &sorted[start..start + length]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dependency_edges::DependencyEdgesBuilder;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn name(job: u32) -> NameSetDigest {
        NameSetDigest::from_names([format!("job {job}").as_str()])
    }

    proptest! {
        /// However lists overlap, each dependency counts once.
        #[test]
        fn dependency_digest_is_independent_of_grouping(
            lists in proptest::collection::vec((0u32..6, proptest::collection::vec(0u32..12, 0..6)), 0..16),
        ) {
            let mut builder = DependencyEdgesBuilder::default();
            let mut sets = vec![BTreeSet::new(); 6];
            for (job, on) in &lists {
                builder.add_dependencies(*job, on);
                sets[*job as usize].extend(on);
            }
            let expected: Vec<NameSetDigest> =
                sets.iter().map(|set| set.iter().fold(NameSetDigest::default(), |sum, on| sum + name(*on))).collect();
            prop_assert_eq!(dependency_digests(6, &builder.finish(), name), expected);
        }
    }
}
