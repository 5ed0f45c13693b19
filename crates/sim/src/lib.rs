//! A world in which requests live for a month within seconds: sites go down, files are bad, nodes are slow, services do not
//! answer, the server crashes, and people look at what is held after some hours. The same seed has the same history.
//!
//! Whatever is decided is decided by the code that production uses: `lifecycle::decide`, `admission::queue`, `plan::plan`,
//! `files`, `bans`, `adaptive`, the rules for retries. The world around it is made up. After every commit, and in the end, it is checked that
//! everything holds that always has to.
//!
//! | file | what |
//! |---|---|
//! | `sim.rs` | the world as a whole, and what happens next |
//! | `setup.rs` | how large it is, how much goes wrong, and what is done wrongly on purpose |
//! | `land.rs`, `wishes.rs`, `people.rs` | sites; requests and their input; those who look at them |
//! | `grid/` | backends: runs, units, nodes, what becomes of attempts |
//! | `server/` | passes, decisions, effects, crashes |
//! | `books.rs` | the rows, and how commits are taken |
//! | `watch/` | what must always hold |
//! | `dice.rs`, `agenda.rs`, `story.rs`, `figures.rs` | chance, time, what is told and counted |

mod backends;
mod event_queue;
mod history;
mod invariants;
mod memory_store;
mod people;
mod request_generator;
mod seeded_random;
mod setup;
mod simulated_server;
mod simulation;
mod sites;
mod statistics;

pub use invariants::InvariantViolation;
pub use setup::{InjectedFault, SimulationSetup};
pub use simulation::run_simulation;
pub use statistics::{SimulationOutcome, SimulationStatistics};
