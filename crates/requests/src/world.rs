//! What the reconciler works with: the books, the backends, a catalog, and what is set.

use crate::alerts::Bell;
use crate::backend::{BackendKind, Backends, CondorOptions};
use crate::catalog::Catalog;
use crate::outline::Outline;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::plan::PlanSettings;
use windlass_core::requests::book::RunRow;
use windlass_core::requests::{admission, bans, lifecycle};
use windlass_store::Database;
use windlass_store::model::BanFilter;
use windlass_types::Clock;
use windlass_types::requests::SiteStatus;

/// The setting that says how many runs may be active at once: a number.
pub const MAX_ACTIVE_RUNS: &str = "admission.max_active_dags";

/// How requests are to be carried out.
#[derive(Clone)]
pub struct LifecycleOptions {
    /// How often all requests are looked at, in case that a nudge was missed.
    pub interval: Duration,
    /// Runs have their directories below this. Workers must see it under the same path.
    pub submit_root: PathBuf,
    /// Sites that say nothing else keep their files below this, each in a directory of its own name.
    pub storage_root: PathBuf,
    /// In whose name jobs run: whose workers take them.
    pub user: String,
    pub plan: PlanSettings,
    pub decisions: lifecycle::Settings,
    pub admission: admission::Settings,
    /// Before a failed job is tried again; longer each time.
    pub cool_off: Duration,
    /// Where new runs go; those that exist stay where they are.
    pub backend: BackendKind,
    pub condor: CondorOptions,
    /// What is done outside, at once.
    pub threads: usize,
    pub bell: Bell,
    /// Told of a request that something changed about, once that is on disk, on the thread of the lifecycle: hand the news
    /// on, do no work.
    pub on_commit: Option<OnCommit>,
}

/// See [`LifecycleOptions::on_commit`].
pub type OnCommit = Arc<dyn Fn(&str) + Send + Sync>;

impl std::fmt::Debug for LifecycleOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LifecycleOptions").field("submit_root", &self.submit_root).finish_non_exhaustive()
    }
}

impl LifecycleOptions {
    pub fn new(submit_root: PathBuf, storage_root: PathBuf, user: &str) -> Self {
        Self {
            interval: Duration::from_mins(1),
            submit_root,
            storage_root,
            user: user.to_owned(),
            plan: PlanSettings::default(),
            decisions: lifecycle::Settings::default(),
            admission: admission::Settings::default(),
            cool_off: Duration::from_mins(1),
            backend: BackendKind::default(),
            condor: CondorOptions::default(),
            threads: 8,
            bell: Bell::default(),
            on_commit: None,
        }
    }
}

/// Shared by the passes and by what is done outside.
pub(crate) struct World {
    pub(crate) books: Arc<dyn Database>,
    pub(crate) backends: Backends,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) options: LifecycleOptions,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Where work may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// Sites that may be used, with their slots where known.
    pub(crate) usable: BTreeMap<String, Option<u64>>,
    /// Where they keep their files.
    pub(crate) storage: BTreeMap<String, String>,
}

impl World {
    /// As it was set while the server ran, else as it was when it started.
    pub(crate) fn admission(&self) -> admission::Settings {
        let usual = self.options.admission.clone();
        let limit = self.books.setting(MAX_ACTIVE_RUNS).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read how many runs may be active");
            None
        });
        let limit = limit.and_then(|limit| limit.as_u64()).and_then(|limit| usize::try_from(limit).ok());
        admission::Settings { max_active: limit.unwrap_or(usual.max_active), ..usual }
    }

    fn bans(&self, request: &str) -> Result<Vec<String>, windlass_store::Error> {
        let filter = BanFilter {
            holds_for: Some(request.to_owned()),
            active_at: Some(Clock.now()),
            ..BanFilter::default()
        };
        Ok(self.books.bans(&filter)?.into_iter().map(|ban| ban.ban.site).collect())
    }

    /// Sites where nothing of this request may begin now: banned for it, or not enabled.
    pub(crate) fn closed(&self, request: &str) -> Result<Vec<String>, windlass_store::Error> {
        let banned: BTreeSet<String> = self.bans(request)?.into_iter().collect();
        Ok(self.shut()?.union(&banned).cloned().collect())
    }

    /// The same for one of its runs. A ban that was made after it was planned, and leaves some of its units no site, does not
    /// hold for it: they would wait where nobody sees it.
    pub(crate) fn closed_to(
        &self,
        request: &str,
        run: &RunRow,
    ) -> Result<Vec<String>, windlass_store::Error> {
        let banned = self.bans(request)?.into_iter().collect();
        let bearable = bans::bearable(&banned, &self.open_to(run)?);
        Ok(self.shut()?.union(&bearable).cloned().collect())
    }

    /// Sites that are not enabled.
    fn shut(&self) -> Result<BTreeSet<String>, windlass_store::Error> {
        let sites = self.books.sites()?.into_iter();
        Ok(sites.filter(|site| site.status != SiteStatus::Enabled).map(|site| site.name).collect())
    }

    /// Sets of sites that units of a run may go to, as it was planned, but for those that are not enabled.
    pub(crate) fn open_to(&self, run: &RunRow) -> Result<Vec<BTreeSet<String>>, windlass_store::Error> {
        let shut = self.shut()?;
        let outline = Outline::read(Path::new(&run.submit_dir)).unwrap_or_default();
        let sets = outline.sites.into_iter().map(BTreeSet::from_iter);
        Ok(sets.map(|sites: BTreeSet<String>| &sites - &shut).collect())
    }

    /// Sites that this request may use now: enabled, and not banned for it.
    pub(crate) fn places(&self, request: &str) -> Result<Places, windlass_store::Error> {
        let banned = self.bans(request)?;
        let mut places = Places::default();
        for site in self.books.sites()? {
            if site.status != SiteStatus::Enabled || banned.contains(&site.name) {
                continue;
            }
            let path = site.storage_path.clone().unwrap_or_else(|| self.usual_storage(&site.name));
            places.storage.insert(site.name.clone(), path);
            places.usable.insert(site.name, site.total_slots);
        }
        Ok(places)
    }

    /// Where a site keeps its files that says nothing else. It is ours, so it is made; one that somebody named is his.
    fn usual_storage(&self, site: &str) -> String {
        let path = self.options.storage_root.join(site);
        if let Err(error) = std::fs::create_dir_all(&path) {
            // Whatever lands there says so too.
            tracing::warn!(%error, path = %path.display(), "cannot make the storage of a site");
        }
        path.to_string_lossy().into_owned()
    }

    /// Where a site keeps its files, whatever its state.
    pub(crate) fn storage_of(&self, site: &str) -> Result<String, windlass_store::Error> {
        let known = self.books.site(site)?.and_then(|row| row.storage_path);
        Ok(known.unwrap_or_else(|| self.options.storage_root.join(site).to_string_lossy().into_owned()))
    }
}
