//! Any bytes as a watch of an API server, whole and in pieces.
#![no_main]

#[global_allocator]
static ALLOCATOR: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    palisade_campaigns::fuzz::within_memory(&ALLOCATOR, bytes, |bytes| {
        palisade_campaigns::fuzz::watch(bytes)
    });
});
