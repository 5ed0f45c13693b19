//! What runs on a worker for a node of a request: reads its manifest, runs the steps, measures, writes and merges outputs.
