//! Settings of generated video, common to all codecs: loop length, bytes per loop, picture size.

use crate::mediagen::frame_rate::FrameRate;

/// Minimum RTP payload limit: small enough for any path, large enough for an H.264 aggregation
/// packet of the parameter sets (RFC 6184, 5.7.1).
pub(crate) const MTU_MIN: usize = 128;
/// Part of a GOP's bytes, 1 in 10, that the moving content may take before a smaller picture is
/// chosen.
const CONTENT_SHARE: u64 = 10;
/// Minimum length of a loop, in milliseconds, so that short GOPs do not make a short loop.
const LOOP_MIN_MS: u64 = 2000;
/// Picture sizes in samples, largest first.
const SIZES: [(u32, u32); 11] = [
    (3840, 2160),
    (1920, 1080),
    (1280, 720),
    (960, 540),
    (640, 360),
    (480, 270),
    (320, 180),
    (192, 108),
    (128, 80),
    (96, 64),
    (64, 48),
];

/// H.264 profile (A.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Constrained Baseline.
    #[default]
    Baseline,
    /// Main, with CAVLC.
    Main,
}

impl Profile {
    /// Words after `H.264` in descriptions.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Profile::Baseline => "",
            Profile::Main => " Main",
        }
    }
}

/// Properties of the pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PictureForm {
    /// Width and height in samples. `None`: as large as the bit rate allows.
    pub size: Option<(u32, u32)>,
    /// Profile, for H.264.
    pub profile: Profile,
}

/// Settings of generated video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoSettings {
    /// Bit rate: bytes of RTP payload times 8, per second.
    pub bits_per_second: u64,
    /// Pictures per second.
    pub frame_rate: FrameRate,
    /// Number of pictures from one IDR picture or key frame to the next.
    pub gop: u32,
    /// Maximum RTP payload in bytes. The bit rate includes the overhead of fragmentation.
    pub mtu: usize,
    /// Properties of the pictures.
    pub form: PictureForm,
}

/// Reason why video cannot be generated with these settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Even pictures without texture do not fit into the bit rate.
    #[error(
        "a bit rate of {asked} bit/s is too low for {frame_rate} pictures per second with {gop} \
         pictures per GOP: at least {needed} bit/s is needed"
    )]
    BitRateTooLow {
        /// Requested bit rate, in bit/s.
        asked: u64,
        /// Minimum bit rate, in bit/s.
        needed: u64,
        /// Pictures per second.
        frame_rate: FrameRate,
        /// Pictures per GOP.
        gop: u32,
    },
    /// A loop would take too much memory.
    #[error(
        "a bit rate of {asked} bit/s is too high: one loop of {gop} pictures would take {bytes} \
         bytes"
    )]
    BitRateTooHigh {
        /// Requested bit rate, in bit/s.
        asked: u64,
        /// Pictures per GOP.
        gop: u32,
        /// Size of the loop in bytes.
        bytes: u64,
    },
    /// The GOP is empty, or too long for a loop.
    #[error("a GOP of {0} pictures is outside the range of 1 to {GOP_MAX}")]
    Gop(u32),
    /// The picture size is outside the supported range, or cannot be coded.
    #[error(
        "invalid picture size {0}x{1}: both sides must be even, from {SIDE_MIN} to {SIDE_MAX} samples"
    )]
    Size(u32, u32),
    /// The RTP payload limit is outside the supported range.
    #[error("an RTP payload limit of {0} bytes is outside the range of {MTU_MIN} to 65000")]
    Mtu(usize),
}

/// Minimum and maximum side of a picture, in samples.
const SIDE_MIN: u32 = 48;
const SIDE_MAX: u32 = 4096;
/// Maximum length of a GOP, in pictures.
const GOP_MAX: u32 = 100_000;
/// Maximum size of a loop, in bytes.
const LOOP_BYTES_MAX: u64 = 1 << 30;
/// Maximum RTP payload: fits into one UDP datagram with a margin.
const MTU_MAX: usize = 65_000;

/// Size of a loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loop {
    pub(crate) gops: u64,
    /// Bytes of payload of the whole loop.
    pub(crate) bytes: u64,
}

impl Loop {
    /// Returns the loop for these settings. It lasts at least [`LOOP_MIN_MS`]; a single GOP of more
    /// than one picture that is long enough remains one, otherwise `is_even` requires an even
    /// number of GOPs.
    pub(crate) fn of(settings: &VideoSettings, is_even: bool) -> Result<Loop, SettingsError> {
        if settings.gop == 0 || settings.gop > GOP_MAX {
            return Err(SettingsError::Gop(settings.gop));
        }
        if !(MTU_MIN..=MTU_MAX).contains(&settings.mtu) {
            return Err(SettingsError::Mtu(settings.mtu));
        }
        if let Some((width, height)) = settings.form.size
            && [width, height]
                .iter()
                .any(|side| side % 2 != 0 || !(SIDE_MIN..=SIDE_MAX).contains(side))
        {
            return Err(SettingsError::Size(width, height));
        }
        let rate = settings.frame_rate;
        let gop_nanos = rate.nanos(settings.gop.into()).max(1);
        let gops = match (LOOP_MIN_MS * 1_000_000).div_ceil(gop_nanos) {
            1 if settings.gop > 1 => 1,
            gops if is_even => gops.next_multiple_of(2),
            gops => gops,
        };
        let pictures = gops * u64::from(settings.gop);
        let bytes = u128::from(settings.bits_per_second)
            * u128::from(pictures)
            * u128::from(rate.denominator())
            / (8 * u128::from(rate.numerator()));
        match u64::try_from(bytes) {
            Ok(bytes) if bytes <= LOOP_BYTES_MAX => Ok(Loop { gops, bytes }),
            _ => Err(SettingsError::BitRateTooHigh {
                asked: settings.bits_per_second,
                gop: settings.gop,
                bytes: bytes.try_into().unwrap_or(u64::MAX),
            }),
        }
    }

    /// Returns the requested size, or the largest picture whose moving content leaves enough of the
    /// bit rate for texture. Pictures larger than 1920x1080 are chosen only if the bytes would not
    /// fit into smaller ones. `least` returns the bytes of a GOP of a given size without texture,
    /// `weight` is the ratio of its first picture's size to that of the others.
    pub(crate) fn choose_size(
        self,
        settings: &VideoSettings,
        weight: u64,
        least: impl Fn((u32, u32)) -> u64,
    ) -> Result<(u32, u32), SettingsError> {
        let per_gop = self.bytes / self.gops;
        let per_picture = per_gop / u64::from(settings.gop);
        if let Some(size) = settings.form.size {
            return self.has_room_for(least(size), settings).map(|()| size);
        }
        let mut needed = 0;
        for (index, &size) in SIZES.iter().enumerate() {
            let room = SIZES
                .get(index + 1)
                .map_or(0, |&(width, height)| u64::from(width * height) * 3 / 2);
            if size.0 > 1920 && per_picture * weight <= room {
                continue;
            }
            needed = least(size);
            if needed * CONTENT_SHARE <= per_gop {
                return Ok(size);
            }
        }
        self.has_room_for(needed, settings)?;
        Ok(SIZES[SIZES.len() - 1])
    }

    /// Returns an error if `needed` bytes per GOP exceed the bit rate.
    pub(crate) fn has_room_for(
        self,
        needed: u64,
        settings: &VideoSettings,
    ) -> Result<(), SettingsError> {
        if needed <= self.bytes / self.gops {
            return Ok(());
        }
        let frames = u128::from(settings.gop) * u128::from(settings.frame_rate.denominator());
        let rate = u128::from(needed) * 8 * u128::from(settings.frame_rate.numerator());
        Err(SettingsError::BitRateTooLow {
            asked: settings.bits_per_second,
            needed: u64::try_from(rate.div_ceil(frames)).unwrap_or(u64::MAX),
            frame_rate: settings.frame_rate,
            gop: settings.gop,
        })
    }
}
