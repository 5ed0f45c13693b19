//! What parameters an entry has and how their values combine.

use super::constants::bad_name;
use super::{Compiler, Constants, Place, Sinks, compile};
use crate::Attachments;
use crate::diagnostic::Diagnostic;
use crate::model::{Named, Parameter, ParameterMode, ParameterValues, Spec, Sweep};
use crate::params::{self, ParameterValue, Value, Values, Written};
use crate::source::Span;
use crate::suggest::Suggester;
use crate::table::{self, Table};
use crate::template;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::Cell;
use std::sync::Arc;

/// Texts look a parameter up among all of its entry, which is quick as long as these are not many.
const MOST_PARAMETERS: usize = 1000;

/// It went to the sink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported;

/// The parameters of one entry. What one job has follows from its number within the entry.
#[derive(Clone, Debug)]
pub(crate) struct Bindings {
    bound: Vec<Bound>,
    /// So many of them, the first ones, are columns of a table.
    columns: usize,
    count: u64,
}

#[derive(Clone, Debug)]
struct Bound {
    name: Box<str>,
    values: Arc<Values>,
    /// So many jobs in a row have the same value.
    stride: u64,
}

impl Bound {
    /// Which of the values one of the entry has.
    fn position(&self, index: u32) -> u64 {
        u64::from(index) / self.stride % self.values.len()
    }
}

impl Bindings {
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.bound.iter().position(|bound| *bound.name == *name).map(|position| position as u32)
    }

    /// Those that the spec itself names, with their numbers. A table may well have columns for others.
    pub(crate) fn written(&self) -> impl Iterator<Item = (usize, &str)> {
        self.names().enumerate().skip(self.columns)
    }

    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.bound.iter().map(|bound| &*bound.name)
    }

    pub(crate) fn value(&self, parameter: u32, index: u32) -> ParameterValue<'_> {
        let bound = &self.bound[parameter as usize];
        bound.values.get(bound.position(index))
    }

    pub(crate) fn pairs(&self, index: u32) -> impl Iterator<Item = (&str, ParameterValue<'_>)> {
        (0..).zip(self.names()).map(move |(number, name)| (name, self.value(number, index)))
    }

    /// Of two with the same values: which of them stand in different places of their lists.
    pub(crate) fn repeated(&self, one: u32, other: u32) -> String {
        let repeated = self.bound.iter().filter(|bound| bound.position(one) != bound.position(other));
        let told = repeated.map(|bound| {
            format!("`{}` has the value {} twice", bound.name, bound.values.get(bound.position(one)))
        });
        told.collect::<Vec<_>>().join(", ")
    }

    /// `with i=3, x=0.1`
    pub(crate) fn describe(&self, index: u32) -> String {
        let mut text = String::new();
        for (number, (name, value)) in self.pairs(index).enumerate() {
            let before = if number == 0 { "with " } else { ", " };
            text.extend([before, name, "=", &value.to_string()]);
        }
        text
    }
}

/// A parameter on its way into [`Bindings`].
struct Axis {
    name: Box<str>,
    values: Arc<Values>,
    span: Span,
}

/// Reads the parameters of all entries; shared ones and tables once.
pub(super) struct Sweeps<'a, 's> {
    pub(super) spec: &'a Spec<'s>,
    pub(super) constants: &'a Constants,
    /// Whether all shared parameters could be read.
    all_shared: bool,
    attachments: &'a dyn Attachments,
    shared_written: FxHashMap<&'a str, &'a Parameter>,
    shared: FxHashMap<&'a str, Option<Arc<Values>>>,
    tables: FxHashMap<String, Option<Arc<Table>>>,
    shared_used: FxHashSet<&'a str>,
    table_used: Cell<bool>,
}

impl<'a, 's> Sweeps<'a, 's> {
    pub(super) fn new(
        spec: &'a Spec<'s>,
        all_shared: bool,
        constants: &'a Constants,
        attachments: &'a dyn Attachments,
    ) -> Self {
        let shared = spec.shared.parameters.iter();
        Self {
            spec,
            constants,
            all_shared,
            attachments,
            shared_written: shared.map(|shared| (spec.texts.get(shared.name.text), shared)).collect(),
            shared: FxHashMap::default(),
            tables: FxHashMap::default(),
            shared_used: FxHashSet::default(),
            table_used: Cell::new(false),
        }
    }

    /// The parameters of an entry; `None` if it has none.
    pub(super) fn bindings(
        &mut self,
        what: &str,
        name: Named,
        sweep: &'a Sweep,
        sinks: &mut Sinks,
    ) -> Result<Option<Arc<Bindings>>, Reported> {
        if sweep.is_broken {
            return Err(Reported);
        }
        let is_plain = sweep.parameters.is_empty()
            && sweep.use_parameters.is_empty()
            && sweep.parameters_file.is_none()
            && !sweep.use_parameters_file.is_some_and(|(wanted, _)| wanted);
        if is_plain {
            if let Some((_, span)) = sweep.mode {
                let message = format!("this {what} has a `parameter_mode` but no parameters");
                sinks.warnings.push(Diagnostic::new("unused-parameter", message).at(span));
            }
            return Ok(None);
        }
        // One after the other, so that all of them report.
        let table = self.table(sweep, sinks);
        let parameters = self.parameters(sweep, sinks);
        let (table, parameters) = (table?, parameters?);
        let count = table.len() + parameters.len();
        if count > MOST_PARAMETERS {
            let message = format!("this {what} has {count} parameters, and {MOST_PARAMETERS} are the most");
            sinks.errors.push(Diagnostic::new("too-many", message).at(name.span));
            return Err(Reported);
        }
        self.check_names(&table, &parameters, sinks)?;
        let bindings = match sweep.mode {
            Some((ParameterMode::Zip, span)) => zip(table, parameters, span, sinks)?,
            _ => product(table, parameters).ok_or_else(|| {
                let message = format!("the parameters of this {what} make far too many combinations");
                let help = "`parameter_mode: zip` takes the values side by side instead";
                sinks.errors.push(Diagnostic::new("too-many", message).at(name.span).help(help));
                Reported
            })?,
        };
        Ok(Some(Arc::new(bindings)))
    }

    /// The columns of the table that an entry uses.
    fn table(&mut self, sweep: &'a Sweep, sinks: &mut Sinks) -> Result<Vec<Axis>, Reported> {
        let shared = sweep.use_parameters_file.filter(|(wanted, _)| *wanted);
        let file = match (sweep.parameters_file, shared) {
            (None, None) => return Ok(Vec::new()),
            (Some(_), Some((_, span))) => {
                let message = "an entry uses its own `parameters_file` or the workflow's, not both";
                sinks.errors.push(Diagnostic::new("parameter-conflict", message).at(span));
                return Err(Reported);
            }
            (Some(file), None) => file,
            (None, Some((_, span))) => self.spec.shared.parameters_file.ok_or_else(|| {
                let message = "`use_parameters_file` is set, but the workflow has no `parameters_file`";
                sinks.errors.push(Diagnostic::new("no-parameters-file", message).at(span));
                Reported
            })?,
        };
        self.table_used.set(self.table_used.get() || shared.is_some());
        let table = self.read_table(file, sinks)?;
        let axis = |(name, values): &(Box<str>, Arc<Values>)| Axis {
            name: name.clone(),
            values: Arc::clone(values),
            span: file.span,
        };
        Ok(table.columns.iter().map(axis).collect())
    }

    fn read_table(&mut self, file: Named, sinks: &mut Sinks) -> Result<Arc<Table>, Reported> {
        let path = self.path(file, sinks);
        if let Some(known) = self.tables.get(&path) {
            return known.clone().ok_or(Reported);
        }
        let bytes = self.read(&path, file.span, sinks);
        let table = bytes.and_then(|bytes| {
            table::parse(&path, &bytes).map_err(|problem| {
                let message = format!("the table `{path}` cannot be used: {problem}");
                sinks.errors.push(Diagnostic::new("bad-table", message).at(file.span));
                Reported
            })
        });
        let table = table.map(Arc::new);
        self.tables.insert(path, table.as_ref().ok().cloned());
        table
    }

    fn path(&self, file: Named, sinks: &mut Sinks) -> String {
        let text = self.spec.texts.get(file.text);
        let place = Place::of(&self.spec.texts, file);
        let template = Compiler::new(self.constants, None, sinks).compile(text, place);
        template.map_or_else(
            || text.to_owned(),
            |template| {
                let mut path = String::new();
                compile::render(&template, None, 0, &mut path);
                path
            },
        )
    }

    fn read(&self, path: &str, span: Span, sinks: &mut Sinks) -> Result<Vec<u8>, Reported> {
        self.attachments.read(path).map_err(|error| {
            let message = format!("cannot read `{path}`: {error}");
            let help = "paths are taken from the directory of the spec file";
            sinks.errors.push(Diagnostic::new("unreadable-file", message).at(span).help(help));
            Reported
        })
    }

    /// Shared parameters in the order of `use_parameters`, then the entry's own.
    fn parameters(&mut self, sweep: &'a Sweep, sinks: &mut Sinks) -> Result<Vec<Axis>, Reported> {
        let spec = self.spec;
        let mut axes = Vec::new();
        let mut all_well = true;
        let text = |named: Named| spec.texts.get(named.text);
        let own: FxHashSet<&str> = sweep.parameters.iter().map(|own| text(own.name)).collect();
        for used in &spec.names[sweep.use_parameters.range()] {
            let name = text(*used);
            self.shared_used.insert(name);
            if own.contains(name) {
                continue;
            }
            match self.shared_values(name, *used, sinks) {
                Ok(values) => axes.push(Axis { name: name.into(), values, span: used.span }),
                Err(Reported) => all_well = false,
            }
        }
        for own in &sweep.parameters {
            match self.values(own, sinks) {
                Ok(values) => {
                    axes.push(Axis {
                        name: text(own.name).into(),
                        values: Arc::new(values),
                        span: own.name.span,
                    });
                }
                Err(Reported) => all_well = false,
            }
        }
        if all_well { Ok(axes) } else { Err(Reported) }
    }

    fn shared_values(
        &mut self,
        name: &'a str,
        used: Named,
        sinks: &mut Sinks,
    ) -> Result<Arc<Values>, Reported> {
        if let Some(known) = self.shared.get(name) {
            return known.clone().ok_or(Reported);
        }
        let Some(&parameter) = self.shared_written.get(name) else {
            if !self.all_shared {
                return Err(Reported);
            }
            let shared = self.spec.shared.parameters.iter();
            let known = shared.map(|parameter| self.spec.texts.get(parameter.name.text));
            let nearest = Suggester::default().nearest(name, known);
            let message = format!("the workflow has no parameter `{name}`");
            sinks.errors.push(Diagnostic::new("unknown-parameter", message).at(used.span).suggest(nearest));
            return Err(Reported);
        };
        let values = self.values(parameter, sinks).map(Arc::new);
        self.shared.insert(name, values.as_ref().ok().cloned());
        values
    }

    fn values(&self, parameter: &Parameter, sinks: &mut Sinks) -> Result<Values, Reported> {
        let spec = self.spec;
        let text = |named: Named| spec.texts.get(named.text);
        let bad = |span: Span, why: String, sinks: &mut Sinks| {
            let message = format!("parameter `{}`: {why}", text(parameter.name));
            sinks.errors.push(Diagnostic::new("bad-parameter", message).at(span));
            Reported
        };
        match &parameter.values {
            ParameterValues::List(list) if list.is_empty() => {
                Err(bad(parameter.name.span, params::BadValues::Empty.to_string(), sinks))
            }
            ParameterValues::List(list) => {
                let value = |(named, plain): &(Named, bool)| match plain {
                    true => Value::infer(text(*named)),
                    false => Value::Text(text(*named).into()),
                };
                Ok(Values::List(list.iter().map(value).collect()))
            }
            ParameterValues::Text { text: written, plain } => match params::parse(text(*written), !plain) {
                Ok(Written::Values(values)) => {
                    if matches!(&values, Values::List(_)) && params::resembles_range(text(*written)) {
                        sinks.warnings.push(no_range(text(parameter.name), text(*written), written.span));
                    }
                    Ok(values)
                }
                Ok(Written::File(_)) => self.values_from_file(*written, sinks),
                Err(problem) => Err(bad(written.span, problem.to_string(), sinks)),
            },
        }
    }

    fn values_from_file(&self, written: Named, sinks: &mut Sinks) -> Result<Values, Reported> {
        let path = self.path(written, sinks);
        let path = path.trim().trim_start_matches('@').trim();
        let bytes = self.read(path, written.span, sinks)?;
        let mut refuse = |why: &str| {
            let message = format!("`{path}` {why}");
            sinks.errors.push(Diagnostic::new("bad-parameter", message).at(written.span));
            Reported
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| refuse("is not UTF-8"))?;
        let values: Vec<Value> = params::lines(text).map(Value::infer).collect();
        if values.is_empty() { Err(refuse("holds no values")) } else { Ok(Values::List(values)) }
    }

    fn check_names(&self, table: &[Axis], parameters: &[Axis], sinks: &mut Sinks) -> Result<(), Reported> {
        let before = sinks.errors.count();
        let columns: FxHashMap<&str, &Axis> = table.iter().map(|column| (&*column.name, column)).collect();
        let mut used = FxHashSet::default();
        for axis in parameters {
            if let Some(column) = columns.get(&*axis.name) {
                let message = format!("`{}` is both a column of the table and a parameter", axis.name);
                let diagnostic = Diagnostic::new("parameter-conflict", message).at(axis.span);
                sinks.errors.push(diagnostic.label(column.span, "this table has such a column"));
            }
            if !used.insert(&axis.name) {
                let message = format!("parameter `{}` is used twice", axis.name);
                sinks.errors.push(Diagnostic::new("parameter-conflict", message).at(axis.span));
            }
        }
        let mut known: FxHashMap<String, &Axis> = FxHashMap::default();
        for axis in table.iter().chain(parameters) {
            if !template::is_name(&axis.name) {
                let name = Named { span: axis.span, ..Named::default() };
                sinks.errors.push(bad_name("parameter", &axis.name, name));
            }
            if let Some(variable) = self.constants.place(&axis.name) {
                let message = format!("`{}` is both a parameter and a variable of the workflow", axis.name);
                let diagnostic = Diagnostic::new("parameter-conflict", message).at(axis.span);
                sinks.errors.push(diagnostic.label(variable.span, "the variable").help("rename one of them"));
            }
            let other = known.insert(axis.name.to_ascii_uppercase(), axis);
            if let Some(other) = other.filter(|other| other.name != axis.name) {
                let upper = axis.name.to_ascii_uppercase();
                let message = format!("parameters `{}` and `{}` differ only by case", other.name, axis.name);
                let help = format!("jobs get both as `WINDLASS_PARAM_{upper}`; rename one of them");
                sinks.errors.push(Diagnostic::new("parameter-conflict", message).at(axis.span).help(help));
            }
        }
        if sinks.errors.count() == before { Ok(()) } else { Err(Reported) }
    }

    pub(super) fn warn_of_unused(&self, sinks: &mut Sinks) {
        let shared = &self.spec.shared;
        for parameter in &shared.parameters {
            let name = self.spec.texts.get(parameter.name.text);
            if !self.shared_used.contains(name) {
                let message = format!("nothing uses the parameter `{name}` of the workflow");
                let help = format!("an entry opts in with `use_parameters: [{name}]`");
                sinks
                    .warnings
                    .push(Diagnostic::new("unused-parameter", message).at(parameter.name.span).help(help));
            }
        }
        if let Some(file) = shared.parameters_file.filter(|_| !self.table_used.get()) {
            let message = "nothing uses the `parameters_file` of the workflow";
            let help = "an entry opts in with `use_parameters_file: true`";
            sinks.warnings.push(Diagnostic::new("unused-parameter", message).at(file.span).help(help));
        }
    }
}

fn no_range(parameter: &str, text: &str, span: Span) -> Diagnostic {
    Diagnostic::new(
        "no-range",
        format!("parameter `{parameter}` has the one value `{text}`, which is a text"),
    )
    .at(span)
    .help(format!("a range is `FIRST:LAST` or `FIRST:LAST:STEP`; for the text write a list: `['{text}']`"))
}

/// All rows of the table with all combinations of the rest; the last parameter changes fastest. `None`: far too many.
fn product(table: Vec<Axis>, parameters: Vec<Axis>) -> Option<Bindings> {
    let rows = table.first().map_or(1, |column| column.values.len());
    let lengths = parameters.iter().map(|axis| axis.values.len());
    let (strides, combinations) = params::strides(lengths)?;
    let columns = table.len();
    let bound = |(Axis { name, values, .. }, stride)| Bound { name, values, stride };
    let table = table.into_iter().map(|column| (column, combinations));
    let bound = table.chain(parameters.into_iter().zip(strides)).map(bound).collect();
    Some(Bindings { bound, columns, count: rows.checked_mul(combinations)? })
}

/// The values side by side.
fn zip(table: Vec<Axis>, parameters: Vec<Axis>, span: Span, sinks: &mut Sinks) -> Result<Bindings, Reported> {
    let columns = table.len();
    let axes: Vec<Axis> = table.into_iter().chain(parameters).collect();
    let count = axes.first().map_or(1, |first| first.values.len());
    if let Some(other) = axes.iter().find(|axis| axis.values.len() != count) {
        let first = &axes[0];
        let message = format!(
            "zip needs as many values of each, but `{}` has {count} and `{}` has {}",
            first.name,
            other.name,
            other.values.len()
        );
        let diagnostic = Diagnostic::new("zip-lengths", message).at(other.span);
        sinks
            .errors
            .push(diagnostic.label(first.span, format!("{count} values")).label(span, "zip is wanted here"));
        return Err(Reported);
    }
    let bound = axes.into_iter().map(|Axis { name, values, .. }| Bound { name, values, stride: 1 });
    Ok(Bindings { bound: bound.collect(), columns, count })
}
