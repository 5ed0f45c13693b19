//! The panels with lines: the node as an area, the jobs with the highest usage in colors, the others pale.

use super::axis::PlotAxis;
use super::{COLORED_JOBS, PANEL, PlotJob, PlotLimits, PlotSeries, UsagePlot};
use crate::escape::escape_xml;

/// Maximum number of points of a line; more could not be distinguished.
const MAX_POINTS: usize = 800;
/// Maximum number of pale lines; more would merge into a gray area.
const MAX_GRAY_LINES: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlotQuantity {
    Cpu,
    Memory,
}

impl PlotQuantity {
    fn points_of(self, series: &PlotSeries) -> &[(f64, f64)] {
        match self {
            Self::Cpu => &series.cpu_percent,
            Self::Memory => &series.memory,
        }
    }

    /// In the unit of the series.
    fn limit_of(self, limits: &PlotLimits) -> Option<f64> {
        match self {
            Self::Cpu => limits.cpus.map(|cpus| cpus * 100.0),
            Self::Memory => limits.memory,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU, busy cores",
            Self::Memory => "Memory",
        }
    }
}

/// Selects the colored jobs: those with the highest peak of memory, then of CPU.
pub(super) fn select_shown_jobs(usage: &UsagePlot) -> Vec<usize> {
    let peak = |points: &[(f64, f64)]| points.iter().map(|point| point.1).fold(0.0, f64::max);
    let weight = |job: &PlotJob| (peak(&job.series.memory), peak(&job.series.cpu_percent));
    let mut jobs: Vec<usize> = (0..usage.jobs.len()).collect();
    jobs.sort_by(|&a, &b| {
        let (a, b) = (weight(&usage.jobs[a]), weight(&usage.jobs[b]));
        b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    jobs.truncate(COLORED_JOBS);
    jobs
}

pub(super) fn render_line_panel(
    out: &mut String,
    usage: &UsagePlot,
    shown: &[usize],
    what: PlotQuantity,
    top: f64,
    time: &PlotAxis,
) {
    let values = value_axis(usage, shown, what, top);
    put_line!(
        out,
        "<text class=\"panel\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        time.start(),
        top - 10.0,
        what.title()
    );
    render_grid(out, &values, time, top);
    let node = thin_points(what.points_of(&usage.node));
    if !node.is_empty() {
        let line = render_path(&node, time, &values);
        let (first, last) = (time.position_of(node[0].0), time.position_of(node[node.len() - 1].0));
        let floor = top + PANEL;
        put_line!(out, "<path class=\"area\" d=\"{line}L{last:.1} {floor:.1}L{first:.1} {floor:.1}Z\"/>");
        put_line!(out, "<path class=\"node\" d=\"{line}\"><title>node</title></path>");
    }
    let other_jobs = (0..usage.jobs.len()).filter(|job| !shown.contains(job)).take(MAX_GRAY_LINES);
    for job in other_jobs.map(|job| &usage.jobs[job]) {
        render_job_line(out, job, what, "class=\"rest\"", time, &values);
    }
    for (colour, &job) in shown.iter().enumerate().rev() {
        let job = &usage.jobs[job];
        render_requested(out, job, what, colour, time, &values);
        render_job_line(
            out,
            job,
            what,
            &format!("class=\"job\" style=\"stroke:var(--c{colour})\""),
            time,
            &values,
        );
    }
    if let Some(limit) = what.limit_of(&usage.node_limits).filter(|limit| values.contains(*limit)) {
        let (y, left, right) = (values.position_of(limit), time.start(), time.end());
        put_line!(
            out,
            "<line class=\"limit\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"><title>node limit</title></line>"
        );
    }
    if what == PlotQuantity::Cpu {
        render_legend(out, usage, shown, top - 10.0, time);
    }
}

/// Creates an axis up to the highest line. A limit far above all lines is left out rather than flattening them.
fn value_axis(usage: &UsagePlot, shown: &[usize], what: PlotQuantity, top: f64) -> PlotAxis {
    let peak = |series: &PlotSeries| {
        let values = what.points_of(series).iter().map(|point| point.1);
        values.filter(|value| value.is_finite()).fold(0.0, f64::max)
    };
    let used = usage.jobs.iter().map(|job| peak(&job.series)).fold(peak(&usage.node), f64::max);
    let asked = shown.iter().filter_map(|&job| what.limit_of(&usage.jobs[job].requested));
    let limits = asked.chain(what.limit_of(&usage.node_limits)).filter(|limit| *limit <= used * 4.0);
    let most = limits.fold(used, f64::max);
    match what {
        PlotQuantity::Cpu => PlotAxis::cores_axis(most, top + PANEL, top),
        PlotQuantity::Memory => PlotAxis::bytes_axis(most, top + PANEL, top),
    }
}

fn render_grid(out: &mut String, values: &PlotAxis, time: &PlotAxis, top: f64) {
    let (left, right, bottom) = (time.start(), time.end(), top + PANEL);
    for (value, label) in &values.ticks {
        let y = values.position_of(*value);
        put_line!(
            out,
            "<line class=\"grid\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            left - 8.0,
            y + 4.0
        );
    }
    render_time_ticks(out, time, top, bottom);
}

/// Draws lines and times at the ticks of the time axis.
pub(super) fn render_time_ticks(out: &mut String, time: &PlotAxis, top: f64, bottom: f64) {
    for (value, label) in &time.ticks {
        let x = time.position_of(*value);
        put_line!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>\
             <text class=\"time\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>",
            bottom + 16.0
        );
    }
}

fn render_job_line(
    out: &mut String,
    job: &PlotJob,
    what: PlotQuantity,
    look: &str,
    time: &PlotAxis,
    values: &PlotAxis,
) {
    let points = thin_points(what.points_of(&job.series));
    if !points.is_empty() {
        let line = render_path(&points, time, values);
        put_line!(out, "<path {look} d=\"{line}\"><title>{}</title></path>", escape_xml(&job.name));
    }
}

/// Draws the request of a job while it ran.
fn render_requested(
    out: &mut String,
    job: &PlotJob,
    what: PlotQuantity,
    colour: usize,
    time: &PlotAxis,
    values: &PlotAxis,
) {
    let points = what.points_of(&job.series);
    let (Some(first), Some(last), Some(limit)) =
        (points.first(), points.last(), what.limit_of(&job.requested))
    else {
        return;
    };
    if !values.contains(limit) {
        return;
    }
    let (x1, x2, y) = (time.position_of(first.0), time.position_of(last.0), values.position_of(limit));
    put_line!(
        out,
        "<line class=\"asked\" style=\"stroke:var(--c{colour})\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\">\
         <title>requested by {}</title></line>",
        escape_xml(&job.name)
    );
}

/// Draws the names in their colors, as many as fit the width.
fn render_legend(out: &mut String, usage: &UsagePlot, shown: &[usize], y: f64, time: &PlotAxis) {
    let mut x = time.start() + 150.0;
    let node = (!usage.node.cpu_percent.is_empty()).then_some(("node", "var(--node)".to_owned()));
    let jobs = shown
        .iter()
        .enumerate()
        .map(|(colour, &job)| (usage.jobs[job].name.as_str(), format!("var(--c{colour})")));
    for (name, colour) in node.into_iter().chain(jobs) {
        let short: String = name.chars().take(22).collect();
        let width = 26.0 + short.chars().count() as f64 * 6.2;
        if x + width > time.end() {
            break;
        }
        put_line!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"3\" rx=\"1.5\" style=\"fill:{colour}\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\">{}<title>{}</title></text>",
            y - 5.5,
            x + 14.0,
            escape_xml(&short),
            escape_xml(name)
        );
        x += width;
    }
}

fn render_path(points: &[(f64, f64)], time: &PlotAxis, values: &PlotAxis) -> String {
    let mut path = String::new();
    for (i, &(at, value)) in points.iter().enumerate() {
        put!(
            path,
            "{}{:.1} {:.1}",
            if i == 0 { 'M' } else { 'L' },
            time.position_of(at),
            values.position_of(value)
        );
    }
    path
}

/// Reduces a line to its maximum number of points: the lowest and the highest one of each section, so that no
/// peak is lost.
fn thin_points(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(MAX_POINTS / 2);
    let mut kept = Vec::with_capacity(MAX_POINTS);
    for part in points.chunks(stretch) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        if let (Some(&low), Some(&high)) = (part.iter().min_by(by_value), part.iter().max_by(by_value)) {
            let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
            kept.push(first);
            if second != first {
                kept.push(second);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_peak_and_order() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i), f64::from(i % 7))).collect();
        points[54_321].1 = 1000.0;
        let thin = thin_points(&points);
        assert!(thin.len() <= MAX_POINTS);
        assert!(thin.contains(&(54_321.0, 1000.0)));
        assert!(thin.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
