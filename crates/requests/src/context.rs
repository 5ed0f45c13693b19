//! What the reconciler works with: the store, the backends, a catalog, and settings.

use crate::alerts::AlertNotifier;
use crate::backend::{BackendKind, CondorOptions, RunBackends};
use crate::catalog::DatasetCatalog;
use crate::planned_run_units::PlannedRunUnits;
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

/// The setting for the maximum number of active runs.
pub const MAX_ACTIVE_RUNS: &str = "admission.max_active_dags";

/// Options for the execution of requests.
#[derive(Clone)]
pub struct LifecycleOptions {
    /// Interval at which all requests are checked, in case a notice was lost.
    pub interval: Duration,
    /// The parent of the runs' directories. Workers must see it under the same path.
    pub submit_root: PathBuf,
    /// The parent of the storage directories of sites without a storage path of their own.
    pub storage_root: PathBuf,
    /// The owner of all workflows of requests: whose workers run their jobs. `None`: the requestor of each.
    pub workflow_owner: Option<String>,
    pub plan_settings: PlanSettings,
    pub decision_settings: lifecycle::LifecycleSettings,
    pub admission_settings: admission::AdmissionSettings,
    /// Delay before a failed job is retried; longer each time.
    pub cool_off: Duration,
    /// The backend of new runs; existing ones stay where they are.
    pub backend: BackendKind,
    pub condor: CondorOptions,
    /// Maximum number of concurrent effects.
    pub effect_threads: usize,
    pub alert_notifier: AlertNotifier,
    /// Called with the name of a changed request, after the commit, on the thread of the lifecycle: pass the
    /// notice on, do no work.
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
    pub fn new(submit_root: PathBuf, storage_root: PathBuf) -> Self {
        Self {
            interval: Duration::from_mins(1),
            submit_root,
            storage_root,
            workflow_owner: None,
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

/// Shared by the passes and the effects.
pub(crate) struct RequestReconcilerContext {
    pub(crate) database: Arc<dyn StoreDatabase>,
    pub(crate) backends: RunBackends,
    pub(crate) catalog: Arc<dyn DatasetCatalog>,
    pub(crate) options: LifecycleOptions,
}

impl std::fmt::Debug for RequestReconcilerContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The sites that may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsableSites {
    /// Usable sites, with their slots where known.
    pub(crate) usable: BTreeMap<String, Option<u64>>,
    /// Their storage paths.
    pub(crate) storage_paths: BTreeMap<String, String>,
}

impl RequestReconcilerContext {
    /// As set while the server runs, else as configured at its start.
    pub(crate) fn admission_settings(&self) -> admission::AdmissionSettings {
        let usual = self.options.admission_settings.clone();
        let limit = self.database.setting(MAX_ACTIVE_RUNS).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the maximum number of active runs");
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

    /// Sites where no work of this request may start now: banned for it, or not enabled.
    pub(crate) fn closed_sites(&self, request: &str) -> Result<Vec<String>, windlass_store::StoreError> {
        let banned: BTreeSet<String> = self.banned_sites(request)?.into_iter().collect();
        Ok(self.disabled_sites()?.union(&banned).cloned().collect())
    }

    /// The same for one of its runs. A ban that was made after the planning and leaves some of its units without
    /// a site does not apply: they would wait without notice.
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

    /// The planned sets of sites of a run's units, without those that are not enabled.
    pub(crate) fn open_site_sets(
        &self,
        run: &RunRow,
    ) -> Result<Vec<BTreeSet<String>>, windlass_store::StoreError> {
        let shut = self.disabled_sites()?;
        let outline = PlannedRunUnits::read(Path::new(&run.submit_dir)).unwrap_or_default();
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

    /// The default storage path of a site. It is created; a configured path is not.
    fn default_storage(&self, site: &str) -> String {
        let path = self.options.storage_root.join(site);
        if let Err(error) = std::fs::create_dir_all(&path) {
            // The landing at the site reports the same.
            tracing::warn!(%error, path = %path.display(), "cannot create the storage directory of a site");
        }
        path.to_string_lossy().into_owned()
    }

    /// The storage path of a site in any state.
    pub(crate) fn storage_path(&self, site: &str) -> Result<String, windlass_store::StoreError> {
        let known = self.database.site(site)?.and_then(|row| row.storage_path);
        Ok(known.unwrap_or_else(|| self.options.storage_root.join(site).to_string_lossy().into_owned()))
    }
}
