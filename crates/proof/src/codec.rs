//! Messages, one in each datagram: a type byte, then big-endian numbers.

/// Proof of a client's address, which it must send back.
pub(super) type Cookie = [u8; 8];

/// Cookie of a client that has received none.
pub(super) const NO_COOKIE: Cookie = [0; 8];

/// Maximum number of packets requested in one datagram.
pub(super) const REQUESTED_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// Request for the media. As long as the challenge, so that the server does not amplify
    /// traffic.
    Hello(Cookie),
    /// Cookie for the next hello.
    Challenge(Cookie),
    /// A packet of media.
    Media {
        number: u32,
        is_retransmission: bool,
        payload: &'a [u8],
    },
    /// Number of packets of the media.
    End(u32),
    /// Numbers of missing packets.
    Request(Vec<u32>),
    /// The client leaves.
    Bye,
}

const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const MEDIA: u8 = 3;
const RETRANSMISSION: u8 = 4;
const END: u8 = 5;
const REQUEST: u8 = 6;
const BYE: u8 = 7;

/// Header of a media packet.
pub(super) fn media_header(number: u32, again: bool) -> [u8; 5] {
    numbered(if again { RETRANSMISSION } else { MEDIA }, number)
}

/// Complete end message.
pub(super) fn end(count: u32) -> [u8; 5] {
    numbered(END, count)
}

fn numbered(kind: u8, number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [kind, a, b, c, d]
}

impl<'a> Message<'a> {
    /// Parses a datagram. Returns `None` if it is not a message.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Message<'a>> {
        let (&kind, rest) = bytes.split_first()?;
        let number = || Some(u32::from_be_bytes(*rest.first_chunk()?));
        match kind {
            HELLO => Some(Message::Hello(rest.try_into().ok()?)),
            CHALLENGE => Some(Message::Challenge(rest.try_into().ok()?)),
            MEDIA | RETRANSMISSION => Some(Message::Media {
                number: number()?,
                is_retransmission: kind == RETRANSMISSION,
                payload: &rest[4..],
            }),
            END if rest.len() == 4 => Some(Message::End(number()?)),
            REQUEST => {
                let (numbers, []) = rest.as_chunks() else {
                    return None;
                };
                let sound = (1..=REQUESTED_MAX).contains(&numbers.len());
                sound.then(|| {
                    let numbers = numbers.iter().copied().map(u32::from_be_bytes);
                    Message::Request(numbers.collect())
                })
            }
            BYE if rest.is_empty() => Some(Message::Bye),
            _ => None,
        }
    }

    /// Appends the message.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Message::Hello(cookie) => {
                out.push(HELLO);
                out.extend(cookie);
            }
            Message::Challenge(cookie) => {
                out.push(CHALLENGE);
                out.extend(cookie);
            }
            Message::Media {
                number,
                is_retransmission: again,
                payload,
            } => {
                out.extend(media_header(*number, *again));
                out.extend(*payload);
            }
            Message::End(count) => out.extend(end(*count)),
            Message::Request(numbers) => {
                out.push(REQUEST);
                out.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
            }
            Message::Bye => out.push(BYE),
        }
    }
}
