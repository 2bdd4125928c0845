//! The socket and the memory that the kernel shares with it: the only `unsafe` code of the ring.
//!
//! The `unsafe` blocks rely on these invariants:
//!
//! 1. `memory` is a mapping of `blocks * block_bytes` bytes, readable and writable, created once,
//!    never moved, and unmapped only when the [`Mapped`] is dropped. It does not outlive the
//!    socket, and nothing else in this process has its address.
//! 2. A block belongs either to the kernel or to us, as its `block_status` says. The kernel hands a
//!    block over by setting [`USER`] after it has written everything else, and does not write to it
//!    until we have set 0: an acquire load that sees `USER` happens after everything that the
//!    kernel wrote, and our release store of 0 happens after everything that we read. So bytes of a
//!    block are read only between the two.
//! 3. A slice of blocks borrows the [`Mapped`] mutably, so it is gone before any of them is given
//!    back.
//! 4. `block_status` itself is only accessed as an atomic, here and by the kernel, while the block
//!    is not lent out.
//!
//! Everything else that the kernel wrote is untrusted: the parser checks lengths and offsets within
//! a block ([`super::block`]).

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use socket2::{Domain, SockAddr, SockFilter, Socket, Type};

use crate::options;

/// `TP_STATUS_USER` (linux/if_packet.h): the block is ours.
const USER: u32 = 1;

/// Offset of the status in a block: after the version and the offset of private data.
const STATUS_OFFSET: usize = 8;

/// Value of `PACKET_VERSION` for the third version of the ring.
const TPACKET_V3: libc::c_int = 2;
const PACKET_VERSION: libc::c_int = 10;
const PACKET_STATISTICS: libc::c_int = 6;
const PACKET_RX_RING: libc::c_int = 5;
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// Not used by version 3, which packs frames of any size, but it must divide the block.
const FRAME_BYTES: usize = 2048;

/// A packet socket with its ring of blocks.
#[derive(Debug)]
pub(super) struct Mapped {
    socket: Socket,
    memory: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
    /// Index of the block that the kernel hands over next; less than `blocks`.
    next: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only accessed through this
// value, which is moved as a whole.
unsafe impl Send for Mapped {}

/// Layout of `struct tpacket_req3` (linux/if_packet.h).
#[repr(C)]
struct Request {
    block_size: u32,
    block_nr: u32,
    frame_size: u32,
    frame_nr: u32,
    retire_blk_tov: u32,
    sizeof_priv: u32,
    feature_req_word: u32,
}

/// Layout of `struct tpacket_stats_v3` (linux/if_packet.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Statistics {
    /// Packets that passed the filter, including those dropped for lack of space.
    pub(super) packets: u32,
    /// Packets dropped for lack of space.
    pub(super) drops: u32,
    /// How often the ring was full.
    pub(super) freezes: u32,
}

impl Mapped {
    /// Opens a packet socket for all interfaces, and its ring. Only packets of the link-layer
    /// protocol `protocol` (`ETH_P_IP`, ...) that pass `filter` ever enter it.
    pub(super) fn open(
        protocol: u16,
        filter: &[SockFilter],
        block_bytes: NonZeroUsize,
        blocks: NonZeroUsize,
        block_timeout: Duration,
    ) -> io::Result<Mapped> {
        let (block_bytes, blocks) = (block_bytes.get(), blocks.get());
        // Without a protocol, so that it receives nothing before it is bound.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        socket.attach_filter(filter)?;
        set_option(&socket, PACKET_VERSION, &TPACKET_V3)?;
        set_option(&socket, PACKET_VNET_HDR, &options::ON)?;
        // A socket that is bound to one protocol does not see outgoing packets anyway, so a kernel
        // before 4.20, which lacks the option, works as well.
        let _ = set_option(&socket, PACKET_IGNORE_OUTGOING, &options::ON);
        let too_large = |_| io::Error::new(io::ErrorKind::InvalidInput, "the ring is too large");
        let request = Request {
            block_size: u32::try_from(block_bytes).map_err(too_large)?,
            block_nr: u32::try_from(blocks).map_err(too_large)?,
            frame_size: FRAME_BYTES as u32,
            frame_nr: u32::try_from(block_bytes / FRAME_BYTES * blocks).map_err(too_large)?,
            retire_blk_tov: u32::try_from(block_timeout.as_millis())
                .unwrap_or(u32::MAX)
                .max(1),
            sizeof_priv: 0,
            feature_req_word: 0,
        };
        set_option(&socket, PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping at an address chosen by the kernel touches no memory of ours.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                block_bytes * blocks,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &socket,
                0,
            )
        }?;
        let mapped = Mapped {
            socket,
            memory: NonNull::new(memory.cast()).expect("the kernel maps nothing at address 0"),
            block_bytes,
            blocks,
            next: 0,
        };
        mapped.socket.bind(&all_interfaces(protocol))?;
        Ok(mapped)
    }

    /// Returns `true` if the kernel has handed over at least `blocks` blocks, or all there are.
    pub(super) fn ready(&self, blocks: usize) -> bool {
        let last = blocks.clamp(1, self.blocks) - 1;
        self.status((self.next + last) % self.blocks)
            .load(Ordering::Acquire)
            & USER
            != 0
    }

    /// Returns the next blocks that the kernel has handed over as one slice: at most `blocks_max`,
    /// and not beyond the end of the mapping. Empty if there are none. They belong to us until
    /// [`Mapped::give_back`].
    pub(super) fn next_blocks(&mut self, blocks_max: usize) -> &[u8] {
        let blocks_max = blocks_max.min(self.blocks - self.next);
        let ours = (0..blocks_max)
            .take_while(|block| self.status(self.next + block).load(Ordering::Acquire) & USER != 0)
            .count();
        // SAFETY: `next` and the blocks after it lie within the mapping (1). Each is ours because
        // an acquire load saw its `USER`, and the kernel does not write to it until it is given
        // back (2), which the borrow of `self` prevents while the slice lives (3). Mapped memory is
        // initialised: the kernel provides zeroed pages.
        unsafe {
            std::slice::from_raw_parts(self.start(self.next).as_ptr(), ours * self.block_bytes)
        }
    }

    /// Gives the first `blocks` blocks of the last [`Mapped::next_blocks`] back to the kernel, as
    /// far as they are ours.
    pub(super) fn give_back(&mut self, blocks: usize) {
        for _ in 0..blocks {
            if !self.ready(1) {
                return;
            }
            self.status(self.next).store(0, Ordering::Release);
            self.next = (self.next + 1) % self.blocks;
        }
    }

    /// Returns what the kernel has counted since the last call.
    pub(super) fn statistics(&self) -> io::Result<Statistics> {
        options::get(self.as_raw_fd(), libc::SOL_PACKET, PACKET_STATISTICS)
    }

    /// Replaces the filter; no packet passes unfiltered in between.
    pub(super) fn replace_filter(&self, filter: &[SockFilter]) -> io::Result<()> {
        self.socket.attach_filter(filter)
    }

    fn start(&self, block: usize) -> NonNull<u8> {
        assert!(block < self.blocks, "there is no such block");
        // SAFETY: the block lies within the mapping (1), as checked above.
        unsafe { self.memory.add(block * self.block_bytes) }
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        // SAFETY: the status lies within the block and so within the mapping (1), is aligned for
        // `u32` because blocks are whole pages, lives as long as `self`, and is only accessed as an
        // atomic (4).
        unsafe { AtomicU32::from_ptr(self.start(block).add(STATUS_OFFSET).as_ptr().cast()) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was created on opening (1), and nothing borrows it any
        // more. The call fails only for a wrong address or length, which the invariant excludes.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.block_bytes * self.blocks) };
    }
}

impl AsRawFd for Mapped {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Mapped {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the address of one link-layer protocol on every interface, present and future.
fn all_interfaces(protocol: u16) -> SockAddr {
    // SAFETY: the storage is large enough for any address and zeroed; a whole `sockaddr_ll` is
    // written there, and its length is set.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            storage
                .cast::<libc::sockaddr_ll>()
                .write(libc::sockaddr_ll {
                    sll_family: libc::AF_PACKET as libc::c_ushort,
                    sll_protocol: protocol.to_be(),
                    sll_ifindex: 0,
                    sll_hatype: 0,
                    sll_pkttype: 0,
                    sll_halen: 0,
                    sll_addr: [0; 8],
                });
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })
    }
    .expect("it returns no error");
    address
}

/// Sets an option of a packet socket. `T` is the kernel's structure for it.
fn set_option<T>(socket: &Socket, name: libc::c_int, value: &T) -> io::Result<()> {
    options::set(socket.as_raw_fd(), libc::SOL_PACKET, name, value)
}
