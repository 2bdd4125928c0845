//! What --help says beside the options: the names of its sections, examples, and what the
//! environment sets.

/// How many clients, and when.
pub(super) const LOAD: &str = "Load";
/// What is played, and how it is carried.
pub(super) const MEDIA: &str = "Media";
/// How TLS is spoken.
pub(super) const TLS: &str = "TLS (rtsps, https, tls and wss URLs)";
/// How the tester itself works.
pub(super) const TESTER: &str = "Tester";
/// Where results go.
pub(super) const OUTPUT: &str = "Output";
/// Where a server listens.
pub(super) const LISTENING: &str = "Listening";
/// What a server does for its clients.
pub(super) const SERVICE: &str = "Service";
/// What a server does wrong.
pub(super) const FAULTS: &str = "Faults";

macro_rules! environment {
    () => {
        "\
Environment:
  STREAMGAUGE_KEY sets a key of the scenario: the key in capitals, with two underscores for each dot
  of its path. Options win over variables, and variables over the file. An unknown one is an error.
      STREAMGAUGE_DURATION=60s
      STREAMGAUGE_TESTER__RECEIVE=sockets        tester: { receive: sockets }
      STREAMGAUGE_CLIENTS__VIEWERS__TRANSPORT=tcp
  STREAMGAUGE_CATALOGUE=FOLDER   descriptions of servers of your own, for --launch and `servers`
                                 [default: ~/.config/streamgauge/servers]
  STREAMGAUGE_TOKEN=SECRET       what other machines must send to see --metrics and --dashboard
                                 [default: another one each time, which is printed]
  OTEL_EXPORTER_OTLP_HEADERS     headers of --otlp: NAME=VALUE,NAME=VALUE, percent-encoded
  OTEL_EXPORTER_OTLP_CERTIFICATE a file of the certificates (PEM) that --otlp trusts
                                 [default: those that this machine trusts]
  NO_COLOR=1                     no colours"
    };
}

/// What the environment sets, for commands that play a scenario.
pub(super) const ENVIRONMENT: &str = environment!();

/// What stands below the options of `load`.
pub(super) const OF_LOAD: &str = concat!(
    "\
Examples:
  200 clients within 20 s, for a minute; fails where more than 0.1 % of the packets are lost:
      streamgauge load rtsp://10.0.0.2/live -c 200 --ramp 20s -d 60s --threshold 'viewers.loss<0.1%'
  With the processor and memory of a server that runs on this machine:
      streamgauge load rtsp://127.0.0.1:8554/live -c 50 -d 30s --pid $(pidof mediamtx)
  1,000 connections with 10 messages a second each, and when their echo comes:
      streamgauge load tcp://10.0.0.2:9000 -c 1000 --rate 10/s --answers echo -d 30s

",
    environment!()
);
