"""A message server that is not streamgauge's: it echoes over TCP, TLS, WebSockets and Unix sockets, with nothing but Python's library.

Arguments: its kind (tcp, tls, ws, wss or unix), the file for its figures, which it writes on SIGTERM, and words of the form name=value:
  size=36       bytes of a message, unless a WebSocket delimits it
  late=0.05     delay of answers in seconds; answers that are pending when the client has closed its side are never sent
  pieces=1      a WebSocket's answers come in two frames, with a ping between them
  hostile=NAME  what a WebSocket sends instead of answers: masked, pings, endless or handshake
  cert=, key=   files for TLS
  path=         of the Unix socket
Its first line of output is the port that it listens on.
"""

import asyncio
import base64
import collections
import hashlib
import json
import signal
import ssl
import struct
import sys

KIND, REPORT = sys.argv[1], sys.argv[2]
WORDS = dict(word.split("=", 1) for word in sys.argv[3:])
SIZE, LATE = int(WORDS.get("size", "36")), float(WORDS.get("late", "0"))
HOSTILE = WORDS.get("hostile")
counts = collections.Counter()
codes = collections.Counter()


def frame(opcode, payload, fin=True, key=None):
    mask = 0x80 if key else 0
    head = bytes([(0x80 if fin else 0) | opcode])
    if len(payload) < 126:
        head += bytes([mask | len(payload)])
    else:
        head += bytes([mask | 126]) + struct.pack(">H", len(payload))
    return head + (key + bytes(byte ^ key[at % 4] for at, byte in enumerate(payload)) if key else payload)


async def plain(reader, writer):
    loop, had = asyncio.get_running_loop(), 0
    while data := await reader.read(65536):
        had += len(data)
        counts["messages"] += had // SIZE
        counts["bytes"] += len(data)
        had %= SIZE
        if LATE:
            loop.call_later(LATE, writer.write, data)
        else:
            writer.write(data)
            await writer.drain()


async def read_frame(reader):
    first, second = await reader.readexactly(2)
    length = second & 0x7F
    if length == 126:
        (length,) = struct.unpack(">H", await reader.readexactly(2))
    elif length == 127:
        (length,) = struct.unpack(">Q", await reader.readexactly(8))
    if not second & 0x80:
        raise ValueError("a client's frame has no mask")
    key = await reader.readexactly(4)
    payload = await reader.readexactly(length)
    return first, bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


async def websocket(reader, writer):
    request = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = [line.split(": ", 1) for line in request.split("\r\n")[1:] if line]
    key = next(value for name, value in lines if name.lower() == "sec-websocket-key")
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    if HOSTILE == "handshake":
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\n")
        while True:
            writer.write(b"X-More: and more\r\n" * 1000)
            await writer.drain()
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Accept: "
        + base64.b64encode(digest)
        + b"\r\n\r\n"
    )
    if HOSTILE == "endless":
        writer.write(frame(2, b"x" * 1000, fin=False))
        while True:
            writer.write(frame(0, b"x" * 1000, fin=False) * 100)
            await writer.drain()
    if HOSTILE == "pings":
        while True:
            writer.write(frame(9, b"p" * 125) * 100)
            await writer.drain()
    while True:
        first, payload = await read_frame(reader)
        opcode = first & 0x0F
        if opcode == 8:
            codes[struct.unpack(">H", payload[:2])[0] if payload else 1005] += 1
            writer.write(frame(8, payload))
            await writer.drain()
            return
        if opcode == 10:
            counts["pongs"] += 1
            continue
        counts["messages"] += 1
        counts["bytes"] += len(payload)
        if HOSTILE == "masked":
            writer.write(frame(opcode, payload, key=b"abcd"))
        elif "pieces" in WORDS:
            writer.write(frame(opcode, payload[:5], fin=False) + frame(9, b"there?") + frame(0, payload[5:]))
        else:
            writer.write(frame(opcode, payload))
        await writer.drain()


async def serve(reader, writer):
    counts["connections"] += 1
    try:
        await (websocket if KIND in ("ws", "wss") else plain)(reader, writer)
    except asyncio.IncompleteReadError:
        counts["cut"] += 1
    except (ConnectionError, ssl.SSLError):
        counts["broken"] += 1
    finally:
        # Closes at once, as many servers do: pending answers are never sent.
        writer.close()


async def main():
    secure = None
    if KIND in ("tls", "wss"):
        secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        secure.load_cert_chain(WORDS["cert"], WORDS["key"])
    if KIND == "unix":
        await asyncio.start_unix_server(serve, WORDS["path"])
        print(0, flush=True)
    else:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=secure)
        print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    with open(REPORT, "w") as out:
        json.dump({**counts, "codes": codes}, out)


asyncio.run(main())
