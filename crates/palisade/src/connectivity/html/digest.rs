//! SHA-256 in base64, with which a page states its own script and style.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

/// Returns the digest of some bytes, as a Content-Security-Policy has it.
pub(super) fn sha256_base64(bytes: &[u8]) -> String {
    STANDARD.encode(digest(&SHA256, bytes))
}

#[cfg(test)]
mod tests {
    use super::sha256_base64;

    /// The digest of FIPS 180-2, appendix B.1, in the alphabet and padding of RFC 4648.
    #[test]
    fn the_example_of_the_standard() {
        assert_eq!(
            sha256_base64(b"abc"),
            "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="
        );
    }
}
