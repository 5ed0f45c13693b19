//! What the jobs of a class ask for, where they belong, and who takes them.

use serde::{Deserialize, Serialize};
use windlass_types::Resources;

/// What the jobs of a class have in common, as far as it matters where they may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDemand {
    pub resources: Resources,
    /// Somebody asked for them: they are no default.
    pub is_explicit: bool,
    pub location: LocationConstraint,
}

/// Where the jobs of a class belong, and when they may start, apart from what they ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct LocationConstraint {
    /// Sorted, each once.
    pub labels: Vec<String>,
    /// The scheduler whose nodes they are meant for.
    pub scheduler: Option<i64>,
    /// Any of these; sorted, each once. Empty: anywhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<String>,
    /// The limit of the workflow that says how many of them are claimed at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Where such a job completes is where its unit is from then on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub elects: bool,
}

/// Which jobs somebody takes, apart from whether they fit. The default takes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerSelector {
    /// Sorted. With `None` labels do not matter.
    labels: Option<Vec<String>>,
    /// With labels of its own it takes jobs without labels as well.
    takes_unlabeled: bool,
    schedulers: SchedulerSelector,
    site: WorkerSite,
    /// Nothing that elects a site, wherever it is.
    refuses_elections: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum WorkerSite {
    /// Sites do not matter.
    #[default]
    Anywhere,
    Site(String),
    /// Nobody knows: nothing that has to do with sites.
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
    /// Jobs that are meant for no scheduler, or for this one.
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
    /// Jobs with labels only if it has all of them, jobs without labels only if it has none.
    #[must_use]
    pub fn with_labels(mut self, mut labels: Vec<String>) -> Self {
        labels.sort_unstable();
        labels.dedup();
        self.labels = Some(labels);
        self
    }

    /// All jobs whose labels are among these, also those without any: for the only worker of a workflow.
    #[must_use]
    pub fn with_labels_of_only_worker(self, labels: Vec<String>) -> Self {
        Self { takes_unlabeled: true, ..self.with_labels(labels) }
    }

    /// No jobs that are meant for another scheduler.
    #[must_use]
    pub fn with_scheduler(mut self, scheduler: Option<i64>) -> Self {
        self.schedulers = SchedulerSelector::Only(scheduler);
        self
    }

    /// The same, or the contrary, for a while.
    pub const fn prefer_scheduler(&mut self, scheduler: Option<Option<i64>>) {
        self.schedulers = match scheduler {
            Some(own) => SchedulerSelector::Only(own),
            None => SchedulerSelector::Any,
        };
    }

    /// Jobs that name sites only if this is one of them; `None` is at no site at all.
    #[must_use]
    pub fn at_site(mut self, site: Option<&str>) -> Self {
        self.site = site.map_or(WorkerSite::Unknown, |site| WorkerSite::Site(site.to_owned()));
        self
    }

    /// Where it is, if it is at a site.
    pub fn site(&self) -> Option<&str> {
        match &self.site {
            WorkerSite::Site(site) => Some(site),
            WorkerSite::Anywhere | WorkerSite::Unknown => None,
        }
    }

    /// Whether it takes jobs that elect the site where they complete.
    pub const fn set_accepts_elections(&mut self, may: bool) {
        self.refuses_elections = !may;
    }

    pub fn accepts_location(&self, place: &LocationConstraint) -> bool {
        let elects = place.elects && self.refuses_elections;
        !elects && self.could_accept_location(place)
    }

    /// Those labels of the place that this one lacks.
    pub fn missing_labels<'p>(&self, place: &'p LocationConstraint) -> Vec<&'p str> {
        let mine = self.labels.as_deref().unwrap_or_default();
        let lacking = place.labels.iter().filter(|label| self.labels.is_some() && !mine.contains(label));
        lacking.map(String::as_str).collect()
    }

    /// The same, whoever takes elections just now.
    pub fn could_accept_location(&self, place: &LocationConstraint) -> bool {
        let labels = self.labels.as_ref().is_none_or(|mine| {
            (place.labels.is_empty() == mine.is_empty() || self.takes_unlabeled)
                && place.labels.iter().all(|label| mine.binary_search(label).is_ok())
        });
        labels && self.schedulers.accepts_scheduler(place.scheduler) && self.site.accepts_location(place)
    }
}

impl From<Resources> for JobDemand {
    /// Asked for, and at home anywhere.
    fn from(resources: Resources) -> Self {
        Self { resources, is_explicit: true, location: LocationConstraint::default() }
    }
}
