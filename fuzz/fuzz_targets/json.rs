//! Any bytes as a JSON file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palisade_bench::fuzz::json(bytes));
