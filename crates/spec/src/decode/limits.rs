//! The `limits` of a workflow: how many of the jobs that name one run at once.

use super::shape::Field;
use super::workflow::Building;
use super::{Subject, shown};
use crate::diagnostic::Diagnostic;
use crate::event::{Event, Events, Kind, Stop};
use crate::model::LimitSpec;
use crate::source::Span;

impl<'s, E: Events<'s>> Building<'s, E> {
    pub(super) fn limits(&mut self, event: &Event<'s>, field: &Field) -> Result<(), Stop> {
        if self.decoder.map(event, Subject::Field(field.name))?.is_none() {
            self.names.all_limits = false;
            return Ok(());
        }
        // A limit whose number is bad stays known by its name, so that the jobs that name it are not reported too.
        let mut limits: Vec<LimitSpec> = Vec::new();
        let is_known = |limits: &[LimitSpec], name: &str| limits.iter().any(|limit| limit.name == name);
        while let Some((name, value, span)) = self.decoder.next_entry(|name| is_known(&limits, name))? {
            self.check_limit_name(&name, span);
            let most = self.limit_number(value, &name, field)?.unwrap_or(1);
            limits.push(LimitSpec { name, most, span });
        }
        self.spec.limits = limits;
        Ok(())
    }

    fn check_limit_name(&mut self, name: &str, span: Span) {
        if name.trim().is_empty() {
            self.decoder.sink.push(Diagnostic::new("empty", "the name of a limit is empty").at(span));
        } else if name.contains(char::is_control) {
            let message = format!("the name of limit {} contains a control character", shown(name));
            self.decoder.sink.push(Diagnostic::new("control-character", message).at(span));
        }
    }

    fn limit_number(&mut self, value: Event<'s>, name: &str, field: &Field) -> Result<Option<u32>, Stop> {
        if matches!(&value.kind, Kind::Scalar(scalar) if scalar.plain && scalar.text == "0") {
            let message = format!("limit {} is 0: no job that names it could ever start", shown(name));
            let help = "write how many may run at once, at least 1";
            self.decoder.sink.push(Diagnostic::new("out-of-range", message).at(value.span).help(help));
            return Ok(None);
        }
        self.decoder.whole(value, Subject::Limit(name), field)
    }
}
