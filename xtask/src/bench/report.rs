//! Measurements as tables for people and as JSON for programs. Everything here is a pure function of its input.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::machine::MachineLoad;
use super::measure::RunSample;
use super::statistics::{SampleSeries, SampleSpread, SampleSummary};
use super::table::{TableColumn, render, wrap};
use super::targets::targets;
use super::workloads::{CREATION, GraphShape, Workload};

#[derive(Debug)]
pub(super) struct BenchReport {
    pub(super) machine: MachineLoad,
    pub(super) slots: usize,
    pub(super) runs: Vec<RunOutcome>,
    pub(super) creations: Vec<CreationOutcome>,
}

/// A workload that ran jobs.
#[derive(Debug)]
pub(super) struct RunOutcome {
    pub(super) workload: &'static Workload,
    /// The number of jobs of a competitor that runs all of them.
    pub(super) jobs: usize,
    pub(super) series: Vec<SampleSeries>,
}

/// One size of the workload that only creates jobs.
#[derive(Debug)]
pub(super) struct CreationOutcome {
    pub(super) jobs: usize,
    pub(super) spec_bytes: u64,
    pub(super) series: Vec<CreationSeries>,
}

#[derive(Debug)]
pub(super) struct CreationSeries {
    pub(super) competitor: &'static str,
    pub(super) create: Vec<RunSample>,
    pub(super) status: Vec<RunSample>,
    pub(super) trouble: Option<String>,
}

impl RunOutcome {
    pub(super) fn summary_of(&self, competitor: &str) -> Option<SampleSummary> {
        self.series.iter().find(|series| series.competitor == competitor)?.summary(&self.series)
    }
}

impl CreationOutcome {
    pub(super) fn series_of(&self, competitor: &str) -> Option<&CreationSeries> {
        self.series.iter().find(|series| series.competitor == competitor)
    }
}

/// The full report for the terminal.
pub(super) fn render_text(report: &BenchReport, width: usize) -> String {
    let mut text = format!("{}\n", wrap(&report.machine.describe(), width, 2));
    for outcome in &report.runs {
        text.push_str(&render_run(outcome, report.slots, width));
    }
    if !report.creations.is_empty() {
        text.push_str(&render_creations(&report.creations, width));
    }
    text.push_str(&render_targets(report, width));
    text
}

fn render_run(outcome: &RunOutcome, slots: usize, width: usize) -> String {
    let Workload { letter, title, shape } = outcome.workload;
    let at_once = if *shape == GraphShape::Chain { String::new() } else { format!(", {slots} at once") };
    let per_job = if *shape == GraphShape::Chain { "ms/hop" } else { "ms/job" };
    let columns = [
        TableColumn { title: "", keep: 9 },
        TableColumn { title: "jobs", keep: 3 },
        TableColumn { title: "wall s", keep: 6 },
        TableColumn { title: "least-most", keep: 2 },
        TableColumn { title: per_job, keep: 8 },
        TableColumn { title: "x floor", keep: 7 },
        TableColumn { title: "x xargs", keep: 8 },
        TableColumn { title: "ms beyond", keep: if *shape == GraphShape::Chain { 8 } else { 1 } },
        TableColumn { title: "CPU ms", keep: 4 },
        TableColumn { title: "peak RSS", keep: 5 },
        TableColumn { title: "disk", keep: 5 },
        TableColumn { title: "files", keep: 2 },
    ];
    let rows: Vec<Vec<String>> =
        outcome.series.iter().map(|series| run_row(series, series.summary(&outcome.series))).collect();
    let heading = format!("{letter}: {} {title}{at_once}", grouped(outcome.jobs));
    let mut text = format!("\n{}\n", wrap(&heading, width, 3));
    text.push_str(&render(&columns, &rows, width));
    for note in outcome.series.iter().filter_map(|series| run_note(series, outcome.jobs)) {
        writeln!(text, "{}", wrap(&note, width, 2)).expect("a String takes everything");
    }
    text
}

fn run_row(series: &SampleSeries, summary: Option<SampleSummary>) -> Vec<String> {
    let Some(summary) = summary else {
        let mut row = vec![series.competitor.to_owned()];
        row.resize(12, "-".to_owned());
        return row;
    };
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), ratio);
    vec![
        series.competitor.to_owned(),
        grouped(series.jobs),
        format!("{:.2}", summary.wall.median),
        format!("{:.2}-{:.2}", summary.wall.least, summary.wall.most),
        format!("{:.3}", summary.per_job),
        optional(summary.over_floor),
        optional(summary.over_xargs),
        summary.beyond_floor.map_or_else(|| "-".to_owned(), |beyond| format!("{beyond:.3}")),
        format!("{:.3}", summary.cpu_per_job),
        bytes(summary.peak_rss),
        bytes(summary.disk),
        grouped(summary.files as usize),
    ]
}

fn run_note(series: &SampleSeries, asked: usize) -> Option<String> {
    let name = series.competitor;
    if let Some(trouble) = &series.trouble {
        let failed = series.rounds.iter().filter(|round| round.is_none()).count();
        return Some(match series.samples().count() {
            0 => format!("{name}: {trouble}"),
            _ => format!("{name}: {failed} of {} rounds failed: {trouble}", series.rounds.len()),
        });
    }
    let scaled = format!(
        "{name}: slow, so it ran {} of the jobs and is compared per job, start-up included",
        grouped(series.jobs)
    );
    (series.jobs < asked).then_some(scaled)
}

fn render_creations(creations: &[CreationOutcome], width: usize) -> String {
    let columns = [
        TableColumn { title: "", keep: 9 },
        TableColumn { title: "jobs", keep: 9 },
        TableColumn { title: "create s", keep: 8 },
        TableColumn { title: "least-most", keep: 2 },
        TableColumn { title: "peak RSS", keep: 7 },
        TableColumn { title: "disk", keep: 6 },
        TableColumn { title: "status ms", keep: 8 },
        TableColumn { title: "its RSS", keep: 3 },
        TableColumn { title: "spec", keep: 1 },
    ];
    let mut rows = Vec::new();
    let mut notes = String::new();
    for outcome in creations {
        for series in &outcome.series {
            rows.push(creation_row(outcome, series));
            if let Some(trouble) = &series.trouble {
                let note = format!("{} at {}: {trouble}", series.competitor, grouped(outcome.jobs));
                writeln!(notes, "{}", wrap(&note, width, 2)).expect("a String takes everything");
            }
        }
    }
    let heading = format!("{CREATION}: creating jobs from a spec file, and asking for their status");
    format!("\n{}\n{}{notes}", wrap(&heading, width, 3), render(&columns, &rows, width))
}

fn creation_row(outcome: &CreationOutcome, series: &CreationSeries) -> Vec<String> {
    let largest = |samples: &[RunSample], figure: fn(&RunSample) -> u64| {
        samples.iter().map(figure).max().map_or_else(|| "-".to_owned(), bytes)
    };
    let create = SampleSpread::of_walls(&series.create);
    let or_dash = |spread: Option<SampleSpread>, show: fn(SampleSpread) -> String| {
        spread.map_or_else(|| "-".to_owned(), show)
    };
    vec![
        series.competitor.to_owned(),
        grouped(outcome.jobs),
        or_dash(create, |spread| format!("{:.3}", spread.median)),
        or_dash(create, |spread| format!("{:.3}-{:.3}", spread.least, spread.most)),
        largest(&series.create, |sample| sample.peak_rss),
        largest(&series.create, |sample| sample.disk),
        or_dash(SampleSpread::of_walls(&series.status), |spread| format!("{:.1}", spread.median * 1000.0)),
        largest(&series.status, |sample| sample.peak_rss),
        bytes(outcome.spec_bytes),
    ]
}

fn render_targets(report: &BenchReport, width: usize) -> String {
    let targets = targets(report);
    if targets.is_empty() {
        return String::new();
    }
    let mut text = "\nwhat windlass must show\n".to_owned();
    for target in targets {
        let result = if target.met { "ok  " } else { "MISS" };
        let line = format!("{} {}, must be {}", target.what, target.measured, target.limit);
        writeln!(text, "{result}  {}", wrap(&line, width.saturating_sub(6), 6))
            .expect("a String takes everything");
    }
    text
}

/// The full report for programs: the samples, and the contents of the table.
pub(super) fn render_json(report: &BenchReport) -> Value {
    let runs = report.runs.iter().map(|outcome| {
        let series = outcome.series.iter().map(|series| run_json(series, series.summary(&outcome.series)));
        json!({
            "workload": outcome.workload.letter.to_string(),
            "title": outcome.workload.title,
            "jobs": outcome.jobs,
            "competitors": series.collect::<Vec<_>>(),
        })
    });
    let creations = report.creations.iter().map(|outcome| {
        let series = outcome.series.iter().map(creation_json);
        json!({
            "workload": CREATION.to_string(),
            "jobs": outcome.jobs,
            "spec_bytes": outcome.spec_bytes,
            "competitors": series.collect::<Vec<_>>(),
        })
    });
    let targets = targets(report).into_iter().map(|target| {
        json!({"what": target.what, "measured": target.measured, "limit": target.limit, "met": target.met})
    });
    json!({
        "machine": report.machine.to_json(),
        "slots": report.slots,
        "runs": runs.collect::<Vec<_>>(),
        "creations": creations.collect::<Vec<_>>(),
        "targets": targets.collect::<Vec<_>>(),
    })
}

fn run_json(series: &SampleSeries, summary: Option<SampleSummary>) -> Value {
    let summary = summary.map(|summary| {
        json!({
            "wall_seconds": summary.wall.median,
            "milliseconds_per_job": summary.per_job,
            "cpu_milliseconds_per_job": summary.cpu_per_job,
            "ratio_to_floor": summary.over_floor,
            "ratio_to_xargs": summary.over_xargs,
            "milliseconds_beyond_floor": summary.beyond_floor,
            "peak_rss_bytes": summary.peak_rss,
            "disk_bytes": summary.disk,
            "files": summary.files,
        })
    });
    json!({
        "name": series.competitor,
        "jobs": series.jobs,
        "median": summary,
        "rounds": series.rounds.iter().map(|round| round.as_ref().map(sample_json)).collect::<Vec<_>>(),
        "trouble": series.trouble,
    })
}

fn creation_json(series: &CreationSeries) -> Value {
    json!({
        "name": series.competitor,
        "create": series.create.iter().map(sample_json).collect::<Vec<_>>(),
        "status": series.status.iter().map(sample_json).collect::<Vec<_>>(),
        "trouble": series.trouble,
    })
}

fn sample_json(sample: &RunSample) -> Value {
    json!({
        "wall_seconds": sample.wall.as_secs_f64(),
        "cpu_seconds": sample.cpu.as_secs_f64(),
        "peak_rss_bytes": sample.peak_rss,
        "disk_bytes": sample.disk,
        "files": sample.files,
    })
}

/// Two digits after the point for small ratios, none for large ones.
pub(super) fn ratio(value: f64) -> String {
    match value {
        small if small < 10.0 => format!("{small:.2}"),
        middle if middle < 100.0 => format!("{middle:.1}"),
        large => format!("{large:.0}"),
    }
}

/// Bytes with a decimal unit: the limits are written in MB.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 9.95);
    format!("{value:.digits$} {}", UNITS[unit])
}

/// 10,000 rather than 10000.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::statistics::tests::{sample, series};
    use crate::bench::workloads::RUNS;

    fn report() -> BenchReport {
        let mut broken = series("parsl", 100, &[0, 0]);
        broken.trouble = Some("not found; --install-peers".to_owned());
        let mut halting = series("make", 100, &[90, 0]);
        halting.trouble = Some("exit code 2".to_owned());
        let series = vec![
            series("floor", 100, &[60, 60]),
            series("xargs", 100, &[80, 80]),
            series("windlass", 100, &[72, 72]),
            halting,
            broken,
            series("snakemake", 2, &[96, 96]),
        ];
        let created = CreationSeries {
            competitor: "windlass",
            create: vec![sample(700)],
            status: vec![sample(12)],
            trouble: None,
        };
        BenchReport {
            machine: MachineLoad::default(),
            slots: 2,
            runs: vec![RunOutcome { workload: &RUNS[0], jobs: 100, series }],
            creations: vec![CreationOutcome { jobs: 100_000, spec_bytes: 5_000_000, series: vec![created] }],
        }
    }

    #[test]
    fn table_shows_ratios_and_missing_slow_or_failed_competitors() {
        let text = render_text(&report(), 200);
        let line = |start: &str| {
            let found = text.lines().find(|line| line.starts_with(start));
            found
                .unwrap_or_else(|| panic!("no line {start:?} in\n{text}"))
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        assert_eq!(line("windlass")[1..8], ["100", "0.07", "0.07-0.07", "0.720", "1.20", "0.90", "0.120"]);
        assert_eq!(line("xargs")[5..7], ["1.33", "1.00"]);
        assert_eq!(line("snakemake")[4..6], ["48.000", "80.0"]);
        assert_eq!(line("parsl ")[1..3], ["-", "-"]);
        assert!(text.contains("parsl: not found; --install-peers"), "{text}");
        assert!(text.contains("make: 1 of 2 rounds failed: exit code 2"), "{text}");
        assert!(text.contains("snakemake: slow, so it ran 2 of the jobs"), "{text}");
    }

    #[test]
    fn creation_has_its_own_table() {
        let text = render_text(&report(), 200);
        let row: Vec<_> =
            text.lines().find(|line| line.contains("100,000")).unwrap().split_whitespace().collect();
        assert_eq!(
            row,
            [
                "windlass",
                "100,000",
                "0.700",
                "0.700-0.700",
                "700",
                "kB",
                "4.1",
                "kB",
                "12.0",
                "12",
                "kB",
                "5.0",
                "MB"
            ]
        );
    }

    #[test]
    fn report_lines_fit_terminal_width() {
        for width in [60, 80, 120] {
            let text = render_text(&report(), width);
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= width, "{longest} > {width}\n{text}");
        }
    }

    #[test]
    fn json_has_samples_medians_and_problems() {
        let json = render_json(&report());
        let competitors = &json["runs"][0]["competitors"];
        assert_eq!(competitors[2]["name"], "windlass");
        assert_eq!(competitors[2]["rounds"][1]["wall_seconds"], 0.072);
        assert_eq!(competitors[3]["rounds"][1], Value::Null);
        assert_eq!(competitors[4]["median"], Value::Null);
        assert_eq!(competitors[4]["trouble"], "not found; --install-peers");
        assert_eq!(json["creations"][0]["competitors"][0]["create"][0]["wall_seconds"], 0.7);
    }

    #[test]
    fn numbers_have_readable_units() {
        assert_eq!([ratio(0.804), ratio(14.26), ratio(150.4)], ["0.80", "14.3", "150"]);
        assert_eq!(
            [bytes(0), bytes(999), bytes(1000), bytes(405_000_000)],
            ["0 B", "999 B", "1.0 kB", "405 MB"]
        );
        assert_eq!([bytes(9_960_000), bytes(999_600)], ["10 MB", "1.0 MB"]);
        assert_eq!(
            [grouped(7), grouped(500), grouped(10_000), grouped(1_000_000)],
            ["7", "500", "10,000", "1,000,000"]
        );
    }
}
