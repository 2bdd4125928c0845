//! The server's session, which starts once the client has proven its address.

use measure::Time;

use super::codec::Message;
use super::config::ServerConfig;
use super::sender::NumberedMedia;
use session::{ChannelId, Context, FlowId, Input, Outcome, Output, Record, Session};

#[derive(Debug)]
pub(super) struct Server {
    config: ServerConfig,
    flow: Option<FlowId>,
}

impl Server {
    pub(super) fn new(config: ServerConfig) -> Server {
        Server { config, flow: None }
    }

    fn begin(&mut self, cx: &mut Context<'_>, channel: ChannelId) {
        let flow = cx.flows.insert(NumberedMedia::new(self.config, cx.now));
        self.flow = Some(flow);
        cx.out.push_back(Output::StartFlow { flow, channel });
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        let Some(flow) = self.flow.take() else { return };
        cx.out.push_back(Output::StopFlow { flow });
        let flow: Box<NumberedMedia> = cx.flows.remove_as(flow);
        cx.out.push_back(Output::Record(Record::new(flow.sent)));
        cx.out.push_back(Output::Ended(outcome));
    }
}

impl Session for Server {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Opened { channel, .. } => self.begin(cx, channel),
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    let Some(flow) = self.flow else { return };
                    let now = cx.now;
                    match Message::parse(datagram.bytes) {
                        Some(Message::Request(numbers)) => {
                            cx.flows.access_as(flow, |flow: &mut NumberedMedia| {
                                flow.queue_retransmissions(now, &numbers)
                            });
                        }
                        Some(Message::Bye) => self.end(cx, Outcome::Completed),
                        // A repeated hello, or a datagram that is not a client's message.
                        _ => {}
                    }
                }
            }
            // The client has not said goodbye before the last end message.
            Input::FlowEnded { .. } => self.end(cx, Outcome::Completed),
            Input::Stop { .. } => self.end(cx, Outcome::Stopped),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        None
    }
}
