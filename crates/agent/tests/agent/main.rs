//! Remote workers with real worker processes and real jobs, against a test server.

#[cfg(test)]
mod allocation;
#[cfg(test)]
mod away;
#[cfg(test)]
mod basics;
#[cfg(test)]
mod frozen;
#[cfg(test)]
mod server;
#[cfg(test)]
mod support;
