//! Splits a fuzz input into numbers that control the target and bytes that it parses.

/// An input that is read from its beginning.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    /// Returns the next byte; 0 at the end.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        byte
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns this many bytes; fewer at the end.
    pub(crate) fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns a piece that follows its length, which is one byte.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte());
        self.take(length)
    }

    /// Returns the rest of the input.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Returns the sizes of the pieces of a stream: up to seven, used in turn. Without any, the
    /// stream comes in one piece.
    pub(crate) fn cuts(&mut self) -> Cuts {
        let count = usize::from(self.byte() % 8);
        let sizes = self.take(count).iter().map(|&size| match size {
            0..240 => usize::from(size) + 1,
            _ => (usize::from(size) - 238) * 150,
        });
        Cuts(sizes.collect())
    }
}

/// Sizes of the pieces of a stream.
pub(crate) struct Cuts(Vec<usize>);

impl Cuts {
    /// Splits a stream into pieces.
    pub(crate) fn pieces<'a>(&self, stream: &'a [u8]) -> Vec<&'a [u8]> {
        if self.0.is_empty() {
            return vec![stream];
        }
        let mut rest = stream;
        let mut sizes = self.0.iter().cycle();
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let size = *sizes.next().expect("there is one");
            let (piece, after) = rest.split_at(size.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces
    }
}

/// Returns the bytes as text, with invalid ones replaced.
pub(crate) fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
