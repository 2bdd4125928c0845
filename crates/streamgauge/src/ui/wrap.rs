//! Wrapping of text between words, so that no terminal breaks a word.

use textwrap::{Options, WordSeparator, WordSplitter};

/// Wraps each line to `width` columns. Continuations are indented like the line, and by `hanging`
/// more columns. A word that is longer than a line stays whole.
pub(crate) fn lines(text: &str, width: usize, hanging: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let next = " ".repeat(indent + hanging);
        let options = Options::new(width)
            .subsequent_indent(&next)
            .break_words(false)
            .word_separator(WordSeparator::AsciiSpace)
            .word_splitter(WordSplitter::NoHyphenation);
        for (number, piece) in textwrap::wrap(line, &options).iter().enumerate() {
            // A line of spaces becomes an empty line.
            let piece = if number == 0 && piece.trim().is_empty() {
                ""
            } else {
                piece
            };
            wrapped.push_str(piece);
            wrapped.push('\n');
        }
    }
    wrapped
}

/// Joins the lines of a text, so that each paragraph and each item of a list is one line.
pub(crate) fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines().map(str::trim) {
        let begins = line.is_empty() || line.starts_with("- ") || line.starts_with("* ");
        match paragraphs.last_mut().filter(|_| open && !begins) {
            Some(paragraph) => {
                paragraph.push(' ');
                paragraph.push_str(line);
            }
            None => paragraphs.push(line.to_owned()),
        }
        open = !line.is_empty();
    }
    paragraphs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_between_words_and_keep_their_indent() {
        let text = "short\n\n  threshold: viewers.loss below-seven-percent\n";
        assert_eq!(
            lines(text, 20, 4),
            "short\n\n  threshold:\n      viewers.loss\n      below-seven-percent\n"
        );
        assert_eq!(lines(text, 80, 4), text);
    }

    #[test]
    fn each_paragraph_and_list_item_becomes_one_line() {
        assert_eq!(
            paragraphs("One\nand two.\n\n- an item\n  goes on\n- another"),
            ["One and two.", "", "- an item goes on", "- another"]
        );
    }
}
