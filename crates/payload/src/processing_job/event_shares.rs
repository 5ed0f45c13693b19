//! The work of a step, split into shares for instances that run side by side. Pure except for counting events.
//!
//! Shares are contiguous: the concatenated outputs of their instances equal the output of a single instance.

use super::step_environment::StepInput;
use std::path::Path;
use windlass_types::payload::{EventGeneration, EventWindow};

/// The inputs or the events to generate of one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EventShare {
    pub(super) inputs: Vec<StepInput>,
    pub(super) generate: Option<EventGeneration>,
    /// Events.
    pub(super) expected: u64,
}

/// At most this many shares, and fewer for little work. `events_of` counts the events of a file, if possible.
pub(super) fn split_work(
    whole: &EventShare,
    most: u32,
    events_of: impl Fn(&Path) -> Option<u64>,
) -> Vec<EventShare> {
    let shares = match whole.generate {
        Some(made) => split_generation(made, most),
        None => split_inputs(whole, most, events_of),
    };
    if shares.len() > 1 { shares } else { vec![whole.clone()] }
}

/// Lumi sections are not split: a share has whole ones, or a part of the only one.
fn split_generation(made: EventGeneration, most: u32) -> Vec<EventShare> {
    let events = made.last_event - made.first_event + 1;
    let section = made.events_per_lumi.filter(|size| *size > 0 && *size < events);
    let pieces = section.map_or(events, |size| events.div_ceil(size));
    let share = |from: u64, to: u64| {
        let size = section.unwrap_or(1);
        let first_event = made.first_event + from * size;
        let last_event = (made.first_event + (to * size - 1)).min(made.last_event);
        let first_lumi = if section.is_some() { made.first_lumi + from } else { made.first_lumi };
        EventShare {
            generate: Some(EventGeneration { first_event, last_event, first_lumi, ..made }),
            expected: last_event - first_event + 1,
            ..EventShare::default()
        }
    };
    even_ranges(pieces, most).map(|(from, to)| share(from, to)).collect()
}

fn split_inputs(whole: &EventShare, most: u32, events_of: impl Fn(&Path) -> Option<u64>) -> Vec<EventShare> {
    let spans: Option<Vec<InputSpan<'_>>> =
        whole.inputs.iter().map(|input| InputSpan::from_input(input, whole, &events_of)).collect();
    let Some(spans) = spans else {
        // The middle of a file without a known number of events is unknown: whole files.
        let total = whole.inputs.len() as u64;
        let share = |(from, to): (u64, u64)| EventShare {
            inputs: whole.inputs[from as usize..to as usize].to_vec(),
            generate: None,
            expected: proportional_part(whole.expected, from, to, total),
        };
        return even_ranges(total, most).map(share).collect();
    };
    let total = spans.iter().map(|span| span.events).sum();
    let share = |(from, to)| EventShare {
        inputs: inputs_within(&spans, from, to),
        generate: None,
        expected: proportional_part(whole.expected, from, to, total),
    };
    even_ranges(total, most).map(share).collect()
}

/// Splits that many items into ranges of nearly equal length; the upper bound is exclusive.
fn even_ranges(total: u64, most: u32) -> impl Iterator<Item = (u64, u64)> {
    let shares = u64::from(most).min(total).max(1);
    let at = move |index: u64| (u128::from(total) * u128::from(index) / u128::from(shares)) as u64;
    (0..shares).map(move |index| (at(index), at(index + 1)))
}

/// The part of an evenly spread total between two bounds; all parts add up to the total.
fn proportional_part(all: u64, from: u64, to: u64, total: u64) -> u64 {
    let until = |border: u64| (u128::from(all) * u128::from(border) / u128::from(total.max(1))) as u64;
    until(to) - until(from)
}

/// An input with its number of events.
struct InputSpan<'a> {
    input: &'a StepInput,
    /// Position of the first event in the file, from 1.
    first: u64,
    events: u64,
    /// They were not counted: the last share reads to the end.
    is_open: bool,
}

impl<'a> InputSpan<'a> {
    fn from_input(
        input: &'a StepInput,
        whole: &EventShare,
        events_of: impl Fn(&Path) -> Option<u64>,
    ) -> Option<Self> {
        if let Some(window) = input.events {
            let events = window.last.checked_sub(window.first)?.checked_add(1)?;
            return Some(Self { input, first: window.first, events, is_open: false });
        }
        if let Some(events) = events_of(&input.path) {
            return Some(Self { input, first: 1, events, is_open: false });
        }
        let is_known = whole.inputs.len() == 1 && input.lumis.is_none() && whole.expected > 0;
        is_known.then_some(Self { input, first: 1, events: whole.expected, is_open: true })
    }
}

/// The part of the inputs, as one stream, between two bounds.
fn inputs_within(spans: &[InputSpan<'_>], from: u64, to: u64) -> Vec<StepInput> {
    let mut start = 0;
    let mut inputs = Vec::new();
    for span in spans {
        let end = start + span.events;
        let (low, high) = (from.max(start), to.min(end));
        if low < high {
            let last = if span.is_open && high == end { u64::MAX } else { span.first + (high - start) - 1 };
            let window = EventWindow { first: span.first + (low - start), last };
            // A file that is read completely needs no window.
            let is_whole = (low, high) == (start, end) && span.input.events.is_none();
            inputs.push(StepInput { events: (!is_whole).then_some(window), ..span.input.clone() });
        }
        start = end;
    }
    inputs
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn made(first_event: u64, last_event: u64, events_per_lumi: Option<u64>) -> EventShare {
        let generate =
            Some(EventGeneration { first_event, last_event, run: 1, first_lumi: 5, events_per_lumi });
        EventShare { generate, expected: last_event - first_event + 1, ..EventShare::default() }
    }

    fn sections(share: &EventShare) -> Vec<(u64, u64)> {
        let made = share.generate.unwrap();
        (made.first_event..=made.last_event)
            .map(|event| {
                let section = made.events_per_lumi.map_or(0, |size| (event - made.first_event) / size);
                (event, made.first_lumi + section)
            })
            .collect()
    }

    #[test]
    fn generated_shares_keep_event_numbers_and_lumis() {
        for (last, per_lumi, most, shares) in [
            (110, None, 4, 4),
            (110, Some(10), 2, 2),
            (110, Some(10), 4, 4),
            (110, Some(60), 4, 2),
            (110, Some(1000), 4, 4),
            (11, Some(1), 4, 1),
            (13, None, 8, 3),
        ] {
            let whole = made(11, last, per_lumi);
            let cut = split_work(&whole, most, |_| None);
            assert_eq!(cut.len(), shares, "{last} {per_lumi:?} {most}");
            let all: Vec<(u64, u64)> = cut.iter().flat_map(sections).collect();
            assert_eq!(all, sections(&whole), "{last} {per_lumi:?} {most}");
            assert_eq!(cut.iter().map(|share| share.expected).sum::<u64>(), whole.expected);
        }
    }

    fn input(path: &str, window: Option<(u64, u64)>) -> StepInput {
        let events = window.map(|(first, last)| EventWindow { first, last });
        StepInput { path: PathBuf::from(path), events, ..StepInput::default() }
    }

    fn told(shares: &[EventShare]) -> Vec<String> {
        let one = |input: &StepInput| {
            let window = input.events.map_or_else(String::new, |window| match window.last {
                u64::MAX => format!("[{}-]", window.first),
                last => format!("[{}-{last}]", window.first),
            });
            format!("{}{window}", input.path.display())
        };
        shares
            .iter()
            .map(|share| {
                let inputs: Vec<String> = share.inputs.iter().map(one).collect();
                format!("{} {}", share.expected, inputs.join(" "))
            })
            .collect()
    }

    fn reading(inputs: Vec<StepInput>, expected: u64) -> EventShare {
        EventShare { inputs, generate: None, expected }
    }

    #[test]
    fn inputs_are_split_as_one_stream() {
        let events =
            |path: &Path| path.to_str()?.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok();
        let cut = |share: &EventShare, most| told(&split_work(share, most, events));
        let two = reading(vec![input("a6", None), input("b2", None)], 8);
        assert_eq!(cut(&two, 2), ["4 a6[1-4]", "4 a6[5-6] b2"]);
        assert_eq!(cut(&two, 4), ["2 a6[1-2]", "2 a6[3-4]", "2 a6[5-6]", "2 b2"]);
        let window = reading(vec![input("x", Some((11, 20))), input("c3", None)], 13);
        assert_eq!(cut(&window, 2), ["6 x[11-16]", "7 x[17-20] c3"]);
        let unknown = reading(vec![input("x", None)], 10);
        assert_eq!(cut(&unknown, 3), ["3 x[1-3]", "3 x[4-6]", "4 x[7-]"]);
        let files = reading(vec![input("x", None), input("y", None), input("z", None)], 9);
        assert_eq!(cut(&files, 2), ["3 x", "6 y z"]);
        assert_eq!(cut(&reading(vec![input("x", None)], 0), 4), ["0 x"]);
        assert_eq!(cut(&reading(vec![input("a1", None)], 1), 4), ["1 a1"]);
    }
}
