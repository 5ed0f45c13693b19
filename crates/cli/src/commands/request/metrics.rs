//! `windlass request metrics`: estimated and measured resource use of the jobs of each round.

use super::suggest_request;
use crate::args::request::RequestMetricsArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::job_logs;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::table::TableColumn;
use serde_json::Value;
use windlass_api::requests::RequestMetrics;
use windlass_core::adaptive::{RoundMeasurement, RoundRecord, SizingSource};

/// A row of the table.
const ROUND_FIELDS: &[ListField<RoundRecord>] = &[
    ListField::new("round", |r: &RoundRecord| (r.round + 1).into()).column(TableColumn::number("ROUND")),
    ListField::new("from", |r: &RoundRecord| source_name(r.asked.from).into())
        .column(TableColumn::text("FROM")),
    ListField::new("units", |r: &RoundRecord| r.asked.units.into()).column(TableColumn::number("UNITS")),
    ListField::new("jobs", |r: &RoundRecord| r.asked.jobs.into()).column(TableColumn::number("JOBS")),
    ListField::new("cores", |r: &RoundRecord| r.asked.cores.into()).column(TableColumn::number("CORES")),
    ListField::new("memory_asked_mb", |r: &RoundRecord| r.asked.memory_mb.into())
        .column(TableColumn::number("REQUESTED MB")),
    ListField::new("memory_expected_mb", |r: &RoundRecord| number_value(Some(r.asked.expected_memory_mb)))
        .column(TableColumn::number("EXPECTED")),
    ListField::new("memory_used_mb", |r: &RoundRecord| number_value(measured_value(r, |m| m.memory_mb)))
        .column(TableColumn::number("USED")),
    ListField::new("time_expected_sec", |r: &RoundRecord| number_value(Some(r.asked.time_per_event_sec)))
        .column(TableColumn::number("S/EVENT")),
    ListField::new("time_used_sec", |r: &RoundRecord| {
        number_value(measured_value(r, |m| m.time_per_event_sec))
    })
    .column(TableColumn::number("USED")),
    ListField::new("events_per_job", |r: &RoundRecord| r.asked.events_per_job.into())
        .column(TableColumn::number("EVENTS/JOB")),
    ListField::new("cpu_percent", |r: &RoundRecord| {
        number_value(measured_value(r, |m| m.cpu_efficiency * 100.0))
    })
    .column(TableColumn::number("CPU %")),
    ListField::new("events_per_core_hour", |r: &RoundRecord| {
        number_value(measured_value(r, |m| m.events_per_core_hour))
    })
    .column(TableColumn::number("EVENTS/CORE-H")),
];

pub(super) fn run(ctx: &CliContext, args: &RequestMetricsArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service_read()?;
    let metrics = suggest_request(&requests, &args.name, requests.request_metrics(&args.name))?;
    let rounds = round_records(&metrics)?;
    if let Some(path) = &args.plot {
        let path = ctx.cwd.join(path);
        std::fs::write(&path, windlass_render::render_rounds(&args.name, &rounds))
            .map_err(|error| CliError::io(format!("cannot write {}: {error}", path.display())))?;
        ctx.ui.print_note(&format!("wrote {}", job_logs::short_path(&path, &ctx.cwd)));
    }
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&metrics)?;
        return Ok(CliExit::Success);
    }
    if rounds.is_empty() {
        ctx.ui.print_note(&format!("{} has not been planned yet", args.name));
        return Ok(CliExit::Success);
    }
    let unmeasured = rounds.iter().all(|round| round.measured.is_none());
    ctx.ui.print_list(&ListFields::new(ROUND_FIELDS), rounds)?;
    if unmeasured {
        ctx.ui.print_note("no measurements yet: no work unit is completed");
    }
    Ok(CliExit::Success)
}

fn round_records(metrics: &RequestMetrics) -> Result<Vec<RoundRecord>, CliError> {
    let read = |round: &Value| serde_json::from_value(round.clone());
    metrics.rounds.iter().map(read).collect::<Result<_, _>>().map_err(|error| {
        CliError::internal(format!("the server describes rounds in an unknown format: {error}"))
    })
}

const fn source_name(source: SizingSource) -> &'static str {
    match source {
        SizingSource::Hint => "hints",
        SizingSource::Measured => "measured",
    }
}

fn measured_value(round: &RoundRecord, value: fn(&RoundMeasurement) -> f64) -> Option<f64> {
    round.measured.as_ref().map(value)
}

/// With three significant digits.
fn number_value(value: Option<f64>) -> FieldValue {
    let Some(value) = value.filter(|value| value.is_finite()) else { return FieldValue::Empty };
    let digits = 2 - value.abs().max(1e-6).log10().floor() as i32;
    let scale = 10f64.powi(digits.clamp(0, 6));
    let near = (value * scale).round() / scale;
    // FieldValue shows one decimal, which is too few for times per event.
    if digits <= 0 { FieldValue::Number(near as i64) } else { FieldValue::Json(near.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_three_significant_digits() {
        assert!(matches!(number_value(Some(1234.6)), FieldValue::Number(1235)));
        for (value, near) in [(12.345, 12.3), (0.012_345, 0.0123), (0.0, 0.0)] {
            let shown = number_value(Some(value));
            assert!(matches!(&shown, FieldValue::Json(found) if *found == near), "{value}: {shown:?}");
        }
        assert!(matches!(
            (number_value(None), number_value(Some(f64::NAN))),
            (FieldValue::Empty, FieldValue::Empty)
        ));
    }
}
