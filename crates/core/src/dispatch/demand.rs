//! Demand of job classes, location constraints, and worker selectors.

use serde::{Deserialize, Serialize};
use windlass_types::Resources;

/// What the jobs of a class request, as far as it matters where they may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDemand {
    pub resources: Resources,
    /// Requested explicitly, not a default.
    pub is_explicit: bool,
    pub location: LocationConstraint,
}

/// Where the jobs of a class may run, and when they may start, apart from resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct LocationConstraint {
    /// Sorted, without duplicates.
    pub labels: Vec<String>,
    /// The scheduler whose nodes they are meant for.
    pub scheduler: Option<i64>,
    /// Any of these; sorted, without duplicates. Empty: anywhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<String>,
    /// Name of the job limit that bounds how many of them are claimed at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Whether the completion of such a job fixes the site of its work unit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub elects: bool,
}

/// Which jobs a worker accepts, apart from resources. The default accepts all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerSelector {
    /// Sorted. `None`: labels do not matter.
    labels: Option<Vec<String>>,
    /// A worker with labels also accepts jobs without labels.
    takes_unlabeled: bool,
    schedulers: SchedulerSelector,
    site: WorkerSite,
    /// Accepts no job that elects a site, wherever it is.
    refuses_elections: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum WorkerSite {
    /// Sites do not matter.
    #[default]
    Anywhere,
    Site(String),
    /// Unknown: accepts no job that depends on sites.
    Unknown,
}

impl WorkerSite {
    fn accepts_location(&self, place: &LocationConstraint) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Site(site) => place.sites.is_empty() || place.sites.binary_search(site).is_ok(),
            Self::Unknown => place.sites.is_empty() && !place.elects,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SchedulerSelector {
    #[default]
    Any,
    /// Jobs for any scheduler, or for this one.
    Only(Option<i64>),
}

impl SchedulerSelector {
    fn accepts_scheduler(self, meant_for: Option<i64>) -> bool {
        match self {
            Self::Any => true,
            Self::Only(mine) => meant_for.is_none() || meant_for == mine,
        }
    }
}

impl WorkerSelector {
    /// Accepts jobs with labels only if the worker has all of them, and jobs without labels only if it has
    /// none.
    #[must_use]
    pub fn with_labels(mut self, mut labels: Vec<String>) -> Self {
        labels.sort_unstable();
        labels.dedup();
        self.labels = Some(labels);
        self
    }

    /// Accepts all jobs whose labels are among these, including those without: for the only worker of a
    /// workflow.
    #[must_use]
    pub fn with_labels_of_only_worker(self, labels: Vec<String>) -> Self {
        Self { takes_unlabeled: true, ..self.with_labels(labels) }
    }

    /// Rejects jobs meant for another scheduler.
    #[must_use]
    pub fn with_scheduler(mut self, scheduler: Option<i64>) -> Self {
        self.schedulers = SchedulerSelector::Only(scheduler);
        self
    }

    /// Rejects jobs meant for another scheduler from now on; `None`: accepts all.
    pub const fn prefer_scheduler(&mut self, scheduler: Option<Option<i64>>) {
        self.schedulers = match scheduler {
            Some(own) => SchedulerSelector::Only(own),
            None => SchedulerSelector::Any,
        };
    }

    /// Accepts jobs that name sites only if this is one of them; `None`: at no site.
    #[must_use]
    pub fn at_site(mut self, site: Option<&str>) -> Self {
        self.site = site.map_or(WorkerSite::Unknown, |site| WorkerSite::Site(site.to_owned()));
        self
    }

    /// Returns the site of the worker, if any.
    pub fn site(&self) -> Option<&str> {
        match &self.site {
            WorkerSite::Site(site) => Some(site),
            WorkerSite::Anywhere | WorkerSite::Unknown => None,
        }
    }

    /// Sets whether it accepts jobs that elect the site where they complete.
    pub const fn set_accepts_elections(&mut self, may: bool) {
        self.refuses_elections = !may;
    }

    pub fn accepts_location(&self, place: &LocationConstraint) -> bool {
        let elects = place.elects && self.refuses_elections;
        !elects && self.could_accept_location(place)
    }

    /// Returns the labels of the location that this worker lacks.
    pub fn missing_labels<'p>(&self, place: &'p LocationConstraint) -> Vec<&'p str> {
        let mine = self.labels.as_deref().unwrap_or_default();
        let lacking = place.labels.iter().filter(|label| self.labels.is_some() && !mine.contains(label));
        lacking.map(String::as_str).collect()
    }

    /// Whether it could accept the location, apart from who accepts elections at the moment.
    pub fn could_accept_location(&self, place: &LocationConstraint) -> bool {
        let labels = self.labels.as_ref().is_none_or(|mine| {
            (place.labels.is_empty() == mine.is_empty() || self.takes_unlabeled)
                && place.labels.iter().all(|label| mine.binary_search(label).is_ok())
        });
        labels && self.schedulers.accepts_scheduler(place.scheduler) && self.site.accepts_location(place)
    }
}

impl From<Resources> for JobDemand {
    /// Explicitly requested, at any location.
    fn from(resources: Resources) -> Self {
        Self { resources, is_explicit: true, location: LocationConstraint::default() }
    }
}
