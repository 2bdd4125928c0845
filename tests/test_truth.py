#!/usr/bin/env python3
"""Tests truth.py with hand-written tables, whose figures were computed by hand too."""

import contextlib
import importlib.util
import io
import pathlib
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SPEC = importlib.util.spec_from_file_location("truth", HERE / "truth.py")
truth = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(truth)

PORT = 8554
CLIENT_PORT = 40000
SDP = ("v=0\r\ns=x\r\na=control:*\r\nm=audio 0 RTP/AVP 0\r\na=control:a\r\n"
       "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:v\r\n")
URL = f"rtsp://127.0.0.1:{PORT}/x"


def message(*lines, body=""):
    length = [f"Content-Length: {len(body)}"] if body else []
    return ("\r\n".join([*lines, *length]) + "\r\n\r\n" + body).encode()


def conversation(transport, rtp_info=""):
    """Requests and answers of DESCRIBE, SETUP of the video, PLAY."""
    info = [f"RTP-Info: {rtp_info}"] if rtp_info else []
    return [
        (message(f"DESCRIBE {URL} RTSP/1.0", "CSeq: 1"),
         message("RTSP/1.0 200 OK", "CSeq: 1", f"Content-Base: {URL}/", body=SDP)),
        (message(f"SETUP {URL}/v RTSP/1.0", "CSeq: 2", f"Transport: {transport}"),
         message("RTSP/1.0 200 OK", "CSeq: 2", f"Transport: {transport};ssrc=0000000A")),
        (message(f"PLAY {URL}/ RTSP/1.0", "CSeq: 3"),
         message("RTSP/1.0 200 OK", "CSeq: 3", *info)),
    ]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.frame = 0

    def table(self, name, fields, lines):
        with open(self.folder / name, "w", encoding="ascii") as out:
            out.write("\t".join(fields) + "\n")
            for line in lines:
                self.frame += 1
                values = {"frame.number": self.frame, "ip.src": "127.0.0.1",
                          "ip.dst": "127.0.0.1", **line}
                out.write("\t".join(str(values.get(field, "")) for field in fields) + "\n")

    def control(self, pairs, cut=None):
        """Writes a conversation as segments of `cut` bytes, or of one message each."""
        lines, place = [], {True: 1, False: 1}
        for index, pair in enumerate(pairs):
            for to_client, data in ((False, pair[0]), (True, pair[1])):
                size = cut or len(data)
                for start in range(0, len(data), size):
                    piece = data[start:start + size]
                    ports = (PORT, 50000) if to_client else (50000, PORT)
                    lines.append({
                        "frame.time_epoch": f"100.{index}", "tcp.stream": 0,
                        "tcp.srcport": ports[0], "tcp.dstport": ports[1],
                        "tcp.seq": place[to_client], "tcp.payload": piece.hex()})
                    place[to_client] += len(piece)
        self.table("control.tsv", truth.CONTROL_FIELDS, lines)

    def udp(self, packets, port=CLIENT_PORT):
        """Writes (time in ms, seq, timestamp) as datagrams."""
        self.table("media.tsv", truth.MEDIA_FIELDS, [
            {"frame.time_epoch": f"200.{ms:03}000000", "udp.srcport": 6000, "udp.dstport": port,
             "rtp.ssrc": "0x0000000a", "rtp.seq": seq, "rtp.timestamp": stamp, "rtp.p_type": 96}
            for ms, seq, stamp in packets])

    def counts(self):
        total = truth.count(self.folder, PORT)["total"]
        return {name: total[name] for name in
                ("expected", "received", "lost", "duplicated", "reordered", "late")}


class Udp(Case):
    def start(self, rtp_info=""):
        self.control(conversation(f"RTP/AVP;unicast;client_port={CLIENT_PORT}-40001", rtp_info))

    def test_loss_duplicates_and_reordering_over_a_wrap_around(self):
        self.start()
        sequence = [65533, 65535, 65534, 65534, 1, 0, 4]
        self.udp([(n, seq, 0) for n, seq in enumerate(sequence)])
        # 65533 .. 65535, 0 .. 4 are eight numbers; 2 and 3 never arrive; 65534 and 0 arrive late.
        self.assertEqual(self.counts(), {"expected": 8, "received": 6, "lost": 2,
                                         "duplicated": 1, "reordered": 2, "late": 0})

    def test_the_stated_first_number_tells_what_was_lost_before_the_first_packet(self):
        self.start(f"url={URL}/v;seq=65530;rtptime=1, url={URL}/a;seq=7")
        self.udp([(0, 3, 0), (1, 4, 0)])
        self.assertEqual(self.counts()["expected"], 11)
        self.assertEqual(self.counts()["lost"], 9)

    def test_a_stated_first_number_far_from_what_came_is_not_believed(self):
        self.start(f"url={URL}/v;seq=100")
        self.udp([(0, 3100, 0), (1, 3101, 0)])
        self.assertEqual(self.counts()["expected"], 2)

    def test_a_packet_below_the_stated_first_number_moves_it(self):
        self.start(f"url={URL}/v;seq=10")
        self.udp([(0, 9, 0), (1, 10, 0)])
        self.assertEqual(self.counts()["expected"], 2)
        self.assertEqual(self.counts()["lost"], 0)

    def test_too_old_is_late_and_not_a_duplicate(self):
        self.start()
        self.udp([(0, 0, 0), (1, 2047, 0), (2, 0, 0), (3, 2048, 0), (4, 0, 0)])
        self.assertEqual(self.counts(), {"expected": 2049, "received": 3, "lost": 2046,
                                         "duplicated": 1, "reordered": 0, "late": 1})

    def test_jitter(self):
        self.start()
        # One frame each 20 ms of 1800 steps; the arrivals are 20, 36, 20 (a copy: stamps equal,
        # 4 ms on) apart, so that D is 0, 16 and 4 ms.
        self.udp([(0, 1, 0xFFFFFFFF), (20, 2, 1799), (56, 3, 3599), (60, 3, 3599)])
        jitter = truth.count(self.folder, PORT)["total"]["jitter"]
        second, third = 0.016 / 16, 0.016 / 16 + (0.004 - 0.001) / 16
        self.assertAlmostEqual(jitter["mean"], (0 + second + third) / 3, places=9)
        self.assertAlmostEqual(jitter["max"], third, places=9)

    def test_what_nobody_asked_for_is_ignored(self):
        self.start()
        self.udp([(0, 1, 0)], port=CLIENT_PORT + 1)
        figures = truth.count(self.folder, PORT)
        self.assertEqual((figures["ignored"], figures["streams"]), (1, []))

    def test_a_conversation_cut_anywhere_reads_the_same(self):
        self.control(conversation(f"RTP/AVP;client_port={CLIENT_PORT}-40001",
                                  f"url={URL}/v;seq=1"), cut=7)
        self.udp([(0, 2, 0)])
        self.assertEqual(self.counts()["expected"], 2)


class Tcp(Case):
    def test_several_packets_a_frame_beside_rtcp(self):
        self.control(conversation("RTP/AVP/TCP;interleaved=2-3", f"url={URL}/v;seq=5"))
        self.table("media.tsv", truth.MEDIA_FIELDS, [
            {"frame.time_epoch": "200.0", "tcp.stream": 0, "tcp.srcport": PORT,
             "rtsp.channel": "0x02,0x03,0x02", "rtp.ssrc": "0x0000000a,0x0000000a",
             "rtp.seq": "5,7", "rtp.timestamp": "0,0", "rtp.p_type": "96,96"},
            {"frame.time_epoch": "200.1", "tcp.stream": 0, "tcp.srcport": PORT,
             "rtsp.channel": "0x02", "rtp.ssrc": "0x0000000a",
             "rtp.seq": "6", "rtp.timestamp": "0", "rtp.p_type": "96"}])
        self.assertEqual(self.counts(), {"expected": 3, "received": 3, "lost": 0,
                                         "duplicated": 0, "reordered": 1, "late": 0})

    def test_interleaved_frames_are_passed_over_in_the_conversation(self):
        pairs = conversation("RTP/AVP/TCP;interleaved=2-3", f"url={URL}/v;seq=5")
        pairs[2] = (pairs[2][0], b"$\x02\x00\x04RTSP" + pairs[2][1])
        self.control(pairs)
        _, by_channel = truth.receivers(self.folder / "control.tsv", PORT)
        self.assertEqual(by_channel[0, 2]["base"], 5)


class Compare(unittest.TestCase):
    TRUTH = {"total": {"expected": 10, "received": 9, "lost": 1, "duplicated": 0, "reordered": 2,
                       "jitter": {"mean": 0.001, "max": 0.002}}}

    def agrees(self, tolerance=0.01, **changed):
        metrics = {"expected": 10, "received": 9, "lost": 1, "duplicated": 0, "reordered": 2,
                   "jitter": {"mean": 0.001009}} | changed
        report = {"populations": {"viewers": {"metrics": metrics}}}
        with contextlib.redirect_stdout(io.StringIO()):
            return truth.compare(self.TRUTH, report, "viewers", tolerance)

    def test_equal_counts_and_jitter_within_a_hundredth_agree(self):
        self.assertTrue(self.agrees())

    def test_one_packet_more_does_not(self):
        for name in ("expected", "received", "lost", "duplicated", "reordered"):
            self.assertFalse(self.agrees(**{name: 5}), name)

    def test_jitter_off_by_more_does_not_unless_it_is_left_out(self):
        self.assertFalse(self.agrees(jitter={"mean": 0.00102}))
        self.assertFalse(self.agrees(jitter=None))
        self.assertTrue(self.agrees(tolerance=None, jitter=None))


if __name__ == "__main__":
    unittest.main()
