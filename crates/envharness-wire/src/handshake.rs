//! The WebSocket handshake (RFC 6455).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What a server answers to a `Sec-WebSocket-Key` (section 4.2.2); none where the key is not 16 bytes in base64.
pub fn accept_for(key: &[u8]) -> Option<String> {
    if STANDARD.decode(key).ok()?.len() != 16 {
        return None;
    }
    let mut hash = sha1_smol::Sha1::new();
    hash.update(key);
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    Some(STANDARD.encode(hash.digest().bytes()))
}

/// A key of 16 bytes.
pub fn key_of(bytes: [u8; 16]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_of_rfc_6455() {
        assert_eq!(accept_for(b"dGhlIHNhbXBsZSBub25jZQ==").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(accept_for(b"short"), None);
        assert!(accept_for(key_of([7; 16]).as_bytes()).is_some());
    }
}
