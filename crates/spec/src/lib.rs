//! Parsing and validation of workflow specs, with errors that show the location and how to fix them.
//!
//! The stages: `source` checks the text, a front end (`yaml`, `json`, `toml`, `kdl`) parses it into events,
//! `decode` converts the event stream into a [`WorkflowSpec`] (without building a tree), `expand` numbers the
//! instances of its entries, `resolve` looks up names and returns a [`ResolvedWorkflow`]. Every stage continues
//! after an error, so one pass reports all of them as [`SpecDiagnostics`].
//!
//! No I/O and no clock: text in, values out. The caller reads files beside the spec, through
//! [`SpecAttachments`].

mod convert;
mod cycle;
mod decode;
mod diagnostic;
mod diagnostic_renderer;
mod event;
mod expand;
mod field_reference;
mod format;
mod json;
mod json_schema;
mod kdl;
mod located_document;
mod model;
mod name_index;
mod parameter_table;
pub mod parameters;
pub mod patch;
mod reformat;
mod resolve;
mod resolved_workflow;
mod source;
mod suggest;
pub mod template;
mod text_store;
mod toml;
mod tree;
mod writer;
mod yaml;

pub use convert::{convert_spec, document_to_json};
pub use diagnostic::{DiagnosticReport, DiagnosticSeverity, SpecDiagnostic, SpecDiagnostics};
pub use diagnostic_renderer::DiagnosticStyle;
pub use field_reference::render_reference;
pub use format::{SpecFormat, SpecSource};
pub use json_schema::build_json_schema;
pub use located_document::{FieldProblem, LocatedDocument};
pub use model::{RequirementsSpec, WorkflowSpec};
pub use parameters::ParameterValue;
pub use reformat::reformat_spec;
pub use resolve::ResolvedAction;
pub use resolved_workflow::{ResolvedFile, ResolvedJob, ResolvedUserData, ResolvedWorkflow};
pub use source::SourceSpan;
pub use suggest::nearest_name;

use decode::{DecodedSpec, NameCompleteness};
use expand::DiagnosticSinks;
use format::FormatReader;

/// Files beside the spec that it refers to: lists of values, tables of parameters.
pub trait SpecAttachments {
    /// Reads a file; the path is relative to the directory of the spec.
    fn read_file(&self, path: &str) -> std::io::Result<Vec<u8>>;
}

/// For specs without a directory, which cannot refer to files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAttachments;

impl SpecAttachments for NoAttachments {
    fn read_file(&self, _: &str) -> std::io::Result<Vec<u8>> {
        Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "no other files can be read here"))
    }
}

/// Loads a whole spec: [`parse_spec`] and [`resolve_spec`] with the problems of both.
pub fn load_spec<'s>(
    source: SpecSource<'s>,
    attachments: &dyn SpecAttachments,
) -> Result<ResolvedWorkflow<'s>, SpecDiagnostics> {
    let (text, format) = source.open()?;
    let DecodedSpec { spec, sink, names, warnings } =
        decode::decode_spec(text, FormatReader::new(text, format));
    match names {
        Some(names) => {
            build_workflow(source.name, spec, names, DiagnosticSinks { errors: sink, warnings }, attachments)
        }
        None => Err(sink.into_diagnostics(source.name, text)),
    }
}

/// The first half of [`load_spec`]: syntax, fields and values.
pub fn parse_spec<'s>(source_name: &'s str, text: &'s [u8]) -> Result<WorkflowSpec<'s>, SpecDiagnostics> {
    let source = SpecSource::new(source_name, text);
    let (text, format) = source.open()?;
    let decoded = decode::decode_spec(text, FormatReader::new(text, format));
    if decoded.sink.is_empty() {
        Ok(decoded.spec)
    } else {
        Err(decoded.sink.into_diagnostics(source.name, text))
    }
}

/// The second half of [`load_spec`]: parameters, names and the graph.
pub fn resolve_spec<'s>(
    source_name: &str,
    spec: WorkflowSpec<'s>,
    attachments: &dyn SpecAttachments,
) -> Result<ResolvedWorkflow<'s>, SpecDiagnostics> {
    build_workflow(source_name, spec, NameCompleteness::ALL, DiagnosticSinks::default(), attachments)
}

fn build_workflow<'s>(
    source_name: &str,
    spec: WorkflowSpec<'s>,
    names: NameCompleteness,
    mut sinks: DiagnosticSinks,
    attachments: &dyn SpecAttachments,
) -> Result<ResolvedWorkflow<'s>, SpecDiagnostics> {
    let expanded = expand::expand_spec(&spec, names, attachments, &mut sinks);
    let resolved = resolve::resolve_names(&spec, &expanded, names, &mut sinks);
    let source = spec.texts.source();
    if sinks.errors.is_empty() {
        let warnings = sinks.warnings.into_diagnostics(source_name, source);
        Ok(ResolvedWorkflow::new(spec, expanded, resolved, warnings))
    } else {
        Err(sinks.errors.into_diagnostics(source_name, source))
    }
}
