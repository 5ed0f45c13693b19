//! Decodes the `limits` of a workflow: how many jobs that use a limit may run at once.

use super::field_tables::SpecField;
use super::workflow::SpecBuilder;
use super::{ValueSubject, quote_excerpt};
use crate::diagnostic::SpecDiagnostic;
use crate::event::{DocumentEvent, DocumentEventKind, DocumentEventStream, StopReading};
use crate::model::LimitSpec;
use crate::source::SourceSpan;

impl<'s, E: DocumentEventStream<'s>> SpecBuilder<'s, E> {
    pub(super) fn decode_limits(
        &mut self,
        event: &DocumentEvent<'s>,
        field: &SpecField,
    ) -> Result<(), StopReading> {
        if self.decoder.open_map(event, ValueSubject::Field(field.name))?.is_none() {
            self.names.all_limits = false;
            return Ok(());
        }
        // A limit with a bad number stays known by name, so that references to it are not reported too.
        let mut limits: Vec<LimitSpec> = Vec::new();
        let is_known = |limits: &[LimitSpec], name: &str| limits.iter().any(|limit| limit.name == name);
        while let Some((name, value, span)) = self.decoder.next_entry(|name| is_known(&limits, name))? {
            self.check_limit_name(&name, span);
            let most = self.decode_limit_number(value, &name, field)?.unwrap_or(1);
            limits.push(LimitSpec { name, max_running: most, span });
        }
        self.spec.limits = limits;
        Ok(())
    }

    fn check_limit_name(&mut self, name: &str, span: SourceSpan) {
        if name.trim().is_empty() {
            self.decoder
                .sink
                .push(SpecDiagnostic::new("empty", "the name of a limit is empty").with_span(span));
        } else if name.contains(char::is_control) {
            let message = format!("the name of limit {} contains a control character", quote_excerpt(name));
            self.decoder.sink.push(SpecDiagnostic::new("control-character", message).with_span(span));
        }
    }

    fn decode_limit_number(
        &mut self,
        value: DocumentEvent<'s>,
        name: &str,
        field: &SpecField,
    ) -> Result<Option<u32>, StopReading> {
        if matches!(&value.kind, DocumentEventKind::Scalar(scalar) if scalar.is_plain && scalar.text == "0") {
            let message = format!("limit {} is 0: jobs that use it could never start", quote_excerpt(name));
            let help = "write how many jobs may run at once, at least 1";
            self.decoder
                .sink
                .push(SpecDiagnostic::new("out-of-range", message).with_span(value.span).with_help(help));
            return Ok(None);
        }
        self.decoder.read_integer_as(value, ValueSubject::Limit(name), field)
    }
}
