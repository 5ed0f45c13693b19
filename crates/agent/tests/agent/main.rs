//! Remote workers with real worker processes and real jobs, against a test server.

#[cfg(test)]
mod allocation;
#[cfg(test)]
mod basics;
#[cfg(test)]
mod frozen;
#[cfg(test)]
mod server;
#[cfg(test)]
mod support;
#[cfg(test)]
mod unreachable_server;
