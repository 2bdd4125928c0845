//! MPEG-2 transport streams (ISO/IEC 13818-1), as they are sent over IP and HTTP.

pub mod packet;
pub mod stamp;
