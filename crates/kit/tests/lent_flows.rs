//! Flows that are lent to a pacer stay accessible to their session.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use kit::media::rtp::RtpFlow;
use kit::media::rtp::flow::{Clip, Faults, FlowSettings, Pacing};
use measure::Time;
use session::{Flow, FlowId, Flows, LentFlow};

fn flow() -> RtpFlow {
    RtpFlow::new(FlowSettings {
        clip: Arc::new(Clip::audio()),
        pacing: Pacing::Spread,
        ssrc: 7,
        first_seq: 1,
        first_timestamp: 0,
        length: None,
        faults: Faults::default(),
        seed: 0,
        log: false,
    })
}

type LentCell = Rc<RefCell<Option<Box<dyn Flow>>>>;

struct TestPacer(LentCell);

impl LentFlow for TestPacer {
    fn access(&mut self, f: &mut dyn FnMut(&mut dyn Flow)) {
        f(&mut **self.0.borrow_mut().as_mut().expect("it is here"));
    }

    fn take_back(self: Box<Self>) -> Box<dyn Flow> {
        self.0.borrow_mut().take().expect("it is here")
    }
}

fn lend(flows: &mut Flows, id: FlowId) -> LentCell {
    let away = LentCell::default();
    let put = away.clone();
    assert!(flows.lend(id, move |flow| {
        *put.borrow_mut() = Some(flow);
        Box::new(TestPacer(put))
    }));
    away
}

#[test]
fn lent_flow_stays_accessible_to_its_session() {
    let mut flows = Flows::default();
    let (other, id) = (flows.insert(flow()), flows.insert(flow()));
    let start = Time::from_nanos(5);
    flows.access_as(id, |flow: &mut RtpFlow| flow.start(start));
    let away = lend(&mut flows, id);
    assert!(flows.contains(id) && away.borrow().is_some());
    assert_eq!(flows.access(id, |flow| flow.next_due()), Some(start));
    assert!(!flows.lend(id, |_| unreachable!("it is already lent")));
    // Calls reach the lent flow itself.
    flows.access_as(id, RtpFlow::pause);
    flows.take_back(id);
    assert!(away.borrow().is_none());
    assert_eq!(flows.access(id, |flow| flow.next_due()), None);
    flows.take_back(id);
    let away = lend(&mut flows, id);
    let flow: Box<RtpFlow> = flows.remove_as(id);
    assert!(away.borrow().is_none() && !flows.contains(id));
    assert_eq!(flow.ssrc(), 7);
    flows.take_back(id);
    assert!(flows.contains(other) && !flows.contains(id));
}
