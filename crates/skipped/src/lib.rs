//! Prints the skipped tests at the end of a test run: see `tests/skipped.rs`.
