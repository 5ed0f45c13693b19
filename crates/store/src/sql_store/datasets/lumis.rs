//! Encodes the lumis of a file as a short text: `RUN:LUMI,FIRST-LAST=EVENTS_EACH;RUN:…`.
//!
//! A million of them are read with a hundred thousand files, so separate rows would be far too slow. Decoding
//! restores lumis exactly, in any order.

use std::fmt::Write as _;
use windlass_types::catalog::FileLumi;

/// `None` for an empty list.
pub(super) fn render_lumis(lumis: &[FileLumi]) -> Option<String> {
    let mut text = String::new();
    let mut run = None;
    let mut rest = lumis;
    while let Some(first) = rest.first() {
        let length = run_length(rest);
        let separator = match run {
            Some(run) if run == first.run => ",",
            Some(_) => ";",
            None => "",
        };
        text.push_str(separator);
        // Writing to a string cannot fail.
        let mut put = |piece: std::fmt::Arguments<'_>| text.write_fmt(piece).unwrap_or_default();
        if run != Some(first.run) {
            put(format_args!("{}:", first.run));
        }
        put(format_args!("{}", first.lumi));
        if length > 1 {
            put(format_args!("-{}", rest[length - 1].lumi));
        }
        if let Some(events) = first.events {
            put(format_args!("={events}"));
        }
        run = Some(first.run);
        rest = &rest[length..];
    }
    (!lumis.is_empty()).then_some(text)
}

/// Length of the first sequence of consecutive lumis with the same number of events.
fn run_length(lumis: &[FileLumi]) -> usize {
    let follows = |pair: &&[FileLumi]| {
        let (a, b) = (pair[0], pair[1]);
        b.run == a.run && a.lumi.checked_add(1) == Some(b.lumi) && a.events == b.events
    };
    1 + lumis.windows(2).take_while(follows).count()
}

/// `None` if the text is invalid.
pub(super) fn parse_lumis(text: &str, count: usize) -> Option<Vec<FileLumi>> {
    // The size of the allocation must not depend on the contents of a row.
    let mut lumis = Vec::with_capacity(count.min(text.len().saturating_mul(2)));
    for part in text.split(';') {
        let (run, entries) = part.split_once(':')?;
        let run = run.parse().ok()?;
        for entry in entries.split(',') {
            let (range, events) = match entry.split_once('=') {
                Some((range, events)) => (range, Some(events.parse().ok()?)),
                None => (entry, None),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            // A count that contradicts the text is damage, and is detected before memory is exhausted.
            if last < first || (last - first) as usize >= count - lumis.len().min(count) {
                return None;
            }
            lumis.extend((first..=last).map(|lumi| FileLumi { run, lumi, events }));
        }
    }
    (lumis.len() == count).then_some(lumis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lumi(run: u32, lumi: u32, events: Option<u32>) -> FileLumi {
        FileLumi { run, lumi, events }
    }

    #[test]
    fn consecutive_lumis_become_one_range() {
        let lumis = [
            lumi(5, 1, Some(10)),
            lumi(5, 2, Some(10)),
            lumi(5, 3, Some(11)),
            lumi(5, 9, None),
            lumi(6, 10, None),
            lumi(6, 11, None),
        ];
        let text = render_lumis(&lumis).unwrap();
        assert_eq!(text, "5:1-2=10,3=11,9;6:10-11");
        assert_eq!(parse_lumis(&text, lumis.len()).unwrap(), lumis);
        assert_eq!(render_lumis(&[]), None);
    }

    #[test]
    fn invalid_lumi_texts_are_rejected() {
        for (text, count) in [
            ("5", 1),
            ("5:x", 1),
            ("5:1-2", 3),
            ("5:1-2", 1),
            ("5:2-1", 0),
            ("5:0-4294967295", 2),
            ("5:1=", 1),
        ] {
            assert_eq!(parse_lumis(text, count), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn lumis_round_trip(
            lumis in prop::collection::vec((0..3_u32, prop_oneof![0..6_u32, Just(u32::MAX)], prop::option::of(0..2_u32)), 0..40)
        ) {
            let lumis: Vec<FileLumi> = lumis.into_iter().map(|(run, number, events)| lumi(run, number, events)).collect();
            let text = render_lumis(&lumis);
            let back = text.map_or_else(|| Some(Vec::new()), |text| parse_lumis(&text, lumis.len()));
            prop_assert_eq!(back, Some(lumis));
        }
    }
}
