//! Names become numbers: what each job waits for, reads, writes and asks for, checked as a whole.

mod caps;
mod circles;
mod detail;
mod fit;
mod kinds;
mod places;
mod regexes;
mod relations;
mod settings;
mod things;
mod through;
mod unheard;
mod unread;
mod written;

pub(crate) use detail::{Detail, PerJob, Target};
pub(crate) use regexes::check_regex;
pub(crate) use relations::ListRef;
pub use settings::ResolvedAction;
pub(crate) use settings::WorkflowTexts;
pub(crate) use things::{DataDetail, FileDetail, fill_data};

use crate::decode::NamesRead;
use crate::diagnostic::Diagnostic;
use crate::expand::{Compiler, Expanded, Member, Place, Series, Sinks, spaced};
use crate::index::NameIndex;
use crate::model::{List, Named, Spec};
use crate::source::Span;
use crate::suggest::Suggester;
use crate::template::Template;
use crate::workflow::JobKind;
use regexes::Patterns;
use relations::Relations;
use rustc_hash::{FxHashMap, FxHashSet};

/// No list, in [`Slots`].
const NONE: u32 = u32::MAX;
/// A list with braces in it: what it names depends on who uses it.
const BRACES: u32 = u32::MAX - 1;

/// What a name can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Jobs,
    Files,
    UserData,
}

impl Sort {
    const fn singular(self) -> &'static str {
        match self {
            Self::Jobs => "job",
            Self::Files => "file",
            Self::UserData => "user data",
        }
    }

    const fn unknown(self) -> &'static str {
        match self {
            Self::Jobs => "unknown-job",
            Self::Files => "unknown-file",
            Self::UserData => "unknown-user-data",
        }
    }
}

/// The ways in which a job relates to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    DependsOn,
    InputFiles,
    OutputFiles,
    InputUserData,
    OutputUserData,
    /// The producers of its input files.
    ThroughFiles,
    /// The producers of its input user data.
    ThroughUserData,
}

impl Way {
    pub(crate) const COUNT: usize = 7;
    /// Those that make a job wait.
    pub(crate) const WAITS: [Self; 3] = [Self::DependsOn, Self::ThroughFiles, Self::ThroughUserData];

    /// The field that names by regular expressions what is related in this way.
    const fn regexes(self) -> &'static str {
        match self {
            Self::DependsOn => "depends_on_regexes",
            Self::InputFiles | Self::ThroughFiles => "input_file_regexes",
            Self::OutputFiles => "output_file_regexes",
            Self::InputUserData | Self::ThroughUserData => "input_user_data_regexes",
            Self::OutputUserData => "output_user_data_regexes",
        }
    }
}

/// The shared list behind each list of the spec without braces, by the place where that begins in [`Spec::names`].
/// Plain jobs (those without a [`Detail`]) need nothing else.
#[derive(Clone, Debug, Default)]
struct Slots {
    jobs: Vec<u32>,
    files: Vec<u32>,
    user_data: Vec<u32>,
    through_files: Vec<u32>,
}

impl Slots {
    fn of(&mut self, sort: Sort) -> &mut Vec<u32> {
        match sort {
            Sort::Jobs => &mut self.jobs,
            Sort::Files => &mut self.files,
            Sort::UserData => &mut self.user_data,
        }
    }
}

fn slot(slots: &[u32], list: List) -> u32 {
    if list.is_empty() { NONE } else { slots.get(list.start as usize).copied().unwrap_or(NONE) }
}

/// What the names of a spec stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resolved {
    relations: Relations,
    slots: Slots,
    /// By entry; `None` for plain jobs.
    pub(crate) details: Vec<Option<Box<Detail>>>,
    /// The requirement behind each of [`Spec::requirement_names`].
    pub(crate) requirements: Vec<u32>,
    pub(crate) kinds: Vec<JobKind>,
    pub(crate) files: Vec<Option<Box<FileDetail>>>,
    pub(crate) user_data: Vec<Option<Box<DataDetail>>>,
    pub(crate) texts: WorkflowTexts,
    pub(crate) actions: Vec<ResolvedAction>,
}

impl Resolved {
    /// The `n`th list of a job; lists may be empty.
    pub(crate) fn list(&self, spec: &Spec<'_>, job: Member, way: Way, n: usize) -> Option<ListRef<'_>> {
        if let Some(detail) = &self.details[job.entry as usize] {
            let relation = &detail.relations[way as usize];
            return relation.list(&self.relations, job.index, n);
        }
        let entry = &spec.jobs[job.entry as usize];
        let list = match way {
            Way::DependsOn => slot(&self.slots.jobs, entry.depends_on),
            Way::InputFiles => slot(&self.slots.files, entry.input_files),
            Way::OutputFiles => slot(&self.slots.files, entry.output_files),
            Way::ThroughFiles => slot(&self.slots.through_files, entry.input_files),
            Way::InputUserData | Way::OutputUserData | Way::ThroughUserData => NONE,
        };
        let shared = |list: u32| ListRef { shared: Some(list), items: self.relations.shared(list) };
        (n == 0 && list < BRACES).then(|| shared(list))
    }

    /// All lists of a job that have something in them.
    pub(crate) fn lists<'a>(
        &'a self,
        spec: &'a Spec<'_>,
        job: Member,
        way: Way,
    ) -> impl Iterator<Item = &'a [u32]> {
        let lists = (0..).map_while(move |n| self.list(spec, job, way, n));
        lists.map(|list| list.items).filter(|items| !items.is_empty())
    }

    pub(crate) fn per_job(&self, value: PerJob, index: u32) -> Option<u32> {
        match value {
            PerJob::None => None,
            PerJob::All(number) => Some(number),
            PerJob::Each(start) => Some(self.relations.column(start, index)),
        }
    }

    /// The number that a reference of a job's command stands for.
    pub(crate) fn target(&self, detail: &Detail, target: Target, index: u32) -> u32 {
        match target {
            Target::Same(number) => number,
            Target::Own { way, position } => {
                detail.relations[way as usize].own(&self.relations, index)[position as usize]
            }
        }
    }
}

/// Looks all names up and checks the graph. Whatever is wrong goes to the sinks.
pub(crate) fn resolve(spec: &Spec<'_>, expanded: &Expanded, names: NamesRead, sinks: &mut Sinks) -> Resolved {
    let mut resolver = Resolver {
        spec,
        expanded,
        indices: [expanded.jobs.index(), expanded.files.index(), expanded.user_data.index()],
        read: names,
        sinks,
        suggester: Suggester::default(),
        patterns: Default::default(),
        done: Resolved::default(),
        requirement_index: NameIndex::default(),
        handler_index: NameIndex::default(),
        scheduler_index: NameIndex::default(),
        kinds_of_one: FxHashMap::default(),
        shared_kinds: FxHashSet::default(),
        used_limits: FxHashSet::default(),
        braces_in_env: Vec::new(),
        written: Default::default(),
        used_parameters: 0,
        scratch: String::new(),
    };
    resolver.workflow_texts();
    resolver.requirements();
    resolver.jobs();
    resolver.unused_limits();
    resolver.edges_through_files_and_data();
    resolver.circles();
    resolver.files();
    resolver.user_data();
    resolver.actions();
    resolver.fit();
    resolver.caps();
    resolver.unheard();
    resolver.done
}

struct Resolver<'a, 's> {
    spec: &'a Spec<'s>,
    expanded: &'a Expanded,
    /// Of jobs, files, user data.
    indices: [NameIndex; 3],
    read: NamesRead,
    sinks: &'a mut Sinks,
    suggester: Suggester,
    patterns: [Patterns; 3],
    done: Resolved,
    requirement_index: NameIndex,
    handler_index: NameIndex,
    scheduler_index: NameIndex,
    /// The kinds of entries without parameters, the numbers in their names left out.
    kinds_of_one: FxHashMap<JobKind, u32>,
    /// The names of those that several entries share.
    shared_kinds: FxHashSet<String>,
    /// The numbers of the limits that jobs name.
    used_limits: FxHashSet<u32>,
    /// Whether an environment has braces in it, by the place where it begins in [`Spec::variables`].
    braces_in_env: Vec<Option<bool>>,
    /// The entries of jobs, files, user data whose names hold braces, by those names as written; made when one is missed.
    written: [Option<FxHashMap<&'a str, u32>>; 3],
    /// Parameters that the texts of the entry in hand use, a bit each.
    used_parameters: u64,
    scratch: String,
}

impl<'a> Resolver<'a, '_> {
    fn series(&self, sort: Sort) -> &'a Series {
        match sort {
            Sort::Jobs => &self.expanded.jobs,
            Sort::Files => &self.expanded.files,
            Sort::UserData => &self.expanded.user_data,
        }
    }

    /// A text of an entry of `series`.
    fn compile(&mut self, text: &str, place: Place<'_, '_>, of: Option<(Sort, u32)>) -> Option<Template> {
        let bindings = of.and_then(|(sort, entry)| self.series(sort).bindings(entry));
        let mut compiler = Compiler::new(&self.expanded.constants, bindings, self.sinks);
        let template = compiler.compile(text, place);
        self.used_parameters |= template.as_ref().map_or(0, Template::parameters);
        template
    }

    fn compile_named(&mut self, named: Named, of: Option<(Sort, u32)>) -> Option<Template> {
        let texts = &self.spec.texts;
        self.compile(texts.get(named.text), Place::of(texts, named), of)
    }

    /// The shared list behind a list of the spec, [`NONE`] or [`BRACES`]. A list is looked up once, whoever uses it.
    fn shared_list(&mut self, sort: Sort, list: List) -> u32 {
        if list.is_empty() {
            return NONE;
        }
        let slots = self.done.slots.of(sort);
        if slots.is_empty() {
            slots.resize(self.spec.names.len(), NONE);
        }
        let known = slots[list.start as usize];
        if known != NONE {
            return known;
        }
        let names = &self.spec.names[list.range()];
        let found = if names.iter().any(|name| self.spec.texts.get(name.text).contains('{')) {
            BRACES
        } else {
            let numbers: Vec<u32> = names
                .iter()
                .filter_map(|name| self.find(sort, self.spec.texts.get(name.text), name.span, None))
                .collect();
            self.done.relations.share(numbers)
        };
        self.done.slots.of(sort)[list.start as usize] = found;
        found
    }

    /// The number of a name. One that does not exist is reported; `user` is the job whose values the name holds.
    fn find(&mut self, sort: Sort, name: &str, span: Span, user: Option<u32>) -> Option<u32> {
        let series = self.series(sort);
        let found = self.indices[sort as usize].find(name, |number| series.name(number));
        if found.is_none() && !self.may_be_unread(sort, name) {
            let values = user.map_or_else(String::new, |job| self.expanded.jobs.values_of(job));
            let message = spaced(&format!("no {} is named `{name}`", sort.singular()), &values);
            let diagnostic = Diagnostic::new(sort.unknown(), message).at(span);
            let known = (0..series.len() as u32).map(|number| series.name(number));
            let nearest =
                if self.sinks.errors.is_full() { None } else { self.suggester.nearest(name, known) };
            self.sinks.errors.push(diagnostic.suggest(nearest));
        }
        found
    }

    /// Warns of parameters that the entry in hand never uses.
    fn unused_parameters(&mut self, sort: Sort, entry: u32, name: Named) {
        let Some(bindings) = self.series(sort).bindings(entry) else { return };
        let used = std::mem::take(&mut self.used_parameters) | self.parameters_in(name, bindings);
        for (number, parameter) in bindings.written().take_while(|(number, _)| *number < 64) {
            if used & (1 << number) == 0 {
                let message = format!("this {} does not use its parameter `{parameter}`", sort.singular());
                self.sinks.warnings.push(Diagnostic::new("unused-parameter", message).at(name.span));
            }
        }
    }

    fn parameters_in(&self, name: Named, bindings: &crate::expand::Bindings) -> u64 {
        let holes = crate::template::holes(self.spec.texts.get(name.text));
        let bits = holes.filter_map(|hole| bindings.find(hole.name)).map(|number| 1u64.checked_shl(number));
        bits.flatten().fold(0, |all, bit| all | bit)
    }
}

fn duplicate(what: &str, name: &str, span: Span, first: Span) -> Diagnostic {
    Diagnostic::new("duplicate-name", format!("two {what}s are named `{name}`"))
        .at(span)
        .label(span, "again here")
        .label(first, "first here")
}
