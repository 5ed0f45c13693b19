//! Tests of the content of a plot.

use super::*;

fn usage() -> UsagePlot {
    let job = |name: &str, scale: f64| PlotJob {
        name: name.to_owned(),
        series: PlotSeries {
            cpu_percent: (0..50).map(|t| (f64::from(t), 90.0 * scale)).collect(),
            memory: (0..50).map(|t| (f64::from(t), f64::from(t) * 1e7 * scale)).collect(),
        },
        requested: PlotLimits { cpus: Some(2.0), memory: Some(1e9) },
    };
    let bar = |name: &str, tone| AttemptBar {
        name: name.to_owned(),
        start: 0.0,
        end: 49.0,
        tone,
        end_note: "exit 0".into(),
    };
    UsagePlot {
        title: "sweep <1>".into(),
        origin: Timestamp(1_700_000_000_000_000),
        node: job("node", 3.0).series,
        node_limits: PlotLimits { cpus: Some(4.0), memory: Some(8e9) },
        jobs: vec![job("a&b", 1.0), job("c\"d", 2.0)],
        bars: vec![bar("a&b", StatusTone::Good), bar("c\"d", StatusTone::Bad)],
        attempts: 2,
    }
}

#[test]
fn usage_plot_has_lines_limits_and_bars_with_escaped_names() {
    let plot = render_usage_svg(&usage());
    assert_eq!(plot.matches("class=\"job\"").count(), 4, "two jobs in two panels");
    assert_eq!(plot.matches("class=\"asked\"").count(), 4);
    assert_eq!(plot.matches("class=\"node\"").count(), 2);
    assert_eq!(plot.matches("<rect class=\"bar ").count(), 2);
    assert!(plot.contains("class=\"bar bad\""));
    assert!(plot.contains("sweep &lt;1&gt;") && plot.contains("a&amp;b") && plot.contains("c&quot;d"));
    assert!(plot.contains("2023-11-14T22:13:20"), "start time in UTC");
}

#[test]
fn limit_far_above_all_lines_is_not_drawn() {
    let limits = |usage: &UsagePlot| render_usage_svg(usage).matches("class=\"limit\"").count();
    let mut plotted = usage();
    assert_eq!(limits(&plotted), 1, "8 GB are more than four times the usage");
    plotted.node_limits.memory = Some(2e9);
    assert_eq!(limits(&plotted), 2);
}

#[test]
fn plot_without_measurements_has_only_bars() {
    let bare = UsagePlot { node: PlotSeries::default(), jobs: Vec::new(), ..usage() };
    let plot = render_usage_svg(&bare);
    assert_eq!(plot.matches("<rect class=\"bar ").count(), 2);
    assert_eq!(
        plot.matches("class=\"panel\"").count() + 2,
        render_usage_svg(&usage()).matches("class=\"panel\"").count()
    );
    assert!(!plot.contains("dashed") && render_usage_svg(&usage()).contains("dashed"));
}

#[test]
fn plot_counts_attempts_not_drawn() {
    assert!(render_usage_svg(&usage()).contains("· 2 attempts"));
    assert!(
        render_usage_svg(&UsagePlot { attempts: 5000, ..usage() })
            .contains("· the longest 2 of 5000 attempts")
    );
}

#[test]
fn html_page_has_no_external_references() {
    let page = render_usage_html(&usage());
    assert!(page.starts_with("<!doctype html>") && page.contains("</svg>"));
    for outside in ["src=", "href=", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn only_largest_of_many_jobs_are_colored() {
    let mut many = usage();
    many.jobs = (0..100).map(|n| PlotJob { name: format!("job{n}"), ..many.jobs[0].clone() }).collect();
    let plot = render_usage_svg(&many);
    assert_eq!(plot.matches("class=\"job\"").count(), 2 * COLORED_JOBS);
    assert_eq!(plot.matches("class=\"rest\"").count(), 2 * (100 - COLORED_JOBS));
}

#[test]
fn empty_and_invalid_usage_renders_without_panic() {
    let nothing = UsagePlot {
        title: String::new(),
        origin: Timestamp(0),
        node: PlotSeries::default(),
        node_limits: PlotLimits::default(),
        jobs: Vec::new(),
        bars: Vec::new(),
        attempts: 0,
    };
    let mut nonsense = usage();
    nonsense.jobs[0].series.memory = vec![(0.0, f64::NAN), (f64::INFINITY, f64::INFINITY), (3.0, -5.0)];
    nonsense.bars[0].end = f64::NAN;
    for usage in [nothing, nonsense] {
        let plot = render_usage_svg(&usage);
        let drawn = plot.split("</style>").nth(1).unwrap();
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    }
}
