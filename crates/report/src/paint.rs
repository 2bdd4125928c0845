//! Colour for terminal output.

/// Colours words, if the output supports it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paint {
    /// True if escape sequences are written.
    pub colour: bool,
}

impl Paint {
    /// Marks a good result.
    pub fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    /// Marks a bad result.
    pub fn bad(self, text: &str) -> String {
        self.with("31", text)
    }

    /// Marks an unreliable result.
    pub fn doubtful(self, text: &str) -> String {
        self.with("33", text)
    }

    /// Emphasizes a text.
    pub fn strong(self, text: &str) -> String {
        self.with("1", text)
    }

    /// De-emphasizes a text.
    pub fn faint(self, text: &str) -> String {
        self.with("2", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}
