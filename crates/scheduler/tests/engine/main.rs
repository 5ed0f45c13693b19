//! A local run with a real database and scripted workers.

#[cfg(test)]
mod added_jobs;
#[cfg(test)]
mod assignments;
#[cfg(test)]
mod dispatch;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod retries;
