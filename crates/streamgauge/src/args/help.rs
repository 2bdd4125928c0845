//! Texts of --help besides the options: section names, examples, and environment variables.

/// Number of clients, and when they start.
pub(super) const LOAD: &str = "Load";
/// Search for a capacity.
pub(super) const SEARCH: &str = "Search";
/// Media, and its transport.
pub(super) const MEDIA: &str = "Media";
pub(super) const TLS: &str = "TLS (rtsps, https, tls and wss URLs)";
pub(super) const TESTER: &str = "Tester";
/// Runs over several machines.
pub(super) const RUNNERS: &str = "Runners";
pub(super) const OUTPUT: &str = "Output";
macro_rules! environment {
    () => {
        "\
Environment:
  STREAMGAUGE_KEY sets a key of the scenario: the key in capitals, with two underscores for each dot
  of its path. Options override variables, and variables override the file. An unknown variable is
  an error.
      STREAMGAUGE_DURATION=60s
      STREAMGAUGE_TESTER__RECEIVE=sockets        tester: { receive: sockets }
      STREAMGAUGE_CLIENTS__VIEWERS__TRANSPORT=tcp
  STREAMGAUGE_CATALOGUE=FOLDER   your own server files, for --launch and `servers`
                                 [default: ~/.config/streamgauge/servers]
  STREAMGAUGE_RUNS=FOLDER        folder in which runs are kept without -o, and where `report` and
                                 `compare` look for names alone [default: streamgauge-runs]
  STREAMGAUGE_TOKEN=SECRET       token that other machines must send for --metrics and --dashboard
                                 [default: a new one each time, which is printed]
  OTEL_EXPORTER_OTLP_HEADERS     headers of --otlp: NAME=VALUE,NAME=VALUE, percent-encoded
  OTEL_EXPORTER_OTLP_CERTIFICATE a file of the certificates (PEM) that --otlp trusts
                                 [default: the certificates that this machine trusts]
  NO_COLOR=1                     no colours"
    };
}

/// Environment variables, for commands that run a scenario.
pub(super) const ENVIRONMENT: &str = environment!();

/// Text below the options of `load`.
pub(super) const LOAD_EXAMPLES: &str = concat!(
    "\
Examples:
  200 clients within 20 s, for a minute; fails if more than 0.1 % of packets are lost:
      streamgauge load rtsp://10.0.0.2/live -c 200 --ramp 20s -d 60s --threshold 'viewers.loss<0.1%'
  The same, with CPU and memory of a server that runs on this machine:
      streamgauge load rtsp://127.0.0.1:8554/live -c 50 -d 30s --pid $(pidof mediamtx)
  1,000 connections with 10 messages a second each, and the delay of their echoes:
      streamgauge load tcp://10.0.0.2:9000 -c 1000 --rate 10/s --answers echo -d 30s

",
    environment!()
);

/// Text below the options of `compare`.
pub(super) const COMPARE_EXAMPLES: &str = "\
Examples:
  A server before and after a change, each measured six times by a scenario with `repeat: 6`:
      streamgauge compare before.series after.series --html compare.html
  Two searches for a capacity:
      streamgauge compare relay-a.series relay-b.series

Both are compared with the words better, worse, same and cannot tell. Runs that alternate, by
`compare` in a scenario, are better evidence.

Exit codes:
    0  no metric is worse
   99  a metric is worse
  104  the two are not comparable
  110  the runs cannot tell";

/// Text below the options of `capacity`.
pub(super) const CAPACITY_EXAMPLES: &str = concat!(
    "\
Examples:
  How many viewers a server can serve, with an interval, within half an hour:
      streamgauge capacity rtsp://10.0.0.2/live --from 100
  A first answer within minutes:
      streamgauge capacity whep+http://10.0.0.2/live --quick --hold 10s
  With thresholds of your own, and CPU and memory of a server that runs on this machine:
      streamgauge capacity rtsp://127.0.0.1:8554/live --threshold 'viewers.loss < 0.1%' \\
          --pid $(pidof mediamtx)

",
    environment!(),
    "

Exit codes:
    0  the capacity was found, or the largest load held
   99  the smallest load failed
  104  the search could not begin
  105  it was stopped, with Ctrl-C or by the end of the server
  110  no capacity is known: no load failed within the budget, or the tester came to its limit before
       the server"
);
