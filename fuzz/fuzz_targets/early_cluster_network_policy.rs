//! Any changes to a valid EarlyClusterNetworkPolicy.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palisade_campaigns::fuzz::kind(
    palisade_api::Kind::EarlyClusterNetworkPolicy,
    bytes
));
