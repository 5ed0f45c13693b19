//! Simulates a month of requests within seconds: sites go down, files are bad, nodes are slow, services do not
//! respond, the server crashes, and operators look at held requests after some hours. The same seed gives the
//! same history.
//!
//! All decisions are made by the code of production: `lifecycle::decide_request`, `admission::order_queue`,
//! `round_plan::plan_round`, `input_files`, `bans`, `adaptive`, the retry rules. Everything around it is
//! simulated. All invariants are checked after every commit and at the end.
//!
//! | file | content |
//! |---|---|
//! | `simulation.rs` | the simulation and its events |
//! | `setup.rs` | size, rates of failures, and faults that are injected on purpose |
//! | `sites.rs`, `request_generator.rs`, `simulated_operators.rs` | sites; requests and their input; operators |
//! | `backends/` | runs, units, nodes, the outcomes of attempts |
//! | `simulated_server/` | passes, decisions, effects, crashes |
//! | `memory_store.rs` | the rows, and how commits are applied |
//! | `invariants/` | what must always hold |
//! | `seeded_random.rs`, `event_queue.rs`, `history.rs`, `statistics.rs` | random numbers, time, history and counters |

mod backends;
mod event_queue;
mod history;
mod invariants;
mod memory_store;
mod request_generator;
mod seeded_random;
mod setup;
mod simulated_operators;
mod simulated_server;
mod simulation;
mod sites;
mod statistics;

pub use invariants::InvariantViolation;
pub use setup::{InjectedFault, SimulationSetup};
pub use simulation::run_simulation;
pub use statistics::{SimulationOutcome, SimulationStatistics};
