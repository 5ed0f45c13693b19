//! The panel with bars: the time of each attempt, packed into as few lanes as possible.

use super::AttemptBar;
use super::axis::{PlotAxis, to_duration};
use super::line_panels::render_time_ticks;
use crate::escape::escape_xml;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use windlass_types::format_duration;

/// Maximum height of the panel; bars become thinner, down to a line, to fit.
const MAX_HEIGHT: f64 = 900.0;
const MAX_BAR_HEIGHT: f64 = 20.0;
const MIN_BAR_HEIGHT: f64 = 1.0;
/// Maximum number of bars; more could not be distinguished and are not drawn.
const MAX_BARS: usize = 20_000;

/// The lanes of the bars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BarLanes {
    lane_by_bar: Vec<usize>,
    count: usize,
}

/// Assigns each bar to the lane that has been free the longest, or to a new lane if none is free.
pub(super) fn assign_lanes(bars: &[AttemptBar]) -> BarLanes {
    let mut order: Vec<usize> = (0..bars.len()).collect();
    order.sort_by(|&a, &b| bars[a].start.total_cmp(&bars[b].start));
    let mut of = vec![0; bars.len()];
    let mut count = 0;
    let mut busy: BinaryHeap<Reverse<(SortableTime, usize)>> = BinaryHeap::new();
    let mut free: BinaryHeap<Reverse<usize>> = BinaryHeap::new();
    for bar in order {
        while let Some(&Reverse((until, lane))) = busy.peek()
            && until.0 <= bars[bar].start
        {
            busy.pop();
            free.push(Reverse(lane));
        }
        let lane = free.pop().map_or_else(
            || {
                count += 1;
                count - 1
            },
            |Reverse(lane)| lane,
        );
        of[bar] = lane;
        busy.push(Reverse((SortableTime(bars[bar].end), lane)));
    }
    BarLanes { lane_by_bar: of, count }
}

/// A time with a total order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SortableTime(f64);

impl Eq for SortableTime {}

impl PartialOrd for SortableTime {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SortableTime {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

fn lane_pitch(lanes: &BarLanes) -> f64 {
    (MAX_HEIGHT / lanes.count.max(1) as f64).clamp(MIN_BAR_HEIGHT, MAX_BAR_HEIGHT)
}

pub(super) fn panel_height(lanes: &BarLanes) -> f64 {
    (lane_pitch(lanes) * lanes.count as f64).max(MAX_BAR_HEIGHT)
}

pub(super) fn render_gantt_panel(
    out: &mut String,
    bars: &[AttemptBar],
    lanes: &BarLanes,
    top: f64,
    time: &PlotAxis,
) {
    put_line!(out, "<text class=\"panel\" x=\"{:.1}\" y=\"{:.1}\">Jobs</text>", time.start(), top - 10.0);
    render_time_ticks(out, time, top, top + panel_height(lanes));
    let pitch = lane_pitch(lanes);
    let thick = if pitch > 4.0 { pitch - 2.0 } else { pitch };
    for (bar, lane) in bars.iter().zip(&lanes.lane_by_bar).take(MAX_BARS) {
        let (x, y) = (time.position_of(bar.start), top + *lane as f64 * pitch);
        let width = (time.position_of(bar.end) - x).max(0.7);
        let rounding = (thick / 4.0).min(width / 2.0).min(4.0);
        put!(
            out,
            "<rect class=\"bar {}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{thick:.1}\" rx=\"{rounding:.1}\">\
             <title>{}</title></rect>",
            bar.tone.class(),
            escape_xml(&render_tooltip(bar))
        );
        render_bar_name(out, bar, x, y, width, thick);
        out.push('\n');
    }
}

/// Writes the name on its bar, if it is legible there.
fn render_bar_name(out: &mut String, bar: &AttemptBar, x: f64, y: f64, width: f64, thick: f64) {
    let room = ((width - 10.0) / 6.2).max(0.0) as usize;
    if thick < 12.0 || room < 4 {
        return;
    }
    let letters = bar.name.chars().count();
    let short: String = if letters <= room {
        bar.name.clone()
    } else {
        bar.name.chars().take(room - 1).chain(['…']).collect()
    };
    let baseline = y + thick / 2.0 + 4.0;
    put!(
        out,
        "<text class=\"on-bar\" pointer-events=\"none\" x=\"{:.1}\" y=\"{baseline:.1}\">{}</text>",
        x + 5.0,
        escape_xml(&short)
    );
}

fn render_tooltip(bar: &AttemptBar) -> String {
    let length = format_duration(to_duration(bar.end - bar.start));
    let note = if bar.end_note.is_empty() { String::new() } else { format!(", {}", bar.end_note) };
    format!("{}: {length}{note}", bar.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::StatusTone;
    use proptest::prelude::*;

    fn bar(start: f64, end: f64) -> AttemptBar {
        AttemptBar { name: "job".into(), start, end, tone: StatusTone::Good, end_note: String::new() }
    }

    #[test]
    fn free_lane_is_reused() {
        let lanes = assign_lanes(&[bar(0.0, 2.0), bar(1.0, 3.0), bar(2.0, 4.0), bar(3.0, 5.0)]);
        assert_eq!(lanes, BarLanes { lane_by_bar: vec![0, 1, 0, 1], count: 2 });
    }

    #[test]
    fn many_lanes_limit_panel_height() {
        let few = BarLanes { lane_by_bar: vec![], count: 4 };
        let many = BarLanes { lane_by_bar: vec![], count: 500 };
        assert!((panel_height(&few) - 80.0).abs() < 1e-9);
        assert!((panel_height(&many) - MAX_HEIGHT).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn bars_of_one_lane_do_not_overlap(raw in proptest::collection::vec((0u32..100, 1u32..30), 0..60)) {
            let bars: Vec<AttemptBar> =
                raw.iter().map(|&(start, length)| bar(f64::from(start), f64::from(start + length))).collect();
            let lanes = assign_lanes(&bars);
            for (i, a) in bars.iter().enumerate() {
                for (j, b) in bars.iter().enumerate().skip(i + 1) {
                    let apart = a.end <= b.start || b.end <= a.start;
                    prop_assert!(lanes.lane_by_bar[i] != lanes.lane_by_bar[j] || apart);
                }
            }
            let most = (0..130).map(f64::from).map(|t| bars.iter().filter(|b| b.start <= t && t < b.end).count()).max();
            prop_assert_eq!(lanes.count, most.unwrap_or(0));
        }
    }
}
