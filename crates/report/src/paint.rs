//! Colour for a terminal, or none.

/// Puts colour on words, where the place they go to shows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paint {
    /// Whether escape sequences are written at all.
    pub colour: bool,
}

impl Paint {
    /// What is as it should be.
    pub fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    /// What is not as it should be.
    pub fn bad(self, text: &str) -> String {
        self.with("31", text)
    }

    /// What one cannot rely on.
    pub fn doubtful(self, text: &str) -> String {
        self.with("33", text)
    }

    /// What stands out.
    pub fn strong(self, text: &str) -> String {
        self.with("1", text)
    }

    /// What stands back.
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
