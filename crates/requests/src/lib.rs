//! The life of requests: one reconciler that owns their states, the catalog they read and write, and their way onto a backend.
