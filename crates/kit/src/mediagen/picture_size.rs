//! Picture sizes in text form.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Width and height in samples, written `1280x720`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureSize {
    /// Width in samples.
    pub width: u32,
    /// Height in samples.
    pub height: u32,
}

/// Error for a text that is not a picture size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a picture size: write width and height in samples, such as 1280x720")]
pub struct PictureSizeError(String);

impl FromStr for PictureSize {
    type Err = PictureSizeError;

    fn from_str(text: &str) -> Result<PictureSize, PictureSizeError> {
        let side = |text: &str| {
            let digits = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        text.split_once('x')
            .and_then(|(width, height)| {
                Some(PictureSize {
                    width: side(width)?,
                    height: side(height)?,
                })
            })
            .ok_or_else(|| PictureSizeError(text.chars().take(40).collect()))
    }
}

impl fmt::Display for PictureSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}x{}", self.width, self.height)
    }
}

impl Serialize for PictureSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PictureSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PictureSize, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for PictureSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PictureSize".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Width and height in samples, such as 1280x720.",
            "type": "string",
            "pattern": "^[0-9]{1,5}x[0-9]{1,5}$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_formatted() {
        let size: PictureSize = "1280x720".parse().expect("it is one");
        assert_eq!((size.width, size.height), (1280, 720));
        assert_eq!(size.to_string(), "1280x720");
        for wrong in [
            "",
            "x",
            "1280",
            "1280x",
            "1280×720",
            "-1x2",
            "+1x2",
            "999999x1",
            "1x2x3",
        ] {
            assert!(wrong.parse::<PictureSize>().is_err(), "{wrong}");
        }
    }
}
