//! AMF3 (Adobe, "Action Message Format -- AMF 3", 2013), limited to scalar values in commands. An
//! AMF3 command (message type 17) is AMF0 after one byte; a marker in it switches to AMF3 for one
//! value (AMF 0, 3.1).

use super::Malformed;
use super::amf_value::{self, Value};

/// Maximum length of an integer in bytes (AMF 3, 1.3.1).
const U29_BYTES: usize = 4;

/// Reads one scalar value. AMF3 objects and arrays are rejected: no server sends them to a client
/// that uses AMF0.
///
/// # Errors
/// [`Malformed::Amf`].
pub fn read_scalar(bytes: &[u8]) -> Result<(Value, &[u8]), Malformed> {
    let (marker, rest) = bytes.split_first().ok_or(Malformed::Amf)?;
    Ok(match marker {
        0 => (Value::Undefined, rest),
        1 => (Value::Null, rest),
        2 => (Value::Boolean(false), rest),
        3 => (Value::Boolean(true), rest),
        4 => {
            let (number, rest) = read_u29(rest)?;
            // 29-bit signed integer (AMF 3, 3.6).
            let signed = ((number << 3) as i32) >> 3;
            (Value::Number(signed.into()), rest)
        }
        5 => {
            let (number, rest) = rest.split_first_chunk().ok_or(Malformed::Amf)?;
            (Value::Number(f64::from_be_bytes(*number)), rest)
        }
        6 => {
            let (header, rest) = read_u29(rest)?;
            // A reference to an earlier string (AMF 3, 1.3.2), of which there is none.
            if header & 1 == 0 {
                return Err(Malformed::Amf);
            }
            let length = usize::try_from(header >> 1).map_err(|_| Malformed::Amf)?;
            let (text, rest) = rest.split_at_checked(length).ok_or(Malformed::Amf)?;
            (Value::String(amf_value::text(text)), rest)
        }
        _ => return Err(Malformed::Amf),
    })
}

/// Reads an integer of up to 29 bits: 7 bits per byte, 8 bits in the fourth.
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
