//! The dispatcher with a real database and scripted workers.

#[cfg(test)]
mod added;
#[cfg(test)]
mod assignments;
#[cfg(test)]
mod common;
#[cfg(test)]
mod dispatch;
#[cfg(test)]
mod retries;
