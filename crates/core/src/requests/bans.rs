//! Site bans: for one request because too much fails at the site, or for all because this happens to several
//! requests. A ban lasts until it expires or is removed.

use super::failures::{FailureTally, is_known_site};
use super::rows::{NewBan, SiteBan, SiteRow};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_types::Timestamp;
use windlass_types::requests::SiteStatus;

/// The actor of automatic bans.
pub const LIFECYCLE_ACTOR: &str = "lifecycle";

/// When sites are banned (E 8.1).
#[derive(Clone, Debug, PartialEq)]
pub struct BanPolicy {
    pub enabled: bool,
    /// Minimum number of failures attributable to the site …
    pub min_failures: u64,
    /// … and their minimum share of the attempts that ended there.
    pub failure_ratio: f64,
    pub duration: Duration,
    /// Number of requests with a ban of a site from which the site is banned for all.
    pub promote_after: usize,
}

impl Default for BanPolicy {
    fn default() -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self { enabled: true, min_failures: 3, failure_ratio: 0.5, duration: 7 * DAY, promote_after: 3 }
    }
}

/// A site to be banned for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanCandidate {
    pub site: String,
    /// Failures attributable to the site.
    pub blamed: u64,
    /// Attempts that ended there, failed or not, of the roles of these failures.
    pub ended: u64,
}

impl BanCandidate {
    fn describe_failures(&self) -> String {
        format!("{} of {} attempts failed there because of the site or its data", self.blamed, self.ended)
    }
}

/// Returns sites where too much of a run failed. Never contains the unknown site.
pub fn find_failing_sites(tally: &FailureTally, policy: &BanPolicy) -> Vec<BanCandidate> {
    if !policy.enabled {
        return Vec::new();
    }
    let ban_candidates =
        tally.blamed_by_site().into_iter().filter(|(site, _)| is_known_site(site)).map(|(site, counts)| {
            let (blamed, ended) = counts.blamed_and_ended();
            BanCandidate { site, blamed, ended }
        });
    ban_candidates.filter(|one| exceeds_ratio(one.blamed, one.ended, policy)).collect()
}

fn exceeds_ratio(blamed: u64, ended: u64, policy: &BanPolicy) -> bool {
    blamed >= policy.min_failures && blamed as f64 > policy.failure_ratio * ended as f64
}

/// Decisions about ban candidates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BanDecision {
    pub bans: Vec<NewBan>,
    /// Sites that are the only site of a unit, with the reason in words.
    pub refused: Vec<(String, String)>,
}

/// Bans sites for a request, the worst first, as long as each of its units keeps a site. `places`: sets of
/// sites that units of the request may use, without those already closed to it.
pub fn decide_bans(
    mut ban_candidates: Vec<BanCandidate>,
    request: &str,
    places: &[BTreeSet<String>],
    policy: &BanPolicy,
    now: Timestamp,
) -> BanDecision {
    let mut decision = BanDecision::default();
    let mut places = places.to_vec();
    ban_candidates
        .sort_by(|a, b| (b.blamed * a.ended).cmp(&(a.blamed * b.ended)).then_with(|| a.site.cmp(&b.site)));
    for one in ban_candidates {
        if !places.iter().any(|sites| sites.contains(&one.site)) {
            // Already closed to the request, or not a site of it.
            continue;
        }
        if places.iter().any(|sites| sites.len() == 1 && sites.contains(&one.site)) {
            let why = format!(
                "{} is not banned, although {}: some of the work has no other site",
                one.site,
                one.describe_failures()
            );
            decision.refused.push((one.site, why));
            continue;
        }
        for sites in &mut places {
            sites.remove(&one.site);
        }
        decision.bans.push(NewBan {
            reason: one.describe_failures(),
            failure_data: json!({ "blamed": one.blamed, "ended": one.ended }),
            site: one.site,
            request: Some(request.to_owned()),
            by: LIFECYCLE_ACTOR.to_owned(),
            expires_at: now.plus(policy.duration),
        });
    }
    decision
}

/// Returns the closed sites of a request that its units can do without. A unit whose sites are all closed keeps
/// them: otherwise it would wait, with some backends forever and without a visible reason.
#[must_use]
pub fn dispensable_sites(closed: &BTreeSet<String>, places: &[BTreeSet<String>]) -> BTreeSet<String> {
    let needed: BTreeSet<&String> = places.iter().filter(|sites| sites.is_subset(closed)).flatten().collect();
    closed.iter().filter(|site| !needed.contains(site)).cloned().collect()
}

/// Bans for all requests, decided together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BanPromotion {
    pub bans: Vec<NewBan>,
    /// Bans that would have left no site.
    pub refused: Vec<NewBan>,
}

/// Returns bans for all requests that follow from bans of single ones, as long as a site is left; each reduces
/// the sites left for the next. `open`: the sites open to work now.
pub fn decide_promotions(
    bans: &[SiteBan],
    mut open: BTreeSet<String>,
    policy: &BanPolicy,
    now: Timestamp,
) -> BanPromotion {
    let mut promoted = BanPromotion::default();
    for ban in due_promotions(bans, policy, now) {
        if is_last_site(&ban.site, &open) {
            promoted.refused.push(ban);
        } else {
            open.remove(&ban.site);
            promoted.bans.push(ban);
        }
    }
    promoted
}

/// `bans` are all bans, including removed ones. Bans of single requests from before the removal of a ban for
/// all do not count for the next one: an operator has judged them.
fn due_promotions(bans: &[SiteBan], policy: &BanPolicy, now: Timestamp) -> Vec<NewBan> {
    let is_active = |ban: &SiteBan| ban.removed_at.is_none() && ban.ban.expires_at > now;
    let mut by_site: BTreeMap<&str, Vec<&SiteBan>> = BTreeMap::new();
    for ban in bans {
        by_site.entry(&ban.ban.site).or_default().push(ban);
    }
    let mut due = Vec::new();
    for (site, bans) in by_site {
        let general = || bans.iter().filter(|ban| ban.ban.request.is_none());
        let removed_at = general().filter_map(|ban| ban.removed_at).max();
        let counts = |ban: &&&SiteBan| is_active(ban) && removed_at.is_none_or(|at| ban.created_at > at);
        let requests: BTreeSet<&str> =
            bans.iter().filter(counts).filter_map(|ban| ban.ban.request.as_deref()).collect();
        if requests.len() < policy.promote_after.max(1)
            || general().any(|ban| is_active(ban))
            || !is_known_site(site)
        {
            continue;
        }
        due.push(NewBan {
            site: site.to_owned(),
            request: None,
            reason: format!("banned by {} requests: {}", requests.len(), describe_requests(&requests)),
            failure_data: json!({ "requests": requests }),
            by: LIFECYCLE_ACTOR.to_owned(),
            expires_at: now.plus(policy.duration),
        });
    }
    due
}

fn describe_requests(requests: &BTreeSet<&str>) -> String {
    const SHOWN: usize = 5;
    let names: Vec<&str> = requests.iter().copied().take(SHOWN).collect();
    let more = requests.len().saturating_sub(SHOWN);
    if more == 0 { names.join(", ") } else { format!("{} and {more} more", names.join(", ")) }
}

/// Returns the sites open to work; `active` are the bans in effect.
pub fn open_sites(sites: &[SiteRow], active: &[SiteBan]) -> BTreeSet<String> {
    let is_banned = |name: &str| active.iter().any(|ban| ban.ban.request.is_none() && ban.ban.site == name);
    let is_open = |row: &&SiteRow| row.status == SiteStatus::Enabled && !is_banned(&row.name);
    sites.iter().filter(is_open).map(|row| row.name.clone()).collect()
}

/// Whether it is the only site open to work.
pub fn is_last_site(site: &str, open: &BTreeSet<String>) -> bool {
    open.iter().all(|other| other == site)
}

/// Returns bans that expired and were not reported yet.
pub fn expired_bans(bans: &[SiteBan], now: Timestamp) -> impl Iterator<Item = &SiteBan> {
    bans.iter().filter(move |ban| {
        ban.removed_at.is_none() && ban.expiry_told_at.is_none() && ban.ban.expires_at <= now
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::failures::samples::{attempt, ended};
    use windlass_types::FailureClass::{Data, Infrastructure, Permanent};

    const NOW: Timestamp = Timestamp(1_000_000_000_000);

    fn sets(of: &[&[&str]]) -> Vec<BTreeSet<String>> {
        of.iter().map(|sites| sites.iter().map(|site| (*site).to_owned()).collect()).collect()
    }

    fn ban_candidates(site: &str, blamed: u64, ended: u64) -> BanCandidate {
        BanCandidate { site: site.to_owned(), blamed, ended }
    }

    /// E 6.1: more than half, and at least three, of infrastructure or data.
    #[test]
    fn site_with_many_attributable_failures_is_a_ban_candidate() {
        // site, class, failed, ended → candidate?
        let table = [
            ("T2_A", Infrastructure, 3, 5, true),
            ("T2_A", Infrastructure, 3, 6, false),
            ("T2_A", Infrastructure, 2, 2, false),
            ("T2_A", Data, 4, 6, true),
            ("T2_A", Permanent, 9, 9, false),
            ("unknown", Infrastructure, 9, 9, false),
            ("", Infrastructure, 9, 9, false),
        ];
        for (site, class, failed, total, expected) in table {
            let mut tally = FailureTally::default();
            let attempts: Vec<_> = (1..=failed).map(|seq| attempt(seq, site, class)).collect();
            tally.add_reports(&attempts, &ended(&[(site, total)]));
            let found = find_failing_sites(&tally, &BanPolicy::default());
            assert_eq!(!found.is_empty(), expected, "{site} {class} {failed} of {total}");
        }
    }

    /// E 6.1: failures are compared with attempts that might have failed in the same way, not with completed
    /// landings.
    #[test]
    fn completed_landings_do_not_clear_a_site() {
        use crate::requests::failures::RoleCounts;
        use windlass_types::requests::NodeRole;
        // role of the failures, how many, what ended there → failures counted
        let table = [
            (
                NodeRole::Processing,
                5,
                RoleCounts { landing: 5, processing: 5, ..RoleCounts::default() },
                Some(5),
            ),
            (
                NodeRole::Processing,
                5,
                RoleCounts { landing: 90, processing: 9, ..RoleCounts::default() },
                Some(9),
            ),
            (
                NodeRole::Processing,
                5,
                RoleCounts { landing: 5, processing: 10, ..RoleCounts::default() },
                None,
            ),
            (NodeRole::Landing, 5, RoleCounts { landing: 90, ..RoleCounts::default() }, None),
            (
                NodeRole::Landing,
                5,
                RoleCounts { landing: 6, processing: 90, ..RoleCounts::default() },
                Some(6),
            ),
        ];
        for (role, failed, total, expected) in table {
            let mut tally = FailureTally::default();
            let one =
                |seq| super::super::failures::FailedAttemptReport { role, ..attempt(seq, "T2_A", Data) };
            tally.add_reports(
                &(1..=failed).map(one).collect::<Vec<_>>(),
                &[("T2_A".to_owned(), total)].into(),
            );
            let found = find_failing_sites(&tally, &BanPolicy::default());
            let expected = expected.map(|ended| ban_candidates("T2_A", failed as u64, ended));
            assert_eq!(found, Vec::from_iter(expected), "{role} {failed} of {total:?}");
        }
    }

    #[test]
    fn file_unreadable_everywhere_blames_no_site() {
        let mut tally = FailureTally::default();
        let bad = |seq, site: &str, file: &str| {
            let mut news = attempt(seq, site, Data);
            news.bad_files = vec![file.to_owned()];
            news
        };
        let here: Vec<_> = (1..=3).map(|seq| bad(seq, "T2_A", &format!("/store/{seq}"))).collect();
        tally.add_reports(&here, &ended(&[("T2_A", 4)]));
        assert_eq!(find_failing_sites(&tally, &BanPolicy::default()), [ban_candidates("T2_A", 3, 4)]);
        tally.add_reports(&[bad(4, "T2_B", "/store/2")], &ended(&[("T2_A", 4), ("T2_B", 10)]));
        assert_eq!(tally.blamed_failures("T2_A"), 2, "one of its files is unreadable elsewhere too");
        assert_eq!(find_failing_sites(&tally, &BanPolicy::default()), []);
    }

    #[test]
    fn the_last_site_is_never_banned() {
        let policy = BanPolicy::default();
        let decide = |ban_candidates, places: &[&[&str]]| {
            decide_bans(ban_candidates, "r1", &sets(places), &policy, NOW)
        };
        let both = vec![ban_candidates("T2_A", 3, 4), ban_candidates("T2_B", 9, 9)];
        let decision = decide(both.clone(), &[&["T2_A", "T2_B", "T2_C"]]);
        let banned =
            |decision: &BanDecision| decision.bans.iter().map(|ban| ban.site.clone()).collect::<Vec<_>>();
        assert_eq!(banned(&decision), ["T2_B", "T2_A"], "the worst first");
        assert_eq!(decision.bans[0].expires_at, NOW.plus(policy.duration));
        let decision = decide(both.clone(), &[&["T2_A", "T2_B"]]);
        assert_eq!(banned(&decision), ["T2_B"]);
        assert_eq!(decision.refused[0].0, "T2_A");
        let decision = decide(both.clone(), &[&["T2_A", "T2_C"], &["T2_B"]]);
        assert_eq!(banned(&decision), ["T2_A"], "one unit has no other site than T2_B");
        assert_eq!(decide(both, &[&["T2_C"]]), BanDecision::default(), "already closed to it");
    }

    #[test]
    fn only_sites_of_a_unit_are_not_banned() {
        let closed = |names: &[&str]| sets(&[names]).remove(0);
        let bearable = |places: &[&[&str]]| dispensable_sites(&closed(&["T2_A", "T2_B"]), &sets(places));
        assert_eq!(bearable(&[&["T2_A", "T2_C"], &["T2_B", "T2_C"]]), closed(&["T2_A", "T2_B"]));
        assert_eq!(bearable(&[&["T2_A"], &["T2_B", "T2_C"]]), closed(&["T2_B"]));
        assert_eq!(bearable(&[&["T2_A", "T2_B"]]), closed(&[]));
    }

    /// Bans for all, if there are enough sites.
    fn promoted(bans: &[SiteBan], now: Timestamp) -> Vec<NewBan> {
        let open = sets(&[&["T2_A", "T2_B", "T2_Z"]]).remove(0);
        let found = decide_promotions(bans, open, &BanPolicy::default(), now);
        assert_eq!(found.refused, []);
        found.bans
    }

    fn ban(id: i64, site: &str, request: Option<&str>) -> SiteBan {
        SiteBan {
            id,
            ban: NewBan {
                site: site.to_owned(),
                request: request.map(str::to_owned),
                reason: String::new(),
                failure_data: serde_json::Value::Null,
                by: LIFECYCLE_ACTOR.to_owned(),
                expires_at: NOW.plus(Duration::from_mins(1)),
            },
            created_at: NOW,
            removed_at: None,
            removed_by: None,
            expiry_told_at: None,
        }
    }

    #[test]
    fn three_request_bans_become_a_global_ban() {
        let mut bans =
            vec![ban(1, "T2_A", Some("r1")), ban(2, "T2_A", Some("r2")), ban(3, "T2_A", Some("r2"))];
        assert_eq!(promoted(&bans, NOW), [], "two requests, one of them twice");
        bans.push(ban(4, "T2_A", Some("r3")));
        bans.push(ban(5, "T2_B", Some("r3")));
        let [general] = &promoted(&bans, NOW)[..] else { panic!("one") };
        assert_eq!((general.site.as_str(), &general.request), ("T2_A", &None));
        assert!(general.reason.contains("r1, r2, r3"), "{}", general.reason);
        assert_eq!(promoted(&bans, NOW.plus(Duration::from_mins(1))), [], "they have expired");
        bans.push(ban(6, "T2_A", None));
        assert_eq!(promoted(&bans, NOW), [], "it already exists");
    }

    /// Of two sites found in one pass, the ban of the first leaves only the second, which stays open.
    #[test]
    fn simultaneous_bans_leave_one_site_open() {
        let at = |site: &'static str, first| {
            (first..).zip(["r1", "r2", "r3"]).map(move |(id, request)| ban(id, site, Some(request)))
        };
        let bans: Vec<SiteBan> = at("T2_A", 1).chain(at("T2_B", 4)).collect();
        // open → banned, and refused
        let table: [(&[&str], &[&str], &[&str]); 4] = [
            (&["T2_A", "T2_B"], &["T2_A"], &["T2_B"]),
            (&["T2_A", "T2_B", "T2_C"], &["T2_A", "T2_B"], &[]),
            (&["T2_C"], &["T2_A", "T2_B"], &[]),
            (&["T2_B"], &["T2_A"], &["T2_B"]),
        ];
        for (open, banned, refused) in table {
            let found = decide_promotions(&bans, sets(&[open]).remove(0), &BanPolicy::default(), NOW);
            let names = |bans: &[NewBan]| bans.iter().map(|ban| ban.site.clone()).collect::<Vec<_>>();
            assert_eq!(
                (names(&found.bans), names(&found.refused)),
                (
                    banned.iter().map(ToString::to_string).collect(),
                    refused.iter().map(ToString::to_string).collect()
                ),
                "{open:?}"
            );
        }
    }

    #[test]
    fn removed_ban_is_not_recreated() {
        let mut bans: Vec<SiteBan> =
            ["r1", "r2", "r3"].iter().zip(1..).map(|(request, id)| ban(id, "T2_A", Some(request))).collect();
        bans.push(SiteBan { removed_at: Some(NOW), removed_by: Some("ana".into()), ..ban(4, "T2_A", None) });
        assert_eq!(promoted(&bans, NOW), []);
        let later = NOW.plus(Duration::from_secs(1));
        bans.extend(
            ["r4", "r5", "r6"]
                .iter()
                .zip(5..)
                .map(|(request, id)| SiteBan { created_at: later, ..ban(id, "T2_A", Some(request)) }),
        );
        assert_eq!(promoted(&bans, later).len(), 1, "three that came afterwards");
    }

    #[test]
    fn ban_expiry_is_notified_once() {
        let over = NOW.plus(Duration::from_mins(1));
        let bans = [
            ban(1, "T2_A", None),
            SiteBan { removed_at: Some(NOW), ..ban(2, "T2_B", None) },
            SiteBan { expiry_told_at: Some(over), ..ban(3, "T2_C", None) },
        ];
        let ids = |now| expired_bans(&bans, now).map(|ban| ban.id).collect::<Vec<_>>();
        assert_eq!(ids(NOW), [0i64; 0]);
        assert_eq!(ids(over), [1]);
    }
}
