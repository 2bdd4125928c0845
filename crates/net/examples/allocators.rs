//! Compares the allocator of the program with that of the C library: time per allocation.
//!
//! Each thread keeps 20,000 blocks of 16 bytes to 4 KiB. A step replaces a random block; every
//! eighth also resizes it, and every fourth block is freed by another thread. Prints the processor
//! time of a step, the best of five rounds.
//!
//! `cargo run --release -p streamgauge-net --example allocators [--target
//! x86_64-unknown-linux-musl]`
#![expect(clippy::print_stdout, reason = "the results go there")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use net::clock::thread_cpu_nanos;

const BLOCKS: usize = 20_000;
const STEPS: usize = 2_000_000;
const ROUNDS: usize = 5;
const QUEUE: usize = 1024;

/// A block that another thread may free.
struct Block {
    memory: *mut u8,
    layout: Layout,
}

// SAFETY: the block is owned, and any thread may free it.
unsafe impl Send for Block {}

/// The generator of Marsaglia (2003), which is fast and needs no state on the heap.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize
    }

    /// Sizes of 16 bytes to 4 KiB, small ones as often as large ones.
    fn layout(&mut self) -> Layout {
        let size = (16 << (self.next() % 8)) + self.next() % 16;
        Layout::from_size_align(size, 8).expect("8 is a power of two")
    }
}

fn allocate(allocator: &impl GlobalAlloc, layout: Layout) -> Block {
    // SAFETY: the layout is not empty.
    let memory = unsafe { allocator.alloc(layout) };
    assert!(!memory.is_null(), "out of memory");
    // SAFETY: the block has at least 16 bytes.
    unsafe { memory.write(1) };
    Block { memory, layout }
}

fn free(allocator: &impl GlobalAlloc, block: Block) {
    // SAFETY: the block is from this allocator and has this layout.
    unsafe { allocator.dealloc(block.memory, block.layout) };
}

fn resize(allocator: &impl GlobalAlloc, block: &mut Block) {
    let size = block.layout.size() + block.layout.size() / 2;
    // SAFETY: the block is from this allocator and has this layout, and the size is not zero.
    block.memory = unsafe { allocator.realloc(block.memory, block.layout, size) };
    assert!(!block.memory.is_null(), "out of memory");
    block.layout = Layout::from_size_align(size, 8).expect("8 is a power of two");
}

fn churn(
    allocator: &impl GlobalAlloc,
    seed: u64,
    theirs: &SyncSender<Block>,
    mine: &Receiver<Block>,
) {
    let mut random = Xorshift(seed);
    let mut blocks: Vec<Block> = (0..BLOCKS)
        .map(|_| allocate(allocator, random.layout()))
        .collect();
    for step in 0..STEPS {
        let at = random.next() % BLOCKS;
        let fresh = allocate(allocator, random.layout());
        let old = std::mem::replace(&mut blocks[at], fresh);
        if step % 8 == 0 {
            resize(allocator, &mut blocks[at]);
        }
        if step % 4 == 0 {
            // A full queue, or a thread that has ended: it is freed here.
            if let Err(error) = theirs.try_send(old) {
                free(
                    allocator,
                    match error {
                        std::sync::mpsc::TrySendError::Full(block)
                        | std::sync::mpsc::TrySendError::Disconnected(block) => block,
                    },
                );
            }
            mine.try_iter().for_each(|block| free(allocator, block));
        } else {
            free(allocator, old);
        }
    }
    blocks.into_iter().for_each(|block| free(allocator, block));
}

fn round(allocator: &(impl GlobalAlloc + Sync), threads: usize) -> f64 {
    let (senders, mut receivers): (Vec<_>, Vec<_>) =
        (0..threads).map(|_| sync_channel::<Block>(QUEUE)).unzip();
    receivers.rotate_left(1);
    let left: Vec<(Receiver<Block>, u64)> = thread::scope(|scope| {
        let running: Vec<_> = senders
            .into_iter()
            .zip(receivers)
            .enumerate()
            .map(|(number, (theirs, mine))| {
                scope.spawn(move || {
                    churn(allocator, 1 + number as u64, &theirs, &mine);
                    (mine, thread_cpu_nanos())
                })
            })
            .collect();
        let ended = running.into_iter().map(|one| one.join());
        ended
            .map(|ended| ended.expect("it does not panic"))
            .collect()
    });
    let nanos: u64 = left.iter().map(|(_, nanos)| nanos).sum();
    for (mine, _) in left {
        mine.try_iter().for_each(|block| free(allocator, block));
    }
    nanos as f64 / (STEPS * threads) as f64
}

fn main() {
    let program = net::allocator::ExitOnOutOfMemory(110);
    println!("threads  C library  program");
    for threads in [1, 2] {
        let mut best = [f64::MAX; 2];
        for _ in 0..ROUNDS {
            best[0] = best[0].min(round(&System, threads));
            best[1] = best[1].min(round(&program, threads));
        }
        println!("{threads:>7}  {:>6.0} ns  {:>4.0} ns", best[0], best[1]);
    }
}
