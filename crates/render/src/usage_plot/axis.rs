//! Axes: conversion of values to positions, and readable ticks.

use std::time::Duration;
use windlass_types::{Bytes, format_duration};

#[derive(Clone, Debug)]
pub(super) struct PlotAxis {
    maximum: f64,
    start: f64,
    end: f64,
    pub(super) ticks: Vec<(f64, String)>,
}

impl PlotAxis {
    pub(super) fn time_axis(maximum: f64, start: f64, end: f64) -> Self {
        const STEPS: [f64; 22] = [
            0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0,
            7200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 604_800.0,
        ];
        let step = STEPS.into_iter().find(|step| maximum / step <= 10.0).unwrap_or(maximum / 10.0);
        let label =
            |value: f64| if value == 0.0 { "0".to_owned() } else { format_duration(to_duration(value)) };
        Self { maximum, start, end, ticks: compute_ticks(maximum, step, label) }
    }

    /// In cores; the values are in percent.
    pub(super) fn cores_axis(most_percent: f64, start: f64, end: f64) -> Self {
        let maximum = (most_percent * 1.05).max(100.0);
        let step = nice_step(maximum / 100.0) * 100.0;
        let label = |value: f64| {
            let cores = value / 100.0;
            if step < 100.0 { format!("{cores:.1}") } else { format!("{cores:.0}") }
        };
        Self { maximum, start, end, ticks: compute_ticks(maximum, step, label) }
    }

    pub(super) fn bytes_axis(most: f64, start: f64, end: f64) -> Self {
        let maximum = (most * 1.05).max(1024.0);
        let unit =
            [40u32, 30, 20, 10].map(|shift| (1u64 << shift) as f64).into_iter().find(|unit| maximum >= *unit);
        let unit = unit.unwrap_or(1.0);
        let step = nice_step(maximum / unit) * unit;
        let label =
            |value: f64| if value == 0.0 { "0".to_owned() } else { Bytes(value.round() as u64).to_string() };
        Self { maximum, start, end, ticks: compute_ticks(maximum, step, label) }
    }

    /// Returns the position of a value; values outside are moved to the border.
    pub(super) fn position_of(&self, value: f64) -> f64 {
        let share = if value.is_finite() { (value / self.maximum).clamp(0.0, 1.0) } else { 0.0 };
        self.start + share * (self.end - self.start)
    }

    /// Whether the value is on the axis.
    pub(super) fn contains(&self, value: f64) -> bool {
        (0.0..=self.maximum).contains(&value)
    }

    pub(super) const fn start(&self) -> f64 {
        self.start
    }

    pub(super) const fn end(&self) -> f64 {
        self.end
    }
}

/// Converts seconds to a duration; invalid values become zero.
pub(super) fn to_duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Returns 1, 2 or 5 times a power of ten, so that about five ticks fit.
fn nice_step(most: f64) -> f64 {
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough).unwrap_or(10.0);
    factor * power
}

fn compute_ticks(most: f64, step: f64, label: impl Fn(f64) -> String) -> Vec<(f64, String)> {
    let count = (most / step + 1e-9).floor() as u32;
    (0..=count).map(|i| f64::from(i) * step).map(|value| (value, label(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &PlotAxis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn axis_ticks_are_round_numbers() {
        assert_eq!(
            labels(&PlotAxis::time_axis(250.0, 0.0, 1.0)),
            ["0", "30s", "1m", "1m 30s", "2m", "2m 30s", "3m", "3m 30s", "4m"]
        );
        assert_eq!(labels(&PlotAxis::cores_axis(380.0, 0.0, 1.0)), ["0", "1", "2", "3"]);
        assert_eq!(labels(&PlotAxis::cores_axis(60.0, 0.0, 1.0)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(
            labels(&PlotAxis::bytes_axis(6.0 * f64::from(1 << 30), 0.0, 1.0)),
            ["0", "2 GiB", "4 GiB", "6 GiB"]
        );
    }

    #[test]
    fn axis_positions_stay_inside_plot() {
        let axis = PlotAxis::time_axis(10.0, 100.0, 200.0);
        for (value, place) in [(0.0, 100.0), (5.0, 150.0), (99.0, 200.0), (-1.0, 100.0), (f64::NAN, 100.0)] {
            assert!((axis.position_of(value) - place).abs() < 1e-9, "{value}");
        }
    }
}
