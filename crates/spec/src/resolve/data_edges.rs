//! Dependencies through files and user data: consumers wait for producers.

use super::relations::{EntryRelation, UNKNOWN_NUMBER};
use super::{EntryKind, LIST_WITH_BRACES, NO_LIST, NameResolver, RelationKind};
use crate::diagnostic::SpecDiagnostic;

impl NameResolver<'_, '_> {
    pub(super) fn add_data_edges(&mut self) {
        self.add_edges_through(
            EntryKind::Files,
            RelationKind::InputFiles,
            RelationKind::OutputFiles,
            RelationKind::ThroughFiles,
        );
        self.add_edges_through(
            EntryKind::UserData,
            RelationKind::InputUserData,
            RelationKind::OutputUserData,
            RelationKind::ThroughUserData,
        );
    }

    fn add_edges_through(
        &mut self,
        sort: EntryKind,
        input: RelationKind,
        output: RelationKind,
        through: RelationKind,
    ) {
        if self.entry_series(sort).len() == 0 {
            return;
        }
        let producers = self.find_producers(sort, output);
        let mut known = ProducerLists { producers: &producers, lists: Vec::new(), nothing: None };
        if sort == EntryKind::Files {
            self.link_plain_jobs(&mut known);
        }
        for entry in 0..self.spec.jobs.len() {
            let Some(detail) = &self.resolved.details[entry] else { continue };
            let relation = detail.relations[input as usize].clone();
            if relation.is_empty() {
                continue;
            }
            let edges = self.link_entry(entry as u32, &relation, &mut known);
            if let Some(detail) = &mut self.resolved.details[entry] {
                detail.relations[through as usize] = edges;
            }
        }
    }

    /// Returns the job that writes each file (or user data), [`UNKNOWN_NUMBER`] if there is none.
    fn find_producers(&mut self, sort: EntryKind, output: RelationKind) -> Vec<u32> {
        let mut producers = vec![UNKNOWN_NUMBER; self.entry_series(sort).len()];
        let jobs = &self.expanded.jobs;
        let mut clashed = None;
        for job in 0..jobs.len() as u32 {
            let member = jobs.locate(job);
            if clashed == Some(member.entry) {
                continue;
            }
            let mut clash = None;
            for list in self.resolved.relation_lists(self.spec, member, output) {
                for &item in list.iter().filter(|item| **item != UNKNOWN_NUMBER) {
                    match &mut producers[item as usize] {
                        producer if *producer == UNKNOWN_NUMBER => *producer = job,
                        producer if *producer == job => {}
                        producer => clash = clash.or(Some((item, *producer))),
                    }
                }
                if clash.is_some() {
                    break;
                }
            }
            if let Some((item, first)) = clash {
                // Report each entry once, even if many of its instances clash.
                clashed = Some(member.entry);
                self.report_two_producers(sort, item, first, job);
            }
        }
        producers
    }

    fn report_two_producers(&mut self, sort: EntryKind, item: u32, first: u32, second: u32) {
        let jobs = &self.expanded.jobs;
        let place = |job: u32| self.spec.jobs[jobs.locate(job).entry as usize].name.span;
        let message = format!(
            "jobs `{}` and `{}` both write {} `{}`",
            jobs.name(first),
            jobs.name(second),
            sort.singular(),
            self.entry_series(sort).name(item)
        );
        let diagnostic = SpecDiagnostic::new("two-producers", message).with_span(place(second));
        self.sinks.errors.push(if place(first) == place(second) {
            diagnostic.with_help("jobs that read it could not tell which one to wait for")
        } else {
            diagnostic.with_label(place(second), "written here").with_label(place(first), "and here")
        });
    }

    fn link_plain_jobs(&mut self, known: &mut ProducerLists<'_>) {
        let lists = std::mem::take(&mut self.resolved.slots.files);
        let through = |list: &u32| match *list {
            NO_LIST | LIST_WITH_BRACES => NO_LIST,
            list => known.producer_list(list, &mut self.resolved.relations).unwrap_or(NO_LIST),
        };
        self.resolved.slots.through_files = lists.iter().map(through).collect();
        self.resolved.slots.files = lists;
    }

    fn link_entry(
        &mut self,
        entry: u32,
        input: &EntryRelation,
        known: &mut ProducerLists<'_>,
    ) -> EntryRelation {
        let relations = &mut self.resolved.relations;
        let mut edges = EntryRelation::default();
        edges.shared.extend(input.shared.iter().filter_map(|list| known.producer_list(*list, relations)));
        let count = self.expanded.jobs.range(entry).len() as u32;
        let (mut lengths, mut items, mut each, mut width) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for index in 0..count {
            let before = items.len();
            let own = input.own(relations, index).iter().filter(|item| **item != UNKNOWN_NUMBER);
            items
                .extend(own.map(|item| known.producers[*item as usize]).filter(|job| *job != UNKNOWN_NUMBER));
            lengths.push((items.len() - before) as u32);
            let lists = input.each(relations, index).to_vec();
            width = lists.len();
            for list in lists {
                each.push(
                    known.producer_list(list, relations).unwrap_or_else(|| known.empty_list(relations)),
                );
            }
        }
        relations.add_own_of_varying_length(&mut edges, &lengths, &items);
        relations.add_each(&mut edges, width, &each);
        edges
    }
}

/// The producers of shared lists, computed once per list.
struct ProducerLists<'p> {
    producers: &'p [u32],
    /// By list: not computed, or the list of its producers (`NO_LIST` if it has none).
    lists: Vec<Option<u32>>,
    nothing: Option<u32>,
}

impl ProducerLists<'_> {
    /// Returns the list of the jobs that produce the items of `list`, if there are any.
    fn producer_list(&mut self, list: u32, relations: &mut super::RelationLists) -> Option<u32> {
        if self.lists.len() <= list as usize {
            self.lists.resize(list as usize + 1, None);
        }
        let known = self.lists[list as usize].unwrap_or_else(|| {
            let items = relations.shared(list).iter();
            let mut jobs: Vec<u32> = items
                .map(|item| self.producers[*item as usize])
                .filter(|job| *job != UNKNOWN_NUMBER)
                .collect();
            jobs.sort_unstable();
            jobs.dedup();
            if jobs.is_empty() { NO_LIST } else { relations.add_shared(jobs) }
        });
        self.lists[list as usize] = Some(known);
        (known != NO_LIST).then_some(known)
    }

    /// Returns the empty list.
    fn empty_list(&mut self, relations: &mut super::RelationLists) -> u32 {
        *self.nothing.get_or_insert_with(|| relations.add_shared([]))
    }
}
