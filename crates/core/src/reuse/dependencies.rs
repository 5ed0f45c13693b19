//! Whom each job waits for, as a digest of names: what is compared when a spec changes.
//!
//! The same dependencies may be written as single edges, as one gate or as several that overlap. They are equal if the
//! sets are, so every name counts once.

use super::NamesDigest;
use crate::edges::Edges;
use rustc_hash::FxHashSet;

/// By number of job. `name` gives the digest of one name.
pub fn dependencies(jobs: u32, edges: &Edges, name: impl Fn(u32) -> NamesDigest) -> Vec<NamesDigest> {
    let (direct, waits) = (sorted(&edges.direct), sorted(&edges.waits));
    let mut gates = Union::default();
    (0..jobs)
        .map(|job| {
            gates.become_all_of(of(&waits, job), edges, &name);
            let others = of(&direct, job).iter().filter(|(_, on)| !gates.members.contains(on));
            others.fold(gates.digest, |digest, (_, on)| digest + name(*on))
        })
        .collect()
}

/// The members of several gates. Jobs that wait for the same ones mostly follow each other, so the last union is kept.
#[derive(Default)]
struct Union {
    gates: Vec<u32>,
    members: FxHashSet<u32>,
    digest: NamesDigest,
}

impl Union {
    fn become_all_of(&mut self, waits: &[(u32, u32)], edges: &Edges, name: impl Fn(u32) -> NamesDigest) {
        if waits.iter().map(|(_, gate)| gate).eq(&self.gates) {
            return;
        }
        self.gates.clear();
        self.gates.extend(waits.iter().map(|(_, gate)| gate));
        self.members.clear();
        self.digest = NamesDigest::default();
        for &member in self.gates.iter().flat_map(|gate| &edges.gates[*gate as usize]) {
            if self.members.insert(member) {
                self.digest = self.digest + name(member);
            }
        }
    }
}

fn sorted(pairs: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut pairs = pairs.to_vec();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// The pairs that begin with `job`.
fn of(sorted: &[(u32, u32)], job: u32) -> &[(u32, u32)] {
    let start = sorted.partition_point(|pair| pair.0 < job);
    let length = sorted[start..].partition_point(|pair| pair.0 == job);
    &sorted[start..start + length]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::EdgesBuilder;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn name(job: u32) -> NamesDigest {
        NamesDigest::of([format!("job {job}").as_str()])
    }

    proptest! {
        /// However the lists overlap, each job that is waited for counts once.
        #[test]
        fn a_digest_is_that_of_the_set(
            lists in proptest::collection::vec((0u32..6, proptest::collection::vec(0u32..12, 0..6)), 0..16),
        ) {
            let mut builder = EdgesBuilder::default();
            let mut sets = vec![BTreeSet::new(); 6];
            for (job, on) in &lists {
                builder.depend(*job, on);
                sets[*job as usize].extend(on);
            }
            let expected: Vec<NamesDigest> =
                sets.iter().map(|set| set.iter().fold(NamesDigest::default(), |sum, on| sum + name(*on))).collect();
            prop_assert_eq!(dependencies(6, &builder.finish(), name), expected);
        }
    }
}
