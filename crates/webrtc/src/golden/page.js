// Common part of all pages: waits for the start of the run, plays the received media, and posts the
// figures of getStats once a second. The page keeps the totals, because the statistics of a stream
// disappear with the stream.

const EVERY = 1000;
const COUNTS = [
  "packets_received", "packets_lost", "bytes_received", "frames_received", "frames_decoded",
  "frames_dropped", "key_frames_decoded", "freezes", "freeze_seconds", "received_samples",
  "concealed_samples", "nacks_sent", "plis_sent", "packets_sent", "bytes_sent", "frames_encoded",
  "reported_lost",
];
const INBOUND = {
  packets_received: "packetsReceived", packets_lost: "packetsLost",
  bytes_received: "bytesReceived", frames_received: "framesReceived",
  frames_decoded: "framesDecoded", frames_dropped: "framesDropped",
  key_frames_decoded: "keyFramesDecoded", freezes: "freezeCount",
  freeze_seconds: "totalFreezesDuration", concealed_samples: "concealedSamples",
  nacks_sent: "nackCount", plis_sent: "pliCount",
};
const OUTBOUND = {
  packets_sent: "packetsSent", bytes_sent: "bytesSent", frames_encoded: "framesEncoded",
};

const totals = Object.fromEntries(COUNTS.map((name) => [name, 0]));
const before = new Map();
const connections = new Set();
let numbered = 0;
let state = "waiting";
let text = "";
let leaving = false;
let begunAt = 0;
let firstMedia = null;
let number = 0;

const pause = (time) => new Promise((done) => setTimeout(done, time));

function failed(error) {
  // A hang-up is expected while leaving.
  if (leaving) return;
  state = "failed";
  text = String(error && error.message ? error.message : error);
}

function note(words) {
  if (state !== "failed") text = words;
}

// Creates a PeerConnection that is included in the figures.
function connection() {
  const ways = plan.turn ? { iceServers: [plan.turn], iceTransportPolicy: "relay" } : {};
  const peer = new RTCPeerConnection({ bundlePolicy: "max-bundle", ...ways });
  numbered += 1;
  peer.figuresKey = numbered;
  connections.add(peer);
  peer.ontrack = ({ track }) => show(track);
  peer.onconnectionstatechange = () => {
    if (peer.connectionState === "failed") failed("the PeerConnection failed");
  };
  return peer;
}

// Waits until the browser has gathered its candidates, at most 2 s.
async function gathered(peer) {
  if (peer.iceGatheringState === "complete") return;
  const all = new Promise((done) => {
    peer.onicegatheringstatechange = () => peer.iceGatheringState === "complete" && done();
  });
  await Promise.race([all, pause(2000)]);
}

// Plays a track, so that the browser decodes it as for a user.
function show(track) {
  const element = document.createElement(track.kind === "video" ? "video" : "audio");
  element.autoplay = true;
  element.playsInline = true;
  element.muted = track.kind === "video";
  element.srcObject = new MediaStream([track]);
  document.body.append(element);
  element.play().catch(() => {});
  track.onended = () => element.remove();
  track.onunmute = () => {
    state = state === "waiting" ? "playing" : state;
    if (firstMedia === null) firstMedia = (performance.now() - begunAt) / 1000;
  };
}

// Returns the growth of a count since the last call with this key.
function growth(key, value) {
  const grown = (value || 0) - (before.get(key) || 0);
  before.set(key, value || 0);
  return grown;
}

async function figures() {
  const found = { jitter: [], jitter_buffer_delay: [], decode_time: [], round_trip_time: [] };
  let streams = 0;
  for (const peer of connections) {
    let report;
    try { report = await peer.getStats(); } catch { continue; }
    for (const stat of report.values()) {
      const grow = (name) => growth(`${peer.figuresKey} ${stat.id} ${name}`, stat[name]);
      // A separate key, because the count may be part of the totals too.
      const mean = (into, time, count) => {
        const key = `${peer.figuresKey} ${stat.id} mean ${count}`;
        const [seconds, things] = [grow(time), growth(key, stat[count])];
        if (things > 0) into.push(seconds / things);
      };
      if (stat.type === "inbound-rtp") {
        let came = 0;
        for (const [own, theirs] of Object.entries(INBOUND)) {
          const grown = grow(theirs);
          totals[own] += grown;
          if (own === "packets_received") came = grown;
          if (own === "concealed_samples") totals.received_samples -= grown;
        }
        totals.received_samples += grow("totalSamplesReceived");
        mean(found.jitter_buffer_delay, "jitterBufferDelay", "jitterBufferEmittedCount");
        mean(found.decode_time, "totalDecodeTime", "framesDecoded");
        if (came > 0) {
          streams += 1;
          if (typeof stat.jitter === "number") found.jitter.push(stat.jitter);
        }
      } else if (stat.type === "outbound-rtp") {
        for (const [own, theirs] of Object.entries(OUTBOUND)) totals[own] += grow(theirs);
      } else if (stat.type === "remote-inbound-rtp") {
        totals.reported_lost += grow("packetsLost");
      } else if (stat.type === "candidate-pair" && stat.nominated
          && stat.state === "succeeded" && typeof stat.currentRoundTripTime === "number") {
        found.round_trip_time.push(stat.currentRoundTripTime);
      }
    }
  }
  if (state === "waiting" && totals.packets_sent > 0) state = "playing";
  number += 1;
  return { number, state, text, first_media: firstMedia, streams, totals, ...found };
}

async function post() {
  const body = JSON.stringify(await figures());
  const answer = await fetch("figures", { method: "POST", body });
  text = state === "failed" ? text : "";
  return answer.text();
}

async function main(join) {
  for (;;) {
    const word = await (await fetch("word")).text();
    if (word !== "wait") break;
    await pause(100);
  }
  begunAt = performance.now();
  let leave = null;
  join().then((how) => { leave = how; }, failed);
  for (let next = begunAt + EVERY; ; next += EVERY) {
    await pause(Math.max(0, next - performance.now()));
    const word = await post().catch(() => "");
    if (word === "leave") break;
  }
  leaving = true;
  if (leave) await Promise.race([leave().catch(() => {}), pause(2000)]);
  // getStats repeats its last result for a short time.
  await pause(100);
  if (state !== "failed") state = "left";
  await post().catch(() => {});
  for (const peer of connections) peer.close();
}
