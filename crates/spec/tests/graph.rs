//! Compares the graph with a small model: random jobs, some of which share their lists through aliases.

use proptest::prelude::*;
use windlass_spec::{NoAttachments, SpecSource, load_spec};

/// The shared list that each job uses, if any, and the content of the lists.
#[derive(Clone, Debug)]
struct Graph {
    lists: Vec<Vec<usize>>,
    uses: Vec<Option<usize>>,
}

impl Graph {
    fn depends_on(&self, job: usize) -> Vec<u32> {
        self.uses[job]
            .map_or_else(Vec::new, |list| self.lists[list].iter().map(|target| *target as u32).collect())
    }

    /// A list is written out at its first use and referred to by its anchor after that.
    fn spec(&self) -> String {
        let mut text = "name: w\njobs:\n".to_owned();
        let mut written = vec![false; self.lists.len()];
        for (job, list) in self.uses.iter().enumerate() {
            let depends_on = match *list {
                None => String::new(),
                Some(list) if std::mem::replace(&mut written[list], true) => {
                    format!(", depends_on: *l{list}")
                }
                Some(list) => {
                    let names: Vec<_> = self.lists[list].iter().map(|target| format!("j{target}")).collect();
                    format!(", depends_on: &l{list} [{}]", names.join(", "))
                }
            };
            text.extend([format!("- {{name: j{job}, command: x{depends_on}}}\n")]);
        }
        text
    }

    /// Marks jobs as done whose dependencies are all done, until nothing changes.
    fn has_cycle(&self) -> bool {
        let mut done = vec![false; self.uses.len()];
        loop {
            let is_free = |job: &usize| {
                !done[*job] && self.depends_on(*job).iter().all(|target| done[*target as usize])
            };
            let free: Vec<usize> = (0..done.len()).filter(is_free).collect();
            if free.is_empty() {
                return done.contains(&false);
            }
            for job in free {
                done[job] = true;
            }
        }
    }
}

fn graph() -> impl Strategy<Value = Graph> {
    (2usize..8).prop_flat_map(|jobs| {
        let list = prop::collection::vec(0..jobs, 0..4);
        let lists = prop::collection::vec(list, 1..6);
        lists.prop_flat_map(move |lists| {
            let uses = prop::collection::vec(prop::option::of(0..lists.len()), jobs);
            uses.prop_map(move |uses| Graph { lists: lists.clone(), uses })
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cycles_are_found_if_and_only_if_they_exist(graph in graph()) {
        let text = graph.spec();
        match load_spec(SpecSource::new("graph.yaml", text.as_bytes()), &NoAttachments) {
            Ok(workflow) => {
                prop_assert!(!graph.has_cycle(), "{text}");
                for (job, found) in workflow.jobs().enumerate() {
                    prop_assert_eq!(found.depends_on().flatten().copied().collect::<Vec<u32>>(), graph.depends_on(job));
                }
            }
            Err(diagnostics) => {
                prop_assert!(graph.has_cycle(), "{}", diagnostics);
                let is_cycle = |code| ["cycle", "self-dependency"].contains(&code);
                prop_assert!(diagnostics.list.iter().all(|diagnostic| is_cycle(diagnostic.code)), "{}", diagnostics);
            }
        }
    }
}
