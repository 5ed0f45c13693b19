//! New versions of requests: the same content, with the next processing version and an unused name (R-180,
//! R-181, DESIGN 6.12).

use super::change::RequestChange;
use super::rows::{BlockRow, NewBan, RequestCommand, RequestCommandKind, RequestRow, SiteBan};
use std::collections::BTreeSet;
use windlass_types::requests::{CleanupPolicy, ProcessingBlockStatus, Request, RequestStatus};

/// Existing names that a new version must not use.
pub struct TakenNames<'a> {
    /// Whether a request has this name.
    pub name: &'a dyn Fn(&str) -> bool,
    /// Whether this dataset exists, or another request writes it.
    pub dataset: &'a dyn Fn(&str) -> bool,
}

impl std::fmt::Debug for TakenNames<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TakenNames").finish_non_exhaustive()
    }
}

/// Plans the commit that ends a request and creates its next version (E 4.3), so that there is never one
/// without the other. The old one becomes failed as soon as nothing of it runs; its outputs stay until the new
/// ones are complete. Overrides and `bans` of the request are copied to the new version; bans of other requests
/// are not.
pub fn plan_restart(
    old: &RequestRow,
    cleanup_policy: CleanupPolicy,
    wanted: RequestCommand,
    bans: &[SiteBan],
    taken: &TakenNames<'_>,
) -> Vec<RequestChange> {
    let new = next_version(&old.request, cleanup_policy, taken);
    let is_ours = |ban: &&SiteBan| ban.ban.request.as_ref() == Some(&old.request.request_name);
    let copied = bans
        .iter()
        .filter(is_ours)
        .map(|ban| NewBan { request: Some(new.request_name.clone()), ..ban.ban.clone() });
    let copied: Vec<RequestChange> = copied.map(|ban| RequestChange::Ban(Box::new(ban))).collect();
    let mut changes = vec![
        RequestChange::SetCommand(Some(RequestCommand { what: RequestCommandKind::Fail, ..wanted })),
        RequestChange::SupersededBy(Some(new.request_name.clone())),
        RequestChange::AddVersion(Box::new(new), Box::new(old.overrides.clone())),
    ];
    changes.extend(copied);
    changes
}

/// Maximum number of versions of a request.
const MAX_VERSIONS: usize = 1000;

/// Maximum number of versions tried to find unused datasets.
const MAX_VERSIONS_TRIED: u32 = 1000;

/// Returns the versions before a request, the latest first. `read` looks up a name and returns its request.
pub fn earlier_versions<T, E>(
    of: &Request,
    read: impl FnMut(&str) -> Result<Option<T>, E>,
    request: impl Fn(&T) -> &Request,
) -> Result<Vec<T>, E> {
    walk_versions(of, read, request, |version| version.previous_version_request.as_deref())
}

/// Returns the versions after a request, the next one first.
pub fn later_versions<T, E>(
    of: &Request,
    read: impl FnMut(&str) -> Result<Option<T>, E>,
    request: impl Fn(&T) -> &Request,
) -> Result<Vec<T>, E> {
    walk_versions(of, read, request, |version| version.superseded_by_request.as_deref())
}

/// Follows links without visiting a version twice: users set the previous version and may name any request.
fn walk_versions<T, E>(
    of: &Request,
    mut read: impl FnMut(&str) -> Result<Option<T>, E>,
    request: impl Fn(&T) -> &Request,
    next: impl Fn(&Request) -> Option<&str>,
) -> Result<Vec<T>, E> {
    let mut seen = BTreeSet::from([of.request_name.clone()]);
    let mut found: Vec<T> = Vec::new();
    while let Some(name) = next(found.last().map_or(of, &request)) {
        if found.len() >= MAX_VERSIONS || !seen.insert(name.to_owned()) {
            break;
        }
        let Some(version) = read(name)? else { break };
        found.push(version);
    }
    Ok(found)
}

/// The state of the outputs of a request, considering later versions. Not stored: derived from the
/// rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputState {
    Active,
    /// Replaced by those of a later version.
    Superseded,
    /// All of them are invalidated.
    Invalidated,
}

impl OutputState {
    /// `later` are the statuses of later versions, if any: some may never have been completed.
    pub fn from_blocks(blocks: &[BlockRow], later: impl IntoIterator<Item = RequestStatus>) -> Self {
        let is_gone = |block: &BlockRow| block.status == ProcessingBlockStatus::Invalidated;
        if !blocks.is_empty() && blocks.iter().all(is_gone) {
            Self::Invalidated
        } else if later.into_iter().any(|status| status == RequestStatus::Completed) {
            Self::Superseded
        } else {
            Self::Active
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Superseded => "superseded",
            Self::Invalidated => "invalidated",
        }
    }
}

/// Creates the next version of a request, ready to submit, with an unused name and unused output datasets. Its
/// processing version is the one in its dataset names.
#[must_use]
pub fn next_version(old: &Request, cleanup_policy: CleanupPolicy, taken: &TakenNames<'_>) -> Request {
    let first = old.processing_version.saturating_add(1);
    let datasets = |version| -> Vec<String> {
        old.output_datasets.iter().map(|name| next_dataset(name, version)).collect()
    };
    let is_new = |version: &u32| {
        let all = datasets(*version);
        all.iter().all(|name| !old.output_datasets.contains(name) && !(taken.dataset)(name))
    };
    let last = first.saturating_add(MAX_VERSIONS_TRIED);
    // If none is unused, the store rejects the request.
    let version = (first..last).find(is_new).unwrap_or(first);
    Request {
        request_name: next_name(&old.request_name, version, taken.name),
        processing_version: version,
        output_datasets: datasets(version),
        previous_version_request: Some(old.request_name.clone()),
        superseded_by_request: None,
        cleanup_policy,
        ..old.clone()
    }
}

/// `a_v3_b` → `a_v4_b`, `a_v3` → `a_v4`, `a` → `a_v4`; and so on until the name is unused (N-11).
fn next_name(old: &str, version: u32, taken: impl Fn(&str) -> bool) -> String {
    let (before, after, first) = match version_marker(old) {
        Some((before, number, after)) => (before, after, number.saturating_add(1)),
        None => (old, "", version),
    };
    let candidates = (first..u32::MAX).map(|n| format!("{before}_v{n}{after}"));
    candidates.into_iter().find(|name| !taken(name)).unwrap_or_else(|| format!("{old}_new"))
}

/// Returns the last `_v{n}` that ends the name or is followed by `_`.
fn version_marker(name: &str) -> Option<(&str, u32, &str)> {
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
    use windlass_types::requests::RequestOverrides;

    #[test]
    fn new_version_names_are_unused() {
        // old, version, existing names → new
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
            let name = next_name(old, *version, |name| name == *old || taken.contains(&name));
            assert_eq!(name, *new, "{old}");
        }
    }

    #[test]
    fn old_version_ends_when_the_next_begins() {
        let old = samples::view().row;
        let wanted = RequestCommand {
            lost: true,
            ..RequestCommand::new(RequestCommandKind::Stop, "eve", "again", samples::START)
        };
        let overrides = RequestOverrides {
            excluded_files: ["/store/bad".to_owned()].into(),
            ..RequestOverrides::default()
        };
        let old = RequestRow { overrides: overrides.clone(), ..old };
        let ban = |request: Option<&str>| SiteBan {
            id: 1,
            ban: NewBan {
                site: "T2_A".to_owned(),
                request: request.map(str::to_owned),
                reason: "no licence".to_owned(),
                failure_data: serde_json::Value::Null,
                by: "ada".to_owned(),
                expires_at: samples::START,
            },
            created_at: samples::START,
            removed_at: None,
            removed_by: None,
            expiry_told_at: None,
        };
        let bans = [ban(Some(&old.request.request_name)), ban(None)];
        let taken = TakenNames { name: &|name| name == "ana_test_v2", dataset: &|_| false };
        let changes = plan_restart(&old, CleanupPolicy::ImmediateCleanup, wanted, &bans, &taken);
        let [
            RequestChange::SetCommand(Some(wanted)),
            RequestChange::SupersededBy(by),
            RequestChange::AddVersion(new, said),
            RequestChange::Ban(ban),
        ] = changes.as_slice()
        else {
            panic!("{changes:?}");
        };
        assert_eq!((wanted.what, wanted.lost), (RequestCommandKind::Fail, true));
        assert_eq!((new.request_name.as_str(), by.as_deref()), ("ana_test_v3", Some("ana_test_v3")));
        assert_eq!((new.processing_version, new.cleanup_policy), (2, CleanupPolicy::ImmediateCleanup));
        assert_eq!(**said, overrides, "overrides also apply to the new version");
        assert_eq!((ban.site.as_str(), ban.request.as_deref()), ("T2_A", Some("ana_test_v3")));
    }

    /// Two requests never write into one dataset, for any dataset names of the old one.
    #[test]
    fn output_datasets_of_a_new_version_are_new() {
        // Outputs, processing version, existing datasets, and the outputs of the new version.
        type Row<'s> = (&'s [&'s str], u32, &'s [&'s str], &'s [&'s str]);
        let table: &[Row<'_>] = &[
            (&["/P/E-S-v1/AOD"], 1, &[], &["/P/E-S-v2/AOD"]),
            (&["/P/E-S-v2/AOD"], 1, &[], &["/P/E-S-v3/AOD"]),
            (&["/P/E-S-v1/AOD"], 1, &["/P/E-S-v2/AOD", "/P/E-S-v3/AOD"], &["/P/E-S-v4/AOD"]),
            (&["/P/E-S-v1/AOD", "/P/E-S-v2/RAW"], 1, &[], &["/P/E-S-v3/AOD", "/P/E-S-v3/RAW"]),
            (&["/P/Plain/AOD"], 1, &["/P/Plain-v2/AOD"], &["/P/Plain-v3/AOD"]),
        ];
        for (outputs, version, there, expected) in table {
            let old = Request {
                output_datasets: outputs.iter().map(|&name| name.to_owned()).collect(),
                processing_version: *version,
                ..samples::request()
            };
            let taken = TakenNames { name: &|_| false, dataset: &|name| there.contains(&name) };
            let new = next_version(&old, CleanupPolicy::KeepUntilReplaced, &taken);
            assert_eq!(new.output_datasets, *expected, "{outputs:?}");
            assert!(
                new.output_datasets[0].contains(&format!("-v{}/", new.processing_version)),
                "{outputs:?}"
            );
        }
    }

    /// E 4.3.
    #[test]
    fn output_state_follows_blocks_and_newer_versions() {
        use ProcessingBlockStatus::{Archived, Failed, Invalidated};
        let state = |statuses: &[ProcessingBlockStatus], later: &[RequestStatus]| {
            let block =
                |status: &ProcessingBlockStatus| BlockRow { status: *status, ..samples::block(0, 0, 1) };
            let blocks: Vec<_> = statuses.iter().map(block).collect();
            OutputState::from_blocks(&blocks, later.iter().copied()).name()
        };
        let completed = &[RequestStatus::Completed];
        assert_eq!(state(&[Archived, Failed], &[]), "active");
        assert_eq!(state(&[Archived, Failed], &[RequestStatus::Active]), "active");
        assert_eq!(state(&[Archived, Failed], &[RequestStatus::Failed, RequestStatus::Active]), "active");
        assert_eq!(
            state(&[Archived, Failed], &[RequestStatus::Failed, RequestStatus::Completed]),
            "superseded"
        );
        assert_eq!(state(&[Archived, Invalidated], completed), "superseded");
        assert_eq!(state(&[Invalidated, Invalidated], completed), "invalidated");
        assert_eq!(state(&[], completed), "superseded");
    }

    /// All of them, one after another; also if a version names a later one as its previous version.
    #[test]
    fn version_chains_are_followed_without_loops() {
        type Row<'s> = (&'s [Request], &'s str, &'s [&'s str], &'s [&'s str]);
        let version = |name: &str, before: Option<&str>, after: Option<&str>| Request {
            request_name: name.to_owned(),
            previous_version_request: before.map(str::to_owned),
            superseded_by_request: after.map(str::to_owned),
            ..samples::request()
        };
        let table: [Row<'_>; 4] = [
            (
                &[
                    version("a", None, Some("b")),
                    version("b", Some("a"), Some("c")),
                    version("c", Some("b"), None),
                ],
                "c",
                &["b", "a"],
                &[],
            ),
            (
                &[
                    version("a", None, Some("b")),
                    version("b", Some("a"), Some("c")),
                    version("c", Some("b"), None),
                ],
                "a",
                &[],
                &["b", "c"],
            ),
            (&[version("a", Some("b"), Some("b")), version("b", Some("a"), Some("a"))], "a", &["b"], &["b"]),
            (&[version("a", Some("a"), Some("gone"))], "a", &[], &[]),
        ];
        for (all, of, before, after) in table {
            let read = |name: &str| -> Result<Option<Request>, ()> {
                Ok(all.iter().find(|version| version.request_name == name).cloned())
            };
            let of = read(of).unwrap().unwrap();
            let names = |found: Vec<Request>| -> Vec<String> {
                found.into_iter().map(|version| version.request_name).collect()
            };
            assert_eq!(names(earlier_versions(&of, read, |version| version).unwrap()), before);
            assert_eq!(names(later_versions(&of, read, |version| version).unwrap()), after);
        }
    }

    /// everything is copied except what identifies the version.
    #[test]
    fn new_version_copies_the_request() {
        let mut old = samples::view().row.request;
        old.output_datasets = vec!["/P/Era-Str-v3/AOD".into(), "/P/Plain/RAW".into()];
        old.processing_version = 3;
        old.superseded_by_request = Some("unknown".into());
        let taken = TakenNames { name: &|_| false, dataset: &|_| false };
        let new = next_version(&old, CleanupPolicy::ImmediateCleanup, &taken);
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
