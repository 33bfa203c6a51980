//! Says at the end of a test run which tests were skipped: see `tests/skipped.rs`.
