//! What video is to be made, whatever its codec: how long a loop of it is, how many bytes that has,
//! and how large its pictures are.

use crate::frame_rate::FrameRate;

/// The smallest payload that is allowed for: small enough for any path, large enough that an
/// aggregation packet of parameter sets of H.264 fits (RFC 6184, 5.7.1).
pub(crate) const MTU_MIN: usize = 128;
/// The share of a GOP that may be spent on what moves, before a smaller picture is chosen: 1 in 10.
const CONTENT_SHARE: u64 = 10;
/// A loop is at least so long, in milliseconds, so that short GOPs do not make a short loop.
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

/// The profile that H.264 says it keeps to (A.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Constrained Baseline.
    #[default]
    Baseline,
    /// Main, with CAVLC.
    Main,
}

/// What pictures are like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PictureForm {
    /// Width and height in samples. Without: as large as the bit rate has room for.
    pub size: Option<(u32, u32)>,
    /// The profile, of H.264.
    pub profile: Profile,
}

/// What video is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoSettings {
    /// Bytes of RTP payload, times 8, per second.
    pub bits_per_second: u64,
    /// Pictures per second.
    pub frame_rate: FrameRate,
    /// Pictures from one that can be decoded by itself (IDR picture, key frame) to the next.
    pub gop: u32,
    /// The longest RTP payload: the bit rate counts what fragmenting adds.
    pub mtu: usize,
    /// What its pictures are like, where that is not left to the bit rate.
    pub form: PictureForm,
}

/// Why video cannot be made as asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not even pictures in which next to nothing moves fit in.
    #[error(
        "a bit rate of {asked} bit/s is too low for {frame_rate} pictures per second with {gop} \
         pictures per GOP: it takes at least {needed} bit/s"
    )]
    BitRateTooLow {
        /// What was asked for, in bit/s.
        asked: u64,
        /// What would do, in bit/s.
        needed: u64,
        /// Pictures per second.
        frame_rate: FrameRate,
        /// Pictures per GOP.
        gop: u32,
    },
    /// A loop would not fit into memory reasonably.
    #[error(
        "a bit rate of {asked} bit/s is too high: one loop of {gop} pictures would take {bytes} \
         bytes"
    )]
    BitRateTooHigh {
        /// What was asked for, in bit/s.
        asked: u64,
        /// Pictures per GOP.
        gop: u32,
        /// Bytes of the loop.
        bytes: u64,
    },
    /// A GOP without a picture, or with more than a loop can hold.
    #[error("a GOP of {0} pictures: there must be between 1 and {GOP_MAX}")]
    Gop(u32),
    /// A picture that no decoder has to take, or that cannot be coded.
    #[error(
        "pictures of {0}x{1}: both must be even, and between {SIDE_MIN} and {SIDE_MAX} samples"
    )]
    Size(u32, u32),
    /// Packets too small to be cut.
    #[error("an RTP payload of at most {0} bytes: there must be between {MTU_MIN} and 65000")]
    Mtu(usize),
}

/// The shortest and the longest side of a picture, in samples.
const SIDE_MIN: u32 = 48;
const SIDE_MAX: u32 = 4096;
/// The longest GOP, in pictures.
const GOP_MAX: u32 = 100_000;
/// The largest loop, in bytes.
const LOOP_BYTES_MAX: u64 = 1 << 30;
/// The longest payload: what fits into one UDP datagram with some room.
const MTU_MAX: usize = 65_000;

/// How long a loop is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loop {
    pub(crate) gops: u64,
    /// Bytes of payload of the whole.
    pub(crate) bytes: u64,
}

impl Loop {
    /// That of video, of at least two GOPs and an even number where that matters and there is more
    /// than one.
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

    /// The size asked for; else the largest picture of which the moving parts leave room in the bit
    /// rate, and larger ones than 1920x1080 only where the bytes would not find place otherwise.
    /// `least` says how many bytes a GOP of a size has without texture, and `weight` how much
    /// larger its first picture is than others.
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

    /// Whether a GOP may have so many bytes.
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
