//! Test of obsolete tasks.

use super::super::connections::Connections;
use super::super::ids::SessionKey;
use super::super::is_wanted;
use super::super::listeners::Listeners;
use super::super::sessions::{Channel, Sessions, Slot};
use super::super::timers::Task;
use super::*;

#[test]
fn task_is_wanted_until_its_purpose_is_fulfilled() {
    let mut sessions = Sessions::new(Duration::ZERO);
    let (connections, listeners) = (Connections::new(None, 1, 1), Listeners::default());
    let session = sessions.add(Slot::new(3, toy(|_, _, _| {}), 0, None));
    let channel = ChannelId(9);
    let (at, later) = (Time::from_nanos(5), Time::from_nanos(7));
    let slot = sessions.get_mut(session).expect("it is there");
    slot.deadline_task_at = at;
    slot.set_channel(channel, Channel::Resolving);
    let deadline = Task::Deadline(session);
    let connect = Task::Connect { session, channel };
    let leave = Task::Leave(session);
    let wanted =
        |task: Task, at, sessions: &_| is_wanted(at, &task, sessions, &connections, &listeners);
    assert!(wanted(deadline, at, &sessions));
    assert!(!wanted(deadline, later, &sessions), "another is before it");
    assert!(wanted(connect, later, &sessions));
    let slot = sessions.get_mut(session).expect("it is there");
    slot.forget_channel(channel);
    assert!(!wanted(connect, later, &sessions), "it stands, or failed");
    assert!(wanted(leave, later, &sessions));
    let index = session.index;
    let other = Task::Leave(SessionKey { index, serial: 4 });
    assert!(!wanted(other, later, &sessions));
    sessions.remove(session);
    assert!(!wanted(deadline, at, &sessions) && !wanted(leave, later, &sessions));
    let (index, serial) = (0, 1);
    for task in [
        Task::Accept { socket: index },
        Task::Handshake { index, serial },
        Task::Linger { index, serial },
    ] {
        assert!(!wanted(task, later, &sessions), "{task:?}");
    }
}
