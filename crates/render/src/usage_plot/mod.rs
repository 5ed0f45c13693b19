//! Plots the resource usage of jobs and of the node over time: CPU, memory, and the time of each job.
//!
//! Three panels over one time axis, as an SVG or as an HTML page. There are no scripts: every mark has a tooltip.

mod axis;
mod gantt;
mod line_panels;

use crate::drawing::StatusTone;
use crate::escape::escape_xml;
use axis::PlotAxis;
use windlass_types::{Timestamp, format_duration};

/// The data of a plot. Times are seconds since `origin`.
#[derive(Clone, Debug, PartialEq)]
pub struct UsagePlot {
    pub title: String,
    pub origin: Timestamp,
    /// The whole node; series may be empty.
    pub node: PlotSeries,
    /// The resources of the node.
    pub node_limits: PlotLimits,
    pub jobs: Vec<PlotJob>,
    pub bars: Vec<AttemptBar>,
    /// The number of attempts, drawn or not.
    pub attempts: usize,
}

impl UsagePlot {
    /// Whether there is a line to draw.
    fn has_lines(&self) -> bool {
        let series = self.jobs.iter().map(|job| &job.series).chain([&self.node]);
        series.into_iter().any(|series| !series.cpu_percent.is_empty() || !series.memory.is_empty())
    }
}

/// Measurements over time, ascending: `(seconds, value)`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlotSeries {
    /// In percent of one core.
    pub cpu_percent: Vec<(f64, f64)>,
    /// In bytes.
    pub memory: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlotLimits {
    pub cpus: Option<f64>,
    /// In bytes.
    pub memory: Option<f64>,
}

/// One attempt of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlotJob {
    pub name: String,
    pub series: PlotSeries,
    /// Its resource request.
    pub requested: PlotLimits,
}

/// The time range of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptBar {
    pub name: String,
    pub start: f64,
    pub end: f64,
    pub tone: StatusTone,
    /// Its outcome, for the tooltip.
    pub end_note: String,
}

const WIDTH: f64 = 1120.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const PANEL: f64 = 210.0;
const PANEL_GAP: f64 = 60.0;
const TOP: f64 = 64.0;

/// Number of jobs with a color and a place in the legend: those with the highest usage.
const COLORED_JOBS: usize = 8;

const STYLE: &str = "
svg.usage{--bg:#fff;--ink:#1f2328;--soft:#656d76;--grid:#eaeef2;--node:#8c959f;--fill:#8c959f22;--limit:#cf222e;
--plain:#8c959f;--active:#54aeff;--good:#4ac26b;--bad:#ff8182;--quiet:#d0d7de;--on-bar:#1f2328;
--c0:#0969da;--c1:#bf8700;--c2:#1a7f37;--c3:#8250df;--c4:#cf222e;--c5:#1b7c83;--c6:#bf3989;--c7:#953800;background:var(--bg)}
@media(prefers-color-scheme:dark){svg.usage{--bg:#0d1117;--ink:#e6edf3;--soft:#8d96a0;--grid:#21262d;--node:#8d96a0;
--fill:#8d96a022;--limit:#f85149;--plain:#57606a;--active:#1f6feb;--good:#2ea043;--bad:#da3633;--quiet:#30363d;--on-bar:#f0f6fc;
--c0:#58a6ff;--c1:#d29922;--c2:#3fb950;--c3:#bc8cff;--c4:#ff7b72;--c5:#39c5cf;--c6:#f778ba;--c7:#ffa657}}
.usage text{font-family:ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,sans-serif;font-size:11px;fill:var(--soft)}
.usage .title{font-size:17px;font-weight:600;fill:var(--ink)}.usage .panel{font-size:13px;font-weight:600;fill:var(--ink)}
.usage .tick{text-anchor:end}.usage .time{text-anchor:middle}.usage .grid{stroke:var(--grid);stroke-width:1}
.usage .node{fill:none;stroke:var(--node);stroke-width:1.6}.usage .area{fill:var(--fill);stroke:none}
.usage .job{fill:none;stroke-width:1.5;stroke-linejoin:round}.usage .rest{fill:none;stroke:var(--node);stroke-width:1;opacity:.35}
.usage .limit{stroke:var(--limit);stroke-width:1.2;stroke-dasharray:6 4}.usage .asked{stroke-width:1.2;stroke-dasharray:2 3;opacity:.9}
.usage .bar.plain{fill:var(--plain)}.usage .bar.active{fill:var(--active)}.usage .bar.good{fill:var(--good)}
.usage .bar.bad{fill:var(--bad)}.usage .bar.quiet{fill:var(--quiet)}.usage .on-bar{fill:var(--on-bar)}
";

/// Renders the plot as one SVG document.
pub fn render_usage_svg(usage: &UsagePlot) -> String {
    let time = PlotAxis::time_axis(time_span(usage), LEFT, WIDTH - RIGHT);
    let lanes = gantt::assign_lanes(&usage.bars);
    let chart = gantt::panel_height(&lanes);
    let (cpu_top, memory_top) = (TOP + 26.0, TOP + 26.0 + PANEL + PANEL_GAP);
    // Without measurements there is no scale to draw.
    let gantt_top = if usage.has_lines() { memory_top + PANEL + PANEL_GAP } else { cpu_top };
    let height = gantt_top + chart + 40.0;
    let shown = line_panels::select_shown_jobs(usage);
    let mut out = String::new();
    put!(
        out,
        "<svg class=\"usage\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"resources over time\">\n<style>{STYLE}</style>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"28\">{}</text>\n<text x=\"{LEFT}\" y=\"47\">{}</text>\n",
        escape_xml(&usage.title),
        escape_xml(&render_subtitle(usage)),
    );
    if usage.has_lines() {
        line_panels::render_line_panel(
            &mut out,
            usage,
            &shown,
            line_panels::PlotQuantity::Cpu,
            cpu_top,
            &time,
        );
        line_panels::render_line_panel(
            &mut out,
            usage,
            &shown,
            line_panels::PlotQuantity::Memory,
            memory_top,
            &time,
        );
    }
    gantt::render_gantt_panel(&mut out, &usage.bars, &lanes, gantt_top, &time);
    out.push_str("</svg>\n");
    out
}

/// Renders the plot as a self-contained HTML page.
pub fn render_usage_html(usage: &UsagePlot) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>body{{margin:0;background:#fff}}main{{max-width:1200px;margin:0 auto;padding:16px}}\
         svg{{width:100%;height:auto}}@media(prefers-color-scheme:dark){{body{{background:#0d1117}}}}</style>\n</head>\n\
         <body>\n<main>\n{}</main>\n</body>\n</html>\n",
        escape_xml(&usage.title),
        render_usage_svg(usage)
    )
}

fn render_subtitle(usage: &UsagePlot) -> String {
    let length = format_duration(axis::to_duration(time_span(usage)));
    let runs = match (usage.bars.len(), usage.attempts) {
        (1, 1) => "1 attempt".to_owned(),
        (drawn, all) if drawn < all => format!("the longest {drawn} of {all} attempts"),
        (_, all) => format!("{all} attempts"),
    };
    let key = if usage.has_lines() { " · dashed: node limit, dotted: job request" } else { "" };
    format!("{} · {length} · {runs}{key}", usage.origin)
}

/// Returns the length of the time axis: up to the last event, at least one second.
fn time_span(usage: &UsagePlot) -> f64 {
    let series = |series: &PlotSeries| {
        let last = |points: &[(f64, f64)]| points.last().map_or(0.0, |point| point.0);
        last(&series.cpu_percent).max(last(&series.memory))
    };
    let jobs = usage.jobs.iter().map(|job| series(&job.series));
    let bars = usage.bars.iter().map(|bar| bar.end);
    let ends = jobs.chain(bars).chain([series(&usage.node)]);
    ends.filter(|end| end.is_finite()).fold(1.0, f64::max)
}

#[cfg(test)]
mod tests;
