//! A request that takes the place of another: the same wish, with the next processing version and a name that is certainly
//! new (R-180, R-181, DESIGN 6.12).

use windlass_types::requests::{CleanupPolicy, Request};

/// The next version of a request, ready to be submitted. `taken` says which names exist.
#[must_use]
pub fn next_version(old: &Request, cleanup_policy: CleanupPolicy, taken: impl Fn(&str) -> bool) -> Request {
    let version = old.processing_version.saturating_add(1);
    Request {
        request_name: new_name(&old.request_name, version, taken),
        processing_version: version,
        output_datasets: old.output_datasets.iter().map(|name| next_dataset(name, version)).collect(),
        previous_version_request: Some(old.request_name.clone()),
        superseded_by_request: None,
        cleanup_policy,
        ..old.clone()
    }
}

/// `a_v3_b` → `a_v4_b`, `a_v3` → `a_v4`, `a` → `a_v4`; and on until nobody has it (N-11).
fn new_name(old: &str, version: u32, taken: impl Fn(&str) -> bool) -> String {
    let (before, after, first) = match marker(old) {
        Some((before, number, after)) => (before, after, number.saturating_add(1)),
        None => (old, "", version),
    };
    let candidates = (first..u32::MAX).map(|n| format!("{before}_v{n}{after}"));
    candidates.into_iter().find(|name| !taken(name)).unwrap_or_else(|| format!("{old}_new"))
}

/// The last `_v{n}` that ends the name or is followed by `_`.
fn marker(name: &str) -> Option<(&str, u32, &str)> {
    name.rmatch_indices("_v").find_map(|(at, _)| {
        let rest = &name[at + 2..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let after = &rest[digits..];
        let number = rest[..digits].parse().ok()?;
        (after.is_empty() || after.starts_with('_')).then_some((&name[..at], number, after))
    })
}

/// `/P/Era-Str-v3/T` → `/P/Era-Str-v4/T`: two versions never write into one dataset.
fn next_dataset(name: &str, version: u32) -> String {
    let Some((front, tier)) = name.rsplit_once('/') else { return name.to_owned() };
    let stem = match front.rsplit_once("-v") {
        Some((stem, digits)) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            stem
        }
        _ => front,
    };
    format!("{stem}-v{version}/{tier}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::lifecycle::samples;

    #[test]
    fn names_are_new() {
        // old, version, names that exist → new
        let table: &[(&str, u32, &[&str], &str)] = &[
            ("a_Run3_v1_b", 2, &[], "a_Run3_v2_b"),
            ("a_v1_b_v7", 2, &[], "a_v1_b_v8"),
            ("a_v9", 10, &[], "a_v10"),
            ("plain", 2, &[], "plain_v2"),
            ("plain", 2, &["plain_v2", "plain_v3"], "plain_v4"),
            ("x_v2_y", 2, &["x_v3_y"], "x_v4_y"),
            ("velo_version_vx", 3, &[], "velo_version_vx_v3"),
            ("huge_v99999999999", 3, &[], "huge_v99999999999_v3"),
        ];
        for (old, version, taken, new) in table {
            let name = new_name(old, *version, |name| name == *old || taken.contains(&name));
            assert_eq!(name, *new, "{old}");
        }
    }

    /// all is copied but what makes it another version.
    #[test]
    fn the_wish_stays_the_same() {
        let mut old = samples::view().row.request;
        old.output_datasets = vec!["/P/Era-Str-v3/AOD".into(), "/P/Plain/RAW".into()];
        old.processing_version = 3;
        old.superseded_by_request = Some("nobody".into());
        let new = next_version(&old, CleanupPolicy::ImmediateCleanup, |_| false);
        assert_eq!(new.output_datasets, ["/P/Era-Str-v4/AOD", "/P/Plain-v4/RAW"]);
        assert_eq!(new.previous_version_request.as_deref(), Some(old.request_name.as_str()));
        assert_ne!(new.request_name, old.request_name);
        let same = Request {
            request_name: old.request_name.clone(),
            processing_version: 3,
            output_datasets: old.output_datasets.clone(),
            previous_version_request: old.previous_version_request.clone(),
            superseded_by_request: old.superseded_by_request.clone(),
            cleanup_policy: old.cleanup_policy,
            ..new
        };
        assert_eq!(same, old);
    }
}
