//! AMF3 (Adobe, "Action Message Format -- AMF 3", 2013), as far as it is met in commands: values
//! that stand alone. Commands of AMF3 (message type 17) are AMF0 behind one byte, in which a marker
//! switches to AMF3 for one value (AMF 0, 3.1).

use super::Malformed;

/// The most bytes of a whole number (AMF 3, 1.3.1).
const U29_BYTES: usize = 4;

/// A value that stands alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Simple {
    /// Nothing, that nobody has set.
    Undefined,
    /// Nothing.
    Null,
    /// Yes or no.
    Boolean(bool),
    /// Any number.
    Number(f64),
    /// Text. What is no UTF-8 in it is replaced.
    Text(String),
}

/// Reads one value that holds no others. Objects and arrays of AMF3 are refused: no server answers
/// a client of AMF0 with them.
///
/// # Errors
/// [`Malformed::Amf`].
pub fn read_simple(bytes: &[u8]) -> Result<(Simple, &[u8]), Malformed> {
    let (marker, rest) = bytes.split_first().ok_or(Malformed::Amf)?;
    Ok(match marker {
        0 => (Simple::Undefined, rest),
        1 => (Simple::Null, rest),
        2 => (Simple::Boolean(false), rest),
        3 => (Simple::Boolean(true), rest),
        4 => {
            let (number, rest) = read_u29(rest)?;
            // 29 bits with a sign (AMF 3, 3.6).
            let signed = ((number << 3) as i32) >> 3;
            (Simple::Number(signed.into()), rest)
        }
        5 => {
            let (number, rest) = rest.split_first_chunk().ok_or(Malformed::Amf)?;
            (Simple::Number(f64::from_be_bytes(*number)), rest)
        }
        6 => {
            let (header, rest) = read_u29(rest)?;
            // A reference to a text before it (AMF 3, 1.3.2): there was none.
            if header & 1 == 0 {
                return Err(Malformed::Amf);
            }
            let length = usize::try_from(header >> 1).map_err(|_| Malformed::Amf)?;
            let (text, rest) = rest.split_at_checked(length).ok_or(Malformed::Amf)?;
            (
                Simple::Text(String::from_utf8_lossy(text).into_owned()),
                rest,
            )
        }
        _ => return Err(Malformed::Amf),
    })
}

/// A whole number of up to 29 bits: seven a byte, and eight in the fourth.
fn read_u29(bytes: &[u8]) -> Result<(u32, &[u8]), Malformed> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().enumerate().take(U29_BYTES) {
        let rest = &bytes[at + 1..];
        if at + 1 == U29_BYTES {
            return Ok((number << 8 | u32::from(byte), rest));
        }
        number = number << 7 | u32::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Ok((number, rest));
        }
    }
    Err(Malformed::Amf)
}
