//! The variables of a workflow: constants that `{name}` stands for everywhere. They may use each other.

use super::{Place, Sinks};
use crate::diagnostic::Diagnostic;
use crate::model::{Named, Spec};
use crate::template::{self, Format};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::Cell;

/// So many bytes may the values of all variables have, once they are put into each other. Without a limit, thirty that
/// each hold the one before twice fill the memory.
const LONGEST_VALUES: usize = 1 << 26;
/// So many bytes may variables add to the texts of a spec.
const LONGEST_TEXTS: usize = 1 << 29;

#[derive(Clone, Debug, Default)]
pub(crate) struct Constants {
    /// With all inner names filled in, and where each is defined.
    values: FxHashMap<Box<str>, (String, Named)>,
    /// If not, a name that is not found may be one that could not be read.
    is_complete: bool,
    /// The names of all parameters that the spec writes down, wherever they are.
    parameters: FxHashSet<Box<str>>,
    /// Bytes that were put into texts.
    spent: Cell<usize>,
}

impl Constants {
    pub(crate) fn new(spec: &Spec<'_>, is_complete: bool, sinks: &mut Sinks) -> Self {
        let mut written = FxHashMap::default();
        for (name, value) in &spec.constants {
            let text = spec.texts.get(name.text);
            if !template::is_name(text) {
                sinks.errors.push(bad_name("variable", text, *name));
            }
            // The decoder reports a name that comes twice.
            written.entry(text).or_insert((*name, *value));
        }
        let mut filling = Filling {
            spec,
            written: &written,
            done: Self { is_complete, parameters: parameters(spec), ..Self::default() },
            path: Vec::new(),
            length: 0,
            sinks,
        };
        for (name, _) in &spec.constants {
            filling.fill(spec.texts.get(name.text));
        }
        filling.done
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|(value, _)| value.as_str())
    }

    /// Whether `{name}` is a slip where it stands for nothing: there are variables, or it is a parameter of another entry.
    /// Everywhere else braces are the shell's.
    pub(crate) fn make_a_slip_likely(&self, name: &str) -> bool {
        !self.values.is_empty() || !self.is_complete || self.parameters.contains(name)
    }

    /// Counts what is put into a text; `false`: that is too much.
    pub(crate) fn spend(&self, bytes: usize) -> bool {
        self.spent.set(self.spent.get().saturating_add(bytes));
        self.spent.get() <= LONGEST_TEXTS
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Where it is defined.
    pub(crate) fn place(&self, name: &str) -> Option<Named> {
        self.values.get(name).map(|(_, named)| *named)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(AsRef::as_ref)
    }
}

fn parameters(spec: &Spec<'_>) -> FxHashSet<Box<str>> {
    let entries = spec.jobs.iter().filter_map(|job| Some(&job.more.as_ref()?.sweep));
    let entries = entries.chain(spec.files.iter().map(|file| &file.sweep));
    let entries = entries.chain(spec.user_data.iter().map(|data| &data.sweep));
    let all = entries.flat_map(|sweep| &sweep.parameters).chain(&spec.shared.parameters);
    let mut names = FxHashSet::default();
    for parameter in all {
        let name = spec.texts.get(parameter.name.text);
        if !names.contains(name) {
            names.insert(name.into());
        }
    }
    names
}

pub(super) fn bad_name(what: &str, text: &str, name: Named) -> Diagnostic {
    Diagnostic::new("parameter-name", format!("`{text}` cannot be the name of a {what}"))
        .at(name.span)
        .help("use letters, digits and `_`, and begin with no digit")
}

struct Filling<'a, 's> {
    spec: &'a Spec<'s>,
    written: &'a FxHashMap<&'a str, (Named, Named)>,
    done: Constants,
    /// The variables that are being filled in, each used by the one before.
    path: Vec<&'a str>,
    /// Of all values so far, in bytes.
    length: usize,
    sinks: &'a mut Sinks,
}

impl<'a> Filling<'a, '_> {
    /// Deeper nesting is a circle or a joke.
    const DEEPEST: usize = 50;

    fn fill(&mut self, name: &'a str) {
        if self.done.values.contains_key(name) {
            return;
        }
        let Some(&(place, value)) = self.written.get(name) else { return };
        self.path.push(name);
        let text = self.spec.texts.get(value.text);
        let mut filled = String::new();
        let mut from = 0;
        for hole in template::holes(text) {
            if hole.after_dollar {
                continue;
            }
            let span = Place::of(&self.spec.texts, value).part(hole.range.clone());
            let Some((&inner, _)) = self.written.get_key_value(hole.name) else {
                if let Some(doubled) = hole.escape(text) {
                    filled.push_str(&text[from..doubled.start]);
                    filled.push_str(&text[hole.range]);
                    from = doubled.end;
                    continue;
                }
                if hole.is_unmistakable() && self.done.is_complete {
                    let message = format!("`{{{}}}` is no variable of the workflow", hole.name);
                    let diagnostic = Diagnostic::new("undefined-name", message).at(span);
                    self.sinks
                        .errors
                        .push(diagnostic.help("a variable may use other variables, but no parameters"));
                }
                continue;
            };
            if self.path.contains(&inner) || self.path.len() > Self::DEEPEST {
                let circle = self.path.iter().skip_while(|known| **known != inner).chain([&inner]);
                let circle: Vec<&str> = circle.copied().collect();
                let message = format!("variables use each other in a circle: {}", circle.join(" → "));
                self.sinks.errors.push(Diagnostic::new("variable-cycle", message).at(span));
                continue;
            }
            self.fill(inner);
            filled.push_str(&text[from..hole.range.start]);
            let format = hole.format.and_then(Format::parse).unwrap_or_default();
            let value = self.done.get(inner).unwrap_or_default();
            if self.length + filled.len() + value.len() > LONGEST_VALUES {
                self.too_long(span);
                break;
            }
            format.put(crate::params::ParameterValue::Text(value), &mut filled);
            from = hole.range.end;
        }
        filled.push_str(&text[from..]);
        self.path.pop();
        self.length += filled.len();
        self.done.values.insert(name.into(), (filled, place));
    }

    fn too_long(&mut self, span: crate::source::Span) {
        let message = "the variables of this workflow become far too long when they are put into each other";
        self.sinks.errors.push(Diagnostic::new("too-many", message).at(span));
    }
}
