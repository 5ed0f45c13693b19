//! The panel with bars: when each attempt ran, packed into as few lanes as possible.

use super::Bar;
use super::axis::{Axis, duration};
use super::lines::time_ticks;
use crate::escape::xml;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use windlass_types::format_duration;

/// Bars become thinner, down to a line, before the panel gets higher than this.
const HIGHEST: f64 = 900.0;
const THICKEST: f64 = 20.0;
const THINNEST: f64 = 1.0;
/// Two bars on one spot of paper are one bar; beyond so many they are not drawn.
const MOST_BARS: usize = 20_000;

/// Which lane each bar goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lanes {
    of: Vec<usize>,
    count: usize,
}

/// Each bar to the lane that has been free the longest of those that are free; a new lane where none is.
pub(super) fn lanes(bars: &[Bar]) -> Lanes {
    let mut order: Vec<usize> = (0..bars.len()).collect();
    order.sort_by(|&a, &b| bars[a].start.total_cmp(&bars[b].start));
    let mut of = vec![0; bars.len()];
    let mut count = 0;
    let mut busy: BinaryHeap<Reverse<(Instant, usize)>> = BinaryHeap::new();
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
        busy.push(Reverse((Instant(bars[bar].end), lane)));
    }
    Lanes { of, count }
}

/// A time that can be sorted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Instant(f64);

impl Eq for Instant {}

impl PartialOrd for Instant {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Instant {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

fn pitch(lanes: &Lanes) -> f64 {
    (HIGHEST / lanes.count.max(1) as f64).clamp(THINNEST, THICKEST)
}

pub(super) fn height(lanes: &Lanes) -> f64 {
    (pitch(lanes) * lanes.count as f64).max(THICKEST)
}

pub(super) fn panel(out: &mut String, bars: &[Bar], lanes: &Lanes, top: f64, time: &Axis) {
    put_line!(out, "<text class=\"panel\" x=\"{:.1}\" y=\"{:.1}\">Jobs</text>", time.start(), top - 10.0);
    time_ticks(out, time, top, top + height(lanes));
    let pitch = pitch(lanes);
    let thick = if pitch > 4.0 { pitch - 2.0 } else { pitch };
    for (bar, lane) in bars.iter().zip(&lanes.of).take(MOST_BARS) {
        let (x, y) = (time.at(bar.start), top + *lane as f64 * pitch);
        let width = (time.at(bar.end) - x).max(0.7);
        let rounding = (thick / 4.0).min(width / 2.0).min(4.0);
        put!(
            out,
            "<rect class=\"bar {}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{thick:.1}\" rx=\"{rounding:.1}\">\
             <title>{}</title></rect>",
            bar.tone.class(),
            xml(&tooltip(bar))
        );
        name(out, bar, x, y, width, thick);
        out.push('\n');
    }
}

/// The name on its bar, if it is legible there.
fn name(out: &mut String, bar: &Bar, x: f64, y: f64, width: f64, thick: f64) {
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
        xml(&short)
    );
}

fn tooltip(bar: &Bar) -> String {
    let length = format_duration(duration(bar.end - bar.start));
    let note = if bar.note.is_empty() { String::new() } else { format!(", {}", bar.note) };
    format!("{}: {length}{note}", bar.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Tone;
    use proptest::prelude::*;

    fn bar(start: f64, end: f64) -> Bar {
        Bar { name: "job".into(), start, end, tone: Tone::Good, note: String::new() }
    }

    #[test]
    fn a_lane_is_used_again_when_it_is_free() {
        let lanes = lanes(&[bar(0.0, 2.0), bar(1.0, 3.0), bar(2.0, 4.0), bar(3.0, 5.0)]);
        assert_eq!(lanes, Lanes { of: vec![0, 1, 0, 1], count: 2 });
    }

    #[test]
    fn many_lanes_get_thinner() {
        let few = Lanes { of: vec![], count: 4 };
        let many = Lanes { of: vec![], count: 500 };
        assert!((height(&few) - 80.0).abs() < 1e-9);
        assert!((height(&many) - HIGHEST).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn bars_of_a_lane_never_overlap(raw in proptest::collection::vec((0u32..100, 1u32..30), 0..60)) {
            let bars: Vec<Bar> =
                raw.iter().map(|&(start, length)| bar(f64::from(start), f64::from(start + length))).collect();
            let lanes = lanes(&bars);
            for (i, a) in bars.iter().enumerate() {
                for (j, b) in bars.iter().enumerate().skip(i + 1) {
                    let apart = a.end <= b.start || b.end <= a.start;
                    prop_assert!(lanes.of[i] != lanes.of[j] || apart);
                }
            }
            let most = (0..130).map(f64::from).map(|t| bars.iter().filter(|b| b.start <= t && t < b.end).count()).max();
            prop_assert_eq!(lanes.count, most.unwrap_or(0));
        }
    }
}
