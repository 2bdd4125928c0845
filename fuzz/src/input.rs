//! Taking an input apart: numbers that steer the target, and the bytes that it reads.

/// An input that is read from its beginning.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    /// The next byte; 0 at the end.
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

    /// As many bytes; fewer at the end.
    pub(crate) fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A piece with its length before it: one byte.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte());
        self.take(length)
    }

    /// The rest.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// How a stream is cut: up to seven sizes, used in turn. Without any it comes in one piece.
    pub(crate) fn cuts(&mut self) -> Cuts {
        let count = usize::from(self.byte() % 8);
        let sizes = self.take(count).iter().map(|&size| match size {
            0..240 => usize::from(size) + 1,
            _ => (usize::from(size) - 238) * 150,
        });
        Cuts(sizes.collect())
    }
}

/// The sizes of a stream's pieces.
pub(crate) struct Cuts(Vec<usize>);

impl Cuts {
    /// The stream in pieces.
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

/// The text that the bytes are, wrong ones replaced.
pub(crate) fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
