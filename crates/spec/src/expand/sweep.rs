//! The parameters of an entry and the combinations of their values.

use super::constants::invalid_name_error;
use super::{DiagnosticSinks, TemplateCompiler, TextPosition, WorkflowConstants, template_compiler};
use crate::SpecAttachments;
use crate::diagnostic::SpecDiagnostic;
use crate::model::{
    NamedText, ParameterMode, ParameterSweep, SweepParameter, WorkflowSpec, WrittenParameterValues,
};
use crate::parameter_table::{self, ParameterTable};
use crate::parameters::{self, ParameterSequence, ParameterValue, ParsedParameter, StoredParameterValue};
use crate::source::SourceSpan;
use crate::suggest::NameSuggester;
use crate::template;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::Cell;
use std::sync::Arc;

/// Texts search all parameters of their entry, which is fast only for a small number.
const MAX_PARAMETERS: usize = 1000;

/// The problem is already in the sink.
#[derive(Clone, Copy, Debug)]
pub(super) struct AlreadyReported;

/// The parameters of one entry. The values of a job follow from its number within the entry.
#[derive(Clone, Debug)]
pub(crate) struct ParameterBindings {
    parameters: Vec<BoundParameter>,
    /// The number of leading parameters that are columns of a table.
    columns: usize,
    count: u64,
}

#[derive(Clone, Debug)]
struct BoundParameter {
    name: Box<str>,
    values: Arc<ParameterSequence>,
    /// The number of consecutive jobs with the same value.
    stride: u64,
}

impl BoundParameter {
    /// Returns the index of the value of an instance.
    fn value_index(&self, index: u32) -> u64 {
        u64::from(index) / self.stride % self.values.len()
    }
}

impl ParameterBindings {
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn find_parameter(&self, name: &str) -> Option<u32> {
        self.parameters.iter().position(|bound| *bound.name == *name).map(|position| position as u32)
    }

    /// Returns the parameters that the spec defines itself, with their numbers. A table may have columns for
    /// other purposes.
    pub(crate) fn declared_parameters(&self) -> impl Iterator<Item = (usize, &str)> {
        self.names().enumerate().skip(self.columns)
    }

    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parameters.iter().map(|bound| &*bound.name)
    }

    pub(crate) fn value(&self, parameter: u32, index: u32) -> ParameterValue<'_> {
        let bound = &self.parameters[parameter as usize];
        bound.values.get(bound.value_index(index))
    }

    pub(crate) fn pairs(&self, index: u32) -> impl Iterator<Item = (&str, ParameterValue<'_>)> {
        (0..).zip(self.names()).map(move |(number, name)| (name, self.value(number, index)))
    }

    /// For two instances with the same values: describes the parameters that have a value twice.
    pub(crate) fn describe_repeated_values(&self, one: u32, other: u32) -> String {
        let repeated =
            self.parameters.iter().filter(|bound| bound.value_index(one) != bound.value_index(other));
        let told = repeated.map(|bound| {
            format!("`{}` has the value {} twice", bound.name, bound.values.get(bound.value_index(one)))
        });
        told.collect::<Vec<_>>().join(", ")
    }

    /// `with i=3, x=0.1`
    pub(crate) fn describe_values(&self, index: u32) -> String {
        let mut text = String::new();
        for (number, (name, value)) in self.pairs(index).enumerate() {
            let before = if number == 0 { "with " } else { ", " };
            text.extend([before, name, "=", &value.to_string()]);
        }
        text
    }
}

/// A parameter before it becomes part of [`ParameterBindings`].
struct ParameterAxis {
    name: Box<str>,
    values: Arc<ParameterSequence>,
    span: SourceSpan,
}

/// Reads the parameters of all entries; shared ones and tables are read once.
pub(super) struct SweepReader<'a, 's> {
    pub(super) spec: &'a WorkflowSpec<'s>,
    pub(super) constants: &'a WorkflowConstants,
    /// Whether all shared parameters could be read.
    all_shared: bool,
    attachments: &'a dyn SpecAttachments,
    shared_written: FxHashMap<&'a str, &'a SweepParameter>,
    shared: FxHashMap<&'a str, Option<Arc<ParameterSequence>>>,
    tables: FxHashMap<String, Option<Arc<ParameterTable>>>,
    shared_used: FxHashSet<&'a str>,
    table_used: Cell<bool>,
}

impl<'a, 's> SweepReader<'a, 's> {
    pub(super) fn new(
        spec: &'a WorkflowSpec<'s>,
        all_shared: bool,
        constants: &'a WorkflowConstants,
        attachments: &'a dyn SpecAttachments,
    ) -> Self {
        let shared = spec.shared_parameters.parameters.iter();
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

    /// Returns the parameters of an entry; `None` if it has none.
    pub(super) fn read_bindings(
        &mut self,
        what: &str,
        name: NamedText,
        sweep: &'a ParameterSweep,
        sinks: &mut DiagnosticSinks,
    ) -> Result<Option<Arc<ParameterBindings>>, AlreadyReported> {
        if sweep.is_broken {
            return Err(AlreadyReported);
        }
        let is_plain = sweep.parameters.is_empty()
            && sweep.use_parameters.is_empty()
            && sweep.parameters_file.is_none()
            && !sweep.use_parameters_file.is_some_and(|(wanted, _)| wanted);
        if is_plain {
            if let Some((_, span)) = sweep.mode {
                let message = format!("this {what} has a `parameter_mode` but no parameters");
                sinks.warnings.push(SpecDiagnostic::new("unused-parameter", message).with_span(span));
            }
            return Ok(None);
        }
        // No short circuit, so that all of them report.
        let table = self.read_table_columns(sweep, sinks);
        let parameters = self.collect_parameters(sweep, sinks);
        let (table, parameters) = (table?, parameters?);
        let count = table.len() + parameters.len();
        if count > MAX_PARAMETERS {
            let message = format!("this {what} has {count} parameters; the maximum is {MAX_PARAMETERS}");
            sinks.errors.push(SpecDiagnostic::new("too-many", message).with_span(name.span));
            return Err(AlreadyReported);
        }
        self.check_names(&table, &parameters, sinks)?;
        let bindings = match sweep.mode {
            Some((ParameterMode::Zip, span)) => combine_zip(table, parameters, span, sinks)?,
            _ => combine_product(table, parameters).ok_or_else(|| {
                let message = format!("the parameters of this {what} have too many combinations");
                let help = "`parameter_mode: zip` combines the values pairwise instead";
                sinks
                    .errors
                    .push(SpecDiagnostic::new("too-many", message).with_span(name.span).with_help(help));
                AlreadyReported
            })?,
        };
        Ok(Some(Arc::new(bindings)))
    }

    /// Returns the columns of the table that an entry uses.
    fn read_table_columns(
        &mut self,
        sweep: &'a ParameterSweep,
        sinks: &mut DiagnosticSinks,
    ) -> Result<Vec<ParameterAxis>, AlreadyReported> {
        let shared = sweep.use_parameters_file.filter(|(wanted, _)| *wanted);
        let file = match (sweep.parameters_file, shared) {
            (None, None) => return Ok(Vec::new()),
            (Some(_), Some((_, span))) => {
                let message = "an entry uses its own `parameters_file` or the workflow's, not both";
                sinks.errors.push(SpecDiagnostic::new("parameter-conflict", message).with_span(span));
                return Err(AlreadyReported);
            }
            (Some(file), None) => file,
            (None, Some((_, span))) => self.spec.shared_parameters.parameters_file.ok_or_else(|| {
                let message = "`use_parameters_file` is set, but the workflow has no `parameters_file`";
                sinks.errors.push(SpecDiagnostic::new("no-parameters-file", message).with_span(span));
                AlreadyReported
            })?,
        };
        self.table_used.set(self.table_used.get() || shared.is_some());
        let table = self.read_table(file, sinks)?;
        let axis = |(name, values): &(Box<str>, Arc<ParameterSequence>)| ParameterAxis {
            name: name.clone(),
            values: Arc::clone(values),
            span: file.span,
        };
        Ok(table.columns.iter().map(axis).collect())
    }

    fn read_table(
        &mut self,
        file: NamedText,
        sinks: &mut DiagnosticSinks,
    ) -> Result<Arc<ParameterTable>, AlreadyReported> {
        let path = self.resolve_path(file, sinks);
        if let Some(known) = self.tables.get(&path) {
            return known.clone().ok_or(AlreadyReported);
        }
        let bytes = self.read_attachment(&path, file.span, sinks);
        let table = bytes.and_then(|bytes| {
            parameter_table::parse_table(&path, &bytes).map_err(|problem| {
                let message = format!("the table `{path}` cannot be used: {problem}");
                sinks.errors.push(SpecDiagnostic::new("bad-table", message).with_span(file.span));
                AlreadyReported
            })
        });
        let table = table.map(Arc::new);
        self.tables.insert(path, table.as_ref().ok().cloned());
        table
    }

    fn resolve_path(&self, file: NamedText, sinks: &mut DiagnosticSinks) -> String {
        let text = self.spec.texts.get(file.text);
        let place = TextPosition::from_named(&self.spec.texts, file);
        let template = TemplateCompiler::new(self.constants, None, sinks).compile(text, place);
        template.map_or_else(
            || text.to_owned(),
            |template| {
                let mut path = String::new();
                template_compiler::render_template(&template, None, 0, &mut path);
                path
            },
        )
    }

    fn read_attachment(
        &self,
        path: &str,
        span: SourceSpan,
        sinks: &mut DiagnosticSinks,
    ) -> Result<Vec<u8>, AlreadyReported> {
        self.attachments.read_file(path).map_err(|error| {
            let message = format!("cannot read `{path}`: {error}");
            let help = "paths are relative to the directory of the spec file";
            sinks
                .errors
                .push(SpecDiagnostic::new("unreadable-file", message).with_span(span).with_help(help));
            AlreadyReported
        })
    }

    /// Returns the shared parameters in the order of `use_parameters`, then the entry's own.
    fn collect_parameters(
        &mut self,
        sweep: &'a ParameterSweep,
        sinks: &mut DiagnosticSinks,
    ) -> Result<Vec<ParameterAxis>, AlreadyReported> {
        let spec = self.spec;
        let mut axes = Vec::new();
        let mut all_well = true;
        let text = |named: NamedText| spec.texts.get(named.text);
        let own: FxHashSet<&str> = sweep.parameters.iter().map(|own| text(own.name)).collect();
        for used in &spec.names[sweep.use_parameters.range()] {
            let name = text(*used);
            self.shared_used.insert(name);
            if own.contains(name) {
                continue;
            }
            match self.find_shared_values(name, *used, sinks) {
                Ok(values) => axes.push(ParameterAxis { name: name.into(), values, span: used.span }),
                Err(AlreadyReported) => all_well = false,
            }
        }
        for own in &sweep.parameters {
            match self.read_values(own, sinks) {
                Ok(values) => {
                    axes.push(ParameterAxis {
                        name: text(own.name).into(),
                        values: Arc::new(values),
                        span: own.name.span,
                    });
                }
                Err(AlreadyReported) => all_well = false,
            }
        }
        if all_well { Ok(axes) } else { Err(AlreadyReported) }
    }

    fn find_shared_values(
        &mut self,
        name: &'a str,
        used: NamedText,
        sinks: &mut DiagnosticSinks,
    ) -> Result<Arc<ParameterSequence>, AlreadyReported> {
        if let Some(known) = self.shared.get(name) {
            return known.clone().ok_or(AlreadyReported);
        }
        let Some(&parameter) = self.shared_written.get(name) else {
            if !self.all_shared {
                return Err(AlreadyReported);
            }
            let shared = self.spec.shared_parameters.parameters.iter();
            let known = shared.map(|parameter| self.spec.texts.get(parameter.name.text));
            let nearest = NameSuggester::default().nearest_name(name, known);
            let message = format!("the workflow has no parameter `{name}`");
            sinks.errors.push(
                SpecDiagnostic::new("unknown-parameter", message)
                    .with_span(used.span)
                    .with_suggestion(nearest),
            );
            return Err(AlreadyReported);
        };
        let values = self.read_values(parameter, sinks).map(Arc::new);
        self.shared.insert(name, values.as_ref().ok().cloned());
        values
    }

    fn read_values(
        &self,
        parameter: &SweepParameter,
        sinks: &mut DiagnosticSinks,
    ) -> Result<ParameterSequence, AlreadyReported> {
        let spec = self.spec;
        let text = |named: NamedText| spec.texts.get(named.text);
        let bad = |span: SourceSpan, why: String, sinks: &mut DiagnosticSinks| {
            let message = format!("parameter `{}`: {why}", text(parameter.name));
            sinks.errors.push(SpecDiagnostic::new("bad-parameter", message).with_span(span));
            AlreadyReported
        };
        match &parameter.values {
            WrittenParameterValues::List(list) if list.is_empty() => {
                Err(bad(parameter.name.span, parameters::ParameterError::Empty.to_string(), sinks))
            }
            WrittenParameterValues::List(list) => {
                let value = |(named, plain): &(NamedText, bool)| match plain {
                    true => StoredParameterValue::infer(text(*named)),
                    false => StoredParameterValue::Text(text(*named).into()),
                };
                Ok(ParameterSequence::List(list.iter().map(value).collect()))
            }
            WrittenParameterValues::Text { text: written, plain } => {
                match parameters::parse_parameter(text(*written), !plain) {
                    Ok(ParsedParameter::Values(values)) => {
                        if matches!(&values, ParameterSequence::List(_))
                            && parameters::resembles_range(text(*written))
                        {
                            sinks.warnings.push(not_a_range_error(
                                text(parameter.name),
                                text(*written),
                                written.span,
                            ));
                        }
                        Ok(values)
                    }
                    Ok(ParsedParameter::File(_)) => self.read_values_file(*written, sinks),
                    Err(problem) => Err(bad(written.span, problem.to_string(), sinks)),
                }
            }
        }
    }

    fn read_values_file(
        &self,
        written: NamedText,
        sinks: &mut DiagnosticSinks,
    ) -> Result<ParameterSequence, AlreadyReported> {
        let path = self.resolve_path(written, sinks);
        let path = path.trim().trim_start_matches('@').trim();
        let bytes = self.read_attachment(path, written.span, sinks)?;
        let mut refuse = |why: &str| {
            let message = format!("`{path}` {why}");
            sinks.errors.push(SpecDiagnostic::new("bad-parameter", message).with_span(written.span));
            AlreadyReported
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| refuse("is not UTF-8"))?;
        let values: Vec<StoredParameterValue> =
            parameters::parse_value_lines(text).map(StoredParameterValue::infer).collect();
        if values.is_empty() {
            Err(refuse("contains no values"))
        } else {
            Ok(ParameterSequence::List(values))
        }
    }

    fn check_names(
        &self,
        table: &[ParameterAxis],
        parameters: &[ParameterAxis],
        sinks: &mut DiagnosticSinks,
    ) -> Result<(), AlreadyReported> {
        let before = sinks.errors.count();
        let columns: FxHashMap<&str, &ParameterAxis> =
            table.iter().map(|column| (&*column.name, column)).collect();
        let mut used = FxHashSet::default();
        for axis in parameters {
            if let Some(column) = columns.get(&*axis.name) {
                let message = format!("`{}` is both a column of the table and a parameter", axis.name);
                let diagnostic = SpecDiagnostic::new("parameter-conflict", message).with_span(axis.span);
                sinks.errors.push(diagnostic.with_label(column.span, "this table has a column of that name"));
            }
            if !used.insert(&axis.name) {
                let message = format!("parameter `{}` is used twice", axis.name);
                sinks.errors.push(SpecDiagnostic::new("parameter-conflict", message).with_span(axis.span));
            }
        }
        let mut known: FxHashMap<String, &ParameterAxis> = FxHashMap::default();
        for axis in table.iter().chain(parameters) {
            if !template::is_valid_name(&axis.name) {
                let name = NamedText { span: axis.span, ..NamedText::default() };
                sinks.errors.push(invalid_name_error("parameter", &axis.name, name));
            }
            if let Some(variable) = self.constants.definition(&axis.name) {
                let message = format!("`{}` is both a parameter and a variable of the workflow", axis.name);
                let diagnostic = SpecDiagnostic::new("parameter-conflict", message).with_span(axis.span);
                sinks.errors.push(
                    diagnostic.with_label(variable.span, "the variable").with_help("rename one of them"),
                );
            }
            let other = known.insert(axis.name.to_ascii_uppercase(), axis);
            if let Some(other) = other.filter(|other| other.name != axis.name) {
                let upper = axis.name.to_ascii_uppercase();
                let message = format!("parameters `{}` and `{}` differ only by case", other.name, axis.name);
                let help = format!("both would set `WINDLASS_PARAM_{upper}`; rename one of them");
                sinks.errors.push(
                    SpecDiagnostic::new("parameter-conflict", message).with_span(axis.span).with_help(help),
                );
            }
        }
        if sinks.errors.count() == before { Ok(()) } else { Err(AlreadyReported) }
    }

    pub(super) fn warn_unused(&self, sinks: &mut DiagnosticSinks) {
        let shared = &self.spec.shared_parameters;
        for parameter in &shared.parameters {
            let name = self.spec.texts.get(parameter.name.text);
            if !self.shared_used.contains(name) {
                let message = format!("parameter `{name}` of the workflow is not used");
                let help = format!("entries use it with `use_parameters: [{name}]`");
                sinks.warnings.push(
                    SpecDiagnostic::new("unused-parameter", message)
                        .with_span(parameter.name.span)
                        .with_help(help),
                );
            }
        }
        if let Some(file) = shared.parameters_file.filter(|_| !self.table_used.get()) {
            let message = "`parameters_file` of the workflow is not used";
            let help = "entries use it with `use_parameters_file: true`";
            sinks
                .warnings
                .push(SpecDiagnostic::new("unused-parameter", message).with_span(file.span).with_help(help));
        }
    }
}

fn not_a_range_error(parameter: &str, text: &str, span: SourceSpan) -> SpecDiagnostic {
    SpecDiagnostic::new(
        "no-range",
        format!("parameter `{parameter}` has the single value `{text}`, which is not a range"),
    )
    .with_span(span)
    .with_help(format!(
        "write a range as `FIRST:LAST` or `FIRST:LAST:STEP`, or a text as a list: `['{text}']`"
    ))
}

/// Combines all rows of the table with all combinations of the other parameters; the last parameter changes
/// fastest. Returns `None` if there are too many.
fn combine_product(table: Vec<ParameterAxis>, parameters: Vec<ParameterAxis>) -> Option<ParameterBindings> {
    let rows = table.first().map_or(1, |column| column.values.len());
    let lengths = parameters.iter().map(|axis| axis.values.len());
    let (strides, combinations) = parameters::compute_strides(lengths)?;
    let columns = table.len();
    let bound = |(ParameterAxis { name, values, .. }, stride)| BoundParameter { name, values, stride };
    let table = table.into_iter().map(|column| (column, combinations));
    let bound = table.chain(parameters.into_iter().zip(strides)).map(bound).collect();
    Some(ParameterBindings { parameters: bound, columns, count: rows.checked_mul(combinations)? })
}

/// Combines the values pairwise.
fn combine_zip(
    table: Vec<ParameterAxis>,
    parameters: Vec<ParameterAxis>,
    span: SourceSpan,
    sinks: &mut DiagnosticSinks,
) -> Result<ParameterBindings, AlreadyReported> {
    let columns = table.len();
    let axes: Vec<ParameterAxis> = table.into_iter().chain(parameters).collect();
    let count = axes.first().map_or(1, |first| first.values.len());
    if let Some(other) = axes.iter().find(|axis| axis.values.len() != count) {
        let first = &axes[0];
        let message = format!(
            "`zip` needs the same number of values, but `{}` has {count} and `{}` has {}",
            first.name,
            other.name,
            other.values.len()
        );
        let diagnostic = SpecDiagnostic::new("zip-lengths", message).with_span(other.span);
        sinks.errors.push(
            diagnostic
                .with_label(first.span, format!("{count} values"))
                .with_label(span, "zip is requested here"),
        );
        return Err(AlreadyReported);
    }
    let bound =
        axes.into_iter().map(|ParameterAxis { name, values, .. }| BoundParameter { name, values, stride: 1 });
    Ok(ParameterBindings { parameters: bound.collect(), columns, count })
}
