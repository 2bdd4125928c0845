//! Compressed bodies (RFC 9110, 8.4.1).

use libdeflater::{DecompressionError, Decompressor};

/// Reason why a body cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CodingError {
    /// A coding that was not asked for.
    #[error("its coding `{0}` was not asked for")]
    Unknown(String),
    /// The body is not gzip data, or ends early.
    #[error("it is not complete gzip data")]
    Malformed,
    /// More bytes than the limit.
    #[error("it has more than {0} bytes")]
    TooLong(usize),
}

/// Returns the content of a body, of at most `max` bytes.
pub(crate) fn decode(
    body: Vec<u8>,
    coding: Option<&str>,
    max: usize,
) -> Result<Vec<u8>, CodingError> {
    let Some(coding) = coding else {
        return Ok(body);
    };
    if !["gzip", "x-gzip"].contains(&coding.to_ascii_lowercase().as_str()) {
        return Err(CodingError::Unknown(coding.to_owned()));
    }
    // The length is at the end (RFC 1952, 2.3.1), but is not to be trusted.
    let stated = body
        .last_chunk()
        .map_or(0, |last| u32::from_le_bytes(*last));
    let stated = usize::try_from(stated).unwrap_or(max);
    let mut content = vec![0; stated.min(max)];
    match Decompressor::new().gzip_decompress(&body, &mut content) {
        Ok(length) => {
            content.truncate(length);
            Ok(content)
        }
        Err(DecompressionError::InsufficientSpace) if stated >= max => {
            Err(CodingError::TooLong(max))
        }
        Err(_) => Err(CodingError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libdeflater::{CompressionLvl, Compressor};

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut compressor = Compressor::new(CompressionLvl::default());
        let mut out = vec![0; compressor.gzip_compress_bound(content.len())];
        let length = compressor.gzip_compress(content, &mut out);
        out.truncate(length.expect("the bound is kept"));
        out
    }

    #[test]
    fn bodies_are_decoded_up_to_a_limit() {
        let content = b"#EXTM3U\n".repeat(100);
        let body = gzip(&content);
        for coding in ["gzip", "X-GZIP"] {
            assert_eq!(decode(body.clone(), Some(coding), 800), Ok(content.clone()));
        }
        assert_eq!(decode(body.clone(), None, 1), Ok(body.clone()));
        let too_long = Err(CodingError::TooLong(799));
        assert_eq!(decode(body.clone(), Some("gzip"), 799), too_long);
        let unknown = Err(CodingError::Unknown("br".to_owned()));
        assert_eq!(decode(body.clone(), Some("br"), 800), unknown);
        for end in [0, 3, 20, body.len() - 1] {
            let cut = decode(body[..end].to_vec(), Some("gzip"), 800);
            assert!(cut.is_err(), "{end}: {cut:?}");
        }
    }
}
