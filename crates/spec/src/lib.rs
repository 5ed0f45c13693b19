//! Workflow spec files: parsing, checking, and errors that show the place and say what to do.
//!
//! The way through: `source` checks the text, a front end (`yaml`, `json`, `toml`, `kdl`) turns it into events, `decode`
//! turns events into a [`Spec`] while they stream by (no tree is built), `expand` numbers what its parameters make,
//! `resolve` looks the names up, and out comes a [`Workflow`]. Every stage goes on after a mistake, so one reading
//! reports all of them as [`Diagnostics`].
//!
//! No I/O, no clock: text in, values out. Files beside the spec are read by whoever calls, through [`Attachments`].

mod convert;
mod cycle;
mod decode;
mod diagnostic;
mod document;
mod event;
mod expand;
mod format;
mod index;
mod json;
mod kdl;
mod model;
pub mod params;
pub mod patch;
mod reference;
mod reformat;
mod render;
mod resolve;
mod schema;
mod source;
mod suggest;
mod table;
pub mod template;
mod text;
mod toml;
mod tree;
mod workflow;
mod write;
mod yaml;

pub use convert::{convert, to_json};
pub use diagnostic::{Diagnostic, Diagnostics, Report, Severity};
pub use document::{Complaint, Document};
pub use format::{Format, Source};
pub use model::{RequirementsSpec, Spec};
pub use params::ParameterValue;
pub use reference::reference;
pub use reformat::reformat;
pub use render::Style;
pub use resolve::ResolvedAction;
pub use schema::schema;
pub use source::Span;
pub use suggest::nearest;
pub use workflow::{File, Job, JobKind, UserData, Workflow};

use decode::{Decoded, NamesRead};
use expand::Sinks;
use format::Front;

/// Files beside the spec that it names: lists of values, tables of parameters.
pub trait Attachments {
    /// Reads a file; the path is relative to the directory of the spec.
    fn read(&self, path: &str) -> std::io::Result<Vec<u8>>;
}

/// For specs that come from nowhere, so that nothing can be beside them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAttachments;

impl Attachments for NoAttachments {
    fn read(&self, _: &str) -> std::io::Result<Vec<u8>> {
        Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "no other files can be read here"))
    }
}

/// Reads a whole spec: [`parse`] and [`resolve`] with all their problems together.
pub fn load<'s>(source: Source<'s>, attachments: &dyn Attachments) -> Result<Workflow<'s>, Diagnostics> {
    let (text, format) = source.open()?;
    let Decoded { spec, sink, names, warnings } = decode::decode(text, Front::new(text, format));
    match names {
        Some(names) => make(source.name, spec, names, Sinks { errors: sink, warnings }, attachments),
        None => Err(sink.into_diagnostics(source.name, text)),
    }
}

/// The first half of [`load`]: syntax, fields and values.
pub fn parse<'s>(source_name: &'s str, text: &'s [u8]) -> Result<Spec<'s>, Diagnostics> {
    let source = Source::new(source_name, text);
    let (text, format) = source.open()?;
    let decoded = decode::decode(text, Front::new(text, format));
    if decoded.sink.is_empty() {
        Ok(decoded.spec)
    } else {
        Err(decoded.sink.into_diagnostics(source.name, text))
    }
}

/// The second half of [`load`]: parameters, names and the graph.
pub fn resolve<'s>(
    source_name: &str,
    spec: Spec<'s>,
    attachments: &dyn Attachments,
) -> Result<Workflow<'s>, Diagnostics> {
    make(source_name, spec, NamesRead::ALL, Sinks::default(), attachments)
}

fn make<'s>(
    source_name: &str,
    spec: Spec<'s>,
    names: NamesRead,
    mut sinks: Sinks,
    attachments: &dyn Attachments,
) -> Result<Workflow<'s>, Diagnostics> {
    let expanded = expand::expand(&spec, names, attachments, &mut sinks);
    let resolved = resolve::resolve(&spec, &expanded, names, &mut sinks);
    let source = spec.texts.source();
    if sinks.errors.is_empty() {
        let warnings = sinks.warnings.into_diagnostics(source_name, source);
        Ok(Workflow::new(spec, expanded, resolved, warnings))
    } else {
        Err(sinks.errors.into_diagnostics(source_name, source))
    }
}
