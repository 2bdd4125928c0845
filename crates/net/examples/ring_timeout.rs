//! Measures what a block timeout costs in latency and saves in processor time: the basis for the
//! default of `RingSettings::block_timeout`.
//!
//! A thread sends paced datagrams of 1200 bytes over loopback to 1000 sockets that refuse them.
//! Another thread takes them out of a ring and reads their first bytes. Each timeout gives the
//! receiving thread's processor time per packet (the kernel's account of the thread), its wake-ups,
//! and the delay from a packet's arrival to its processing.
//!
//! Needs CAP_NET_RAW. `cargo run --release -p streamgauge-net --example ring_timeout [SECONDS]`

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use net::clock::thread_cpu_nanos;
use net::ring::Family;
use net::{Clock, PacketRing, RingSettings, SendBatch, options, ports};
use rustix::event::{PollFd, PollFlags, poll};

const SOCKETS: u16 = 1000;
const FIRST_PORT: u16 = 20_000;
const PACKETS_PER_SECOND: [u64; 3] = [1_000, 10_000, 100_000];
const TIMEOUTS_MS: [u64; 6] = [1, 2, 5, 10, 20, 50];

fn main() -> io::Result<()> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let duration = Duration::from_secs(seconds.unwrap_or(3));
    let addresses = (FIRST_PORT..FIRST_PORT + SOCKETS).map(|port| ([127, 0, 0, 1], port).into());
    let sockets: Vec<_> = addresses
        .map(|address| ports::bind(address, 0))
        .collect::<io::Result<_>>()?;
    sockets.iter().try_for_each(options::drop_all)?;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "packets/s | timeout ms | us/packet | CPU % | wake-ups/s | blocks/s | \
         latency ms: mean | largest | packets | dropped"
    )?;
    for rate in PACKETS_PER_SECOND {
        for timeout in TIMEOUTS_MS {
            let row = measure(rate, Duration::from_millis(timeout), duration)?;
            writeln!(out, "{rate:9} | {timeout:10} | {row}")?;
        }
    }
    Ok(())
}

/// Measures one rate and timeout, and returns the table row.
fn measure(rate: u64, timeout: Duration, duration: Duration) -> io::Result<String> {
    let mut settings = RingSettings::new(Family::V4, FIRST_PORT..=FIRST_PORT + SOCKETS - 1);
    settings.block_timeout = timeout;
    let mut ring = PacketRing::open(&settings)?;
    let (clock, stop) = (Clock::start(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(rate, duration, &stop));
        let begin = thread_cpu_nanos();
        let (mut packets, mut blocks, mut wakes, mut sum) = (0, 0, 0u64, 0);
        let (mut latency, mut latency_max) = (0, 0);
        let wait = Duration::from_millis(100).try_into().expect("it is short");
        while !stop.load(Ordering::Relaxed) {
            poll(&mut [PollFd::new(&ring, PollFlags::IN)], Some(&wait))?;
            wakes += 1;
            let now = clock.now().as_nanos();
            let taken = ring.receive(&clock, usize::MAX, |datagram| {
                // Reads the header, as an RTP receiver does.
                let header = datagram
                    .bytes
                    .first_chunk::<12>()
                    .copied()
                    .unwrap_or_default();
                sum += u64::from(header[3]) + u64::from(datagram.to.port());
                let late = now.saturating_sub(datagram.at.as_nanos());
                latency += late;
                latency_max = latency_max.max(late);
            });
            packets += taken.datagrams;
            blocks += taken.blocks;
        }
        let used = thread_cpu_nanos() - begin;
        sender.join().expect("it does not panic")?;
        std::hint::black_box(sum);
        let seconds = duration.as_secs_f64();
        let each = |value: u64| value as f64 / packets.max(1) as f64;
        Ok(format!(
            "{:9.3} | {:5.2} | {:10.0} | {:8.0} | {:16.2} | {:7.2} | {:7} | {:7}",
            each(used) / 1e3,
            used as f64 / 1e7 / seconds,
            wakes as f64 / seconds,
            blocks as f64 / seconds,
            each(latency) / 1e6,
            latency_max as f64 / 1e6,
            packets,
            ring.kernel_counts()?.dropped,
        ))
    })
}

/// Sends `rate` packets per second in bursts of one millisecond, and sets `stop` at the end.
fn send(rate: u64, duration: Duration, stop: &AtomicBool) -> io::Result<()> {
    let socket = ports::bind(([127, 0, 0, 1], 0).into(), 0)?;
    let payload = [7u8; 1188];
    let clock = Clock::start();
    let mut batch: SendBatch<&[u8]> = SendBatch::new();
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < duration {
        let due = start.elapsed().as_nanos() as u64 * rate / 1_000_000_000;
        while sent < due {
            let port = FIRST_PORT + (sent % u64::from(SOCKETS)) as u16;
            let to = SocketAddr::from(([127, 0, 0, 1], port));
            batch.push(to.into(), &[0; 12], &payload);
            if batch.is_full() {
                batch.send(&socket, &clock, |_, _| {});
            }
            sent += 1;
        }
        batch.send(&socket, &clock, |_, _| {});
        std::thread::sleep(Duration::from_millis(1));
    }
    stop.store(true, Ordering::Relaxed);
    Ok(())
}
