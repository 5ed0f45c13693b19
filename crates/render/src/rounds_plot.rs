//! Plots the estimated and the measured resource usage of the rounds of a request, panel by panel.

use crate::escape::escape_xml;
use windlass_core::adaptive::RoundRecord;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 76.0;
const PANEL: f64 = 150.0;
const BETWEEN: f64 = 58.0;

/// One quantity over the rounds.
struct RoundPanel {
    title: &'static str,
    /// The plotted values, with their name and class.
    lines: Vec<(&'static str, &'static str, Vec<Option<f64>>)>,
}

/// Renders one SVG without scripts: every mark has a tooltip.
pub fn render_rounds(title: &str, rounds: &[RoundRecord]) -> String {
    let panels = build_panels(rounds);
    let height = TOP + (PANEL + BETWEEN) * panels.len() as f64;
    let mut out = String::new();
    put_line!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"{WIDTH:.0}\" height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"12\">"
    );
    put_line!(out, "<style>{STYLE}</style>");
    put_line!(out, "<rect class=\"paper\" width=\"{WIDTH:.0}\" height=\"{height:.0}\"/>");
    put_line!(out, "<text class=\"title\" x=\"{LEFT:.0}\" y=\"28\">{}</text>", escape_xml(title));
    for (index, panel) in panels.iter().enumerate() {
        render_panel(&mut out, panel, rounds, TOP + (PANEL + BETWEEN) * index as f64);
    }
    out.push_str("</svg>\n");
    out
}

fn build_panels(rounds: &[RoundRecord]) -> Vec<RoundPanel> {
    let asked = |value: fn(&RoundRecord) -> f64| rounds.iter().map(|round| Some(value(round))).collect();
    let found = |value: fn(&windlass_core::adaptive::RoundMeasurement) -> f64| {
        rounds.iter().map(|round| round.measured.as_ref().map(value)).collect()
    };
    vec![
        RoundPanel {
            title: "Memory per job, MB",
            lines: vec![
                ("requested", "asked", asked(|round| round.asked.memory_mb as f64)),
                ("expected", "expected", asked(|round| round.asked.expected_memory_mb)),
                ("used", "used", found(|measured| measured.memory_mb)),
            ],
        },
        RoundPanel {
            title: "Time per event, seconds",
            lines: vec![
                ("expected", "expected", asked(|round| round.asked.time_per_event_sec)),
                ("used", "used", found(|measured| measured.time_per_event_sec)),
            ],
        },
        RoundPanel {
            title: "Events per core-hour",
            lines: vec![("used", "used", found(|measured| measured.events_per_core_hour))],
        },
    ]
}

fn render_panel(out: &mut String, panel: &RoundPanel, rounds: &[RoundRecord], top: f64) {
    let values = panel.lines.iter().flat_map(|(.., values)| values.iter().flatten());
    let most = values.copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let most = if most > 0.0 { most * 1.08 } else { 1.0 };
    let x = |index: usize| {
        let share = if rounds.len() > 1 { index as f64 / (rounds.len() - 1) as f64 } else { 0.5 };
        LEFT + share * (WIDTH - LEFT - RIGHT)
    };
    let y = |value: f64| top + PANEL * (1.0 - (value / most).clamp(0.0, 1.0));
    put_line!(out, "<text class=\"panel\" x=\"{LEFT:.1}\" y=\"{:.1}\">{}</text>", top - 12.0, panel.title);
    for quarter in 0..=4u8 {
        let value = most * f64::from(quarter) / 4.0;
        let at = y(value);
        put_line!(
            out,
            "<line class=\"grid\" x1=\"{LEFT:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0,
            render_number(value)
        );
    }
    for (index, round) in rounds.iter().enumerate() {
        let label = round.round + 1;
        put_line!(
            out,
            "<text class=\"round\" x=\"{:.1}\" y=\"{:.1}\">round {label}</text>",
            x(index),
            top + PANEL + 18.0
        );
    }
    for (number, (name, class, values)) in panel.lines.iter().enumerate() {
        let known = || values.iter().enumerate().filter_map(|(index, value)| Some((index, (*value)?)));
        let path: Vec<String> =
            known().map(|(index, value)| format!("{:.1} {:.1}", x(index), y(value))).collect();
        if path.len() > 1 {
            put_line!(out, "<path class=\"{class}\" d=\"M{}\"/>", path.join("L"));
        }
        for (index, value) in known() {
            put_line!(
                out,
                "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>round {}, {name}: {}</title></circle>",
                x(index),
                y(value),
                rounds[index].round + 1,
                render_number(value)
            );
        }
        let at = WIDTH - RIGHT - 90.0 * (panel.lines.len() - number) as f64;
        let line = top - 16.0;
        put_line!(
            out,
            "<circle class=\"{class}\" cx=\"{at:.1}\" cy=\"{line:.1}\" r=\"3.5\"/><text x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
            at + 8.0,
            line + 4.0
        );
    }
}

/// Formats a value with its significant digits.
fn render_number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        large if large >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

const STYLE: &str = ":root{color-scheme:light dark}\
.paper{fill:#fff}text{fill:#24292f}.title{font-size:16px;font-weight:600}.panel{font-weight:600}\
.tick{text-anchor:end;fill:#57606a}.round{text-anchor:middle;fill:#57606a}.grid{stroke:#d8dee4}\
path{fill:none;stroke-width:2}.asked{stroke:#8c959f}.expected{stroke:#bf8700}.used{stroke:#0969da}\
circle.asked{fill:#8c959f}circle.expected{fill:#bf8700}circle.used{fill:#0969da}\
@media(prefers-color-scheme:dark){.paper{fill:#0d1117}text{fill:#e6edf3}.tick,.round{fill:#8b949e}.grid{stroke:#30363d}}";

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::adaptive::{RoundEstimate, RoundMeasurement};

    fn record(round: u32, expected: f64, used: Option<f64>) -> RoundRecord {
        let asked =
            RoundEstimate { memory_mb: 4000, expected_memory_mb: expected, ..RoundEstimate::default() };
        let measured = used.map(|memory_mb| RoundMeasurement { memory_mb, ..RoundMeasurement::default() });
        RoundRecord { round, asked, measured }
    }

    #[test]
    fn rounds_plot_has_points_per_round_and_escaped_names() {
        let records =
            [record(0, 1000.0, Some(3000.0)), record(1, 2950.0, Some(3050.0)), record(2, 3000.0, None)];
        let drawn = render_rounds("<r1>", &records);
        assert!(drawn.contains("&lt;r1&gt;") && !drawn.contains("<r1>"), "{drawn}");
        for tip in [
            "round 1, expected: 1000",
            "round 1, used: 3000",
            "round 2, used: 3050",
            "round 3, requested: 4000",
        ] {
            assert!(drawn.contains(tip), "{tip} in {drawn}");
        }
        assert!(!drawn.contains("round 3, used"), "not measured yet");
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
        assert!(render_rounds("none", &[]).ends_with("</svg>\n"));
    }
}
