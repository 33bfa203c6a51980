//! Any bytes as a JSON file.
#![no_main]

#[global_allocator]
static ALLOCATOR: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    palisade_campaigns::fuzz::within_memory(&ALLOCATOR, bytes, |bytes| {
        palisade_campaigns::fuzz::json(bytes)
    });
});
