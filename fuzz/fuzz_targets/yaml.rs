//! Any bytes as a YAML file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palisade_bench::fuzz::yaml(bytes));
