// Joins a room of the Janus VideoRoom plugin, or watches a mount point of the Streaming plugin.

const NO_SUCH_ROOM = 426;
const ROOM_EXISTS = 427;
const NO_SUCH_FEED = 428;
const NO_SUCH_MOUNTPOINT = 455;

// Returns the local description with those candidates that Janus can use: UDP, no IPv6 if the URL
// has an IPv4 address, and no loopback addresses. Janus logs a warning for any other candidate.
async function described(peer) {
  await gathered(peer);
  const isV4 = /^[0-9.]+$/.test(new URL(plan.url).hostname);
  const isOfUse = (line) => {
    if (!line.startsWith("a=candidate:")) return true;
    const [, , protocol, , address] = line.split(" ");
    const isOdd = address.endsWith(".local") || address.startsWith("127.") || address === "::1";
    return protocol.toLowerCase() === "udp" && !isOdd && !(isV4 && address.includes(":"));
  };
  const { type, sdp } = peer.localDescription;
  return { type, sdp: sdp.split("\r\n").filter(isOfUse).join("\r\n") };
}

class Refused extends Error {
  constructor(code, words) {
    super(`error ${code}: ${words}`);
    this.code = code;
  }
}

class Janus {
  constructor(socket) {
    this.socket = socket;
    this.session = null;
    this.last = 0;
    this.waiting = new Map();
    this.handles = new Map();
    socket.onmessage = ({ data }) => this.take(JSON.parse(data));
    socket.onclose = () => failed("the WebSocket was closed");
  }

  static async open(url) {
    const socket = new WebSocket(url, "janus-protocol");
    await new Promise((done, refused) => {
      socket.onopen = done;
      socket.onerror = () => refused(new Error("cannot open a WebSocket to the server"));
    });
    const janus = new Janus(socket);
    janus.session = (await janus.ask("create")).data.id;
    setInterval(() => janus.ask("keepalive").catch(() => {}), 25_000);
    return janus;
  }

  take(message) {
    const waits = this.waiting.get(message.transaction);
    const isFinal = message.janus !== "ack" || (waits && waits.ofAck);
    if (waits && isFinal) {
      this.waiting.delete(message.transaction);
      if (message.janus === "error") {
        waits.refused(new Refused(message.error.code, message.error.reason));
      } else {
        waits.done(message);
      }
      return;
    }
    if (message.janus === "timeout") failed("the session timed out");
    if (message.janus === "hangup") failed(`Janus hung up: ${message.reason}`);
    const heard = this.handles.get(message.sender);
    if (heard && message.janus === "event") {
      heard(message.plugindata.data, message.jsep);
    }
  }

  ask(what, more = {}) {
    this.last += 1;
    const transaction = String(this.last);
    const request = { janus: what, transaction, ...more };
    if (this.session !== null) request.session_id = this.session;
    if (plan.token) request.token = plan.token;
    if (plan.api_secret) request.apisecret = plan.api_secret;
    const ofAck = what === "keepalive";
    const answer = new Promise((done, refused) => {
      this.waiting.set(transaction, { done, refused, ofAck });
    });
    this.socket.send(JSON.stringify(request));
    return answer;
  }

  async attach(plugin, heard) {
    const id = (await this.ask("attach", { plugin })).data.id;
    this.handles.set(id, heard);
    return id;
  }

  // Sends a request to a plugin. Returns the plugin's data and session description.
  async say(handle, body, jsep) {
    const answer = await this.ask("message", { handle_id: handle, body, ...(jsep && { jsep }) });
    const data = answer.plugindata ? answer.plugindata.data : {};
    if (data.error_code) throw new Refused(data.error_code, data.error);
    return { data, jsep: answer.jsep };
  }

  async answer(handle, peer, jsep, body) {
    await peer.setRemoteDescription(jsep);
    await peer.setLocalDescription(await peer.createAnswer());
    await this.say(handle, body, await described(peer));
  }

  async leave() {
    await this.ask("destroy");
    this.socket.close();
  }
}

// Repeats a request while its object is missing, because it may be created later.
async function untilThere(missing, ask) {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (error.code !== missing) throw error;
      await pause(300);
    }
  }
}

async function watch(janus) {
  const handle = await janus.attach("janus.plugin.streaming", () => {});
  const pin = plan.pin ? { pin: plan.pin } : {};
  const wanted = { request: "watch", id: plan.mountpoint, ...pin };
  const { jsep } = await untilThere(NO_SUCH_MOUNTPOINT, () => janus.say(handle, wanted));
  await janus.answer(handle, connection(), jsep, { request: "start" });
  return () => janus.leave();
}

class Room {
  constructor(janus) {
    this.janus = janus;
    this.pin = plan.pin ? { pin: plan.pin } : {};
    // IDs of the publishers, and those among them that are not subscribed to yet.
    this.feeds = new Set();
    this.wanted = new Set();
    this.busy = false;
    this.subscriber = null;
  }

  async enter() {
    const heard = (data) => this.heard(data);
    this.participant = await this.janus.attach("janus.plugin.videoroom", heard);
    const say = (body) => this.janus.say(this.participant, body);
    if (plan.made) {
      const made = { ...plan.made, request: "create", room: plan.room };
      await say(made).catch((error) => {
        if (error.code !== ROOM_EXISTS) throw error;
      });
    }
    const entry = { request: "join", ptype: "publisher", room: plan.room, ...this.pin };
    const { data } = await untilThere(NO_SUCH_ROOM, () => say(entry));
    this.own = data.id;
    this.privateId = data.private_id;
    this.heard(data);
    if (plan.publish) await this.publish();
  }

  async publish() {
    const { width, height, rate, bitrate, audio } = plan.publish;
    const video = { width, height, frameRate: rate };
    const media = await navigator.mediaDevices.getUserMedia({ video, audio });
    const peer = connection();
    for (const track of media.getTracks()) {
      const limits = track.kind === "video" ? [{ maxBitrate: bitrate }] : undefined;
      peer.addTransceiver(track, { direction: "sendonly", sendEncodings: limits });
    }
    await peer.setLocalDescription(await peer.createOffer());
    const offer = await described(peer);
    const answer = await this.janus.say(this.participant, { request: "publish" }, offer);
    await peer.setRemoteDescription(answer.jsep);
    const refused = peer.getTransceivers().filter((one) => one.currentDirection === "inactive");
    for (const { sender } of refused) {
      note(`the room accepts no ${sender.track.kind} that this browser can send`);
    }
  }

  heard(data) {
    for (const { id } of data.publishers || []) {
      if (id === this.own || this.feeds.has(id)) continue;
      this.feeds.add(id);
      this.wanted.add(id);
    }
    for (const gone of [data.unpublished, data.leaving]) {
      this.feeds.delete(gone);
      this.wanted.delete(gone);
    }
    if (data.videoroom === "destroyed") failed("the room was destroyed");
    if (plan.receive) this.subscribe().catch(failed);
  }

  // Subscribes to all publishers over one PeerConnection, one renegotiation at a time.
  async subscribe() {
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.wanted.size > 0 || this.offered) {
        if (this.offered) {
          const jsep = this.offered;
          this.offered = null;
          await this.answer(jsep);
          continue;
        }
        const streams = [...this.wanted].map((feed) => ({ feed }));
        this.wanted.clear();
        const { jsep } = await this.ask(streams);
        if (jsep) await this.answer(jsep);
      }
    } finally {
      this.busy = false;
    }
  }

  async ask(streams) {
    try {
      if (this.subscriber !== null) {
        return await this.janus.say(this.subscriber, { request: "subscribe", streams });
      }
      const handle = await this.janus.attach("janus.plugin.videoroom", (_, jsep) => {
        if (!jsep) return;
        this.offered = jsep;
        this.subscribe().catch(failed);
      });
      const answer = await this.janus.say(handle, {
        request: "join", ptype: "subscriber", room: plan.room, private_id: this.privateId,
        streams, ...this.pin,
      });
      this.subscriber = handle;
      this.receiver = connection();
      return answer;
    } catch (error) {
      // One of the publishers has left: subscribes again to the others.
      if (error.code !== NO_SUCH_FEED) throw error;
      for (const { feed } of streams) if (this.feeds.has(feed)) this.wanted.add(feed);
      await pause(300);
      return {};
    }
  }

  answer(jsep) {
    return this.janus.answer(this.subscriber, this.receiver, jsep, { request: "start" });
  }

  async leave() {
    // Without other publishers, the room is destroyed, if the scenario has `room`.
    if (plan.made && this.feeds.size === 0) {
      const body = { request: "destroy", room: plan.room };
      await this.janus.say(this.participant, body).catch(() => {});
    }
    await this.janus.leave();
  }
}

async function join() {
  const janus = await Janus.open(plan.url);
  if (plan.mountpoint !== undefined) return watch(janus);
  const room = new Room(janus);
  await room.enter();
  return () => room.leave();
}

main(join);
