//! Shortening of long URLs and command lines in the middle, where it matters least.

/// Shortens a text to at most `width` columns. A URL keeps its scheme, its address and its end; any
/// other text keeps both ends.
///
/// An address that is wider than `width` is not cut, because it identifies the server.
pub fn shorten(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let address = address_end(text);
    let head = match address {
        Some(end) => text[..end].chars().count(),
        None => width.saturating_sub(1) / 2,
    };
    let tail = width.saturating_sub(head + 1);
    let begin: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{begin}…{end}")
}

/// Returns the end of the address in the first URL of a text, in bytes.
fn address_end(text: &str) -> Option<usize> {
    let (scheme, rest) = text.split_once("://")?;
    let end = rest
        .find(|c: char| matches!(c, '/' | '?' | '#') || c.is_whitespace())
        .unwrap_or(rest.len());
    Some(scheme.len() + "://".len() + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitting_text_is_unchanged() {
        assert_eq!(shorten("rtsp://h/a", 10), "rtsp://h/a");
        assert_eq!(shorten("", 0), "");
    }

    #[test]
    fn the_address_of_a_url_is_never_cut() {
        let url = "rtsp://media.example:8554/a/very/long/path/to/clip1";
        assert_eq!(shorten(url, 32), "rtsp://media.example:8554…/clip1");
        assert_eq!(shorten(url, 8), "rtsp://media.example:8554…");
    }

    #[test]
    fn other_texts_keep_both_ends() {
        assert_eq!(shorten("/usr/bin/server --port 1", 11), "/usr/…ort 1");
        assert_eq!(shorten("ääääääää", 5), "ää…ää");
    }
}
