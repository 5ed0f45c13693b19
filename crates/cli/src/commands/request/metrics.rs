//! `windlass request metrics`: what each round thought its jobs would use, and what they used.

use super::known;
use crate::args::request::MetricsArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::job_logs;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::table::Column;
use serde_json::Value;
use windlass_api::requests::RequestMetrics;
use windlass_core::adaptive::{Measured, RoundRecord, Source};

/// A line of the table.
const ROUNDS: &[Field<RoundRecord>] = &[
    Field::new("round", |r: &RoundRecord| (r.round + 1).into()).column(Column::number("ROUND")),
    Field::new("from", |r: &RoundRecord| source(r.asked.from).into()).column(Column::text("FROM")),
    Field::new("units", |r: &RoundRecord| r.asked.units.into()).column(Column::number("UNITS")),
    Field::new("jobs", |r: &RoundRecord| r.asked.jobs.into()).column(Column::number("JOBS")),
    Field::new("cores", |r: &RoundRecord| r.asked.cores.into()).column(Column::number("CORES")),
    Field::new("memory_asked_mb", |r: &RoundRecord| r.asked.memory_mb.into())
        .column(Column::number("ASKED MB")),
    Field::new("memory_expected_mb", |r: &RoundRecord| number(Some(r.asked.expected_memory_mb)))
        .column(Column::number("EXPECTED")),
    Field::new("memory_used_mb", |r: &RoundRecord| number(found(r, |m| m.memory_mb)))
        .column(Column::number("USED")),
    Field::new("time_expected_sec", |r: &RoundRecord| number(Some(r.asked.time_per_event_sec)))
        .column(Column::number("S/EVENT")),
    Field::new("time_used_sec", |r: &RoundRecord| number(found(r, |m| m.time_per_event_sec)))
        .column(Column::number("USED")),
    Field::new("events_per_job", |r: &RoundRecord| r.asked.events_per_job.into())
        .column(Column::number("EVENTS/JOB")),
    Field::new("cpu_percent", |r: &RoundRecord| number(found(r, |m| m.cpu_efficiency * 100.0)))
        .column(Column::number("CPU %")),
    Field::new("events_per_core_hour", |r: &RoundRecord| number(found(r, |m| m.events_per_core_hour)))
        .column(Column::number("EVENTS/CORE-H")),
];

pub(super) fn run(ctx: &Context, args: &MetricsArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk_to_read()?;
    let metrics = known(&desk, &args.name, desk.metrics(&args.name))?;
    let rounds = records(&metrics)?;
    if let Some(path) = &args.plot {
        let path = ctx.cwd.join(path);
        std::fs::write(&path, windlass_draw::rounds(&args.name, &rounds))
            .map_err(|error| CliError::io(format!("cannot write {}: {error}", path.display())))?;
        ctx.ui.note(&format!("drawn: {}", job_logs::short(&path, &ctx.cwd)));
    }
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&metrics)?;
        return Ok(Exit::Success);
    }
    if rounds.is_empty() {
        ctx.ui.note(&format!("{} has not been planned yet", args.name));
        return Ok(Exit::Success);
    }
    let unmeasured = rounds.iter().all(|round| round.measured.is_none());
    ctx.ui.print_list(&Listing::new(ROUNDS), rounds)?;
    if unmeasured {
        ctx.ui.note("nothing is measured yet: no work unit is completed");
    }
    Ok(Exit::Success)
}

fn records(metrics: &RequestMetrics) -> Result<Vec<RoundRecord>, CliError> {
    let read = |round: &Value| serde_json::from_value(round.clone());
    metrics.rounds.iter().map(read).collect::<Result<_, _>>().map_err(|error| {
        CliError::internal(format!("the server tells of rounds in a way that is new: {error}"))
    })
}

const fn source(source: Source) -> &'static str {
    match source {
        Source::Hint => "hints",
        Source::Measured => "measured",
    }
}

fn found(round: &RoundRecord, value: fn(&Measured) -> f64) -> Option<f64> {
    round.measured.as_ref().map(value)
}

/// With three digits that matter.
fn number(value: Option<f64>) -> Datum {
    let Some(value) = value.filter(|value| value.is_finite()) else { return Datum::Nothing };
    let digits = 2 - value.abs().max(1e-6).log10().floor() as i32;
    let scale = 10f64.powi(digits.clamp(0, 6));
    let near = (value * scale).round() / scale;
    // A real number is shown with one digit, and times of events are small.
    if digits <= 0 { Datum::Number(near as i64) } else { Datum::Json(near.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        assert!(matches!(number(Some(1234.6)), Datum::Number(1235)));
        for (value, near) in [(12.345, 12.3), (0.012_345, 0.0123), (0.0, 0.0)] {
            let shown = number(Some(value));
            assert!(matches!(&shown, Datum::Json(found) if *found == near), "{value}: {shown:?}");
        }
        assert!(matches!((number(None), number(Some(f64::NAN))), (Datum::Nothing, Datum::Nothing)));
    }
}
