//! Estimates for a step with other numbers of threads than it was measured with.
//!
//! Memory is a line, `base + per_thread · threads`. The wall time per event is a line over `1 /
//! threads`: the serial part is constant, the rest is shared among the threads (Amdahl). Two points define a
//! line, more points are fitted. With one point, memory is assumed to be the same with fewer threads (the
//! safety factor covers the error), and the time follows from the CPU efficiency: idle threads had no work to
//! share.

use super::measurements::{StepMeasurements, ThreadCountMedians};

/// A step and its expected resource use.
#[derive(Clone, Debug)]
pub(super) struct StepModel {
    memory: FittedLine,
    /// Over `1 / threads`. `None`: not measured.
    wall: Option<FittedLine>,
    /// CPU time per event.
    work: f64,
    /// Largest number of threads that the step ran with; more are not known to work.
    pub(super) max_threads: u32,
    /// Below this number of threads the memory is an extrapolation and may be too low.
    pub(super) min_certain_threads: u32,
    pub(super) can_split: bool,
}

impl StepModel {
    /// `None`: no usable measurements.
    pub(super) fn from_history(known: &StepMeasurements, mb_per_thread: f64) -> Option<Self> {
        let most_threads = known.points.iter().map(|point| point.threads).max().filter(|most| *most > 0);
        let memory = fit_memory(&known.points, most_threads, mb_per_thread);
        let timed: Vec<&ThreadCountMedians> = known.points.iter().filter(|point| point.has_times()).collect();
        let samples: f64 = timed.iter().map(|point| point.samples as f64).sum();
        let work: f64 = timed.iter().map(|point| point.cpu_sec_per_event() * point.samples as f64).sum();
        let work = if samples > 0.0 { work / samples } else { 0.0 };
        let wall = fit_wall_time(&timed, work).or_else(|| constant_wall_time(&known.points));
        if memory.is_none() && wall.is_none() {
            return None;
        }
        Some(Self {
            memory: memory.unwrap_or_default(),
            wall,
            work,
            max_threads: most_threads.unwrap_or(u32::MAX),
            min_certain_threads: min_certain_threads(&known.points),
            can_split: known.can_split,
        })
    }

    /// Memory in MB of one instance.
    pub(super) fn memory(&self, threads: u32) -> f64 {
        self.memory.value_at(f64::from(threads))
    }

    /// Seconds per event of one instance that processes all events.
    pub(super) fn wall(&self, threads: u32) -> f64 {
        self.wall.map_or(0.0, |wall| wall.value_at(1.0 / f64::from(threads.max(1))))
    }

    /// Average number of busy threads. `None`: not measured.
    pub(super) fn busy_threads(&self, threads: u32) -> Option<f64> {
        let wall = self.wall(threads);
        (wall > 0.0 && self.work > 0.0).then(|| (self.work / wall).clamp(0.01, f64::from(threads)))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct FittedLine {
    base: f64,
    slope: f64,
    /// Point from which on this slope applies.
    from: Option<(f64, f64)>,
}

impl FittedLine {
    fn value_at(&self, x: f64) -> f64 {
        match self.from {
            Some((from, slope)) if x > from => self.base + self.slope * from + slope * (x - from),
            _ => self.base + self.slope * x,
        }
    }

    /// Fits a non-decreasing line with an intercept of at least 0 to the points `(x, y, weight)`. `None` with
    /// fewer than two points.
    fn fit_points(points: &[(f64, f64, f64)]) -> Option<Self> {
        let weight: f64 = points.iter().map(|(.., w)| w).sum();
        let mean = |value: fn(&(f64, f64, f64)) -> f64| {
            points.iter().map(|point| value(point) * point.2).sum::<f64>() / weight
        };
        let (x0, y0) = (mean(|p| p.0), mean(|p| p.1));
        let spread: f64 = points.iter().map(|(x, _, w)| w * (x - x0) * (x - x0)).sum();
        if points.len() < 2 || spread <= 1e-9 * weight {
            return None;
        }
        let slope = points.iter().map(|(x, y, w)| w * (x - x0) * (y - y0)).sum::<f64>() / spread;
        let slope = slope.max(0.0);
        let base = y0 - slope * x0;
        // With a negative intercept the line goes through 0.
        Some(if base < 0.0 {
            Self { base: 0.0, slope: y0 / x0, from: None }
        } else {
            Self { base, slope, from: None }
        })
    }
}

/// A single point is used for all lower numbers of threads as well, so it is not an extrapolation.
fn min_certain_threads(points: &[ThreadCountMedians]) -> u32 {
    let mut threads: Vec<u32> = points.iter().map(|point| point.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    if threads.len() < 2 { 0 } else { threads[0] }
}

fn fit_memory(
    points: &[ThreadCountMedians],
    most_threads: Option<u32>,
    mb_per_thread: f64,
) -> Option<FittedLine> {
    let is_measured = |point: &&ThreadCountMedians| point.rss_mb.is_finite() && point.rss_mb > 0.0;
    // A single job may be an outlier; it does not change the line of many jobs.
    let most_samples = points.iter().filter(is_measured).map(|point| point.samples).max().unwrap_or(0);
    let known: Vec<(f64, f64, f64)> = points
        .iter()
        .filter(is_measured)
        .filter(|point| point.samples > 1 || most_samples <= 1)
        .map(|point| (f64::from(point.threads), point.rss_mb, point.samples.max(1) as f64))
        .collect();
    if let Some(line) = FittedLine::fit_points(&known) {
        return Some(line);
    }
    let most = known.iter().map(|(_, rss, _)| *rss).reduce(f64::max)?;
    let from = most_threads.map(|threads| (f64::from(threads), mb_per_thread));
    Some(FittedLine { base: most, slope: 0.0, from })
}

/// Fits the wall time. A slow machine increases wall time and CPU time alike, so their ratio shows how threads
/// wait for one another on any machine. The ratio times the CPU time per event is the wall time.
fn fit_wall_time(points: &[&ThreadCountMedians], work: f64) -> Option<FittedLine> {
    let known: Vec<(f64, f64, f64)> = points
        .iter()
        .map(|point| {
            let waiting = point.wall_sec_per_event / point.cpu_sec_per_event();
            (1.0 / f64::from(point.threads), waiting, point.samples.max(1) as f64)
        })
        .collect();
    let line = FittedLine::fit_points(&known).or_else(|| points.last().map(|point| amdahl_line(point)))?;
    Some(FittedLine { base: line.base * work, slope: line.slope * work, from: None })
}

/// Where the CPU efficiency is not known the time is the same with any number of threads.
fn constant_wall_time(points: &[ThreadCountMedians]) -> Option<FittedLine> {
    let is_amount = |wall: &f64| wall.is_finite() && *wall > 0.0;
    let wall = points.iter().map(|point| point.wall_sec_per_event).rfind(is_amount)?;
    Some(FittedLine { base: wall, ..FittedLine::default() })
}

/// From one point: attributes all waiting to the serial part.
fn amdahl_line(point: &ThreadCountMedians) -> FittedLine {
    let threads = f64::from(point.threads);
    let waiting = point.wall_sec_per_event / point.cpu_sec_per_event();
    if point.threads == 1 {
        return FittedLine { base: waiting, ..FittedLine::default() };
    }
    // waiting = alone + (1 − alone) / threads.
    let alone = ((waiting * threads - 1.0) / (threads - 1.0)).clamp(0.0, waiting);
    FittedLine { base: alone, slope: (waiting - alone) * threads, from: None }
}

/// Returns the power of two with the smallest ratio to it: 4 for 5.6, 8 for 5.7.
pub(super) fn nearest_power_of_two(threads: f64) -> u32 {
    const MOST: u32 = 6;
    // The midpoint of two powers, as factors, is the midpoint of their exponents.
    1 << (threads.max(1.0).log2().round() as u32).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(threads: u32, cpu_efficiency: f64, rss_mb: f64, wall_sec_per_event: f64) -> ThreadCountMedians {
        ThreadCountMedians { threads, samples: 10, cpu_efficiency, rss_mb, wall_sec_per_event }
    }

    fn model(points: &[ThreadCountMedians]) -> StepModel {
        StepModel::from_history(&StepMeasurements { points: points.to_vec(), can_split: true }, 250.0)
            .unwrap()
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= expected.abs() * 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn threads_are_rounded_to_powers_of_two_by_factors() {
        let table = [
            (0.0, 1),
            (f64::NAN, 1),
            (1.4, 1),
            (1.5, 2),
            (2.8, 2),
            (2.9, 4),
            (4.4, 4),
            (5.6, 4),
            (5.7, 8),
            (400.0, 64),
        ];
        for (threads, expected) in table {
            assert_eq!(nearest_power_of_two(threads), expected, "{threads}");
        }
    }

    ///
    #[test]
    fn memory_model_is_linear_in_threads() {
        let two = model(&[point(8, 0.5, 3500.0, 1.0), point(4, 0.7, 2500.0, 1.2)]);
        for (threads, expected) in [(1, 1750.0), (2, 2000.0), (8, 3500.0), (16, 5500.0)] {
            assert_near(two.memory(threads), expected);
        }
        let one = model(&[point(8, 0.5, 3500.0, 1.0)]);
        assert_near(one.memory(2), 3500.0);
        assert_near(one.memory(10), 4000.0);
    }

    #[test]
    fn single_sample_does_not_change_the_model() {
        let odd = ThreadCountMedians { samples: 1, ..point(4, 0.7, 2500.0, 1.2) };
        assert_near(model(&[point(8, 0.5, 3500.0, 1.0), odd]).memory(2), 3500.0);
        let few = ThreadCountMedians { samples: 2, ..odd };
        assert_near(model(&[point(8, 0.5, 3500.0, 1.0), few]).memory(4), 2500.0);
    }

    #[test]
    fn memory_falling_with_threads_is_noise() {
        let noisy = model(&[point(8, 0.5, 2000.0, 1.0), point(4, 0.9, 2200.0, 0.9)]);
        assert_near(noisy.memory(8), 2100.0);
        assert_near(noisy.memory(1), 2100.0);
    }

    /// 1 s of work per event, 30 % of it serial: 0.3 + 0.7 / n with n threads.
    #[test]
    fn time_follows_amdahls_law() {
        let wall = |n: f64| 0.3 + 0.7 / n;
        let at = |n: u32| {
            let wall = wall(f64::from(n));
            point(n, 1.0 / (wall * f64::from(n)), 1000.0, wall)
        };
        for known in [vec![at(8)], vec![at(8), at(4)], vec![at(2), at(4), at(8)]] {
            let model = model(&known);
            for threads in [1, 2, 4, 8, 16] {
                assert_near(model.wall(threads), wall(f64::from(threads)));
                let busy = 1.0 / wall(f64::from(threads));
                assert_near(model.busy_threads(threads).unwrap(), busy);
            }
        }
    }

    #[test]
    fn model_without_times_has_memory_only() {
        let model = model(&[point(0, 0.0, 800.0, 0.0)]);
        assert_near(model.memory(4), 800.0);
        assert_eq!(model.busy_threads(4), None);
        assert_near(model.wall(4), 0.0);
        assert!(StepModel::from_history(&StepMeasurements::default(), 250.0).is_none());
        let nothing = StepMeasurements { points: vec![point(4, 0.0, f64::NAN, 0.0)], can_split: true };
        assert!(StepModel::from_history(&nothing, 250.0).is_none());
    }
}
