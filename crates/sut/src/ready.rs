//! Readiness of a server: its port must be free before the start; then its condition is awaited.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use kit::descriptor::Transport;

use crate::error::SutError;
use crate::launched::Launched;
use crate::ports::{self, PortOwner};
use crate::spec::{Launch, Ready};
use crate::{Options, Progress};

/// Interval between checks of a port.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Time limit of a connection to a port of this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Checks that no process owns the port that the server is to listen on.
pub(crate) fn check_free(launch: &Launch) -> Result<(), SutError> {
    let Some((address, transport)) = launch.ready.port().or(launch.port) else {
        return Ok(());
    };
    let port = address.port();
    match ports::owner(port, transport, &[]) {
        PortOwner::Nobody => Ok(()),
        PortOwner::Other { pid, name } => Err(SutError::PortInUse {
            port,
            transport,
            pid,
            name,
        }),
        PortOwner::Ours | PortOwner::Unknown => {
            Err(SutError::PortInUseByUnknown { port, transport })
        }
    }
}

/// Waits until the server is ready.
pub(crate) fn wait(
    launched: &Launched,
    launch: &Launch,
    options: &Options,
    progress: &dyn Fn(Progress),
) -> Result<(), SutError> {
    let began = Instant::now();
    let what = describe(&launch.ready);
    let mut served = 0;
    progress(Progress::WaitingFor {
        what: what.clone(),
        within: launch.ready_timeout,
    });
    loop {
        options.check()?;
        if let Some(status) = launched.ended() {
            launched.wait_for_output();
            check_owner(launched, launch)?;
            return Err(SutError::EndedBeforeReady {
                status,
                log: launched.state().log.tail(),
                hint: launch.user_hint(),
            });
        }
        if is_ready(launched, launch, &mut served)? {
            break;
        }
        if began.elapsed() >= launch.ready_timeout {
            check_owner(launched, launch)?;
            return Err(SutError::NotReady {
                after: launch.ready_timeout,
                waited_for: what,
                log: launched.state().log.tail(),
                hint: launch.user_hint(),
            });
        }
        let by_line = matches!(launch.ready, Ready::Text(_) | Ready::Pattern(_));
        launched.wait(CHECK_INTERVAL, |state| {
            by_line && state.matched || state.tree_ended
        });
    }
    let pid = launched.state().pid.unwrap_or_default();
    let after = began.elapsed();
    progress(Progress::Ready { pid, after });
    Ok(())
}

fn describe(ready: &Ready) -> String {
    match ready {
        Ready::Started => "its start".to_owned(),
        // The address matters: clients there cannot reach a server that listens on 127.0.0.1 only.
        Ready::Port { address, transport } if !address.ip().is_loopback() => {
            format!("{transport} port {} at {}", address.port(), address.ip())
        }
        Ready::Port { address, transport } => format!("{transport} port {}", address.port()),
        Ready::Served { address, urls } => {
            let (port, count) = (address.port(), urls.len());
            format!("port {port} with all of its {count} streams")
        }
        Ready::Text(text) => format!("a line of output with `{text}`"),
        Ready::Pattern(pattern) => format!("a line of output that matches `{pattern}`"),
    }
}

/// Returns `true` if the server is ready. `served` counts the streams that it is known to serve.
fn is_ready(launched: &Launched, launch: &Launch, served: &mut usize) -> Result<bool, SutError> {
    let ready = &launch.ready;
    let says_so = match ready {
        Ready::Text(_) | Ready::Pattern(_) => launched.state().matched,
        Ready::Started | Ready::Port { .. } | Ready::Served { .. } => true,
    };
    let Some((address, transport)) = ready.port().or(launch.port) else {
        return Ok(says_so);
    };
    let listens = || {
        transport == Transport::Udp || TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok()
    };
    let is_up = says_so
        && match ports::may_be_chosen(address.port()) {
            // A connection to a port that the kernel may also choose for the client could be one to
            // itself.
            true => owns(launched, address, transport)? && listens(),
            // To find the owner, the kernel goes through its table of all connections, which takes
            // milliseconds: a refused connection is cheaper.
            false => listens() && owns(launched, address, transport)?,
        };
    if !is_up {
        return Ok(false);
    }
    if let Ready::Served { urls, .. } = ready {
        while urls.get(*served).is_some_and(|url| serves(address, url)) {
            *served += 1;
        }
        return Ok(*served == urls.len());
    }
    Ok(true)
}

/// Checks that no other process has the port of a server that did not become ready.
fn check_owner(launched: &Launched, launch: &Launch) -> Result<(), SutError> {
    match launch.ready.port().or(launch.port) {
        Some((address, transport)) => owns(launched, address, transport).map(drop),
        None => Ok(()),
    }
}

/// Returns `true` if the server owns the port, `false` if nobody does.
fn owns(launched: &Launched, address: SocketAddr, transport: Transport) -> Result<bool, SutError> {
    match ports::owner_of(address.port(), transport, || launched.tree()) {
        PortOwner::Nobody => Ok(false),
        PortOwner::Other { pid, name } => Err(SutError::PortOfAnother {
            port: address.port(),
            transport,
            pid,
            name,
            log: launched.state().log.tail(),
        }),
        // The port was free before. An owner whose descriptors are not visible is most likely the
        // server itself, as another user.
        PortOwner::Ours | PortOwner::Unknown => Ok(true),
    }
}

/// Returns `true` if the server answers that it serves the URL.
fn serves(address: SocketAddr, url: &str) -> bool {
    let probe = kit::registry::find_by_url(url).and_then(|protocol| protocol.probe.as_ref());
    let Some(probe) = probe else {
        return false;
    };
    let ask = || -> io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
        stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
        stream.write_all((probe.request)(url).as_bytes())?;
        let mut start = vec![0; probe.answer.len()];
        stream.read_exact(&mut start)?;
        Ok(start == probe.answer)
    };
    ask().unwrap_or(false)
}
