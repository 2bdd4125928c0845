// A small RTSP client on gortsplib: many viewers in one process, which count what they receive.
//
// It is controlled over its standard streams, line by line. Once every client has received a
// packet, it prints {"event":"playing"}. It answers each line of input with the counts so far. When
// its input ends, it tears the sessions down, prints {"event":"done"} with the total counts, and
// exits.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/pion/rtp"
)

// viewer is one client. Its counters are written by the client's own goroutine and read by main.
type viewer struct {
	client *gortsplib.Client
	began  time.Time
	// Time from the start of the connection to the first packet; 0 before it.
	setup    atomic.Int64
	packets  atomic.Uint64
	bytes    atomic.Uint64
	expected atomic.Uint64
	last     uint16
}

// report is a line of output.
type report struct {
	Event   string `json:"event"`
	Version string `json:"version,omitempty"`
	Playing int    `json:"playing"`
	Failed  int64  `json:"failed"`
	Packets uint64 `json:"packets"`
	// RTP headers and payload.
	Bytes uint64 `json:"bytes"`
	// Lost packets by sequence number, between the first and the last packet of each client.
	Lost int64 `json:"lost"`
	// Time from the start of the connection to the first packet, in seconds.
	SetupP50 float64 `json:"setup_p50"`
	SetupP95 float64 `json:"setup_p95"`
	Error    string  `json:"error,omitempty"`
}

func (v *viewer) packet(pkt *rtp.Packet) {
	if v.packets.Load() == 0 {
		v.expected.Store(1)
		v.last = pkt.SequenceNumber
		v.setup.Store(max(1, int64(time.Since(v.began))))
	} else if ahead := pkt.SequenceNumber - v.last; ahead < 0x8000 {
		v.expected.Add(uint64(ahead))
		v.last = pkt.SequenceNumber
	}
	v.packets.Add(1)
	v.bytes.Add(uint64(pkt.MarshalSize()))
}

func (v *viewer) play(url string, protocol gortsplib.Protocol) error {
	u, err := base.ParseURL(url)
	if err != nil {
		return err
	}
	v.began = time.Now()
	client := &gortsplib.Client{
		Scheme: u.Scheme, Host: u.Host, Protocol: &protocol,
		// Without these, each event is written to the log.
		OnPacketsLost: func(uint64) {},
		OnDecodeError: func(error) {},
	}
	if err := client.Start(); err != nil {
		return err
	}
	v.client = client
	desc, _, err := v.client.Describe(u)
	if err != nil {
		return err
	}
	if err := v.client.SetupAll(desc.BaseURL, desc.Medias); err != nil {
		return err
	}
	v.client.OnPacketRTPAny(func(_ *description.Media, _ format.Format, pkt *rtp.Packet) {
		v.packet(pkt)
	})
	_, err = v.client.Play(nil)
	return err
}

func counts(event string, viewers []*viewer, failed int64) report {
	r := report{Event: event, Failed: failed}
	var setup []int64
	for _, v := range viewers {
		// The expected count is read first: a packet that arrives in between must not look lost.
		expected := v.expected.Load()
		packets := v.packets.Load()
		r.Packets += packets
		r.Bytes += v.bytes.Load()
		r.Lost += max(0, int64(expected)-int64(packets))
		if delay := v.setup.Load(); delay > 0 {
			setup = append(setup, delay)
		}
	}
	r.Playing = len(setup)
	if len(setup) > 0 {
		slices.Sort(setup)
		at := func(part float64) float64 {
			return time.Duration(setup[int(part*float64(len(setup)-1)+0.5)]).Seconds()
		}
		r.SetupP50, r.SetupP95 = at(0.5), at(0.95)
	}
	return r
}

func run() error {
	url := flag.String("url", "", "what to play")
	clients := flag.Int("clients", 1, "how many clients")
	ramp := flag.Duration("ramp", 0, "time over which they start evenly")
	transport := flag.String("transport", "udp", "udp or tcp")
	flag.Parse()
	protocols := map[string]gortsplib.Protocol{"udp": gortsplib.ProtocolUDP, "tcp": gortsplib.ProtocolTCP}
	protocol, ok := protocols[*transport]
	if !ok || *url == "" || *clients < 1 || flag.NArg() > 0 {
		return errors.New("--url URL, --clients of at least 1, --transport udp or tcp")
	}

	out := json.NewEncoder(os.Stdout)
	version := runtime.Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "github.com/bluenviron/gortsplib/v5" {
				version = "gortsplib " + dep.Version + ", " + version
			}
		}
	}
	out.Encode(report{Event: "started", Version: version}) //nolint:errcheck // main notices by its input's end

	viewers := make([]*viewer, *clients)
	for i := range viewers {
		viewers[i] = &viewer{}
	}
	var failed atomic.Int64
	var firstError atomic.Value
	var started sync.WaitGroup
	begin := time.Now()
	for i, v := range viewers {
		due := begin.Add(*ramp * time.Duration(i) / time.Duration(*clients))
		started.Go(func() {
			time.Sleep(time.Until(due))
			if err := v.play(*url, protocol); err != nil {
				failed.Add(1)
				firstError.CompareAndSwap(nil, err.Error())
			}
		})
	}

	lines := make(chan struct{})
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(os.Stdin); scanner.Scan(); {
			lines <- struct{}{}
		}
	}()
	ready := time.NewTicker(20 * time.Millisecond)
	defer ready.Stop()
	for open := true; open; {
		select {
		case <-ready.C:
			if r := counts("playing", viewers, failed.Load()); r.Playing+int(r.Failed) >= *clients {
				ready.Stop()
				r.Error, _ = firstError.Load().(string)
				out.Encode(r) //nolint:errcheck
			}
		case _, open = <-lines:
			if open {
				out.Encode(counts("counts", viewers, failed.Load())) //nolint:errcheck
			}
		}
	}

	started.Wait()
	// A limited number at a time, because each waits for the server's answer.
	var closed sync.WaitGroup
	places := make(chan struct{}, 64)
	for _, v := range viewers {
		if v.client == nil {
			continue
		}
		places <- struct{}{}
		closed.Go(func() {
			v.client.Close()
			<-places
		})
	}
	closed.Wait()
	r := counts("done", viewers, failed.Load())
	r.Error, _ = firstError.Load().(string)
	return out.Encode(r)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gortsplib peer:", err)
		os.Exit(1)
	}
}
