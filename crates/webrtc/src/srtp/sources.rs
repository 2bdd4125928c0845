//! State of the sources of one direction, found by SSRC.

use super::error::SrtpError;

/// Maximum number of sources with stored state. A room of a hundred participants with audio, video
/// and retransmissions has about four hundred. For RTCP, each subscriber of a server is one too.
const SOURCES_MAX: usize = 2048;

/// Index of a source, or else where it is to be inserted.
pub(super) type Position = Result<usize, usize>;

/// State of each source, sorted by SSRC.
#[derive(Debug, Default)]
pub(super) struct Sources<T>(Vec<(u32, T)>);

impl<T: Default> Sources<T> {
    #[inline]
    pub(super) fn position(&self, ssrc: u32) -> Position {
        self.0.binary_search_by_key(&ssrc, |(ssrc, _)| *ssrc)
    }

    /// Returns the state at a position. `None` if the source is new.
    #[inline]
    pub(super) fn get(&self, position: Position) -> Option<&T> {
        position.ok().map(|position| &self.0[position].1)
    }

    /// Returns the state of the source at its position, and creates it if the source is new.
    ///
    /// # Errors
    /// [`SrtpError::TooManySources`].
    #[inline]
    pub(super) fn at(&mut self, position: Position, ssrc: u32) -> Result<&mut T, SrtpError> {
        let position = match position {
            Ok(position) => position,
            Err(_) if self.0.len() >= SOURCES_MAX => return Err(SrtpError::TooManySources),
            Err(position) => {
                self.0.insert(position, (ssrc, T::default()));
                position
            }
        };
        Ok(&mut self.0[position].1)
    }

    /// Returns the state of a source, and creates it if the source is new.
    ///
    /// # Errors
    /// [`SrtpError::TooManySources`].
    #[inline]
    pub(super) fn state(&mut self, ssrc: u32) -> Result<&mut T, SrtpError> {
        self.at(self.position(ssrc), ssrc)
    }
}
