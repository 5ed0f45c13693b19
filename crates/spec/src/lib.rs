//! Workflow spec files: parsing, checking, and errors that show the place and say what to do.
//!
//! The way through: `source` checks the text, a front end (`yaml`, `json`, `toml`, `kdl`) turns it into events, `decode` turns events
//! into a [`Spec`] while they stream by (no tree is built), `resolve` looks the names up, and out comes a [`Workflow`].
//! Every stage goes on after a mistake, so one reading reports all of them as [`Diagnostics`].
//!
//! No I/O, no clock: text in, values out.

mod convert;
mod cycle;
mod decode;
mod diagnostic;
mod event;
mod format;
mod index;
mod json;
mod kdl;
mod model;
pub mod patch;
mod reference;
mod render;
mod resolve;
mod schema;
mod source;
mod suggest;
mod text;
mod toml;
mod tree;
mod workflow;
mod write;
mod yaml;

pub use convert::convert;
pub use diagnostic::{Diagnostic, Diagnostics, Report};
pub use format::{Format, Source};
pub use model::{RequirementsSpec, Spec};
pub use reference::reference;
pub use render::Style;
pub use schema::schema;
pub use source::Span;
pub use suggest::nearest;
pub use workflow::{Job, Workflow};

use decode::NamesRead;
use diagnostic::Sink;
use format::Front;

/// Reads a whole spec: [`parse`] and [`resolve`] with all their problems together.
///
/// `source_name` is for messages only, usually the path of the file.
pub fn load<'s>(source_name: &'s str, text: &'s [u8]) -> Result<Workflow<'s>, Diagnostics> {
    let (source, format) = Source::new(source_name, text).open()?;
    let mut decoded = decode::decode(source, Front::new(source, format));
    let Some(names) = decoded.names else {
        return Err(decoded.sink.into_diagnostics(source_name, source));
    };
    let resolved = resolve::resolve(&decoded.spec, names, &mut decoded.sink);
    finish(source_name, source, decoded.sink, Workflow::new(decoded.spec, resolved))
}

/// The first half of [`load`]: syntax, fields and values.
pub fn parse<'s>(source_name: &'s str, text: &'s [u8]) -> Result<Spec<'s>, Diagnostics> {
    let (source, format) = Source::new(source_name, text).open()?;
    let decoded = decode::decode(source, Front::new(source, format));
    finish(source_name, source, decoded.sink, decoded.spec)
}

/// The second half of [`load`]: names and the graph.
pub fn resolve<'s>(source_name: &str, spec: Spec<'s>) -> Result<Workflow<'s>, Diagnostics> {
    let mut sink = Sink::default();
    let resolved = resolve::resolve(&spec, NamesRead::ALL, &mut sink);
    finish(source_name, spec.texts.source(), sink, Workflow::new(spec, resolved))
}

fn finish<T>(source_name: &str, source: &str, sink: Sink, value: T) -> Result<T, Diagnostics> {
    if sink.is_empty() { Ok(value) } else { Err(sink.into_diagnostics(source_name, source)) }
}
