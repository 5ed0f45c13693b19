//! What the reconciler works with: the books, the backends, a catalog, and what is set.

use crate::alerts::AlertNotifier;
use crate::backend::{BackendKind, CondorOptions, RunBackends};
use crate::catalog::DatasetCatalog;
use crate::run_outline::RunOutline;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::requests::rows::RunRow;
use windlass_core::requests::{admission, bans, lifecycle};
use windlass_core::round_plan::PlanSettings;
use windlass_store::StoreDatabase;
use windlass_store::model::SiteBanFilter;
use windlass_types::SystemClock;
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
    pub plan_settings: PlanSettings,
    pub decision_settings: lifecycle::LifecycleSettings,
    pub admission_settings: admission::AdmissionSettings,
    /// Before a failed job is tried again; longer each time.
    pub cool_off: Duration,
    /// Where new runs go; those that exist stay where they are.
    pub backend: BackendKind,
    pub condor: CondorOptions,
    /// What is done outside, at once.
    pub effect_threads: usize,
    pub alert_notifier: AlertNotifier,
    /// Told of a request that something changed about, once that is on disk, on the thread of the lifecycle: hand the news
    /// on, do no work.
    pub on_commit: Option<OnRequestCommit>,
}

/// See [`LifecycleOptions::on_commit`].
pub type OnRequestCommit = Arc<dyn Fn(&str) + Send + Sync>;

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
            plan_settings: PlanSettings::default(),
            decision_settings: lifecycle::LifecycleSettings::default(),
            admission_settings: admission::AdmissionSettings::default(),
            cool_off: Duration::from_mins(1),
            backend: BackendKind::default(),
            condor: CondorOptions::default(),
            effect_threads: 8,
            alert_notifier: AlertNotifier::default(),
            on_commit: None,
        }
    }
}

/// Shared by the passes and by what is done outside.
pub(crate) struct ReconcilerContext {
    pub(crate) database: Arc<dyn StoreDatabase>,
    pub(crate) backends: RunBackends,
    pub(crate) catalog: Arc<dyn DatasetCatalog>,
    pub(crate) options: LifecycleOptions,
}

impl std::fmt::Debug for ReconcilerContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Where work may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsableSites {
    /// Sites that may be used, with their slots where known.
    pub(crate) usable: BTreeMap<String, Option<u64>>,
    /// Where they keep their files.
    pub(crate) storage_paths: BTreeMap<String, String>,
}

impl ReconcilerContext {
    /// As it was set while the server ran, else as it was when it started.
    pub(crate) fn admission_settings(&self) -> admission::AdmissionSettings {
        let usual = self.options.admission_settings.clone();
        let limit = self.database.setting(MAX_ACTIVE_RUNS).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read how many runs may be active");
            None
        });
        let limit = limit.and_then(|limit| limit.as_u64()).and_then(|limit| usize::try_from(limit).ok());
        admission::AdmissionSettings { max_active: limit.unwrap_or(usual.max_active), ..usual }
    }

    fn banned_sites(&self, request: &str) -> Result<Vec<String>, windlass_store::StoreError> {
        let filter = SiteBanFilter {
            applies_to: Some(request.to_owned()),
            active_at: Some(SystemClock.now()),
            ..SiteBanFilter::default()
        };
        Ok(self.database.bans(&filter)?.into_iter().map(|ban| ban.ban.site).collect())
    }

    /// Sites where nothing of this request may begin now: banned for it, or not enabled.
    pub(crate) fn closed_sites(&self, request: &str) -> Result<Vec<String>, windlass_store::StoreError> {
        let banned: BTreeSet<String> = self.banned_sites(request)?.into_iter().collect();
        Ok(self.disabled_sites()?.union(&banned).cloned().collect())
    }

    /// The same for one of its runs. A ban that was made after it was planned, and leaves some of its units no site, does not
    /// hold for it: they would wait where nobody sees it.
    pub(crate) fn closed_to(
        &self,
        request: &str,
        run: &RunRow,
    ) -> Result<Vec<String>, windlass_store::StoreError> {
        let banned = self.banned_sites(request)?.into_iter().collect();
        let bearable = bans::dispensable_sites(&banned, &self.open_site_sets(run)?);
        Ok(self.disabled_sites()?.union(&bearable).cloned().collect())
    }

    /// Sites that are not enabled.
    fn disabled_sites(&self) -> Result<BTreeSet<String>, windlass_store::StoreError> {
        let sites = self.database.sites()?.into_iter();
        Ok(sites.filter(|site| site.status != SiteStatus::Enabled).map(|site| site.name).collect())
    }

    /// Sets of sites that units of a run may go to, as it was planned, but for those that are not enabled.
    pub(crate) fn open_site_sets(
        &self,
        run: &RunRow,
    ) -> Result<Vec<BTreeSet<String>>, windlass_store::StoreError> {
        let shut = self.disabled_sites()?;
        let outline = RunOutline::read(Path::new(&run.submit_dir)).unwrap_or_default();
        let sets = outline.sites.into_iter().map(BTreeSet::from_iter);
        Ok(sets.map(|sites: BTreeSet<String>| &sites - &shut).collect())
    }

    /// Sites that this request may use now: enabled, and not banned for it.
    pub(crate) fn usable_sites(&self, request: &str) -> Result<UsableSites, windlass_store::StoreError> {
        let banned = self.banned_sites(request)?;
        let mut places = UsableSites::default();
        for site in self.database.sites()? {
            if site.status != SiteStatus::Enabled || banned.contains(&site.name) {
                continue;
            }
            let path = site.storage_path.clone().unwrap_or_else(|| self.default_storage(&site.name));
            places.storage_paths.insert(site.name.clone(), path);
            places.usable.insert(site.name, site.total_slots);
        }
        Ok(places)
    }

    /// Where a site keeps its files that says nothing else. It is ours, so it is made; one that somebody named is his.
    fn default_storage(&self, site: &str) -> String {
        let path = self.options.storage_root.join(site);
        if let Err(error) = std::fs::create_dir_all(&path) {
            // Whatever lands there says so too.
            tracing::warn!(%error, path = %path.display(), "cannot make the storage of a site");
        }
        path.to_string_lossy().into_owned()
    }

    /// Where a site keeps its files, whatever its state.
    pub(crate) fn storage_path(&self, site: &str) -> Result<String, windlass_store::StoreError> {
        let known = self.database.site(site)?.and_then(|row| row.storage_path);
        Ok(known.unwrap_or_else(|| self.options.storage_root.join(site).to_string_lossy().into_owned()))
    }
}
