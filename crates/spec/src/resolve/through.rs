//! Edges that files and user data make: whoever reads waits for whoever writes.

use super::relations::{Relation, UNKNOWN};
use super::{BRACES, NONE, Resolver, Sort, Way};
use crate::diagnostic::Diagnostic;

impl Resolver<'_, '_> {
    pub(super) fn edges_through_files_and_data(&mut self) {
        self.edges_through(Sort::Files, Way::InputFiles, Way::OutputFiles, Way::ThroughFiles);
        self.edges_through(Sort::UserData, Way::InputUserData, Way::OutputUserData, Way::ThroughUserData);
    }

    fn edges_through(&mut self, sort: Sort, input: Way, output: Way, through: Way) {
        if self.series(sort).len() == 0 {
            return;
        }
        let producers = self.producers(sort, output);
        let mut known = Known { producers: &producers, lists: Vec::new(), nothing: None };
        if sort == Sort::Files {
            self.plain_jobs_through(&mut known);
        }
        for entry in 0..self.spec.jobs.len() {
            let Some(detail) = &self.done.details[entry] else { continue };
            let relation = detail.relations[input as usize].clone();
            if relation.is_empty() {
                continue;
            }
            let edges = self.through(entry as u32, &relation, &mut known);
            if let Some(detail) = &mut self.done.details[entry] {
                detail.relations[through as usize] = edges;
            }
        }
    }

    /// The job that writes each file (or user data), [`UNKNOWN`] where there is none.
    fn producers(&mut self, sort: Sort, output: Way) -> Vec<u32> {
        let mut producers = vec![UNKNOWN; self.series(sort).len()];
        let jobs = &self.expanded.jobs;
        let mut clashed = None;
        for job in 0..jobs.len() as u32 {
            let member = jobs.locate(job);
            if clashed == Some(member.entry) {
                continue;
            }
            let mut clash = None;
            for list in self.done.lists(self.spec, member, output) {
                for &item in list.iter().filter(|item| **item != UNKNOWN) {
                    match &mut producers[item as usize] {
                        producer if *producer == UNKNOWN => *producer = job,
                        producer if *producer == job => {}
                        producer => clash = clash.or(Some((item, *producer))),
                    }
                }
                if clash.is_some() {
                    break;
                }
            }
            if let Some((item, first)) = clash {
                // One entry that clashes does so many times over.
                clashed = Some(member.entry);
                self.two_producers(sort, item, first, job);
            }
        }
        producers
    }

    fn two_producers(&mut self, sort: Sort, item: u32, first: u32, second: u32) {
        let jobs = &self.expanded.jobs;
        let place = |job: u32| self.spec.jobs[jobs.locate(job).entry as usize].name.span;
        let message = format!(
            "jobs `{}` and `{}` both write {} `{}`",
            jobs.name(first),
            jobs.name(second),
            sort.singular(),
            self.series(sort).name(item)
        );
        let diagnostic = Diagnostic::new("two-producers", message).at(place(second));
        self.sinks.errors.push(if place(first) == place(second) {
            diagnostic.help("whoever reads it could not know which one to wait for")
        } else {
            diagnostic.label(place(second), "written here").label(place(first), "and here")
        });
    }

    fn plain_jobs_through(&mut self, known: &mut Known<'_>) {
        let lists = std::mem::take(&mut self.done.slots.files);
        let through = |list: &u32| match *list {
            NONE | BRACES => NONE,
            list => known.of(list, &mut self.done.relations).unwrap_or(NONE),
        };
        self.done.slots.through_files = lists.iter().map(through).collect();
        self.done.slots.files = lists;
    }

    fn through(&mut self, entry: u32, input: &Relation, known: &mut Known<'_>) -> Relation {
        let relations = &mut self.done.relations;
        let mut edges = Relation::default();
        edges.shared.extend(input.shared.iter().filter_map(|list| known.of(*list, relations)));
        let count = self.expanded.jobs.range(entry).len() as u32;
        let (mut lengths, mut items, mut each, mut width) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for index in 0..count {
            let before = items.len();
            let own = input.own(relations, index).iter().filter(|item| **item != UNKNOWN);
            items.extend(own.map(|item| known.producers[*item as usize]).filter(|job| *job != UNKNOWN));
            lengths.push((items.len() - before) as u32);
            let lists = input.each(relations, index).to_vec();
            width = lists.len();
            for list in lists {
                each.push(known.of(list, relations).unwrap_or_else(|| known.nothing(relations)));
            }
        }
        relations.keep_ragged(&mut edges, &lengths, &items);
        relations.keep_each(&mut edges, width, &each);
        edges
    }
}

/// The producers of shared lists, found once for each list.
struct Known<'p> {
    producers: &'p [u32],
    /// By list: not looked at yet, or the list of its producers (`NONE` if it has none).
    lists: Vec<Option<u32>>,
    nothing: Option<u32>,
}

impl Known<'_> {
    /// The list of the jobs that produce what is in `list`, if there are any.
    fn of(&mut self, list: u32, relations: &mut super::Relations) -> Option<u32> {
        if self.lists.len() <= list as usize {
            self.lists.resize(list as usize + 1, None);
        }
        let known = self.lists[list as usize].unwrap_or_else(|| {
            let items = relations.shared(list).iter();
            let mut jobs: Vec<u32> =
                items.map(|item| self.producers[*item as usize]).filter(|job| *job != UNKNOWN).collect();
            jobs.sort_unstable();
            jobs.dedup();
            if jobs.is_empty() { NONE } else { relations.share(jobs) }
        });
        self.lists[list as usize] = Some(known);
        (known != NONE).then_some(known)
    }

    /// A list of nothing.
    fn nothing(&mut self, relations: &mut super::Relations) -> u32 {
        *self.nothing.get_or_insert_with(|| relations.share([]))
    }
}
