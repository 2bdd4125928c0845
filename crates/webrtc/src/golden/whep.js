// Plays from a WHEP endpoint (draft-ietf-wish-whep).

async function join() {
  const peer = connection();
  peer.addTransceiver("video", { direction: "recvonly" });
  peer.addTransceiver("audio", { direction: "recvonly" });
  await peer.setLocalDescription(await peer.createOffer());
  await gathered(peer);
  const headers = { "Content-Type": "application/sdp" };
  if (plan.token) headers.Authorization = `Bearer ${plan.token}`;
  let answer;
  for (;;) {
    answer = await fetch(plan.url, { method: "POST", headers, body: peer.localDescription.sdp });
    // The stream may appear later, and a full server may have room again.
    if (answer.ok || ![404, 409, 503].includes(answer.status)) break;
    await pause(500);
  }
  const sdp = await answer.text();
  if (!answer.ok) throw new Error(`status ${answer.status} to the offer: ${sdp}`);
  const location = answer.headers.get("Location");
  await peer.setRemoteDescription({ type: "answer", sdp });
  return async () => {
    if (!location) return;
    delete headers["Content-Type"];
    await fetch(new URL(location, plan.url), { method: "DELETE", headers });
  };
}

main(join);
