//! The worker as a process, with real jobs.

#[cfg(test)]
mod basics;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod launched_jobs;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod leftover_processes;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod order;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod session;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod stopping;
#[cfg(test)]
mod support;
#[cfg(test)]
mod workflows;
